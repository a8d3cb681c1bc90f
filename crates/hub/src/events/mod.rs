//! Events (`events.k8s.io/v1`): what happened, where `kubectl describe` shows it.
//!
//! [`Events::emit`] never blocks. One task, [`EventWriter::run`], writes; the same thing happening again within ten minutes becomes a
//! count on the first Event, and each regarding object gets a few new Events a minute at most. What does not fit is dropped and counted:
//! an Event is a hint, the report is the truth. Notes name paths and managers, never values.

mod gather;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;

use holdfast_fleet::clock::Clock;
use tokio::sync::mpsc;

use crate::{
    fleet_view::OwnerRef,
    metrics::Metrics,
    reports::{ReportKey, Reports},
    text::cut,
};

pub use writer::EventWriter;

/// Happenings that wait for the writer. At a few hundred bytes each this is a tenth of a megabyte, and more than one second of the
/// busiest hub.
const QUEUE: usize = 1024;

/// Longest note the API server takes, in bytes.
const NOTE: usize = 1024;

/// Why there is an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventReason {
    /// An object drifted.
    DriftDetected,
    /// Drift was put back.
    DriftCorrected,
    /// Somebody keeps undoing corrections.
    DriftContested,
    /// A correction was refused by the server.
    CorrectionRefused,
    /// A kubeconfig Secret is not used.
    KubeconfigRejected,
    /// The server started or stopped rewriting what is declared.
    AdmissionChanged,
    /// Too many objects drifted at once; nothing is written any more.
    BlastRadiusExceeded,
}

impl EventReason {
    /// The word users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DriftDetected => "DriftDetected",
            Self::DriftCorrected => "DriftCorrected",
            Self::DriftContested => "DriftContested",
            Self::CorrectionRefused => "CorrectionRefused",
            Self::KubeconfigRejected => "KubeconfigRejected",
            Self::AdmissionChanged => "AdmissionChanged",
            Self::BlastRadiusExceeded => "BlastRadiusExceeded",
        }
    }

    /// What the hub did, in one word.
    const fn action(self) -> &'static str {
        match self {
            Self::DriftDetected => "Judge",
            Self::DriftCorrected | Self::CorrectionRefused => "Correct",
            Self::DriftContested => "Yield",
            Self::BlastRadiusExceeded => "Hold",
            Self::KubeconfigRejected => "Connect",
            Self::AdmissionChanged => "Accept",
        }
    }

    /// `Normal` where nobody needs to act.
    const fn kind(self) -> &'static str {
        match self {
            Self::DriftCorrected | Self::AdmissionChanged => "Normal",
            Self::DriftDetected | Self::DriftContested | Self::CorrectionRefused | Self::KubeconfigRejected | Self::BlastRadiusExceeded => {
                "Warning"
            }
        }
    }
}

/// The object on the management cluster that an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Regarding {
    /// A report.
    Report(ReportKey),
    /// A `Cluster`, or the Secret that stands for one.
    Owner {
        /// Its namespace.
        namespace: Arc<str>,
        /// The object.
        owner: OwnerRef,
    },
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// About what.
    pub regarding: Regarding,
    /// Why.
    pub reason: EventReason,
    /// The object on the workload cluster, such as `Deployment shop/web`; the same one again is counted, not repeated.
    pub object: Option<String>,
    /// One sentence without values. What is longer than an Event may be is cut.
    pub note: String,
}

/// Where happenings are handed in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<Happening>,
    metrics: Arc<Metrics>,
}

impl Events {
    /// A handle and the writer behind it. `instance` is the hub's `--id`.
    pub fn new(
        client: kube::Client,
        reports: Reports,
        instance: &str,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
    ) -> (Self, EventWriter) {
        let (queue, happenings) = mpsc::channel(QUEUE);
        let writer = EventWriter::new(client, reports, instance, Arc::clone(&metrics), clock, happenings);
        (Self { queue, metrics }, writer)
    }

    /// Hands in what happened. Dropped and counted where the writer does not keep up.
    pub fn emit(&self, mut happening: Happening) {
        happening.note = cut(&happening.note, NOTE);
        happening.object = happening.object.map(|object| cut(&object, NOTE));
        if self.queue.try_send(happening).is_err() {
            self.metrics.event_dropped();
        }
    }
}
