//! The choices a caller makes about a request.

use std::fmt;

/// How much of an object the server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// The whole object.
    Full,
    /// `metadata` alone, as `PartialObjectMetadata`.
    Metadata,
}

impl Shape {
    /// The `Accept` header for one object, or for a watch, whose events carry one object each.
    pub fn accept_one(self) -> &'static str {
        match self {
            Self::Full => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        }
    }

    /// The `Accept` header for a list. On a watch it would yield a stream without a single event.
    pub fn accept_list(self) -> &'static str {
        match self {
            Self::Full => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        }
    }
}

/// Whether a mutating request changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Goes through everything but storage (`dryRun=All`).
    DryRun,
    /// Is carried out.
    Persist,
}

/// The longest field manager the server accepts, in bytes.
const MAX_MANAGER: usize = 128;

/// The name under which the server keeps what a request wrote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldManager(String);

/// Not a name the server accepts as a field manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a field manager has 1 to 128 bytes of printable characters")]
pub struct FieldManagerError;

impl FieldManager {
    /// Checks the name by the server's rule.
    pub fn new(name: impl Into<String>) -> Result<Self, FieldManagerError> {
        let name = name.into();
        if name.is_empty() || name.len() > MAX_MANAGER || name.chars().any(char::is_control) {
            return Err(FieldManagerError);
        }
        Ok(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which objects of a collection to list, and how fresh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Label selector; empty selects all.
    pub labels: String,
    /// Field selector; empty selects all.
    pub fields: String,
    /// At most this many objects in one answer; 0 for all. Answers from the server's cache are never cut.
    pub limit: u32,
    /// The `continue` token of the previous answer; empty for the first.
    pub continue_token: String,
    /// Read what is stored now rather than what the server has cached.
    pub consistent: bool,
}

impl ListQuery {
    /// The query string with its leading `?`, or nothing.
    pub(super) fn query(&self) -> String {
        let limit = self.limit.to_string();
        // A continued list goes on at the version of its first page.
        let cached = !self.consistent && self.continue_token.is_empty();
        let pairs = [
            (!self.labels.is_empty(), "labelSelector", self.labels.as_str()),
            (!self.fields.is_empty(), "fieldSelector", self.fields.as_str()),
            (self.limit > 0, "limit", limit.as_str()),
            (!self.continue_token.is_empty(), "continue", self.continue_token.as_str()),
            (cached, "resourceVersion", "0"),
        ];
        let pairs: Vec<_> = pairs.into_iter().filter(|(wanted, ..)| *wanted).map(|(_, key, value)| (key, value)).collect();
        super::endpoint::query(&pairs)
    }
}
