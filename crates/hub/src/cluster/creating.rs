//! The actor's part about creations: where nothing can be created for now, because the namespace or the definition of the kind is gone or
//! on its way out.

use holdfast_api::report::{Action, Reason};
use holdfast_engine::decide::Judgement;
use holdfast_fleet::watch::Update;
use tokio::time::Instant;

use super::{actor::Actor, guarded::Guarded, sighting::Sighting, state::StateId};

impl Actor {
    /// Why nothing can be created in an object's place.
    pub(super) fn held(&self, guarded: &Guarded) -> Option<Reason> {
        if self.definitions.is_leaving(&guarded.resource) {
            return Some(Reason::KindTerminating);
        }
        guarded.key.namespace.as_deref().and_then(|namespace| self.suspensions.reason(namespace))
    }

    /// What the answer to a write tells about its namespace: one refusal suspends creations there, also those that were decided on and
    /// are not sent yet; one success ends that.
    pub(super) fn learn_where(&mut self, guarded: &Guarded, judgement: &Judgement) {
        let Some(namespace) = guarded.key.namespace.as_deref() else { return };
        if judgement.action == Action::Recreated {
            self.suspensions.end(namespace);
        }
        let is_refusal = matches!(judgement.reason, Reason::NamespaceMissing | Reason::NamespaceTerminating);
        if is_refusal && self.suspensions.suspend(namespace, judgement.reason, Instant::now()) {
            tracing::info!(cluster = %self.name, namespace, reason = judgement.reason.as_str(), "nothing can be created in the namespace");
            self.rules_moved();
        }
        self.watching.watch_namespaces(!self.suspensions.is_empty());
    }

    pub(super) fn namespace_update(&mut self, update: &Update<Sighting>) {
        let changed: Vec<Box<str>> = match update {
            Update::Reset => {
                self.suspensions.list_begins();
                Vec::new()
            }
            Update::Listed(Sighting::Named { name, is_leaving }) | Update::Changed(Sighting::Named { name, is_leaving }) => {
                self.suspensions.saw(name, *is_leaving).then(|| name.clone()).into_iter().collect()
            }
            Update::Deleted(Sighting::Named { name, .. }) => self.suspensions.gone(name).then(|| name.clone()).into_iter().collect(),
            Update::ListComplete => self.suspensions.list_ends(),
            _ => Vec::new(),
        };
        self.judge_namespaces(&changed);
        self.watching.watch_namespaces(!self.suspensions.is_empty());
    }

    /// Tries again where nobody can see what became of the namespace.
    pub(super) fn retry_namespaces(&mut self, now: Instant) {
        let lapsed = self.suspensions.lapse(now);
        self.judge_namespaces(&lapsed);
    }

    fn judge_namespaces(&mut self, namespaces: &[Box<str>]) {
        if namespaces.is_empty() {
            return;
        }
        self.judge_where(|guarded| {
            guarded.key.namespace.as_deref().is_some_and(|namespace| namespaces.iter().any(|changed| **changed == *namespace))
        });
    }

    /// Judges objects again because something beside them changed; a write that was refused before is worth another try.
    pub(super) fn judge_where(&mut self, is_meant: impl Fn(&Guarded) -> bool) {
        let now = Instant::now();
        let slots = self.objects.iter().filter(|(_, slot)| slot.claimants.first().is_some_and(|(_, guarded)| is_meant(guarded)));
        let ids: Vec<StateId> = slots.map(|(id, _)| *id).collect();
        for id in ids {
            self.retries.remove(&id);
            self.queue.push(id, now, now);
        }
    }
}
