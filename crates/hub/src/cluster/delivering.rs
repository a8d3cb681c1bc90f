//! The actor's part about watches: what a delivery means.

use std::sync::Arc;

use holdfast_api::policy::Foreign;
use holdfast_engine::object::Gvk;
use holdfast_fleet::watch::{Delivery, Reason as WatchReason, Update};
use holdfast_helm::Store;
use tokio::time::Instant;

use super::{
    actor::Actor,
    admission::AdmissionKind,
    discovering::DISCOVER_AFTER,
    following::is_watch_break,
    scalers::ScalerKind,
    sight::News,
    sighting::{Beside, Sighting, Watched},
    state::StateId,
};

/// One read a minute at most catches admission that rides on writes beside the owned paths.
const BESIDE: std::time::Duration = std::time::Duration::from_mins(1);

/// Reads of one object because of fields that somebody took or left lie at least this far apart.
const ADDITIONS: std::time::Duration = std::time::Duration::from_secs(5);

impl Actor {
    fn event(&mut self, id: StateId, news: News, version: u64, now: Instant) {
        // It may have been decoded before our own write was taken in. A write beside the owned paths is noted where it is decoded.
        if news != News::Beside && self.is_known_version(id, version) {
            return;
        }
        if matches!(news, News::Changed | News::Holdings) && self.queue.is_in_flight(id) {
            self.echoes.insert(id, version);
        }
        self.notice(id, news, now);
    }

    /// Whether the object was last judged at this version, or passed through it while it was corrected.
    pub(super) fn is_known_version(&self, id: StateId, version: u64) -> bool {
        self.shared.states.is_judged_at(id, version) || self.passed.get(&id) == Some(&version)
    }

    pub(super) fn notice(&mut self, id: StateId, news: News, now: Instant) {
        match news {
            News::Known => {}
            News::Beside => self.queue.push(id, now + BESIDE, now),
            News::Holdings => self.look_for_additions(id, now),
            News::Changed => {
                // Desired or live changed: a refused write is worth another try at once.
                self.retries.remove(&id);
                self.queue.notice(id, now);
            }
        }
    }

    /// Somebody holds other fields beside the owned paths than before. That is looked at soon, but no more often than it must be: some
    /// controllers come and go all the time.
    fn look_for_additions(&mut self, id: StateId, now: Instant) {
        let claimant = self.objects.get(&id).and_then(|slot| slot.claimants.first());
        let guard = claimant.and_then(|(release, _)| self.releases.get(release)).map(|known| &known.guard);
        if guard.is_none_or(|guard| guard.foreign == Foreign::Ignore && guard.exclusive.is_empty()) {
            return self.queue.push(id, now + BESIDE, now);
        }
        if self.queue.is_in_flight(id) {
            return self.queue.notice(id, now);
        }
        let at = self.additions_looked_for.get(&id).map_or(now, |last| now.max(*last + ADDITIONS));
        self.additions_looked_for.retain(|_, last| *last + ADDITIONS > now);
        self.additions_looked_for.insert(id, at);
        self.queue.push(id, at, now);
    }

    /// Takes in one delivery of a watch.
    pub(super) fn deliver(&mut self, delivery: Delivery<Sighting>) {
        let Delivery { key, run, update } = delivery;
        let Some(watched) = self.watching.watched(&key, run) else { return };
        let now = Instant::now();
        match &update {
            Update::Live => {
                self.watching.is_live(&key);
                // Autoscalers may be in sight again.
                self.permits_due = true;
                self.reached();
            }
            Update::Broken { reason } => {
                if !matches!(reason, WatchReason::Ended | WatchReason::Moved | WatchReason::NotServed) {
                    self.watching.is_broken(&key, *reason, now);
                    if matches!(watched, Watched::Records(_)) {
                        self.publish_cluster();
                    }
                }
                if *reason == WatchReason::NotServed {
                    self.discover_within(DISCOVER_AFTER);
                }
                if reason.is_of_server() {
                    self.unreached(is_watch_break(*reason));
                }
            }
            _ => {}
        }
        match watched {
            Watched::Records(store) => self.record_update(store, update),
            Watched::Beside(Beside::Scalers(kind)) => self.scaler_update(kind, update, now),
            Watched::Beside(Beside::Admission(kind)) => self.admission_update(kind, update),
            Watched::Definitions => self.definition_update(&update),
            Watched::Namespaces => self.namespace_update(&update),
            Watched::Objects(gvk) => self.object_update(&gvk, &update, now),
        }
    }

    fn object_update(&mut self, gvk: &Gvk, update: &Update<Sighting>, now: Instant) {
        match *update {
            Update::Reset => self.watching.list_begins(gvk),
            Update::Listed(Sighting::Object { id, news, version, .. }) => {
                self.watching.listed(gvk, id);
                self.event(id, news, version, now);
            }
            Update::Changed(Sighting::Object { id, news, version, .. }) => self.event(id, news, version, now),
            // Gone, or its label is: one read without a selector tells. Never the echo of our own write, even right after a creation.
            Update::Deleted(Sighting::Object { id, .. }) => {
                self.retries.remove(&id);
                self.echoes.remove(&id);
                self.queue.push(id, now, now);
            }
            Update::ListComplete => {
                if let Some(listed) = self.watching.list_ends(gvk) {
                    self.look_for_missing(gvk, &listed, now);
                }
            }
            _ => {}
        }
    }

    fn scaler_update(&mut self, kind: ScalerKind, update: Update<Sighting>, now: Instant) {
        let otherwise = match update {
            Update::Reset => {
                self.scalers.reset(kind);
                Vec::new()
            }
            Update::Listed(Sighting::Scaler(scaler)) | Update::Changed(Sighting::Scaler(scaler)) => self.scalers.put(*scaler),
            Update::Deleted(Sighting::Scaler(scaler)) => self.scalers.remove(&scaler).into_iter().collect(),
            Update::ListComplete => {
                self.permits_due = true;
                self.scalers.list_complete(kind)
            }
            _ => Vec::new(),
        };
        self.scaled_otherwise(&otherwise, now);
    }

    /// Bounds moved: what was yielded may be drift now, and the other way round.
    fn scaled_otherwise(&mut self, targets: &[StateId], now: Instant) {
        if !targets.is_empty() {
            self.rules_moved();
        }
        for target in targets {
            self.judge_afresh(*target, now);
        }
    }

    fn admission_update(&mut self, kind: AdmissionKind, update: Update<Sighting>) {
        let had_policies = self.admission.has_policies();
        let admission = Arc::make_mut(&mut self.admission);
        match update {
            Update::Reset => admission.reset(kind),
            Update::Listed(Sighting::Admission(sight)) | Update::Changed(Sighting::Admission(sight)) => admission.put(*sight),
            Update::Deleted(Sighting::Admission(sight)) => admission.remove(&sight),
            Update::ListComplete => admission.list_complete(kind),
            _ => {}
        }
        if self.admission.has_policies() != had_policies {
            self.follow_what_rules();
        }
    }

    /// Watches what rules objects from beside them, as far as the cluster serves it. What is served no more is only forgotten where its
    /// definition is gone, too: an answer that leaves a part out must not turn replicas back.
    pub(super) fn follow_what_rules(&mut self) {
        let now = Instant::now();
        let catalog = Arc::clone(&self.catalog);
        for kind in ScalerKind::ALL {
            if let Some(place) = kind.place(&catalog) {
                if self.watching.watch_beside(Beside::Scalers(kind), place) {
                    self.scalers.expect(kind);
                    self.rules_moved();
                }
            } else if kind.definition().is_some_and(|name| self.definitions.lacks(&name))
                && self.watching.leave_beside(Beside::Scalers(kind))
            {
                let targets = self.scalers.forget(kind);
                self.scaled_otherwise(&targets, now);
                self.permits_due = true;
            }
        }
        for kind in AdmissionKind::ALL {
            // Most clusters have no policy, and without one a binding is of no use.
            let is_of_use = kind != AdmissionKind::Bindings || self.admission.has_policies();
            match kind.place(&catalog).filter(|_| is_of_use) {
                Some(place) => _ = self.watching.watch_beside(Beside::Admission(kind), place),
                None if self.watching.leave_beside(Beside::Admission(kind)) => Arc::make_mut(&mut self.admission).forget(kind),
                None => {}
            }
        }
    }

    /// What an object is judged by changed beside the object. Digests know nothing of that, so it is judged from scratch, also where it
    /// is being judged by the old rules right now.
    pub(super) fn judge_afresh(&mut self, id: StateId, now: Instant) {
        if self.objects.contains_key(&id) {
            self.afresh.insert(id);
            self.queue.push(id, now, now);
        }
    }

    fn record_update(&mut self, store: Store, update: Update<Sighting>) {
        let touched = match update {
            Update::Reset => {
                self.book.reset(store);
                Vec::new()
            }
            Update::Listed(Sighting::Record(sight)) => {
                let release = self.book.put(*sight);
                if self.book.complete { release.into_iter().collect() } else { Vec::new() }
            }
            Update::Changed(Sighting::Record(sight)) => self.book.put(*sight).into_iter().collect(),
            Update::Deleted(Sighting::Record(sight)) => self.book.remove(&sight).into_iter().collect(),
            Update::ListComplete => {
                let touched = self.book.list_complete(store);
                if self.book.complete {
                    self.review_known_reports();
                }
                touched
            }
            _ => Vec::new(),
        };
        if self.book.complete {
            for release in touched {
                self.look_at(&release);
            }
        }
    }
}
