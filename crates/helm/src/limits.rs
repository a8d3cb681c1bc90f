//! How much a record may cost to read.

/// Caps on every stage between a Secret's bytes and its objects.
///
/// The defaults are above anything a cluster can store honestly: a Secret holds 1 MiB, and an API server refuses
/// objects of more than about 1.5 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the base64 text in the Secret's `release` key.
    pub encoded_bytes: usize,
    /// Bytes of the record's JSON after decompression.
    pub json_bytes: usize,
    /// Documents of one manifest, empty ones not counted.
    pub documents: usize,
    /// YAML nodes of one manifest, counted each time an alias repeats them.
    pub nodes: usize,
    /// Levels of nesting in a document. Readers of the live object stop at the same depth (`serde_json` at 128),
    /// so a deeper document could never be compared.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { encoded_bytes: 3 << 19, json_bytes: 32 << 20, documents: 50_000, nodes: 1_000_000, depth: 120 }
    }
}
