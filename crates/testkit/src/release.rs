//! Helm release records made by hand, also broken ones.

use std::io::Write;

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder},
};
use serde_json::{Value, json};

use crate::{control_plane::ControlPlane, target::Target};

/// Where the record of a revision is.
pub fn target(namespace: &str, release: &str, revision: u32) -> Target {
    Target::secret(namespace, &format!("sh.helm.release.v1.{release}.v{revision}"))
}

/// The Secret of one revision. `extra` is merged into the record's JSON and wins, level by level, as a JSON merge patch: for example
/// `{"apply_method": "ssa"}`, or `{"manifest": null}` to leave the manifest out.
pub fn secret(release: &str, namespace: &str, revision: u32, status: &str, manifest: &str, extra: &Value) -> Result<Value> {
    let mut record = json!({
        "name": release,
        "namespace": namespace,
        "version": revision,
        "info": {
            "first_deployed": "2026-01-01T00:00:00Z",
            "last_deployed": "2026-01-01T00:00:00Z",
            "status": status,
            "description": "made by hand",
        },
        "chart": {"metadata": {"name": release, "version": "0.1.0", "apiVersion": "v2"}},
        "manifest": manifest,
    });
    merge(&mut record, extra);
    Ok(secret_of_bytes(release, namespace, revision, status, &encode(&record)?))
}

/// The same with any bytes as `data.release`: what Helm calls the encoded record.
pub fn secret_of_bytes(release: &str, namespace: &str, revision: u32, status: &str, bytes: &[u8]) -> Value {
    let target = target(namespace, release, revision);
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": target.name,
            "namespace": namespace,
            "labels": {"owner": "helm", "name": release, "status": status, "version": revision.to_string()},
        },
        "type": "helm.sh/release.v1",
        "data": {"release": BASE64_STANDARD.encode(bytes)},
    })
}

/// The ConfigMap in which Helm's other driver (`HELM_DRIVER=configmap`) keeps the record of such a Secret.
pub fn configmap_of(secret: &Value) -> Result<Value> {
    let encoded = secret.pointer("/data/release").and_then(Value::as_str).context("a release Secret without data")?;
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded)?)?;
    let metadata = secret.get("metadata").context("a release Secret without metadata")?;
    Ok(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"release": text}}))
}

/// Encodes a record as Helm does: JSON, gzip, base64.
pub fn encode(record: &Value) -> Result<Vec<u8>> {
    Ok(BASE64_STANDARD.encode(gzip(&serde_json::to_vec(record)?)?).into_bytes())
}

/// Compresses as Helm does.
pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(bytes).context("compressing")?;
    gzip.finish().context("compressing")
}

/// Compressed data that grows to this many MiB of blanks: a thousandth of that as stored. Its checksum is wrong, which shows only to
/// whoever reads it to its end.
pub fn bomb(mib: usize) -> Result<Vec<u8>> {
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::best());
    deflate.write_all(&vec![b' '; 1 << 20]).context("compressing")?;
    // Ends on a byte, so that the piece can be repeated.
    deflate.flush().context("compressing")?;
    let piece = deflate.get_ref();
    let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let last_block_and_trailer = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    Ok([&header[..], &piece.repeat(mib), &last_block_and_trailer].concat())
}

impl ControlPlane {
    /// Creates the Secret or ConfigMap of a revision, or replaces it, as the Helms' record drivers would.
    pub async fn put_release(&self, record: &Value) -> Result<Value> {
        let field = |pointer: &str| record.pointer(pointer).and_then(Value::as_str).context("a release record without a name");
        let (namespace, name) = (field("/metadata/namespace")?, field("/metadata/name")?);
        let is_secret = record.get("kind").is_some_and(|kind| kind == "Secret");
        let target = if is_secret { Target::secret(namespace, name) } else { Target::configmap(namespace, name) };
        let helm = self.writer("Helm")?;
        if helm.find(&target).await?.is_none() {
            return helm.create(&target, record).await;
        }
        helm.update(&target, |live| merge(live, record)).await
    }
}

/// JSON merge patch.
fn merge(base: &mut Value, patch: &Value) {
    let (Value::Object(base), Value::Object(patch)) = (&mut *base, patch) else {
        *base = patch.clone();
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            base.remove(key);
        } else {
            merge(base.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
