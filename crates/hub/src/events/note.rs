//! The text of an Event.

use crate::text::cut;

/// Longest note the API server takes, in bytes.
pub const NOTE: usize = 1024;

/// The note, cut where it is too long.
pub fn fit(note: &str) -> String {
    cut(note, NOTE)
}
