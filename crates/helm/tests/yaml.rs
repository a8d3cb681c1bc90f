//! Documents and values compared with what the Go libraries behind Helm made of the same text.
//!
//! The answers under `tests/yaml/` come from `k8s.io/apimachinery` 0.37.1 (the stream reader and the unstructured
//! decoder), `sigs.k8s.io/yaml` 1.6.0 and go-yaml 2.4.4, as Helm 4.3.1 links them. A text the reader refuses to split
//! was first stored the way Helm stores a rendered template.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of any test function")]

use holdfast_helm::{Limits, documents};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Case {
    name: String,
    manifest: String,
    documents: Vec<Answer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Value(Value),
    Error,
}

fn check(file: &str, text: &str) {
    let cases: Vec<Case> = serde_json::from_str(text).unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let ours: Vec<_> = documents(&case.manifest, &Limits::default()).map(|document| document.value).collect();
        let agrees = |(ours, theirs): (&Result<Value, _>, &Answer)| match (ours, theirs) {
            (Ok(ours), Answer::Value(theirs)) => ours == theirs,
            (Err(_), Answer::Error) => true,
            _ => false,
        };
        if ours.len() != case.documents.len() || !ours.iter().zip(&case.documents).all(agrees) {
            let theirs: Vec<_> = case
                .documents
                .iter()
                .map(|answer| if let Answer::Value(value) = answer { value.to_string() } else { "error".to_owned() })
                .collect();
            wrong.push(format!("{}: {:?}\n   ours   {ours:?}\n   theirs {theirs:?}", case.name, case.manifest));
        }
    }
    assert!(wrong.is_empty(), "{file}: {} of {} differ\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn scalars() {
    check("scalars", include_str!("yaml/scalars.json"));
}

#[test]
fn keys() {
    check("keys", include_str!("yaml/keys.json"));
}

#[test]
fn structure() {
    check("structure", include_str!("yaml/structure.json"));
}

#[test]
fn streams() {
    check("streams", include_str!("yaml/streams.json"));
}
