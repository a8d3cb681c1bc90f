//! The actor's part about what leads it: the management cluster's word, the credentials, and whether the cluster answers.

use std::sync::{Arc, atomic::Ordering};

use holdfast_api::report::Reason;
use holdfast_fleet::{
    call::{ApiClient, CallError},
    kubeconfig::Kubeconfig,
    transport::TlsFault,
    watch::{Reason as WatchReason, SourceError},
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    actor::{Actor, Ended, Job},
    identities::Claim,
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
        self.seat.leave.fetch_add(1, Ordering::AcqRel);
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
        let before = std::mem::replace(&mut self.entry, Arc::clone(entry));
        // What was read past the watch is newer than what the watch showed before that.
        if before.credential != entry.credential {
            match &entry.credential {
                Credential::Ready(next) => self.offered(next),
                Credential::Rejected(_) => return Some(Ended::Released),
                // The running connection goes on until the server refuses it.
                Credential::Missing => {}
            }
            self.publish_cluster();
        }
        let policies_changed = !Arc::ptr_eq(&self.policies, &view.policies)
            || before.labels != entry.labels
            || before.namespace_labels != entry.namespace_labels;
        self.policies = Arc::clone(&view.policies);
        if policies_changed || before.gate != entry.gate {
            self.contact.paused = entry.gate == Gate::Paused;
            self.policies_changed();
        }
        None
    }

    /// Other names of the same cluster came, went, or were found out.
    pub(super) fn claim_changed(&mut self, claim: Claim) {
        match &claim {
            Claim::Yielded(older) => {
                tracing::warn!(cluster = %self.name, %older, "an older name leads to the same cluster: nothing is written");
            }
            Claim::Held(others) => tracing::info!(cluster = %self.name, others = others.len(), "this name may write to the cluster"),
            Claim::Unsettled => {}
        }
        self.contact.claim = claim;
        self.rules_moved();
        self.all_dirty();
    }

    /// The Secret holds these credentials now. A new token goes into the running connection; anything else may lead elsewhere.
    pub(super) fn offered(&mut self, next: &Arc<Kubeconfig>) {
        let before = self.credentials.is_unresolved();
        if self.credentials.is_news(next.fingerprint()) {
            if self.examiner.client.connection().swap_token(next) {
                self.credentials.taken(Arc::clone(next), next.fingerprint());
                self.watching.retry_now();
                tracing::debug!(cluster = %self.name, "going on with a new token");
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
                    tracing::debug!(cluster = %self.name, "going on over a new connection");
                    self.watching.move_to(Arc::new(client.clone()));
                    self.examiner.client = client;
                    if self.breaker.renewed(Instant::now()) {
                        self.returned();
                    }
                    self.rules_moved();
                    self.publish_cluster();
                }
            }
            Probe::Other => {
                if self.credentials.is_current(number) {
                    tracing::warn!(cluster = %self.name, "the kubeconfig leads to another cluster now");
                    self.ended = Some(Ended::Reconnect);
                }
            }
            Probe::Failed(reason) => {
                if self.credentials.failed(number, reason, Instant::now()) {
                    tracing::warn!(cluster = %self.name, reason, "the new kubeconfig leads nowhere; going on with the old one, without writes");
                    self.publish_cluster();
                }
            }
        }
    }

    /// A call was answered.
    pub(super) fn reached(&mut self) {
        if self.breaker.close(Instant::now()) {
            self.returned();
        }
    }

    /// A call failed in a way that may be the cluster's.
    pub(super) fn unreached(&mut self, is_break: bool) {
        let now = Instant::now();
        if is_break && self.breaker.broke(now) {
            self.rules_moved();
        }
        self.breaker.doubt(now);
    }

    /// Asks the cluster for a sign of life, where there is doubt: who it is.
    pub(super) fn ask_for_life(&mut self, now: Instant) {
        if let Some(question) = self.breaker.ask(now) {
            let client = self.examiner.client.clone();
            self.jobs.push(Box::pin(async move { Job::Asked { question, answer: holdfast_fleet::discovery::cluster_uid(&client).await } }));
        }
    }

    pub(super) fn asked(&mut self, question: u64, answer: Result<Arc<str>, SourceError>) {
        if !self.breaker.awaits(question) {
            return;
        }
        let now = Instant::now();
        let (reason, hint) = match answer {
            Ok(uid) if uid != self.uid => {
                tracing::warn!(cluster = %self.name, "another cluster answers now");
                self.ended = Some(Ended::Reconnect);
                return;
            }
            Ok(_) => return self.settled(now),
            // Whether a kind may be read is no question of whether the cluster is there, where there is no doubt which one it is.
            Err(SourceError::Forbidden) if !self.breaker.is_unproven() => return self.settled(now),
            Err(SourceError::Throttled { retry_after }) => (SourceError::Throttled { retry_after }.category(), retry_after),
            Err(error) => (error.category(), None),
        };
        if refuses_credentials(reason) && self.credentials.refused() {
            let (kubeconfigs, entry) = (self.shared.kubeconfigs.clone(), Arc::clone(&self.entry));
            self.jobs.push(Box::pin(async move { Job::Reread(kubeconfigs.read(&entry).await) }));
        }
        let reason = explained(reason, self.credentials.current(), self.shared.clock.now());
        if self.breaker.failed(reason, hint, now) {
            tracing::warn!(cluster = %self.name, reason, "the cluster cannot be reached");
            self.watching.hold(true);
            self.shared.outages.began(&self.name, now);
        }
    }

    fn settled(&mut self, now: Instant) {
        let was_unproven = self.breaker.is_unproven();
        if self.breaker.settled(now) {
            self.returned();
        } else if was_unproven {
            self.rules_moved();
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
        self.rules_moved();
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

/// Whether a call failed because the connection did: another cluster may answer the next one.
pub(super) const fn is_break(error: &CallError) -> bool {
    matches!(error, CallError::Unreachable(_) | CallError::Tls(_) | CallError::Unauthorized)
}

/// The same of a watch.
pub(super) const fn is_watch_break(reason: WatchReason) -> bool {
    matches!(reason, WatchReason::Unreachable | WatchReason::Unauthorized)
}

/// Whether the server talks, but not with these credentials.
pub(super) fn refuses_credentials(reason: &str) -> bool {
    reason == CallError::Unauthorized.category() || reason == TlsFault::ClientCertificate.reason()
}

/// The reason users see. A server only says that it refuses; that the certificate has expired shows in the certificate.
pub(super) fn explained(reason: &'static str, kubeconfig: &Kubeconfig, now: Timestamp) -> &'static str {
    let expired = refuses_credentials(reason) && kubeconfig.identity().has_expired(now);
    if expired { "ClientCertificateExpired" } else { reason }
}
