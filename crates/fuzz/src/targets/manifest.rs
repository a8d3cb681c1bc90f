//! Manifests: no document is lost, none costs more than the limits allow, and JSON stays what it is.

use anyhow::{Result, ensure};
use holdfast_helm::{Document, Limits, documents};
use serde_json::Value;

use crate::{Target, cost::within};

/// The splitter and the YAML reader.
pub const TARGET: Target = Target {
    name: "manifest",
    seeds,
    words: &[
        "---",
        "\n---\n",
        "--- # note\n",
        "---\t",
        "...",
        "\n...\n",
        "&a ",
        "*a",
        "<<: *a",
        "? ",
        ": ",
        "- ",
        "| \n",
        "|2-\n",
        ">+\n",
        "'",
        "\"",
        "\\x41",
        "\\U0001F600",
        "!!binary ",
        "!!str ",
        "!!int ",
        "!<tag:yaml.org,2002:float> ",
        "%TAG ! tag:x,2000:\n",
        "%YAML 1.1\n",
        "0o7",
        "0777",
        "1_000",
        "1:30",
        "1e400",
        ".nan",
        "-.inf",
        "18446744073709551615",
        "yes",
        "~",
        "{",
        "}",
        "[",
        "]",
        ",",
        "#",
        "\t",
        "\r\n",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\u{7}",
        "    ",
    ],
    check,
};

/// Small, so that bombs of the size that fuzzing makes go off.
const LIMITS: Limits =
    Limits { encoded_bytes: 1 << 20, json_bytes: 1 << 20, documents: 300, nodes: 20_000, text_bytes: 1 << 20, depth: 60 };

fn seeds() -> Vec<Vec<u8>> {
    [
        "---\n# Source: web/templates/service.yaml\napiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  labels: {app: web, \"quoted\": 'yes'}\nspec:\n  ports:\n  - port: 80\n    name: http\n  - {port: 443, name: \"https\"}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  text: |-\n    first\n      second\n  folded: >\n    one\n    two\n",
        "base: &a\n  x: 1\n  y: [1, 2.5, 0x1f, 0755, ~]\nother:\n  <<: *a\n  z: *a\n",
        "{\"apiVersion\": \"v1\", \"items\": [1, 1.5, null, true, {\"a\": \"b\\n\\u00e9\"}]}\n{\"kind\": \"List\"}\n",
        "apiVersion: v1\r\nkind: Secret\r\nstringData:\r\n  a: 'it''s'\r\n---apiVersion: v1\r\nkind: X\r\n...\r\nnot read\r\n",
        "? key\n: value\n? [a]\n: b\n",
        &format!("long: &a {}\nlist:\n{}", "x".repeat(2000), "- *a\n".repeat(200)),
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn check(input: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(input);
    let all = read(&text)?;
    within_limits(&all)?;
    for document in &all {
        if let Ok(value) = &document.value {
            json_stays(value)?;
        }
    }
    nothing_is_lost(&text, &all)
}

/// A node of the tree takes about a hundred bytes however short its text; a value about as much again.
fn read(text: &str) -> Result<Vec<Document>> {
    within(400 * text.len().min(LIMITS.nodes * 2) + 8 * text.len() + 200 * LIMITS.nodes + 3 * LIMITS.text_bytes + 65_536, || {
        documents(text, &LIMITS).collect()
    })
}

fn within_limits(all: &[Document]) -> Result<()> {
    let (mut nodes, mut bytes) = (0, 0);
    for document in all {
        if let Ok(value) = &document.value {
            measure(value, LIMITS.depth + 1, &mut nodes, &mut bytes)?;
        }
    }
    ensure!(nodes <= LIMITS.nodes, "{nodes} nodes");
    ensure!(bytes <= LIMITS.text_bytes, "{bytes} bytes of text");
    ensure!(all.len() <= LIMITS.documents + 1, "{} documents", all.len());
    ensure!(all.windows(2).all(|pair| matches!(pair, [a, b] if a.number < b.number)), "documents out of order");
    Ok(())
}

fn measure(value: &Value, levels: usize, nodes: &mut usize, bytes: &mut usize) -> Result<()> {
    ensure!(levels > 0, "nested too deeply");
    *nodes += 1;
    match value {
        Value::String(text) => *bytes += text.len(),
        Value::Array(items) => items.iter().try_for_each(|item| measure(item, levels - 1, nodes, bytes))?,
        Value::Object(members) => {
            for (key, value) in members {
                *bytes += key.len();
                measure(value, levels - 1, nodes, bytes)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

/// What was read, printed as JSON and read again, alone and as YAML, is the same value.
fn json_stays(value: &Value) -> Result<()> {
    let printed = value.to_string();
    let again = read(&printed)?;
    if value.is_object() {
        ensure!(matches!(again.as_slice(), [one] if one.value.as_ref() == Ok(value)), "read as JSON again it is another value");
    }
    // Behind a separator Helm reads YAML. Characters that YAML refuses stay out of the comparison.
    let is_plain = |c: char| matches!(c, '\n' | ' '..='~');
    if printed.chars().all(is_plain) && !printed.contains("\\u") && !value.is_null() {
        let as_yaml = read(&format!("---\n{printed}\n"))?;
        let is_same = matches!(as_yaml.as_slice(), [one] if one.value.as_ref() == Ok(value));
        ensure!(is_same || as_yaml.iter().any(|one| one.value.is_err()), "read as YAML it is another value");
    }
    Ok(())
}

/// Between two documents that stand alone, a separator adds nothing and takes nothing away.
fn nothing_is_lost(text: &str, all: &[Document]) -> Result<()> {
    // At the very start of a manifest some things count otherwise: a brace, a byte order mark, a separator.
    let is_yaml = |text: &str| {
        !text.trim_start().starts_with('{')
            && text.starts_with(|first: char| first.is_ascii())
            && text.strip_prefix("---").is_none_or(|after| after.starts_with('\n'))
    };
    let total = |documents: &[Document]| documents.len() < LIMITS.documents / 4 && documents.iter().all(|one| one.value.is_ok());
    if !is_yaml(text) || !total(all) || text.len() > 50_000 {
        return Ok(());
    }
    let line_end = if text.ends_with('\n') { "" } else { "\n" };
    for separator in ["---\n", "---\n---\n", "--- # note\n", "---\r\n"] {
        let twice = read(&format!("{text}{line_end}{separator}{text}"))?;
        // The limits are for the whole manifest.
        if !total(&twice) {
            continue;
        }
        let values = |documents: &[Document]| documents.iter().map(|one| one.value.clone()).collect::<Vec<_>>();
        ensure!(values(&twice) == [values(all), values(all)].concat(), "{separator:?} between two manifests changes what they say");
    }
    Ok(())
}
