//! Answers of the server.

use std::fmt;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::CallError;

/// An object or a list as the server sent it, not yet decoded.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    created: bool,
    body: Bytes,
}

// The body may be a Secret.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("created", &self.created).field("bytes", &self.body.len()).finish()
    }
}

impl Answer {
    pub(super) fn new(created: bool, body: Bytes) -> Self {
        Self { created, body }
    }

    /// Whether the object did not exist before; in a dry-run, whether it does not exist.
    pub fn created(&self) -> bool {
        self.created
    }

    /// The JSON text.
    pub fn bytes(&self) -> &Bytes {
        &self.body
    }

    /// The JSON text.
    pub fn into_bytes(self) -> Bytes {
        self.body
    }

    /// Decodes the JSON text; [`CallError::BadAnswer`] if it is not what was expected.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        // The decoder's error quotes the text, so it ends here.
        serde_json::from_slice(&self.body).map_err(|_| CallError::BadAnswer)
    }
}

/// The answer to a conditional request for a path.
#[derive(Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The text, and the tag to ask with next time.
    Fresh {
        /// What the server sent.
        body: Bytes,
        /// The `ETag`, if it sent one.
        etag: Option<String>,
    },
    /// The same as what the tag stands for.
    Unchanged,
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh { body, etag } => f.debug_struct("Fresh").field("bytes", &body.len()).field("etag", etag).finish(),
            Self::Unchanged => f.write_str("Unchanged"),
        }
    }
}
