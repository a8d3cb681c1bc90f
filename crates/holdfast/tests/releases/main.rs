//! What becomes of releases over weeks: every state that Helm leaves them in, every record that it does not.
//!
//! Releases are installed by the two Helms where they can be brought into a state, and by hand (see `fixture`) where they cannot.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "clippy allows it in test functions, not in their helpers")]

mod broken;
mod rounds;
mod states;
mod stores;
mod stuck;
#[path = "../support/mod.rs"]
mod support;

use support::fixture;
