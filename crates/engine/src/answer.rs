//! What the API server said, reduced to what a decision may depend on.

use std::fmt;

use holdfast_api::report::Reason;
use serde_json::Value;

/// Why the server said no. Codes and field paths only: messages can carry values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The class, as users see it.
    pub reason: Reason,
    /// Field paths the server named.
    pub fields: Vec<String>,
}

impl Refusal {
    /// A refusal without field paths.
    pub const fn new(reason: Reason) -> Self {
        Self { reason, fields: Vec::new() }
    }
}

/// The answer to a dry-run. `Debug` hides the object: it may be a Secret.
#[derive(Clone, Copy, Default)]
pub enum Answer<'a> {
    /// Not asked yet.
    #[default]
    NotAsked,
    /// The object as it would be.
    Given(&'a Value),
    /// No.
    Refused(&'a Refusal),
}

/// What is known of the live object. `Debug` hides it: it may be a Secret.
#[derive(Clone, Copy, Default)]
pub enum Live<'a> {
    /// Not read yet.
    #[default]
    NotRead,
    /// An unfiltered read said that it does not exist.
    Absent,
    /// It exists.
    Present(&'a Value),
    /// It could not be read.
    Unreadable(&'a Refusal),
}

impl fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("NotAsked"),
            Self::Given(_) => f.write_str("Given"),
            Self::Refused(refusal) => f.debug_tuple("Refused").field(refusal).finish(),
        }
    }
}

impl fmt::Debug for Live<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRead => f.write_str("NotRead"),
            Self::Absent => f.write_str("Absent"),
            Self::Present(_) => f.write_str("Present"),
            Self::Unreadable(refusal) => f.debug_tuple("Unreadable").field(refusal).finish(),
        }
    }
}

/// Whether the release is still the one that was judged, asked right before a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fence {
    /// Not asked yet.
    #[default]
    NotAsked,
    /// The judged revision is the newest and nothing runs.
    Clear,
    /// A newer, running or vanished release was seen.
    Closed,
    /// The question could not be asked.
    Unknown,
}
