//! Accepted differences of the objects of a release: those that are shown, and those that are only counted.

use holdfast_api::report::{Deviation, DeviationReason};
use holdfast_engine::{decide::Judgement, object::ObjectKey, redact};
use jiff::Timestamp;

use super::{Guardianship, object_ref};
use crate::{
    cluster::{memory::Recalled, state::StateId},
    state_secrets::StoredShown,
};

impl Guardianship {
    /// Goes on with the accepted differences that an earlier process knew of an object.
    pub fn recall_deviations(&mut self, id: StateId, key: &ObjectKey, recalled: &Recalled) {
        self.normalized.insert(id, u64::from(recalled.normalized));
        let shown: Vec<Deviation> = recalled
            .shown
            .iter()
            .map(|shown| Deviation {
                object: object_ref(key, &recalled.uid),
                path: shown.path.clone(),
                reason: shown.reason,
                since: shown.since,
                message: shown.message.clone(),
            })
            .collect();
        if !shown.is_empty() {
            self.deviations.insert(id, shown);
        }
    }

    /// The accepted differences of an object in the form that is kept: UID, how many are only counted, and those that are shown.
    pub fn kept_deviations(&self, id: StateId) -> (String, u32, Vec<StoredShown>) {
        let normalized = self.normalized.get(&id).copied().unwrap_or_default();
        let shown = self.deviations.get(&id).map(Vec::as_slice).unwrap_or_default();
        let uid = shown.first().map(|deviation| deviation.object.uid.clone()).unwrap_or_default();
        let shown = shown.iter().map(|deviation| StoredShown {
            path: deviation.path.clone(),
            reason: deviation.reason,
            since: deviation.since,
            message: deviation.message.clone(),
        });
        (uid, u32::try_from(normalized).unwrap_or(u32::MAX), shown.collect())
    }

    /// Takes in the accepted differences of an object. One that stays keeps its time.
    pub(super) fn take_deviations(&mut self, id: StateId, key: &ObjectKey, uid: &str, judgement: &Judgement, now: Timestamp) {
        let before = self.deviations.remove(&id).unwrap_or_default();
        let normalized = judgement.accepted.iter().filter(|accepted| accepted.reason == DeviationReason::Normalized).count();
        self.normalized.insert(id, u64::try_from(normalized).unwrap_or(u64::MAX));
        let shown: Vec<Deviation> = judgement
            .accepted
            .iter()
            .filter(|accepted| accepted.reason != DeviationReason::Normalized)
            .map(|accepted| {
                let path = redact::path_text(&key.gvk, &accepted.path);
                let known = before.iter().find(|old| old.path == path && old.reason == accepted.reason);
                known.cloned().unwrap_or_else(|| Deviation {
                    object: object_ref(key, uid),
                    path,
                    reason: accepted.reason,
                    since: now,
                    message: accepted.note.clone(),
                })
            })
            .collect();
        if !shown.is_empty() {
            self.deviations.insert(id, shown);
        }
    }

    /// Admission deviations of an object, to tell new ones.
    pub fn admission_paths(&self, id: StateId) -> Vec<String> {
        self.deviations
            .get(&id)
            .into_iter()
            .flatten()
            .filter(|deviation| deviation.reason == DeviationReason::Admission)
            .map(|deviation| deviation.path.clone())
            .collect()
    }

    /// Accepted differences by reason, in the order of [`DeviationReason::ALL`].
    pub fn deviation_counts(&self) -> [u64; DeviationReason::ALL.len()] {
        let mut counts = [0; DeviationReason::ALL.len()];
        for (reason, count) in DeviationReason::ALL.into_iter().zip(&mut counts) {
            *count = match reason {
                DeviationReason::Normalized => self.normalized.values().sum(),
                _ => self.deviations.values().flatten().filter(|deviation| deviation.reason == reason).count() as u64,
            };
        }
        counts
    }
}
