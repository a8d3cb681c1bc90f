//! Runs a task on a runtime of its own until it ends or somebody interrupts it.

use anyhow::{Context, Result};
use holdfast_testkit::install_crypto_provider;
use tokio::signal::unix::{SignalKind, signal};

/// Runs `task`; `None` where it was interrupted. Dropping it stops the programs it started.
pub fn until_interrupted<T>(task: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(async {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        // Cancel-safe: signals are kept, and nothing of an interrupted task is wanted.
        tokio::select! {
            ended = Box::pin(task) => ended.map(Some),
            _ = interrupt.recv() => Ok(None),
            _ = terminate.recv() => Ok(None),
        }
    })
}
