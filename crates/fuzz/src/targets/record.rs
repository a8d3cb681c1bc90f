//! Release records: damaged on every layer, they cost no more than the limits allow and are read as what they are.

use std::io::Write;

use anyhow::{Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::GzEncoder};
use holdfast_helm::{Limits, Record, RecordError, decode};
use serde_json::{Value, json};

use crate::{Target, cost::within};

/// Records as JSON, compressed, and as base64: an input is tried as each of the three.
pub const TARGET: Target = Target {
    name: "record",
    seeds,
    words: &[
        "\"manifest\":\"x\"",
        "\"manifest\":null",
        "\"version\":-1",
        "\"version\":18446744073709551616",
        "\"version\":1.0",
        "\"hooks\":[{}]",
        "\"info\":null",
        "\"status\":\"deployed\"",
        "\"status\":\"DEPLOYED\"",
        "\"last_deployed\":\"0000-00-00T00:00:00Z\"",
        "\"last_deployed\":\"9999-12-31T23:59:59.999999999+25:00\"",
        "null",
        "true",
        "[]",
        "{}",
        "\"\"",
        "\\u0000",
        "\\ud800",
        "\u{1f}\u{8b}\u{8}",
        "H4sI",
        "=",
        "==",
        "\r\n",
        " ",
        "1e999",
    ],
    check,
};

/// Small, so that a bomb of the size that fuzzing makes goes off.
const LIMITS: Limits =
    Limits { encoded_bytes: 300 * 1024, json_bytes: 256 * 1024, documents: 1000, nodes: 10_000, text_bytes: 1 << 20, depth: 120 };

/// The text, the compressed bytes, the JSON, and what the decoder allocates for its window.
const HELD: usize = 300 * 1024 + 3 * 256 * 1024 + 128 * 1024;

fn body() -> Value {
    json!({
        "name": "web", "namespace": "shop", "version": 3,
        "info": {"first_deployed": "2025-01-02T03:04:05.678901234+02:00", "last_deployed": "2025-02-02T03:04:05Z", "deleted": "",
                 "description": "Upgrade complete", "status": "deployed", "notes": "fuzzed-secret"},
        "chart": {"metadata": {"name": "web", "version": "1.2.3"}, "templates": [{"name": "t", "data": "e30="}], "values": {"a": [1, {}]}},
        "config": {"password": "fuzzed-secret"},
        "manifest": "---\nkind: Secret\nstringData:\n  p: fuzzed-secret\n",
        "hooks": [],
        "apply_method": "ssa",
    })
}

fn seeds() -> Vec<Vec<u8>> {
    let json = body().to_string().into_bytes();
    let compressed = gzip(&json).unwrap_or_default();
    let encoded = BASE64_STANDARD.encode(&compressed).into_bytes();
    let hooks_only = json!({"name": "h", "namespace": "n", "version": 1, "info": {"status": "superseded"}, "hooks": [{}]});
    let bomb = gzip(&vec![b' '; 1 << 20]).unwrap_or_default();
    vec![json, compressed, encoded, hooks_only.to_string().into_bytes(), bomb]
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

fn check(input: &[u8]) -> Result<()> {
    let read = |stored: &[u8]| within(HELD, || decode(stored, &LIMITS));
    let as_text = read(input)?;
    looks_right(&as_text)?;
    let as_base64 = read(BASE64_STANDARD.encode(input).as_bytes())?;
    looks_right(&as_base64)?;
    let compressed = read(BASE64_STANDARD.encode(gzip(input)?).as_bytes())?;
    looks_right(&compressed)?;

    // A JSON text means the same compressed or not, and what a generic reader finds in it.
    if !input.is_empty() && !input.starts_with(&[0x1f, 0x8b, 0x08]) && input.len() <= LIMITS.encoded_bytes / 2 {
        ensure!(as_base64 == compressed, "compression changes what a record says");
    }
    // What a record does not need is skipped, and may be text that a tree cannot hold.
    match (&compressed, serde_json::from_slice(input)) {
        (Ok(record), Ok(json)) => agrees(record, &json),
        _ => Ok(()),
    }
}

fn looks_right(outcome: &Result<Record, RecordError>) -> Result<()> {
    let shown = match outcome {
        Ok(record) => {
            ensure!(!record.name.is_empty() && !record.namespace.is_empty() && record.version > 0, "a record of nothing");
            ensure!(record.manifest.len() <= LIMITS.json_bytes, "a manifest beyond the limit");
            format!("{record:?}")
        }
        Err(error) => format!("{error} {error:?} {}", error.reason()),
    };
    ensure!(!shown.contains("fuzzed-secret") || names_it(outcome), "content is shown");
    Ok(())
}

/// A mutation may copy the secret into the name, which is shown.
fn names_it(outcome: &Result<Record, RecordError>) -> bool {
    outcome.as_ref().is_ok_and(|record| record.name.contains("fuzzed-secret") || record.namespace.contains("fuzzed-secret"))
}

fn agrees(record: &Record, json: &Value) -> Result<()> {
    let text = |pointer: &str| json.pointer(pointer).and_then(Value::as_str);
    ensure!(text("/name") == Some(&record.name) && text("/namespace") == Some(&record.namespace), "another release");
    ensure!(json.get("version").and_then(Value::as_u64) == Some(record.version), "another revision");
    ensure!(text("/manifest").unwrap_or_default() == record.manifest, "another manifest");
    Ok(())
}
