//! Waiting for what will be true soon.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(20);

/// Asks `probe` until it succeeds; its last error is the reason when `deadline` passes first.
pub async fn eventually<T>(what: &str, deadline: Duration, mut probe: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let until = Instant::now() + deadline;
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= until => {
                return Err(error).with_context(|| format!("{what}: not within {deadline:?}"));
            }
            Err(_) => sleep(POLL).await,
        }
    }
}
