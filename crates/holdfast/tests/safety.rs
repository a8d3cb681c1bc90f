//! The built program against real control planes: what it must never do, and how it stands at its edges.
//!
//! Most tests deploy releases by hand (see `fixture`): the objects as any field manager, and the records beside them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "clippy allows it in test functions, not in their helpers"
)]

mod support;

#[path = "safety/bounds.rs"]
mod bounds;
#[path = "safety/claims.rs"]
mod claims;
#[path = "safety/clusters.rs"]
mod clusters;
#[path = "safety/contests.rs"]
mod contests;
#[path = "safety/fence.rs"]
mod fence;
#[path = "safety/ignoring.rs"]
mod ignoring;
#[path = "safety/kubeconfigs.rs"]
mod kubeconfigs;
#[path = "safety/ownership.rs"]
mod ownership;
#[path = "safety/policies.rs"]
mod policies;
#[path = "safety/process.rs"]
mod process;
#[path = "safety/run_once.rs"]
mod run_once;
#[path = "safety/scaling.rs"]
mod scaling;

use support::fixture;
