//! What users write into policies: compiled as a whole or refused without repeating it.

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_api::{duration::Span, policy::DriftPolicySpec};
use holdfast_engine::path::{Path, Pattern};
use holdfast_hub::policy::{Glob, Policy, PolicyName};
use serde_json::Value;

use crate::{Target, cost::within};

/// A policy's spec as JSON; every text in it is also tried as a duration, a glob and a path.
pub const TARGET: Target = Target {
    name: "policy",
    seeds,
    words: &[
        "\"30s\"",
        "\"29s999ms\"",
        "\"1h1h\"",
        "\"0s\"",
        "\"99999999999999999999h\"",
        "\"5124095576030431h\"",
        "\"ms\"",
        "\"１s\"",
        "*",
        "?",
        "a*b*",
        "/",
        "~0",
        "~1",
        "~2",
        "[name=web]",
        "[=x]",
        "[#order]",
        "[b=1,a=2]",
        "\\\\",
        "\\\\]",
        "=",
        ",",
        "null",
        "-1",
        "4294967296",
        "{}",
        "[]",
        "\"Correct\"",
        "\"In\"",
        "\"Exists\"",
        "secret-of-a-policy",
    ],
    check,
};

fn seeds() -> Vec<Vec<u8>> {
    [
        r#"{"clusterSelector":{"matchLabels":{"tier":"prod"},"matchExpressions":[{"key":"example.com/env","operator":"NotIn","values":["a","b"]}]},"releases":[{"name":"web-*","namespace":"?hop","trust":"ClusterScoped"}],"mode":"Correct","interval":"1h30m","contest":{"rounds":3,"window":"30m"},"priority":5}"#,
        r#"{"clusterSelector":{},"ignore":[{"target":{"group":"apps","kind":"Deploy*","labelSelector":{"matchLabels":{"a":"b"}}},"paths":["/spec/template/spec/containers/[name=web]/image","/metadata/annotations/example.com~1owner","/spec/ports/[port=80,protocol=TCP]/nodePort","/a/*/[=secret-of-a-policy]"],"managers":["kube-*"],"reason":"secret-of-a-policy","until":"2030-01-01T00:00:00Z"}],"limit":{"correctionsPerMinute":60,"blastRadius":{"percent":30,"minObjects":20}},"onFailedRelease":"Report","suspend":false}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn check(input: &[u8]) -> Result<()> {
    let Ok(value) = serde_json::from_slice::<Value>(input) else { return Ok(()) };
    texts(&value)?;
    let Ok(spec) = serde_json::from_value::<DriftPolicySpec>(value) else { return Ok(()) };
    let outcome = within(200 * input.len() + 65_536, || Policy::compile(PolicyName::new("fleet", "p"), &spec, None))?;
    match outcome {
        Ok(_) => ensure!(spec.interval.0 >= Duration::from_secs(30), "an interval below the shortest"),
        Err(error) => ensure!(!format!("{error} {error:?}").contains("secret-of-a-policy"), "the error repeats the policy"),
    }
    Ok(())
}

fn texts(value: &Value) -> Result<()> {
    match value {
        Value::String(text) => one_text(text),
        Value::Array(items) => items.iter().try_for_each(texts),
        Value::Object(members) => members.iter().try_for_each(|(key, value)| one_text(key).and_then(|()| texts(value))),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn one_text(text: &str) -> Result<()> {
    if let Ok(span) = text.parse::<Span>() {
        ensure!(span.to_string().parse() == Ok(span), "{text} printed and read again is another duration");
    }
    if let Ok(glob) = Glob::parse(text) {
        for sample in [text, "", "web", "web-1", "aab", "kube-controller-manager", &"ab".repeat(60)] {
            ensure!(glob.matches(sample) == matches(text, sample), "{text} on {sample}");
        }
    }
    let path = within(64 * text.len() + 4096, || Pattern::parse(text))?;
    if let Ok(pattern) = path {
        ensure!(text.is_empty() || text.starts_with('/'), "{text} is no path");
        ensure!(pattern.covers(&Path::root()) == text.is_empty(), "only the empty path covers the whole object");
    }
    Ok(())
}

/// The textbook way: which lengths of the glob match which lengths of the text.
fn matches(glob: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut reached: Vec<bool> = std::iter::once(true).chain(text.iter().map(|_| false)).collect();
    for wanted in glob.chars() {
        let mut before = false;
        let mut any_before = false;
        for (at, here) in reached.iter_mut().enumerate() {
            any_before |= *here;
            let found = at.checked_sub(1).and_then(|at| text.get(at));
            let now = match wanted {
                '*' => any_before,
                '?' => before && found.is_some(),
                other => before && found == Some(&other),
            };
            before = std::mem::replace(here, now);
        }
    }
    reached.last() == Some(&true)
}
