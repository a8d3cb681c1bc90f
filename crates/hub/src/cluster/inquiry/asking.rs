//! The questions: reads and dry-runs, and the list of the release's records right before a write.

use bytes::Bytes;
use holdfast_engine::{
    answer::Fence,
    decide::Ask,
    manager::{self, Operation},
    owned::OwnedSet,
};
use holdfast_fleet::call::{CallError, Effect, ListQuery, Shape};
use serde_json::Value;

use super::{Examiner, Inquiry, ORACLE_MANAGER, json_bytes};
use crate::cluster::{
    records::{FenceQuestion, RECORD_LABELS, record_fields, record_place},
    refusal::refusal,
};

impl Inquiry<'_> {
    pub(super) async fn read(&mut self) {
        match self.examiner.client.get(&self.endpoint, Shape::Full).await {
            Err(CallError::NotFound) => {
                self.facts.absent = true;
                self.facts.answered = true;
            }
            Ok(answer) => {
                self.facts.answered = true;
                self.facts.live = Some(answer.json().map_err(|error| refusal(&error)));
                self.facts.live_text = answer.into_bytes();
            }
            Err(error) => self.facts.live = Some(self.facts.said(Err(error))),
        }
    }

    pub(super) async fn ask(&mut self, ask: Ask) {
        let client = &self.examiner.client;
        let oracle = || async {
            let body = Bytes::copy_from_slice(self.guarded.text());
            client.apply(&self.endpoint, body, &self.oracle_manager, true, Effect::DryRun).await
        };
        let create = async {
            let body = json_bytes(&throw_away(self.guarded.desired().value));
            client.create(&self.collection, body, &self.oracle_manager, Effect::DryRun).await
        };
        let claims = async {
            let object = throw_away(self.guarded.desired().value);
            let endpoint = self.collection.clone().named(object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default());
            let endpoint = endpoint.map_err(|_| CallError::BadPath)?;
            client.apply(&endpoint, json_bytes(&object), &self.oracle_manager, true, Effect::DryRun).await
        };
        let fence = async {
            match &self.context.fence {
                Some(question) => self.examiner.fence(question).await,
                None => Fence::Unknown,
            }
        };
        let (oracle, again, create, claims, fence) = tokio::join!(
            only_if(ask.oracle, oracle()),
            only_if(ask.again, oracle()),
            only_if(ask.create, create),
            only_if(ask.claims, claims),
            only_if(ask.fence, fence)
        );
        if let Some(oracle) = oracle {
            let said = self.facts.said(oracle);
            if let (Ok(object), None) = (&said, &self.state.owned) {
                self.state.owned = Some(self.examiner.states.intern(owned_by_oracle(object)));
            }
            self.facts.oracle = Some(said);
        }
        if let Some(again) = again {
            self.facts.oracle_again = Some(self.facts.said(again));
        }
        if let Some(create) = create {
            self.facts.create = Some(self.facts.said(create));
        }
        if let Some(claims) = claims {
            let said = self.facts.said(claims);
            if let Ok(object) = &said {
                self.state.owned = Some(self.examiner.states.intern(owned_by_oracle(object)));
            }
            self.facts.claims = Some(said);
        }
        if let Some(fence) = fence {
            self.facts.fence = fence;
        }
    }
}

impl Examiner {
    /// One consistent list of the release's records, metadata only, right before a write.
    pub(super) async fn fence(&self, question: &FenceQuestion) -> Fence {
        let Ok(records) = record_place(question.store).and_then(|place| place.in_namespace(&question.namespace)) else {
            return Fence::Unknown;
        };
        let labels = format!("{RECORD_LABELS},name={}", question.name);
        let query = ListQuery { labels, fields: record_fields(question.store).to_owned(), consistent: true, ..ListQuery::default() };
        match self.client.list(&records, Shape::Metadata, &query).await {
            Ok(answer) => question.answer(answer.bytes()),
            Err(_) => Fence::Unknown,
        }
    }
}

async fn only_if<T>(wanted: bool, question: impl Future<Output = T>) -> Option<T> {
    if wanted { Some(question.await) } else { None }
}

/// The paths our own entry holds in the answer to a forced dry-run; none for an object that claims nothing.
fn owned_by_oracle(answer: &Value) -> OwnedSet {
    manager::entries(answer)
        .into_iter()
        .find(|entry| entry.manager == ORACLE_MANAGER && entry.operation == Operation::Apply && entry.subresource.is_empty())
        .map(|entry| entry.fields)
        .unwrap_or_default()
}

/// The declared object under a name nobody uses, to see what admission makes of a creation.
fn throw_away(mut object: Value) -> Value {
    if let Some(Value::String(name)) = object.pointer_mut("/metadata/name") {
        name.truncate(name.char_indices().map(|(index, _)| index).take_while(|index| *index < 40).last().unwrap_or_default());
        *name = format!("{name}x-holdfast-{:06x}", rand::random::<u32>() & 0xff_ffff);
    }
    object
}
