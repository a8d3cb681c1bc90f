//! Objects that are deleted and created again, because a field that cannot be changed has drifted.

use holdfast_api::report::{Outcome, Reason, Verdict};
use holdfast_engine::{
    answer::{Fence, Live},
    case::Desired,
    decide::{self, Judgement},
    plan::Correction,
    recreate,
};
use holdfast_fleet::call::{CallError, Effect};
use serde_json::{Value, json};

use super::{Inquiry, json_bytes, uid_of, version_of};
use crate::cluster::context::{Examined, Leave, Sends, Written};

impl Inquiry<'_> {
    /// Whether the policy lets the object be made anew instead of what was judged.
    pub(super) fn may_replace(&self, judgement: &Judgement) -> bool {
        self.context.recreate && judgement.verdict == Verdict::Refused && judgement.reason == Reason::Immutable
    }

    /// Deletes the object as it was judged, no other version and no other one of its name, and creates it as the release would. A restart in
    /// between finds a missing object that was seen with its release's metadata, which is created like any other.
    pub(super) async fn replace(mut self, desired: &Desired, correction: &Correction) -> Examined {
        if self.examiner.halt.is_cancelled() || !self.context.leave.as_ref().is_some_and(Leave::holds) {
            return self.give_way(desired);
        }
        // Two dry-runs ago the records were looked at, and what is deleted cannot be taken back.
        let Some(question) = self.context.fence.as_ref() else { return self.give_way(desired) };
        let is_clear = self.examiner.fence(question).await == Fence::Clear;
        if !is_clear || !matches!(self.context.sends, Sends::Everything) || !self.context.leave.as_ref().is_some_and(Leave::holds) {
            return self.give_way(desired);
        }
        let Live::Present(live) = self.facts.live() else { return self.give_way(desired) };
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": {"uid": uid_of(live), "resourceVersion": version_of(live)},
        });
        let drifts = self.with_case(desired, decide::drifts);
        let actor = drifts.first().and_then(|drift| drift.finding.actor.clone());
        let paths = drifts.iter().map(|drift| (drift.path.clone(), drift.pair)).collect();
        let deleted = self.examiner.client.delete(&self.endpoint, json_bytes(&options)).await;
        let created = match deleted {
            Ok(_) => self.send(correction, Effect::Persist).await.and_then(|answer| Ok((answer.json::<Value>()?, answer.into_bytes()))),
            Err(CallError::Withheld) => return self.give_way(desired),
            Err(error) => {
                let (judgement, outcome) = match error {
                    CallError::Conflict | CallError::NotFound => (self.with_case(desired, decide::overtaken), Outcome::Conflict),
                    error => {
                        let (reason, outcome) = self.failed(error);
                        (self.with_case(desired, |case| decide::refused_write(case, reason)), outcome)
                    }
                };
                return self.conclude(judgement, Some(Written { paths, actor, outcome, passed: None }));
            }
        };
        let (judgement, outcome) = match created {
            Ok((object, text)) => {
                let judgement = self.with_case(desired, |case| recreate::replaced(case, case.owned, drifts, &object));
                self.facts.live_text = text;
                (judgement, Outcome::Recreated)
            }
            Err(error) => {
                let (reason, _) = self.failed(error);
                self.facts.absent = true;
                (recreate::half_done(reason), Outcome::Failed)
            }
        };
        self.conclude(judgement, Some(Written { paths, actor, outcome, passed: None }))
    }
}
