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

mod fleet;
mod isolation;
mod partly;
mod restarts;
mod scene;
mod watches;

use support::fixture;

/// What takes a minute each because only time shows it, side by side.
#[tokio::test]
async fn what_only_time_shows() {
    tokio::join!(
        Box::pin(watches::a_silent_watch_hides_drift_no_longer_than_the_interval()),
        Box::pin(watches::trouble_with_one_kind_is_trouble_with_one_kind()),
        Box::pin(isolation::clusters_that_fail_cost_the_others_nothing_and_come_back_by_themselves()),
        Box::pin(isolation::an_outage_of_most_clusters_writes_no_reports_before_it_is_clear()),
    );
}
