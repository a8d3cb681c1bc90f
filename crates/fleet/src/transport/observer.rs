//! Counting requests without knowing the metrics library.

use std::time::Duration;

use http::StatusCode;

/// What a request does, in the words of Kubernetes RBAC and audit logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads one object or a path outside the resource API.
    Get,
    /// Reads a collection.
    List,
    /// Follows a collection.
    Watch,
    /// Creates an object.
    Create,
    /// Patches or applies an object.
    Patch,
    /// Deletes an object.
    Delete,
}

impl Verb {
    /// The verb in lower case, as a label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// One request that ended, or for a watch: whose answer began.
#[derive(Debug, Clone, Copy)]
pub struct Observed {
    /// What it did.
    pub verb: Verb,
    /// Whether it was sent with `dryRun=All`.
    pub dry_run: bool,
    /// The status of the answer; `None` when there was none.
    pub status: Option<StatusCode>,
    /// From sending to the head of the answer, including the wait for a free stream.
    pub elapsed: Duration,
}

/// Told about every request that was sent. Called on the request path, so it must be quick.
pub trait RequestObserver: Send + Sync + 'static {
    /// Takes note of one request.
    fn observe(&self, observed: Observed);
}

/// Takes note of nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl RequestObserver for Unobserved {
    fn observe(&self, _: Observed) {}
}
