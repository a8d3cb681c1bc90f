//! What a hub knew survives its end, however it ends: nothing is asked twice, no fight begins anew, what was begun is finished.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy allows it in test functions, not in their helpers"
)]

mod kept;
mod killed;
mod secrets;
#[path = "../support/mod.rs"]
mod support;

use support::fixture;
