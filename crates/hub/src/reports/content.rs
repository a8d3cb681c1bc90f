//! What a report says, and when two reports say the same.

use std::collections::BTreeMap;

use holdfast_api::condition::keep_transition_times;
use holdfast_api::report::{DriftReportSpec, DriftReportStatus};

use super::ReportKey;
use crate::fleet_view::OwnerRef;

/// The parts of a stored report that the hub decides about.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// UIDs of the owners.
    pub owners: Vec<String>,
    /// `None` where it does not have this version's shape.
    pub spec: Option<DriftReportSpec>,
    /// `None` where it does not have this version's shape.
    pub status: Option<DriftReportStatus>,
}

impl Content {
    /// Whether labels, owner and spec are as they should be. Further labels and owners are somebody else's business.
    pub fn has_frame(&self, key: &ReportKey, owner: &OwnerRef) -> bool {
        key.labels().iter().all(|(label, value)| self.labels.get(label) == Some(value))
            && self.owners.iter().any(|uid| **uid == *owner.uid)
            && self.spec == Some(key.spec())
    }

    /// Whether the status says what `wanted` says.
    pub fn has_status(&self, wanted: &DriftReportStatus) -> bool {
        self.status.as_ref().is_some_and(|stored| same(stored, wanted))
    }
}

/// Whether two statuses say the same: times at which it was said do not count.
pub fn same(stored: &DriftReportStatus, wanted: &DriftReportStatus) -> bool {
    settled(stored, wanted.clone()) == *stored
}

/// `wanted` with the times of `stored` where nothing but the time differs.
pub fn settled(stored: &DriftReportStatus, mut wanted: DriftReportStatus) -> DriftReportStatus {
    keep_transition_times(&stored.conditions, &mut wanted.conditions);
    let observed_at = std::mem::replace(&mut wanted.observed_at, stored.observed_at);
    if wanted != *stored {
        wanted.observed_at = observed_at;
    }
    wanted
}
