//! What a policy says beyond modes: brakes on corrections, policies of the whole cluster, objects that are made anew.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "clippy allows it in test functions, not in their helpers")]

#[path = "../support/mod.rs"]
mod support;

mod limits;
mod parts;
mod precedence;
mod recreate;

use support::fixture;
