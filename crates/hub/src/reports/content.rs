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

/// Whether two statuses say the same: times at which it was said do not count, nor does the hash of what one revision declares, whose key
/// changes with every start.
pub fn same(stored: &DriftReportStatus, wanted: &DriftReportStatus) -> bool {
    settled(stored, wanted.clone()) == *stored
}

/// `wanted` with the times of `stored` where nothing but the time differs, and its hash where nothing but that differs either.
pub fn settled(stored: &DriftReportStatus, mut wanted: DriftReportStatus) -> DriftReportStatus {
    keep_transition_times(&stored.conditions, &mut wanted.conditions);
    let (observed_at, source) = (wanted.observed_at, wanted.source.clone());
    wanted.observed_at = stored.observed_at;
    if let (Some(wanted), Some(stored)) = (&mut wanted.source, &stored.source)
        && wanted.revision == stored.revision
    {
        wanted.desired_hash.clone_from(&stored.desired_hash);
    }
    if wanted != *stored {
        wanted.observed_at = observed_at;
        wanted.source = source;
    }
    wanted
}

#[cfg(test)]
mod tests {
    use holdfast_api::report::{Source, SourceKind};

    use super::*;

    fn status(revision: i64, hash: &str, in_sync: u64) -> DriftReportStatus {
        let mut status = DriftReportStatus {
            source: Some(Source {
                kind: SourceKind::HelmRelease,
                namespace: "t".into(),
                name: "web".into(),
                revision: Some(revision),
                desired_hash: Some(hash.into()),
            }),
            ..DriftReportStatus::default()
        };
        status.summary.in_sync = in_sync;
        status
    }

    #[test]
    fn a_hash_by_another_key_is_no_news() {
        let stored = status(1, "old", 3);
        assert!(same(&stored, &status(1, "new", 3)));
        assert!(!same(&stored, &status(2, "new", 3)), "another revision");
        assert!(!same(&stored, &status(1, "new", 2)));
        assert_eq!(settled(&stored, status(1, "new", 2)), status(1, "new", 2), "what is written is written as it is now");
    }
}
