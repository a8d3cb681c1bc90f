//! Clusters and credentials over weeks: they come, pause, go, come again as another one, have two names, and change how they are reached.
//!
//! What a user sees of each state is in [`state::STATES`]; every test waits for its rows. What is left behind is counted by
//! [`traces::Traces`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy allows it in test functions, not in their helpers"
)]

#[path = "../support/mod.rs"]
mod support;

mod access;
mod identity;
mod lifecycle;
mod names;
mod relay;
mod rotation;
mod site;
mod state;
mod traces;

use support::fixture;
