//! The actor's part about what leads it: the management cluster's word, the credentials, and whether the cluster answers.

use std::sync::{Arc, atomic::Ordering};

use holdfast_api::report::Reason;
use holdfast_fleet::{call::ApiClient, kubeconfig::Kubeconfig, watch::SourceError};
use tokio::time::Instant;

use super::{
    actor::{Actor, Ended, Job},
    state::StateId,
};
use crate::fleet_view::{Credential, FleetView, Gate};

/// What a probe of other credentials found.
pub(super) enum Probe {
    /// The same cluster, to be talked to over this connection.
    Same(ApiClient),
    /// Another cluster: nothing that is known here is about it.
    Other,
    /// Nothing yet.
    Failed(&'static str),
}

impl Actor {
    /// What a write depends on changed: writes that were decided on before are not sent, and what was only reported is looked at again.
    pub(super) fn rules_moved(&mut self) {
        self.leave.fetch_add(1, Ordering::AcqRel);
        self.permits_due = true;
    }

    /// Follows the management cluster: policies, gate, credentials.
    pub(super) fn follow(&mut self, view: &FleetView) -> Option<Ended> {
        if !view.complete {
            return None;
        }
        let Some(entry) = view.clusters.get(&self.name).filter(|_| view.guards(&self.name)) else { return Some(Ended::Released) };
        if matches!(entry.gate, Gate::Deleting | Gate::NotInitialised) || entry.owner.uid != self.entry.owner.uid {
            return Some(Ended::Released);
        }
        match &entry.credential {
            Credential::Ready(next) => self.offered(next),
            Credential::Rejected(_) => return Some(Ended::Released),
            // The running connection goes on until the server refuses it.
            Credential::Missing => {}
        }
        let policies_changed = !Arc::ptr_eq(&self.policies, &view.policies) || self.entry.labels != entry.labels;
        let gate_changed = self.entry.gate != entry.gate;
        self.entry = Arc::clone(entry);
        self.policies = Arc::clone(&view.policies);
        if policies_changed || gate_changed {
            self.contact.paused = self.entry.gate == Gate::Paused;
            self.policies_changed();
        }
        None
    }

    /// The Secret holds these credentials now. A new token goes into the running connection; anything else may lead elsewhere.
    fn offered(&mut self, next: &Arc<Kubeconfig>) {
        let before = self.credentials.is_unresolved();
        if self.credentials.is_news(next.fingerprint()) {
            if self.examiner.client.connection().swap_token(next) {
                self.credentials.taken(next.fingerprint());
                self.watching.retry_now();
                self.breaker.hasten(Instant::now());
            } else {
                self.credentials.try_out(Arc::clone(next), next.fingerprint(), Instant::now());
            }
            self.rules_moved();
        } else if before != self.credentials.is_unresolved() {
            self.rules_moved();
        }
    }

    /// Make before break: other credentials must lead to the same cluster before anything moves.
    pub(super) fn probe(&mut self, now: Instant) {
        let Some((number, next)) = self.credentials.due(now) else { return };
        let (shared, uid) = (Arc::clone(&self.shared), Arc::clone(&self.uid));
        self.jobs.push(Box::pin(async move {
            let probe = match super::connect(&shared, &next) {
                Err(reason) => Probe::Failed(reason),
                Ok(client) => match holdfast_fleet::discovery::cluster_uid(&client).await {
                    Ok(found) if found == uid => Probe::Same(client),
                    Ok(_) => Probe::Other,
                    Err(error) => Probe::Failed(error.category()),
                },
            };
            Job::Probed { number, probe }
        }));
    }

    pub(super) fn probed(&mut self, number: u64, probe: Probe) {
        match probe {
            Probe::Same(client) => {
                if self.credentials.passed(number) {
                    self.watching.move_to(Arc::new(client.clone()));
                    self.examiner.client = client;
                    self.reached();
                    self.rules_moved();
                }
            }
            Probe::Other => {
                if self.credentials.is_current(number) {
                    tracing::warn!(cluster = %self.name, "the kubeconfig leads to another cluster now");
                    self.ended = Some(Ended::Reconnect);
                }
            }
            Probe::Failed(reason) => {
                if self.credentials.failed(number, Instant::now()) {
                    tracing::warn!(cluster = %self.name, reason, "the new kubeconfig leads nowhere; going on with the old one, without writes");
                }
            }
        }
    }

    /// A call was answered.
    pub(super) fn reached(&mut self) {
        if self.breaker.close() {
            self.returned();
        }
    }

    /// A call failed in a way that may be the cluster's.
    pub(super) fn unreached(&mut self) {
        self.breaker.doubt(Instant::now());
    }

    /// Asks the cluster for a sign of life, where there is doubt: who it is.
    pub(super) fn ask_for_life(&mut self, now: Instant) {
        if self.breaker.ask(now) {
            let client = self.examiner.client.clone();
            self.jobs.push(Box::pin(async move { Job::Asked { answer: holdfast_fleet::discovery::cluster_uid(&client).await } }));
        }
    }

    pub(super) fn asked(&mut self, answer: Result<Arc<str>, SourceError>) {
        let now = Instant::now();
        let (reason, hint) = match answer {
            Ok(uid) if uid != self.uid => {
                tracing::warn!(cluster = %self.name, "another cluster answers at the same address");
                self.ended = Some(Ended::Reconnect);
                return;
            }
            // Whether a kind may be read is no question of whether the cluster is there.
            Ok(_) | Err(SourceError::Forbidden) => {
                if self.breaker.settled(now) {
                    self.returned();
                }
                return;
            }
            Err(SourceError::Throttled { retry_after }) => (SourceError::Throttled { retry_after }.category(), retry_after),
            Err(error) => (error.category(), None),
        };
        if self.breaker.failed(reason, hint, now) {
            tracing::warn!(cluster = %self.name, reason, "the cluster cannot be reached");
            self.watching.hold(true);
            self.shared.outages.began(&self.name, now);
        }
    }

    /// The cluster answers again: whatever waited because of it goes on at once.
    fn returned(&mut self) {
        tracing::info!(cluster = %self.name, "the cluster answers again");
        let now = Instant::now();
        self.watching.hold(false);
        self.shared.outages.ended(&self.name);
        self.loads.retry_now(now);
        let failed: Vec<StateId> = self.releases.values().flat_map(|known| known.with_reason(Reason::ServerError)).collect();
        for id in failed {
            self.retries.remove(&id);
            self.queue.push(id, now, now);
        }
        if self.contact.unreachable.take().is_some() {
            self.all_dirty();
        }
    }

    /// Tells of an outage once it is time to.
    pub(super) fn tell_of_outage(&mut self, now: Instant) {
        if self.untold_until().is_some_and(|at| at <= now) {
            self.contact.unreachable = self.breaker.open();
            self.all_dirty();
        }
    }

    /// Until when an outage, or another reason for it, stays untold; `None` where there is nothing to tell.
    pub(super) fn untold_until(&self) -> Option<Instant> {
        let is_news = self.breaker.open().is_some() && self.breaker.open() != self.contact.unreachable;
        if is_news { self.shared.outages.tell_at(&self.name) } else { None }
    }
}
