//! `DriftReports`: what was found, written to the management cluster.
//!
//! Reconcilers call [`Reports::publish`] as often as they like; one task, [`ReportWriter::run`], writes. Per report only the newest
//! status is kept, and none of unlimited size, so memory is bounded by the number of reports. The first write of a report happens at once, later ones at least a
//! second apart; a status that says what the stored one says costs no request, at a start of the hub too.
//!
//! The task watches the reports it owns: one that somebody edits or deletes is written again, and those of clusters that left the
//! fleet are deleted. Its own writes come back through that watch and find everything as it should be, so they wake nobody.

pub(crate) mod bounds;
mod content;
mod desk;
#[cfg(test)]
mod fake_server;
mod key;
#[cfg(test)]
mod tests;
mod wire;
mod writer;

use std::{fmt, sync::Arc};

use holdfast_api::report::DriftReportStatus;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use crate::fleet_view::{ClusterName, OwnerRef};
use desk::Desk;

pub use key::{ReportKey, SourceId};
pub use writer::ReportWriter;

/// Where reconcilers hand in statuses. Cheap to clone.
#[derive(Clone)]
pub struct Reports {
    shared: Arc<Shared>,
}

struct Shared {
    desk: Mutex<Desk>,
    wake: Notify,
    ready: watch::Sender<bool>,
}

impl Default for Reports {
    fn default() -> Self {
        Self { shared: Arc::new(Shared { desk: Mutex::default(), wake: Notify::new(), ready: watch::Sender::new(false) }) }
    }
}

impl Reports {
    /// Makes `status` the status of a report, and `owner` its owner. Never blocks; a status that says nothing new is free.
    pub fn publish(&self, key: ReportKey, owner: OwnerRef, status: DriftReportStatus) {
        if self.shared.desk.lock().publish(key, owner, Arc::new(bounds::fit(status)), Instant::now()) {
            self.shared.wake.notify_one();
        }
    }

    /// Deletes a report.
    pub fn retire(&self, key: &ReportKey) {
        self.shared.desk.lock().retire(key, Instant::now());
        self.shared.wake.notify_one();
    }

    /// Deletes all reports of a cluster.
    pub fn retire_cluster(&self, cluster: &ClusterName) {
        self.shared.desk.lock().retire_where(|key| key.cluster == *cluster, Instant::now());
        self.shared.wake.notify_one();
    }

    /// Completes once the reports that exist were read. Before, [`Reports::stored`] and [`Reports::known`] know nothing.
    pub async fn learned(&self) {
        let mut ready = self.shared.ready.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        if ready.wait_for(|ready| *ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// What is stored in a report now, for a start that goes on where the last one stopped.
    pub fn stored(&self, key: &ReportKey) -> Option<Arc<DriftReportStatus>> {
        self.shared.desk.lock().stored(key)
    }

    /// The same where the report belongs to this owner: one of an earlier cluster of the same name tells nothing about this one.
    pub fn stored_of(&self, key: &ReportKey, owner: &OwnerRef) -> Option<Arc<DriftReportStatus>> {
        self.shared.desk.lock().stored_of(key, owner)
    }

    /// The reports of a cluster that exist or are wanted, so that those of sources that are gone can be retired.
    pub fn known(&self, cluster: &ClusterName) -> Vec<ReportKey> {
        self.shared.desk.lock().known(cluster)
    }

    /// UID of a report that exists, for Events about it.
    pub fn uid(&self, key: &ReportKey) -> Option<String> {
        self.shared.desk.lock().uid(key)
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports").finish_non_exhaustive()
    }
}
