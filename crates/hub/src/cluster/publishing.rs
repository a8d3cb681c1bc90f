//! The actor's part about what leaves it: reports and figures.

use holdfast_api::{
    condition::{Condition, Truth},
    report::{DriftReportStatus, Source, SourceKind, Summary, Verdict},
};

use super::{
    actor::Actor,
    source::{fresh, reachable},
};
use crate::{
    fleet_view::Gate,
    metrics::{ClusterFigures, ClusterState},
    reports::ReportKey,
};

impl Actor {
    /// Hands in the reports of the releases that changed, and the cluster's own.
    pub(super) fn flush(&mut self) {
        let now = self.shared.clock.now();
        for release in std::mem::take(&mut self.dirty) {
            if let Some(known) = self.releases.get(&release) {
                // A report that says less than the stored one would flicker while a starting hub judges its first objects.
                if known.loaded.is_some()
                    && !known.is_judged()
                    && known.judgeable().is_some()
                    && self.contact.unreachable.is_none()
                    && self.may_judge()
                {
                    continue;
                }
                self.shared.reports.publish(self.report_key(&release), self.entry.owner.clone(), known.status(&self.contact, now));
            }
        }
        self.publish_cluster();
    }

    /// Hands in the report about the cluster itself, and the figures.
    pub(super) fn publish_cluster(&self) {
        let now = self.shared.clock.now();
        let state = match (self.contact.unreachable, self.entry.gate) {
            (Some(_), _) => ClusterState::Unreachable,
            (None, Gate::Paused) => ClusterState::Paused,
            (None, _) => ClusterState::Connected,
        };
        let mut figures = ClusterFigures::new(state);
        let mut summary = Summary::default();
        for known in self.releases.values() {
            let counts = known.counts();
            add(&mut figures.objects, &counts);
            add(&mut figures.deviations, &known.deviation_counts());
            // The order of `Verdict::ALL` is from best to worst.
            let worst = counts.iter().rposition(|count| *count > 0).unwrap_or_default();
            if let Some(count) = figures.releases.get_mut(worst) {
                *count += 1;
            }
            summary = sum(&summary, &known.summary());
        }
        figures.contested_paths = summary.contested;
        figures.queue_depth = self.queue.len() as u64;
        self.shared.metrics.set_cluster(&self.name, figures);
        self.shared.metrics.set_state_bytes(self.shared.states.bytes() as u64);
        let status = DriftReportStatus {
            conditions: self.cluster_conditions(&summary),
            source: Some(Source {
                kind: SourceKind::Cluster,
                namespace: String::new(),
                name: self.name.name.to_string(),
                revision: None,
                desired_hash: None,
            }),
            observed_at: Some(now),
            summary,
            ..DriftReportStatus::default()
        };
        self.shared.reports.publish(ReportKey::cluster(&self.name), self.entry.owner.clone(), status);
    }

    fn cluster_conditions(&self, summary: &Summary) -> Vec<Condition> {
        let now = self.shared.clock.now();
        let bad = summary.drifted + summary.missing + summary.refused + summary.contested;
        let message = format!("{} of {} objects in {} releases are as declared", summary.in_sync, summary.objects, self.releases.len());
        let in_sync = if self.contact.unreachable.is_some() {
            Condition::new("InSync", Truth::Unknown, "ClusterUnreachable", "the cluster cannot be reached", now)
        } else if bad > 0 {
            Condition::new("InSync", Truth::False, Verdict::Drifted.as_str(), message, now)
        } else if summary.unknown > 0 {
            Condition::new("InSync", Truth::Unknown, Verdict::Unknown.as_str(), message, now)
        } else if self.contact.paused {
            Condition::new("InSync", Truth::True, "ClusterPaused", format!("{message}; the cluster is paused, nothing is written"), now)
        } else {
            Condition::new("InSync", Truth::True, "AsDeclared", message, now)
        };
        let ready = Condition::new("Ready", Truth::True, "Connected", "the cluster is connected", now);
        vec![ready, in_sync, reachable(&self.contact, now), fresh(&self.contact, now)]
    }

    /// Corrections whose interval is over leave their reports.
    pub(super) fn expire_listings(&mut self) {
        let now = self.shared.clock.now();
        let expired: Vec<_> = self.releases.iter_mut().filter_map(|(name, known)| known.expire(now).then(|| name.clone())).collect();
        if !expired.is_empty() {
            self.dirty.extend(expired);
            self.flush_soon();
        }
        self.ledgers.retain(|_, ledger| !ledger.is_settled(now));
    }

    /// Reports of releases that are gone or no longer guarded, left by an earlier hub.
    pub(super) fn retire_unknown_reports(&self) {
        for key in self.shared.reports.known(&self.name) {
            if key.source.kind != SourceKind::HelmRelease {
                continue;
            }
            let release = super::records::ReleaseName { namespace: key.source.namespace.clone(), name: key.source.name.clone() };
            let guarded = self.policies.decide(&self.entry, &release.namespace, &release.name).is_some();
            if !guarded && !self.releases.contains_key(&release) {
                self.shared.reports.retire(&key);
            }
        }
    }
}

fn add<const N: usize>(to: &mut [u64; N], from: &[u64; N]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

fn sum(a: &Summary, b: &Summary) -> Summary {
    Summary {
        objects: a.objects + b.objects,
        in_sync: a.in_sync + b.in_sync,
        drifted: a.drifted + b.drifted,
        missing: a.missing + b.missing,
        terminating: a.terminating + b.terminating,
        refused: a.refused + b.refused,
        contested: a.contested + b.contested,
        unknown: a.unknown + b.unknown,
        deviations: a.deviations + b.deviations,
        foreign: a.foreign + b.foreign,
        corrected: a.corrected + b.corrected,
    }
}
