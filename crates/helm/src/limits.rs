//! How much a record may cost to read.

use crate::yaml::YamlError;

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
    /// Bytes of text of one manifest's values, counted each time an alias repeats them: few nodes can repeat a long text.
    pub text_bytes: usize,
    /// Levels of nesting in a document. Readers of the live object stop at the same depth (`serde_json` at 128),
    /// so a deeper document could never be compared.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { encoded_bytes: 3 << 19, json_bytes: 32 << 20, documents: 50_000, nodes: 1_000_000, text_bytes: 64 << 20, depth: 120 }
    }
}

/// What is left of the limits of one manifest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    nodes: usize,
    text_bytes: usize,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { nodes: limits.nodes, text_bytes: limits.text_bytes }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    pub(crate) fn take_nodes(&mut self, nodes: usize) -> Result<(), YamlError> {
        self.nodes = self.nodes.checked_sub(nodes).ok_or(YamlError::TooManyNodes)?;
        Ok(())
    }

    pub(crate) fn take_text(&mut self, text: &str) -> Result<(), YamlError> {
        self.text_bytes = self.text_bytes.checked_sub(text.len()).ok_or(YamlError::TooMuchText)?;
        Ok(())
    }
}
