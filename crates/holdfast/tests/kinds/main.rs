//! Kinds, versions and namespaces that come, go and come again, and discovery that tells only a part.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "clippy allows it in test functions, not in their helpers")]

#[allow(dead_code, reason = "the safety tests use all of it")]
#[path = "../safety/fixture.rs"]
mod fixture;
#[path = "../support/mod.rs"]
mod support;

mod answers;
mod definitions;
mod discovery;
mod namespaces;
mod site;
