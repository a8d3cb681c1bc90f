//! What reading one input may cost.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tokio::time::Instant;

/// Nothing that is bounded takes as long, also on a busy machine; a reader that goes quadratic on half a megabyte does.
const SLOW: Duration = Duration::from_secs(20);

/// Runs `read` and fails when it held more than `bytes` of memory at a time, or took absurdly long.
pub(crate) fn within<T>(bytes: usize, read: impl FnOnce() -> T) -> Result<T> {
    let mut outcome = None;
    let started = Instant::now();
    // A panic that left the measured function would leave its measurement open.
    let used = allocation_counter::measure(|| outcome = Some(catch_unwind(AssertUnwindSafe(read))));
    let took = started.elapsed();
    let value = match outcome.context("the function ran")? {
        Ok(value) => value,
        Err(panic) => resume_unwind(panic),
    };
    ensure!(usize::try_from(used.bytes_max)? <= bytes, "held {} bytes, {bytes} are allowed", used.bytes_max);
    ensure!(took < SLOW, "took {took:?}");
    Ok(value)
}
