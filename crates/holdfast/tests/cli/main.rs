//! The command line against real control planes: what `fix` writes and what it does not, what `explain` says, what never comes out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy allows it in test functions, not in their helpers"
)]

mod approvals;
mod canaries;
mod explain;
mod fix;
mod library;
mod program;
mod refusals;
mod shell;
#[path = "../support/mod.rs"]
mod support;
