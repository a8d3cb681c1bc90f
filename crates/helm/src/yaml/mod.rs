//! YAML as Helm reads it.
//!
//! Helm hands a manifest to `sigs.k8s.io/yaml`, which decodes with go-yaml 2, a YAML 1.1 reader with rules of its own
//! (`yes` is a boolean, `0644` is octal, merge keys overwrite, a flow collection may be indented anyhow), and turns the
//! result into JSON. A YAML 1.2 parser refuses some of what charts contain and reads some of it otherwise than what
//! stands on the cluster, so this module follows go-yaml all the way:
//!
//! text → `scanner` (tokens; scalars in `text`, anchors and tags in `property`) → `tree` (nodes) → `value` (aliases and
//! merges; plain scalars resolved by `scalar`, numbers by `number` to the JSON text that reached the API server).
//!
//! `tests/yaml/` holds the real answers it is compared with.

mod cursor;
mod number;
mod property;
mod scalar;
mod scanner;
mod text;
mod tree;
mod value;

use serde_json::Value;
use thiserror::Error;

pub(crate) use self::number::wire;
use crate::limits::{Budget, Limits};

/// Why a document cannot be read. No text of this type carries any of the document's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum YamlError {
    /// Not YAML.
    #[error("not valid YAML at line {line} of the document")]
    Syntax {
        /// Line within the document, from 1.
        line: usize,
    },
    /// A control character; go-yaml refuses all but tab and line breaks.
    #[error("a character that YAML 1.1 does not allow")]
    Character,
    /// Nested deeper than the limits allow, or an alias that contains itself.
    #[error("nested too deeply")]
    TooDeep,
    /// More nodes than the limits allow, or too many of them through aliases.
    #[error("too many nodes")]
    TooManyNodes,
    /// More text than the limits allow, because aliases repeat it.
    #[error("aliases repeat too much text")]
    TooMuchText,
    /// `<<` with something else than mappings.
    #[error("a merge key whose value is no mapping")]
    BadMerge,
    /// A mapping key that no JSON object can have.
    #[error("a mapping key that is no text")]
    BadKey,
    /// A value that does not fit its tag.
    #[error("a value that does not fit its tag")]
    BadTag,
    /// Infinity or not-a-number, which JSON does not have.
    #[error("a number that JSON cannot hold")]
    NotANumber,
    /// More documents than the limits allow; nothing after this one was read.
    #[error("too many documents")]
    TooManyDocuments,
}

impl YamlError {
    /// Stable word for logs and metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Syntax { .. } => "Syntax",
            Self::Character => "Character",
            Self::TooDeep => "TooDeep",
            Self::TooManyNodes => "TooManyNodes",
            Self::TooMuchText => "TooMuchText",
            Self::BadMerge => "BadMerge",
            Self::BadKey => "BadKey",
            Self::BadTag => "BadTag",
            Self::NotANumber => "NotANumber",
            Self::TooManyDocuments => "TooManyDocuments",
        }
    }
}

/// Reads the first document of `text`; what follows a `...` is not read, as go-yaml does not. An empty document is null.
///
/// Takes what it used from `budget`, the rest of the manifest's.
pub(crate) fn parse(text: &str, limits: &Limits, budget: &mut Budget) -> Result<Value, YamlError> {
    let tree = tree::compose(text, limits, budget.nodes())?;
    value::decode(&tree, limits, budget)
}
