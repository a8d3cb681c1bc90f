//! What becomes of releases over weeks: every state that Helm leaves them in, every record that it does not.
//!
//! Releases are installed by the two Helms where they can be brought into a state, and by hand (see `fixture`) where they cannot.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "clippy allows it in test functions, not in their helpers")]

mod broken;
#[allow(dead_code, reason = "the twin knows its tables")]
#[path = "../correction/drifts.rs"]
mod drifts;
#[allow(dead_code, reason = "the safety tests use all of it")]
#[path = "../safety/fixture.rs"]
mod fixture;
mod rounds;
mod states;
mod stores;
mod stuck;
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, reason = "the correction tests use all of it")]
#[path = "../correction/twin.rs"]
mod twin;
