//! Declared objects as they are made comparable: the same however often, and nothing that a server never returns is left.

use std::sync::Arc;

use anyhow::{Result, ensure};
use holdfast_engine::{
    canonical::{Digest, canonical},
    normalise::{Release, as_written, is_owned_otherwise, normalise},
    object::{Gvk, ObjectKey},
};
use serde_json::Value;

use crate::{Target, cost::within};

/// One object as JSON; its own `apiVersion` and `kind` decide how it is read.
pub const TARGET: Target = Target {
    name: "normalise",
    seeds,
    words: &[
        r#""stringData":{"a":"b"}"#,
        r#""stringData":5"#,
        r#""data":{"a":"Yg=="}"#,
        r#""data":[]"#,
        r#""rules":[]"#,
        r#""aggregationRule":{}"#,
        r#""aggregationRule":null"#,
        r#""metadata":null"#,
        r#""metadata":{"labels":5}"#,
        r#""annotations":[]"#,
        r#""creationTimestamp":null"#,
        r#""status":{}"#,
        r#""kind":"Secret""#,
        r#""kind":"ClusterRole""#,
        r#""apiVersion":"v1""#,
        r#""apiVersion":"rbac.authorization.k8s.io/v1""#,
        r#""apiVersion":"a.b/v1""#,
        "null",
        "{}",
        "[]",
        "[null]",
        "\"\"",
        "1e400",
    ],
    check,
};

fn seeds() -> Vec<Vec<u8>> {
    [
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","labels":{"a":"b"},"creationTimestamp":null},"data":{"p":"b2xk"},"stringData":{"p":"new","q":null},"type":"Opaque"}"#,
        r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"r","namespace":"x"},"aggregationRule":{"clusterRoleSelectors":[{}]},"rules":[]}"#,
        r#"{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"name":"w","annotations":{"meta.helm.sh/release-name":"other"}},"spec":{"a":null,"b":[{"c":null,"d":1}],"e":""},"status":{"ready":true}}"#,
        r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","uid":"u","resourceVersion":"1","generation":1,"managedFields":[]},"spec":{"replicas":2,"paused":null}}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn check(input: &[u8]) -> Result<()> {
    let Ok(object) = serde_json::from_slice::<Value>(input) else { return Ok(()) };
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let gvk = Arc::new(Gvk::new(text("apiVersion"), text("kind")));
    let release = Release { namespace: "r".into(), name: "rel".into() };
    for (namespace, release) in [(Some("t"), Some(&release)), (None, Some(&release)), (Some("t"), None)] {
        let key = ObjectKey::new(Arc::clone(&gvk), namespace, "x");
        let copy = object.clone();
        // Base64 and a copy of what there is.
        let once = within(400 * input.len() + 16_384, || normalise(copy, &key, release))?;
        ensure!(normalise(once.clone(), &key, release) == once, "the second time it comes out differently");
        ensure!(!is_owned_otherwise(&once, &key) || once.get("stringData") == object.get("stringData"), "stringData is left half folded");
        ensure!(once.get("status").is_none() || !once.is_object(), "a status is left");
        let written = as_written(object.clone(), &key, release);
        ensure!(as_written(written.clone(), &key, release) == written, "written a second time it comes out differently");
        ensure!(normalise(written, &key, release) == once, "by way of what is written it comes out differently");
        if let (Some(release), true) = (release, once.is_object()) {
            ensure!(release.owns(&once) && !release.is_owned_by_another(&once), "it does not carry its release's metadata");
        }
        let bytes = canonical(&once);
        ensure!(serde_json::from_slice::<Value>(&bytes).is_ok_and(|again| again == once), "its canonical text is another object");
        ensure!(Digest::of_bytes(&bytes) == Digest::of(&once), "its digest is not that of its canonical text");
    }
    Ok(())
}
