//! The built program against bad input: each piece is named on its own object and hinders nothing else, and nothing that is secret
//! in any of it ever comes out.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "clippy allows it in test functions, not in their helpers"
)]

mod support;

#[path = "input/canaries.rs"]
mod canaries;
#[path = "input/kubeconfigs.rs"]
mod kubeconfigs;
#[path = "input/manifests.rs"]
mod manifests;
#[path = "input/policies.rs"]
mod policies;
#[path = "input/search.rs"]
mod search;

use support::fixture;
