//! What two objects have at the paths of a set, and the judgement that follows. The input has the set, a live object and a declared one,
//! a line each.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use holdfast_engine::{
    judge::{Answered, judge},
    owned::OwnedSet,
    path::{Path, Pattern, Segment},
    project::{self, Found},
};
use serde_json::{Value, json};

use crate::{Target, cost::within};

/// Lookups, digests, differences and orders of owned paths.
pub const TARGET: Target = Target {
    name: "projection",
    seeds,
    words: &[
        r#""f:a":{}"#,
        r#""f:env":{"k:{\"name\":\"A\"}":{".":{},"f:value":{}}}"#,
        r#"".":{}"#,
        r#""v:\"x\"":{}"#,
        r#""v:5":{}"#,
        r#""k:{\"port\":80,\"protocol\":\"TCP\"}":{}"#,
        r#"{"name":"A","value":"1"}"#,
        r#"{"name":"A"}"#,
        r#"{"port":80}"#,
        r#"{"port":80,"protocol":"TCP"}"#,
        r#""x""#,
        r#""a":{}"#,
        r#""a":[]"#,
        r#""env":[]"#,
        "80",
        "\"80\"",
        "null",
        "{}",
        "[]",
        "\n",
        ",",
    ],
    check,
};

fn seeds() -> Vec<Vec<u8>> {
    [
        r#"{"f:spec":{"f:replicas":{},"f:selector":{},"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"B\"}":{".":{},"f:name":{}}}}}
{"spec":{"replicas":2,"selector":{"a":"b"},"env":[{"name":"B"},{"name":"A","value":"1"},{"name":"X"}]},"status":{}}
{"spec":{"replicas":3,"selector":{"a":"b"},"env":[{"name":"A","value":"1"},{"name":"B"}]}}"#,
        r#"{"f:metadata":{"f:finalizers":{".":{},"v:\"x\"":{}}},"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:targetPort":{}}},"f:data":{"f:k":{}}}
{"metadata":{"finalizers":["x","y"]},"ports":[{"port":80,"protocol":"TCP","targetPort":8080}],"data":{"k":"80"}}
{"metadata":{"finalizers":["x"]},"ports":[{"port":80,"protocol":"TCP","targetPort":8081}],"data":{"k":80}}"#,
        r#"{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:targetPort":{}}}}
{"ports":[{"port":80,"protocol":"TCP","targetPort":8080}]}
{"ports":[{"port":80,"targetPort":8080}]}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// A path of every level for every leaf: with the depth that JSON may have this is what a set may cost.
const LEVELS: usize = 128;

fn check(input: &[u8]) -> Result<()> {
    let Ok(text) = str::from_utf8(input) else { return Ok(()) };
    let mut lines = text.lines().map(serde_json::from_str::<Value>);
    let (Some(Ok(fields)), Some(Ok(live)), Some(Ok(declared))) = (lines.next(), lines.next(), lines.next()) else { return Ok(()) };
    let owned = OwnedSet::from_fields_v1(&fields);
    let leaves = within(96 * LEVELS * input.len().min(20_000) + 65_536, || project::leaves(&owned, &live))?;
    for leaf in &leaves {
        ensure!(owned.has(&leaf.path), "a leaf that is not owned");
        ensure!(project::find(&live, &leaf.path).same(leaf.found), "looked up alone something else stands there");
        covered(&leaf.path)?;
    }
    let digest = |object: &Value| project::digest(&project::leaves(&owned, object));
    let again: Value = serde_json::from_str(&live.to_string())?;
    ensure!(digest(&again) == digest(&live), "read again it has another digest");
    // An item of a declared object may leave out the keys that a server fills in, so it is found where one of a live object is not.
    let keys = key_names(&owned);
    // Items that share a key are never as declared, not even as each other.
    let is_plain = |object: &Value| {
        has_keys(object, &keys) && project::leaves(&owned, object).iter().all(|leaf| !matches!(leaf.found, Found::Duplicate))
    };
    if !(is_plain(&live) && is_plain(&declared)) {
        return Ok(());
    }
    ensure!(project::differences(&owned, &live, &live).is_empty(), "it differs from itself");

    let is_alike = |a: &Value, b: &Value| project::differences(&owned, a, b).is_empty();
    let alike = is_alike(&live, &declared);
    ensure!(alike == is_alike(&declared, &live), "one differs from the other, and not the other way round");
    let is_same = digest(&live) == digest(&declared);
    ensure!(!is_same || alike, "a difference that the digest does not show");
    let orders = |object: &Value| project::orders(&owned, object);
    ensure!(is_same || !alike || orders(&live) != orders(&declared), "a digest that differs without a difference");
    judged(&fields, &live, &declared)
}

/// The names of all keys by which the set tells list items apart.
fn key_names(owned: &OwnedSet) -> BTreeSet<String> {
    let keys = |segment: &Segment| match segment {
        Segment::Key(keys) => keys.iter().map(|(name, _)| name.to_string()).collect(),
        _ => Vec::new(),
    };
    owned.paths().iter().flat_map(|path| path.segments().iter().flat_map(keys).collect::<Vec<_>>()).collect()
}

/// Whether every list item that is an object has these keys.
fn has_keys(value: &Value, keys: &BTreeSet<String>) -> bool {
    match value {
        Value::Array(items) => items
            .iter()
            .all(|item| item.as_object().is_none_or(|item| keys.iter().all(|key| item.contains_key(key))) && has_keys(item, keys)),
        Value::Object(members) => members.values().all(|member| has_keys(member, keys)),
        _ => true,
    }
}

/// What a rule about a path means for this path and those above it.
fn covered(path: &Path) -> Result<()> {
    let printed = path.to_string();
    let Ok(pattern) = Pattern::parse(&printed) else { return Ok(()) };
    if pattern.covers(path) {
        ensure!(path.segments().is_empty() || !pattern.covers(&path.parent()), "{printed} covers what is above it");
        let mut below = path.clone();
        below.push(Segment::field("x"));
        ensure!(pattern.covers(&below), "{printed} does not cover what is below it");
    }
    let any = "/*".repeat(path.segments().len());
    ensure!(Pattern::parse(&any).is_ok_and(|pattern| pattern.covers(path)), "{any} does not cover {printed}");
    ensure!(!Pattern::parse(&format!("{any}/*")).is_ok_and(|pattern| pattern.covers(path)), "{any}/* covers {printed}");
    Ok(())
}

fn judged(fields: &Value, live: &Value, declared: &Value) -> Result<()> {
    let mut answer = declared.clone();
    let Some(members) = answer.as_object_mut() else { return Ok(()) };
    members.insert("metadata".into(), json!({"managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": fields}]}));
    let answered = Answered { object: &answer, manager: "m" };
    let (Some(of_live), Some(of_answer)) = (judge(declared, live, &answered), judge(declared, &answer, &answered)) else {
        anyhow::bail!("the answer to the very request is not taken for one");
    };
    ensure!(of_live.still_holds(live) && of_answer.still_holds(&answer), "what was judged does not hold right afterwards");
    ensure!(of_answer.is_in_sync(), "what the server made of it is drift");
    ensure!(of_live.is_in_sync() || !of_answer.still_holds(live), "drift that the digest does not show");
    Ok(())
}
