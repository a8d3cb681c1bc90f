//! What may leave the process: whatever a value is wrapped in, a word under a secret name does not. The input has a pointer, an object and
//! a kind, a line each.

use anyhow::{Result, ensure};
use holdfast_engine::{
    object::Gvk,
    path::{Path, Segment},
    redact,
};
use serde_json::Value;

use crate::{Target, cost::within};

/// Values and paths as reports and commands show them.
pub const TARGET: Target = Target {
    name: "redaction",
    seeds,
    words: &[
        "/spec/env/0/value",
        "/data/password",
        "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
        "~1",
        "~0",
        "/-",
        r#""password":"canary""#,
        r#""name":"DB_TOKEN""#,
        r#""value":"canary""#,
        r#"{"name":"A_SECRET","value":"canary"}"#,
        "postgres://u:canary@h",
        "-----BEGIN canary",
        "Secret",
        "v1",
        "null",
        "{}",
        "[]",
        "\n",
    ],
    check,
};

fn seeds() -> Vec<Vec<u8>> {
    [
        "/spec/env/0/value\n{\"spec\":{\"env\":[{\"name\":\"DB_TOKEN\",\"value\":\"canary\"},{\"name\":\"COLOR\",\"value\":\"red\"}]}}\nPod",
        "/data/a\n{\"data\":{\"a\":\"url=postgres://u:canary@h\",\"password\":\"canary\"}}\nConfigMap",
        "/data\n{\"data\":{\"a\":\"canary\"}}\nSealedSecret",
        "/metadata/annotations\n{\"metadata\":{\"annotations\":{\"kubectl.kubernetes.io/last-applied-configuration\":\"{canary}\"}}}\nWidget",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn check(input: &[u8]) -> Result<()> {
    let Ok(text) = str::from_utf8(input) else { return Ok(()) };
    let mut lines = text.lines();
    let (Some(pointer), Some(object)) = (lines.next(), lines.next()) else { return Ok(()) };
    let Ok(object) = serde_json::from_str::<Value>(object) else { return Ok(()) };
    let gvk = Gvk::new("v1", lines.next().unwrap_or_default());
    let value = object.pointer(pointer);
    let shown = within(64 * input.len() + 65_536, || redact::shown_at(&gvk, &object, pointer, value))?;
    ensure!(shown.as_ref().is_none_or(|shown| shown.to_string().len() <= redact::SHOWN + 2), "a long value is shown");
    let secret = Gvk::new("v1", "Secret");
    ensure!(redact::shown_at(&secret, &object, pointer, value).is_none(), "a value of a Secret is shown");
    // Wrapped under a telling name, nothing is shown however deep.
    if let Some(value) = value {
        let wrapped = serde_json::json!([{"a": {"x_password_y": {"b": [value]}}}]);
        let is_flag = value.is_boolean();
        ensure!(is_flag || redact::shown(&gvk, &Path::of_fields(&["spec"]), Some(&wrapped)).is_none(), "a wrapped secret is shown");
        let item = Path::of_fields(&["spec", "list"]).join(Segment::Item(value.clone()));
        let text = redact::path_text(&secret, &item);
        ensure!(text == "/spec/list/[=…]", "the item of a Secret's list is shown: {text}");
    }
    Ok(())
}
