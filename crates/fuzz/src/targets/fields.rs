//! `fieldsV1`: what a set owns, and whether a write to another touches it. The input has one set a line.

use anyhow::{Result, ensure};
use holdfast_engine::{
    meets::meets,
    owned::OwnedSet,
    path::{Path, Pattern, Segment},
};
use serde_json::{Value, value::RawValue};

use crate::{Target, cost::within};

/// Sets read as a tree and from their text.
pub const TARGET: Target = Target {
    name: "fields",
    seeds,
    words: &[
        r#""f:spec":{}"#,
        r#""f:metadata":{"f:labels":{"f:app":{}}}"#,
        r#"".":{}"#,
        r#""k:{\"name\":\"a\"}":{".":{},"f:image":{}}"#,
        r#""k:{\"port\":80,\"protocol\":\"TCP\"}":{}"#,
        r#""v:\"x\"":{}"#,
        r#""v:5":{}"#,
        r#""i:0":{}"#,
        r#""f:":{}"#,
        r#""f:a~b/c*]":{}"#,
        "{}",
        "[]",
        "null",
        "5",
        ",",
        "f:",
        "k:",
        "v:",
        "\\\"",
        "\\u0066",
        "1.0",
        "1e400",
    ],
    check,
};

fn seeds() -> Vec<Vec<u8>> {
    [
        r#"{"f:metadata":{"f:finalizers":{".":{},"v:\"a\"":{}},"f:labels":{"f:app":{}}},"f:spec":{"f:replicas":{},"f:selector":{}}}
{"f:spec":{"f:replicas":{}}}"#,
        r#"{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}
{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{"f:tty":{}}}}}
{"f:status":{"f:phase":{}}}"#,
        r#"{"f:data":{".":{},"f:a":{}}}
{"f:data":{"f:b":{}}}
{"f:data":{}}
{}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn check(input: &[u8]) -> Result<()> {
    let Ok(text) = str::from_utf8(input) else { return Ok(()) };
    let sets: Vec<(&str, Option<Value>)> = text.lines().take(6).map(|line| (line, serde_json::from_str(line).ok())).collect();
    for (line, value) in &sets {
        let Some(value) = value else { continue };
        let owned = within(100 * line.len() + 4096, || OwnedSet::from_fields_v1(value))?;
        stands_for_itself(&owned)?;
        for (written, value) in &sets {
            let touched = within(6 * written.len() + 4096, || meets(&owned, written))?;
            let Some(value) = value else {
                // What is skipped may be nested deeper than a tree can be.
                let is_json = serde_json::from_str::<&RawValue>(written).is_ok();
                ensure!(touched || is_json, "text that cannot be read could hold anything");
                continue;
            };
            let other = OwnedSet::from_fields_v1(value);
            let expected = owned.intersects(&other);
            ensure!(touched || !expected || !is_known(value), "a write is overlooked");
            // In compact JSON with sorted keys every difference between two readings is a fault.
            let is_canonical = serde_json::to_string(value).is_ok_and(|canonical| canonical == *written);
            ensure!(touched == expected || !is_known(value) || !is_canonical, "the text touches, the tree does not");
            adds_up(&owned, &other)?;
        }
    }
    Ok(())
}

/// Whether every name is one of this format; the others the tree leaves out.
fn is_known(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| {
        fields.iter().all(|(name, below)| match name.as_str() {
            "." => below.as_object().is_some_and(serde_json::Map::is_empty),
            name => Segment::from_fields_v1(name).is_some() && is_known(below),
        })
    })
}

fn stands_for_itself(set: &OwnedSet) -> Result<()> {
    ensure!(OwnedSet::from_fields_v1(&set.to_fields_v1()) == *set, "written and read again it is another set");
    ensure!(set.covers(set) && (set.is_empty() || set.intersects(set)), "it does not cover itself");
    for path in set.paths() {
        ensure!(set.has(&path), "a path of the set is not in it");
        let printed = path.to_string();
        // A field that looks like a list item can only be named through its parent.
        if path.segments().len() <= 64 && !has_odd_field(&path) {
            ensure!(Pattern::parse(&printed).is_ok_and(|pattern| pattern.covers(&path)), "the printed path does not cover itself");
        }
    }
    Ok(())
}

fn has_odd_field(path: &Path) -> bool {
    path.segments().iter().any(|segment| matches!(segment, Segment::Field(name) if name.starts_with('[')))
}

fn adds_up(a: &OwnedSet, b: &OwnedSet) -> Result<()> {
    ensure!(a.intersects(b) == b.intersects(a), "touching is mutual");
    let mut both = a.clone();
    both.extend(b);
    ensure!(both.covers(a) && both.covers(b), "a sum covers its parts");
    let mut rest = both.clone();
    rest.subtract(b);
    ensure!(b.paths().iter().all(|path| !rest.has(path)), "what was taken away is still there");
    ensure!(rest.paths().iter().all(|path| a.has(path)), "taking away added something");
    rest.extend(b);
    ensure!(rest == both, "taken away and added again it is another set");
    Ok(())
}
