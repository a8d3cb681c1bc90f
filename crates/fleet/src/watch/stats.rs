//! Counts of watches, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use super::update::Reason;

/// Running watches and their restarts. One for the whole fleet, so that the counters never go back when a cluster leaves.
#[derive(Debug, Default)]
pub struct WatchStats {
    running: AtomicU64,
    restarts: [AtomicU64; Reason::ALL.len()],
}

impl WatchStats {
    /// Watches that run now, whether live or trying to be.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// Restarts since the start, by reason.
    pub fn restarts(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().zip(&self.restarts).map(|(reason, count)| (reason, count.load(Ordering::Relaxed)))
    }

    pub(super) fn restarted(&self, reason: Reason) {
        for (of, count) in Reason::ALL.into_iter().zip(&self.restarts) {
            if of == reason {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn started(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stopped(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}
