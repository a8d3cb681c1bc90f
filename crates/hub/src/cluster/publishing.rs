//! The actor's part about what leaves it: reports and figures.

use std::{collections::BTreeMap, sync::Arc};

use holdfast_api::{
    condition::{Condition, Truth},
    report::{DriftReportStatus, Source, SourceKind, Summary, Verdict},
};
use tokio::time::Instant;

use super::{
    actor::{Actor, Slot},
    source::{Contact, Guardianship, JUDGED_WITHIN, fresh, reachable, ready},
};
use crate::{
    fleet_view::{Credential, Gate},
    metrics::{ClusterFigures, ClusterState},
    reports::ReportKey,
};

impl Actor {
    /// Hands in the reports of the releases that changed, and the cluster's own.
    pub(super) fn flush(&mut self) {
        let (now, instant) = (self.shared.clock.now(), Instant::now());
        for release in std::mem::take(&mut self.dirty) {
            let Some(known) = self.releases.get(&release) else { continue };
            if let Some(until) = known.withheld_until(instant).filter(|_| self.contact.unreachable.is_none()) {
                self.dirty.insert(release);
                self.flush_by(until);
                continue;
            }
            let status = known.status(&self.contact_of(known), now);
            self.shared.reports.publish(self.report_key(&release), self.entry.owner.clone(), status);
        }
        if !self.book.complete {
            self.doubt_stored();
        }
        self.tally();
        self.publish_cluster();
    }

    /// Before any release is known: what an earlier hub reported is not known to hold where nothing can be found out.
    fn doubt_stored(&self) {
        let reason = match (self.contact.unreachable, self.contact.stale) {
            (Some(_), _) => "ClusterUnreachable",
            (None, true) => "Stale",
            (None, false) => return,
        };
        let now = self.shared.clock.now();
        for key in self.shared.reports.known(&self.name).into_iter().filter(|key| key.source.kind == SourceKind::HelmRelease) {
            let Some(stored) = self.remembered(&key) else { continue };
            let mut status = DriftReportStatus::clone(&stored);
            status.conditions.retain(|condition| condition.kind == "Ready");
            let in_sync = Condition::new("InSync", Truth::Unknown, reason, "the release records cannot be read", now);
            status.conditions.extend([in_sync, reachable(&self.contact, now), fresh(&self.contact, now)]);
            self.shared.reports.publish(key, self.entry.owner.clone(), status);
        }
    }

    /// What an earlier connection or hub reported under this key, unless that was about another cluster.
    pub(super) fn remembered(&self, key: &ReportKey) -> Option<Arc<DriftReportStatus>> {
        let stored = self.shared.reports.stored_of(key, &self.entry.owner)?;
        is_about(&stored, &self.uid).then_some(stored)
    }

    /// How the connection stands as far as it concerns a release.
    fn contact_of(&self, known: &Guardianship) -> Contact {
        let mut contact = self.contact.clone();
        contact.stale |= !self.stale_kinds.is_empty()
            && known
                .loaded
                .iter()
                .flat_map(|loaded| &loaded.objects)
                .any(|id| self.objects.get(id).is_some_and(|slot| self.is_stale(slot)));
        contact
    }

    fn is_stale(&self, slot: &Slot) -> bool {
        slot.claimants.first().is_some_and(|(_, guarded)| self.stale_kinds.contains(&*guarded.key.gvk))
    }

    /// The statuses of all releases whose objects were judged.
    pub(super) fn statuses(&self) -> BTreeMap<ReportKey, DriftReportStatus> {
        let now = self.shared.clock.now();
        let judged = self.releases.iter().filter(|(_, known)| known.is_judged());
        judged.map(|(release, known)| (self.report_key(release), known.status(&self.contact_of(known), now))).collect()
    }

    /// Hands in the report about the cluster itself, and the figures.
    pub(super) fn publish_cluster(&mut self) {
        let now = self.shared.clock.now();
        let state = match (self.contact.unreachable, self.entry.gate) {
            (Some(_), _) => ClusterState::Unreachable,
            (None, _) if !self.book.complete => ClusterState::Connecting,
            (None, Gate::Paused) => ClusterState::Paused,
            (None, _) => ClusterState::Connected,
        };
        let mut figures = ClusterFigures::new(state);
        let mut summary = Summary::default();
        for known in self.releases.values() {
            let counts = known.counts();
            add(&mut figures.objects, &counts);
            add(&mut figures.deviations, &known.deviation_counts());
            // The order of `Verdict::ALL` is from best to worst. A release that cannot be judged is not in sync, whatever it was.
            let unknown = Verdict::ALL.iter().position(|verdict| *verdict == Verdict::Unknown);
            let is_judged = known.judgeable().is_some() && known.load_error.is_none();
            let worst = counts.iter().rposition(|count| *count > 0).filter(|_| is_judged);
            let worst = worst.or_else(|| unknown.filter(|_| !is_judged)).unwrap_or_default();
            if let Some(count) = figures.releases.get_mut(worst) {
                *count += 1;
            }
            summary = sum(&summary, &known.summary());
        }
        let held: usize = self.ledgers.values().map(|ledger| ledger.contested(now)).sum();
        figures.contested_paths = held as u64;
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
            cluster_uid: Some(self.uid.to_string()),
            observed_at: Some(now),
            summary,
            ..DriftReportStatus::default()
        };
        if self.withholds_cluster_report() {
            self.flush_by(self.started + JUDGED_WITHIN);
        } else {
            self.shared.reports.publish(ReportKey::cluster(&self.name), self.entry.owner.clone(), status);
        }
    }

    /// A start knows less than the stored report says, for a moment.
    fn withholds_cluster_report(&self) -> bool {
        !self.is_all_judged()
            && self.contact.unreachable.is_none()
            && Instant::now() < self.started + JUDGED_WITHIN
            && self.shared.reports.stored(&ReportKey::cluster(&self.name)).is_some()
    }

    pub(super) fn is_all_judged(&self) -> bool {
        self.book.complete && self.releases.values().all(|known| known.load_error.is_some() || known.is_judged())
    }

    fn cluster_conditions(&self, summary: &Summary) -> Vec<Condition> {
        let now = self.shared.clock.now();
        let bad = summary.drifted + summary.missing + summary.refused + summary.contested;
        let message = format!("{} of {} objects in {} releases are as declared", summary.in_sync, summary.objects, self.releases.len());
        let in_sync = if self.contact.unreachable.is_some() {
            Condition::new("InSync", Truth::Unknown, "ClusterUnreachable", "the cluster cannot be reached", now)
        } else if self.watching.may_not_see_records() {
            Condition::new("InSync", Truth::Unknown, "Forbidden", "the credentials do not allow to watch the release records", now)
        } else if bad > 0 {
            Condition::new("InSync", Truth::False, Verdict::Drifted.as_str(), message, now)
        } else if !self.is_all_judged() {
            // Nothing known is not nothing wrong.
            Condition::new("InSync", Truth::Unknown, "Stale", "not every release has been judged yet", now)
        } else if summary.unknown > 0 {
            Condition::new("InSync", Truth::Unknown, Verdict::Unknown.as_str(), message, now)
        } else if self.contact.paused {
            Condition::new("InSync", Truth::True, "ClusterPaused", format!("{message}; the cluster is paused, nothing is written"), now)
        } else {
            Condition::new("InSync", Truth::True, "AsDeclared", message, now)
        };
        let ready = match (self.credentials.failure(), &self.entry.credential) {
            _ if let Some(reason) = self.contact.unreachable => {
                Condition::new("Ready", Truth::False, reason, format!("the cluster cannot be reached: {reason}"), now)
            }
            (Some(reason), _) => {
                let message = format!("the new kubeconfig does not work ({reason}); the old one is still used, but nothing is written");
                Condition::new("Ready", Truth::False, "KubeconfigUnproven", message, now)
            }
            (None, Credential::Missing) => {
                let message =
                    "the cluster is connected; its kubeconfig Secret is gone, and the connection lasts until the server refuses it";
                ready(&self.contact, "KubeconfigMissing", message, now)
            }
            (None, _) => ready(&self.contact, "Connected", "the cluster is connected", now),
        };
        let contact = Contact { stale: self.contact.stale || !self.stale_kinds.is_empty(), ..self.contact.clone() };
        vec![ready, in_sync, reachable(&contact, now), fresh(&contact, now)]
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
}

/// Whether what was reported was found on this cluster, as far as the report tells.
pub(super) fn is_about(status: &DriftReportStatus, uid: &str) -> bool {
    status.cluster_uid.as_ref().is_none_or(|found_on| *found_on == *uid)
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
