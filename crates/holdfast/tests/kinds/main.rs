//! Kinds, versions and namespaces that come, go and come again, and discovery that tells only a part.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "clippy allows it in test functions, not in their helpers")]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod definitions;
mod discovery;
mod namespaces;
mod site;

use support::fixture;

/// What waits for a retry or a back-off, side by side.
#[tokio::test]
async fn what_only_time_shows() {
    tokio::join!(
        Box::pin(answers::not_served_is_neither_missing_nor_created()),
        Box::pin(discovery::discovery_that_fails_as_a_whole_concludes_nothing()),
        Box::pin(namespaces::a_namespace_goes_and_comes_again_under_a_releases_objects()),
    );
}
