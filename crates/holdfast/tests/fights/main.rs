//! The fight lab: whatever admission, controllers and other hubs do, the writes and dry-runs it costs are bounded and counted.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "clippy allows it in test functions, not in their helpers")]

#[path = "../support/mod.rs"]
mod support;

mod hubs;
mod mutators;
mod rivals;

use std::time::Duration;

use anyhow::{Context as _, bail};
use holdfast_testkit::eventually;
use serde_json::Value;
use support::{World, fixture};

/// What takes many rounds may take longer than one reaction.
const PATIENCE: Duration = Duration::from_mins(3);

/// Waits as long for the report of a release to satisfy `wanted`.
async fn wait_report(world: &World, release: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let found = eventually(what, PATIENCE, async || {
        let report = world.report(Some(release)).await.context("no report")?;
        if !wanted(&report["status"]) {
            bail!("{:#}", report["status"]);
        }
        Ok(report)
    });
    found.await.unwrap()
}
