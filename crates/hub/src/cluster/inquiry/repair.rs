//! Repairs that take two writes: the fields, then who holds them. What the second is to do is stored before the first.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_api::report::{Action, Reason, Verdict};
use holdfast_engine::{
    answer::{Fence, Live},
    canonical::Digest,
    case::Permit,
    decide::Judgement,
    fields, patch,
    plan::Correction,
    project,
};
use holdfast_fleet::call::{CallError, Effect, FieldManager, Shape};
use serde_json::{Value, json};

use super::{Inquiry, Intents, json_bytes, uid_of, version_of};
use crate::{
    cluster::{context::Leave, state::Owed},
    state_secrets::{Part, StoredId, StoredIntent},
};

/// Attempts at the second write of a positional repair when somebody writes in between.
const MOVE_ATTEMPTS: usize = 4;

impl Inquiry<'_> {
    /// Finishes a repair whose second write did not go through. While that fails nothing else is done: every later `helm upgrade` would
    /// meet a conflict.
    pub(super) async fn pay_what_is_owed(&mut self) -> Option<Judgement> {
        let owed = self.state.owed.clone()?;
        let Some(Ok(live)) = &self.facts.live else {
            if self.facts.absent {
                self.fulfil().await;
            }
            return None;
        };
        // Another incarnation, or another release's object by now.
        if uid_of(live) != owed.uid || !self.guarded.owns(live) {
            self.fulfil().await;
            return None;
        }
        let change =
            if owed.is_certain { Some(owed.change.clone()) } else { fields::unfinished(live, &owed.change, &self.guarded.desired().value) };
        let Some(change) = change else {
            self.fulfil().await;
            return None;
        };
        if !self.may_pay().await {
            return None;
        }
        if let Some(text) = self.move_ownership(&change, live, &version_of(live)).await {
            self.has_paid = true;
            self.fulfil().await;
            self.facts.live = serde_json::from_slice(&text).ok().map(Ok);
            self.facts.live_text = text;
            return None;
        }
        let message = "the fields are put back, but not yet under the release's name";
        Some(Judgement::plain(Verdict::Drifted, Action::Deferred, Reason::ServerError, message))
    }

    /// Like every other write: permitted, by leave that still holds, and with no newer or pending record in sight.
    async fn may_pay(&self) -> bool {
        let holds = || self.context.leave.as_ref().is_some_and(Leave::holds);
        let Some(question) = self.context.fence.as_ref().filter(|_| self.context.permit == Permit::Write && holds()) else { return false };
        self.examiner.fence(question).await == Fence::Clear && holds()
    }

    /// Says, where a restart finds it, that a repair of two writes begins.
    pub(super) async fn declare(&self, change: &fields::Move, uid: &str) -> bool {
        let intents = match &self.examiner.intents {
            Intents::None => return false,
            Intents::InProcess => return true,
            Intents::Kept(intents) => intents,
        };
        let intent = StoredIntent { uid: uid.to_owned(), change: change.into() };
        match intents.declare(StoredId::of(&self.guarded.key), &intent).await {
            Ok(()) => true,
            Err(failure) => {
                tracing::warn!(reason = failure.as_str(), "a repair of two writes does not begin: it could not be declared");
                false
            }
        }
    }

    /// The second write was made, or there is none to make.
    pub(super) async fn fulfil(&mut self) {
        self.state.owed = None;
        if let Intents::Kept(intents) = &self.examiner.intents
            && let Err(failure) = intents.remove(Part::Intent(StoredId::of(&self.guarded.key))).await
        {
            // A restart finds that nothing is left to do.
            tracing::debug!(reason = failure.as_str(), "a finished repair is still declared");
        }
    }

    /// The first write did not succeed: certainly not, or without an answer. Without one it may have been carried out.
    pub(super) async fn note_first_write(&mut self, correction: &Correction, may_have_been_made: bool) {
        let (Some(change), Live::Present(before)) = (&correction.then, self.facts.live()) else { return };
        if may_have_been_made {
            let uid = uid_of(before).to_owned();
            self.state.owed = Some(Arc::new(Owed { change: change.clone(), uid, is_certain: false }));
        } else {
            self.fulfil().await;
        }
    }

    /// Keeps in mind how the second write went.
    pub(super) async fn note_second_write(&mut self, change: &fields::Move, object: &Value, moved: Option<Bytes>) {
        if let Some(moved) = moved {
            self.facts.live_text = moved;
            self.fulfil().await;
        } else {
            self.state.owed = Some(Arc::new(Owed { change: change.clone(), uid: uid_of(object).to_owned(), is_certain: true }));
        }
    }

    /// The second write of a positional repair: `managedFields` and nothing else, guarded by the version of the first answer. Where
    /// somebody wrote in between, the entries are taken from what is there now.
    pub(super) async fn move_ownership(&self, change: &fields::Move, before: &Value, version: &str) -> Option<Bytes> {
        let client = &self.examiner.client;
        let manager = FieldManager::new(change.to.manager.clone()).ok()?;
        let mut entries = fields::moved(before, change, self.examiner.clock.now());
        let mut version = version.to_owned();
        for _ in 0..MOVE_ATTEMPTS {
            let ops = json!([patch::version_guard(&version), {"op": "replace", "path": "/metadata/managedFields", "value": entries}]);
            match client.json_patch(&self.endpoint, json_bytes(&ops), &manager, Effect::Persist).await {
                Ok(moved) => return Some(moved.into_bytes()),
                Err(CallError::Conflict) => {
                    let current: Value = client.get(&self.endpoint, Shape::Full).await.and_then(|answer| answer.json()).ok()?;
                    version = version_of(&current);
                    entries = fields::moved(&current, change, self.examiner.clock.now());
                }
                Err(error) => {
                    tracing::warn!(reason = error.category(), "ownership could not be moved back to the release");
                    return None;
                }
            }
        }
        None
    }

    /// Whether the owned paths are what they were: somebody may have written between the two writes of a repair.
    pub(super) fn is_still(&self, in_sync: Digest, text: &Bytes) -> bool {
        let object = serde_json::from_slice::<Value>(text);
        let owned = self.state.owned.as_ref();
        owned.zip(object.ok()).is_some_and(|(owned, object)| project::digest(&project::leaves(owned, &object)) == in_sync)
    }
}
