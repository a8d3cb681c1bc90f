//! The built program against API servers that misbehave: watches that lie, stop or never end, and clusters that fail beside healthy ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "clippy allows it in test functions, not in their helpers"
)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "shared with another test binary, each uses a part of it")]
#[path = "../safety/fixture.rs"]
mod fixture;

mod fleet;
mod isolation;
mod partly;
mod restarts;
mod scene;
mod watches;
