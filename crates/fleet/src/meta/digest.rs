//! A short digest of the metadata that can be drift.

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::Meta;

/// 128 bits over labels, annotations, finalizers, owner references and the deletion timestamp. The same in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MetaDigest([u8; 16]);

impl MetaDigest {
    /// A digest that [`MetaDigest::as_bytes`] gave.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The digest's bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Digests the parts of the metadata that a user or a controller can change and a release can own.
///
/// The raw text is digested as received. API servers write maps with sorted keys and no white space, so equal maps are equal text. A server
/// that did otherwise would only make equal metadata look changed, which costs one read and never hides a change.
pub fn meta_digest(meta: &Meta<'_>) -> MetaDigest {
    let mut hasher = Sha256::new();
    // Each part with its length, so that text cannot move from one part to the next unseen.
    let mut add = |part: &str| {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    };
    for part in [meta.labels, meta.annotations, meta.finalizers, meta.owner_references] {
        add(part.map_or("", RawValue::get));
    }
    add(meta.deletion_timestamp.as_deref().unwrap_or_default());
    let full: [u8; 32] = hasher.finalize().into();
    let mut short = [0; 16];
    for (to, from) in short.iter_mut().zip(full) {
        *to = from;
    }
    MetaDigest(short)
}
