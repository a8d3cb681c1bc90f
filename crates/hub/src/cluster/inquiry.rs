//! Carries out the engine's steps for one object: reads, asks, proves and writes, and hands every answer back to
//! [`holdfast_engine::decide::decide`]. Makes no decision of its own. The questions are in [`asking`] and their answers in [`facts`],
//! repairs that take two writes in [`repair`], objects that are deleted and created again in [`replace`].

mod asking;
mod facts;
mod repair;
mod replace;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use holdfast_api::report::{Action, Actor, Outcome, Reason, Verdict};
use holdfast_engine::{
    answer::Live,
    assess::AcceptedPath,
    canonical::Digest,
    case::{self, Baseline, Case, Desired, Permit},
    decide::{self, Ask, Judgement, Step},
    foreign::{self, Look},
    manager::{self, Writer},
    path::Path,
    plan::{Correction, Request},
    project, recreate,
};
use holdfast_fleet::{
    call::{self, ApiClient, CallError, Effect, Endpoint, FieldManager, Retry},
    clock::Clock,
    meta::Meta,
};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    admission::Subject,
    context::{Context, Examined, Leave, Proposal, Written},
    guarded::Guarded,
    sight::{self, Sight},
    source::Learnt,
    state::{ObjectState, States},
};
use crate::state_secrets::ClusterSecrets;
use facts::{Facts, answer, outcome};

/// Field manager of every dry-run that asks the server about declared objects. Never used for a write.
const ORACLE_MANAGER: &str = "holdfast";

/// Examines objects of one cluster.
#[derive(Clone, Debug)]
pub struct Examiner {
    /// Calls to the cluster.
    pub client: ApiClient,
    /// Shared owned sets.
    pub states: States,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Where a repair of two writes is declared before its first.
    pub intents: Intents,
    /// Once cancelled, judgements under way begin no further call.
    pub halt: CancellationToken,
}

/// Where a repair of two writes is declared before its first, so that the second is made whatever happens in between.
#[derive(Clone, Debug)]
pub enum Intents {
    /// Nowhere, so there is no such repair.
    None,
    /// On the management cluster, where a restart finds it.
    Kept(Box<ClusterSecrets>),
    /// In this process alone: whoever runs it sees the repair through, or is told that it was not finished.
    InProcess,
}

impl From<Option<ClusterSecrets>> for Intents {
    fn from(secrets: Option<ClusterSecrets>) -> Self {
        secrets.map_or(Self::None, |secrets| Self::Kept(Box::new(secrets)))
    }
}

/// One object under examination.
struct Inquiry<'a> {
    examiner: &'a Examiner,
    guarded: &'a Guarded,
    context: &'a Context,
    endpoint: Endpoint,
    collection: Endpoint,
    oracle_manager: FieldManager,
    state: ObjectState,
    facts: Facts,
    /// The second write of an earlier repair was made.
    has_paid: bool,
    /// What would be written, where it is only to be told.
    proposal: Option<Box<Proposal>>,
}

impl Examiner {
    /// Judges one object, and corrects it where the context permits.
    pub async fn examine(&self, guarded: &Guarded, state: ObjectState, context: &Context) -> Examined {
        self.examine_read(guarded, state, context, None).await
    }

    /// The same with the text of a live object that was just read some other way, for example in a list.
    pub async fn examine_read(&self, guarded: &Guarded, state: ObjectState, context: &Context, live: Option<Bytes>) -> Examined {
        let places = guarded.endpoint().and_then(|endpoint| Ok((endpoint, guarded.collection()?)));
        let (Ok((endpoint, collection)), Ok(oracle_manager)) = (places, FieldManager::new(ORACLE_MANAGER)) else {
            let judgement = Judgement::plain(
                Verdict::Unknown,
                Action::Reported,
                Reason::ManifestInvalid,
                "the object's name cannot be part of a request",
            );
            return Examined {
                judgement,
                state,
                writer: None,
                assumed: None,
                write: None,
                unreachable: None,
                uid: String::new(),
                asked: Vec::new(),
                stale_leave: false,
                has_paid: false,
                proposal: None,
            };
        };
        let mut facts = Facts::default();
        if let Some(text) = live {
            facts.live = serde_json::from_slice(&text).ok().map(Ok);
            facts.live_text = text;
        }
        let inquiry = Inquiry {
            examiner: self,
            guarded,
            context,
            endpoint,
            collection,
            oracle_manager,
            state,
            facts,
            has_paid: false,
            proposal: None,
        };
        Box::pin(inquiry.run()).await
    }
}

impl Inquiry<'_> {
    async fn run(mut self) -> Examined {
        if self.state.desired != self.guarded.hash {
            self.state.start_anew(self.guarded.hash);
        }
        if self.context.also_declared_by.is_none() {
            if self.facts.live.is_none() {
                self.read().await;
            }
            self.notice_another_incarnation();
            if let Some(judgement) = self.pay_what_is_owed().await {
                return self.conclude(judgement, None);
            }
            if let Some(judgement) = self.glance() {
                return self.conclude(judgement, None);
            }
        }
        let desired = self.guarded.desired();
        loop {
            let step = self.with_case(&desired, decide::decide);
            match step {
                Step::Done(judgement) if self.may_replace(&judgement) => match self.with_case(&desired, recreate::next) {
                    recreate::Next::AskCreate => Box::pin(self.ask(Ask { create: true, ..Ask::default() })).await,
                    recreate::Next::Replace(correction) => return self.replace(&desired, &correction).await,
                    recreate::Next::Leave(why) => return self.conclude(recreate::left(*judgement, why), None),
                },
                Step::Done(judgement) => return self.conclude(*judgement, None),
                _ if self.examiner.halt.is_cancelled() => return self.give_way(&desired),
                Step::FetchLive => self.read().await,
                // Large, and most objects are in sync without a question.
                Step::Ask(ask) => Box::pin(self.ask(ask)).await,
                Step::Merge => {
                    let body = Bytes::copy_from_slice(self.guarded.text());
                    let merged = self.examiner.client.merge_patch(&self.endpoint, body, &self.oracle_manager, Effect::DryRun).await;
                    self.facts.merged = Some(self.facts.said(merged));
                }
                Step::Prove(correction) => {
                    let proof = self.send(&correction, Effect::DryRun).await;
                    self.facts.proof = Some(self.facts.said(proof));
                }
                Step::ProveAgain(correction) => {
                    let proof = self.send(&correction, Effect::DryRun).await;
                    self.facts.proof_again = Some(self.facts.said(proof));
                }
                Step::Write(correction) if !self.context.sends.lets(&correction) => {
                    let live = self.facts.live.as_ref().and_then(|live| live.as_ref().ok());
                    self.proposal = Some(Box::new(Proposal::of(&self.guarded.key.gvk, live, &correction)));
                    let judgement = self.with_case(&desired, decide::proposed);
                    return self.conclude(judgement, None);
                }
                Step::Write(_) if !self.context.leave.as_ref().is_some_and(Leave::holds) => return self.give_way(&desired),
                Step::Write(correction) => return self.write(&desired, &correction).await,
            }
        }
    }

    /// Nothing is sent any more under what was decided: it is judged again by what holds now.
    fn give_way(mut self, desired: &Desired) -> Examined {
        self.facts.stale_leave = true;
        let judgement = self.with_case(desired, decide::overtaken);
        self.conclude(judgement, None)
    }

    fn with_case<T>(&self, desired: &Desired, then: impl FnOnce(&Case<'_>) -> T) -> T {
        let (facts, context) = (&self.facts, self.context);
        let baseline: Option<Baseline> = self.state.baseline();
        let ignored = |path: &Path, actor: Option<&Actor>| {
            context.ignore.iter().any(|rule| rule.covers(path, actor.map(|actor| actor.manager.as_str())))
        };
        let suspects = || context.admission.suspects(&self.subject(desired));
        let enforced = |path: &Path| context.enforce.iter().any(|pattern| pattern.covers(path));
        let exclusive = |path: &Path| context.exclusive.iter().any(|pattern| pattern.covers(path));
        then(&Case {
            desired,
            owned: self.state.owned.as_deref(),
            baseline: baseline.as_ref(),
            live: facts.live(),
            oracle: answer(facts.oracle.as_ref()),
            oracle_again: answer(facts.oracle_again.as_ref()),
            create: answer(facts.create.as_ref()),
            claims: answer(facts.claims.as_ref()),
            merged: answer(facts.merged.as_ref()),
            proof: answer(facts.proof.as_ref()),
            proof_again: answer(facts.proof_again.as_ref()),
            fence: facts.fence,
            permit: if context.fence.is_some() && context.leave.is_some() { context.permit } else { Permit::Report(None) },
            ignored: &ignored,
            enforced: &enforced,
            scalers: &context.scalers,
            suspects: &suspects,
            ledger: context.ledger.as_deref(),
            writer: context.writer.as_ref(),
            prefer: context.prefer,
            deployed_at: context.deployed_at,
            seen: self.state.seen,
            vouched: self.state.vouched,
            word: context.word,
            also_declared_by: context.also_declared_by.as_deref(),
            held: context.held,
            foreign: foreign::Rules {
                handling: context.foreign,
                exclusive: &exclusive,
                tag: context.foreign_tag,
                known: self.state.additions,
                previous: self.state.previous.as_deref(),
            },
            now: self.examiner.clock.now(),
        })
    }

    /// The object as webhooks and policies see it.
    fn subject<'s>(&'s self, desired: &'s Desired) -> Subject<'s> {
        let labels = |object: Option<&'s Value>| object.and_then(|object| object.pointer("/metadata/labels")).and_then(Value::as_object);
        let live = match &self.facts.live {
            Some(Ok(live)) => Some(live),
            _ => None,
        };
        let key = &desired.key;
        Subject {
            gvk: &key.gvk,
            plural: &self.guarded.resource.plural,
            scope: self.guarded.resource.scope,
            namespace: key.namespace.as_deref(),
            name: &key.name,
            labels: [labels(live), labels(Some(&desired.value))],
        }
    }

    /// What was accepted, or is owed, for another incarnation proves nothing about this one.
    fn notice_another_incarnation(&mut self) {
        let (Some(known), Some(owned)) = (self.state.sight, &self.state.owned) else { return };
        if let Ok(meta) = Meta::of_object(&self.facts.live_text)
            && known.is_other_object(&Sight::of(&meta, owned, &self.guarded.key.gvk))
        {
            self.state.start_anew(self.guarded.hash);
        }
    }

    /// In sync by digest alone, without building the declared object: the usual end of an event.
    fn glance(&mut self) -> Option<Judgement> {
        let Some(Ok(live)) = &self.facts.live else { return None };
        let meta = Meta::of_object(&self.facts.live_text).ok()?;
        let owned = Arc::clone(self.state.owned.as_ref()?);
        let digest = project::digest(&project::leaves(&owned, live));
        if meta.deletion_timestamp.is_some() || self.state.in_sync != Some(digest) {
            return None;
        }
        let (context, additions) = (self.context, self.state.additions);
        let is_untouched = |writer: &Writer| foreign::is_nothing(additions, context.foreign_tag) && foreign::is_untouched(live, writer);
        if context.writer.as_ref().is_some_and(is_untouched) {
            return Some(Judgement::unchanged(digest, additions));
        }
        let entries = manager::entries(live);
        let writer = case::release_writer(&entries, context.prefer, context.writer.as_ref(), context.deployed_at);
        let look = Look { gvk: &self.guarded.key.gvk, owned: &owned, live, entries: &entries, writer: writer.as_ref() };
        look.is_as_before(additions, context.foreign_tag).then(|| Judgement::unchanged(digest, additions))
    }

    async fn send(&self, correction: &Correction, effect: Effect) -> Result<call::Answer, CallError> {
        let client = &self.examiner.client;
        let manager = FieldManager::new(correction.writer.manager.clone()).map_err(|_| CallError::BadPath)?;
        match &correction.request {
            Request::JsonPatch(ops) => client.json_patch(&self.endpoint, json_bytes(ops), &manager, effect).await,
            Request::Apply(body) => client.apply(&self.endpoint, json_bytes(body), &manager, true, effect).await,
            Request::CreateByApply(body) => client.apply(&self.endpoint, json_bytes(body), &manager, false, effect).await,
            Request::Create(body) => client.create(&self.collection, json_bytes(body), &manager, effect).await,
        }
    }

    /// Sends a correction and draws the conclusion from the answer.
    async fn write(mut self, desired: &Desired, correction: &Correction) -> Examined {
        if let (Some(change), Live::Present(before)) = (&correction.then, self.facts.live()) {
            if !self.declare(change, uid_of(before)).await {
                let message = "the repair takes two writes, and it could not be stored that the second is due";
                return self.conclude(Judgement::plain(Verdict::Drifted, Action::Deferred, Reason::ServerError, message), None);
            }
            // That took a moment.
            if !self.context.leave.as_ref().is_some_and(Leave::holds) {
                self.fulfil().await;
                return self.give_way(desired);
            }
        }
        let drifts = self.with_case(desired, decide::drifts);
        let creates = matches!(correction.request, Request::Create(_) | Request::CreateByApply(_));
        let paths = if creates {
            vec![(Path::root(), Digest::of(&Value::Null))]
        } else {
            drifts.iter().map(|drift| (drift.path.clone(), drift.pair)).collect()
        };
        let actor = drifts.first().and_then(|drift| drift.finding.actor.clone());
        let sent = self.send(correction, Effect::Persist).await;
        let mut passed = None;
        let (judgement, outcome) = match sent.and_then(|answer| Ok((answer.json::<Value>()?, answer.into_bytes()))) {
            Ok((object, text)) => {
                let mut concluded = self.with_case(desired, |case| match (case.owned, case.live) {
                    (Some(owned), Live::Present(before)) => {
                        (decide::corrected(case, owned, before, correction, &object), Outcome::Corrected)
                    }
                    (owned, _) => (decide::recreated(case, owned, &object), Outcome::Recreated),
                });
                self.facts.live_text = text;
                self.facts.absent = false;
                if let (Some(change), Some(Ok(before))) = (&correction.then, &self.facts.live) {
                    let moved = self.move_ownership(change, before, &version_of(&object)).await;
                    passed = Meta::of_object(&self.facts.live_text).ok().map(|meta| sight::version_of(&meta));
                    let is_still = |in_sync: &Digest| moved.as_ref().is_some_and(|moved| self.is_still(*in_sync, moved));
                    concluded.0.in_sync = concluded.0.in_sync.filter(is_still);
                    self.note_second_write(change, &object, moved).await;
                }
                concluded
            }
            Err(CallError::Conflict | CallError::AlreadyExists | CallError::PatchMismatch) => {
                self.note_first_write(correction, false).await;
                (self.with_case(desired, decide::overtaken), Outcome::Conflict)
            }
            // The term ended between the decision and the wire.
            Err(CallError::Withheld) => {
                self.note_first_write(correction, false).await;
                return self.give_way(desired);
            }
            Err(error) => {
                let (reason, outcome) = self.failed(error);
                self.note_first_write(correction, outcome == Outcome::Failed).await;
                (self.with_case(desired, |case| decide::refused_write(case, reason)), outcome)
            }
        };
        self.conclude(judgement, Some(Written { paths, actor, outcome, passed }))
    }

    /// What a write came to that was not carried out, as far as is known.
    fn failed(&mut self, error: CallError) -> (Reason, Outcome) {
        let outcome = if error.retry() == Retry::Later { Outcome::Failed } else { Outcome::Refused };
        let refusal = self.facts.said(Err(error)).err();
        (refusal.map_or(Reason::ServerError, |refusal| refusal.reason), outcome)
    }

    fn conclude(self, judgement: Judgement, write: Option<Written>) -> Examined {
        let Self { guarded, context, mut state, facts, has_paid, proposal, .. } = self;
        let mut uid = String::new();
        let mut writer = None;
        if facts.absent {
            state.start_anew(guarded.hash);
        } else if let Ok(meta) = Meta::of_object(&facts.live_text) {
            uid = meta.uid.to_string();
            state.sight = state.owned.as_ref().map(|owned| Sight::of(&meta, owned, &guarded.key.gvk));
            // Only the answer to a write has not been read yet.
            let object = match (&facts.live, &write) {
                (Some(Ok(live)), None) => Some(Cow::Borrowed(live)),
                _ => serde_json::from_slice(&facts.live_text).ok().map(Cow::Owned),
            };
            if let Some(object) = object {
                writer = learnt(&manager::entries(&object), context);
                state.seen |= guarded.owns(&object);
            }
        }
        state.in_sync = judgement.in_sync;
        state.vouched |= judgement.in_sync.is_some();
        state.additions = judgement.additions.digest;
        if judgement.in_sync.is_some() {
            state.previous = None;
        }
        if judgement.settled {
            state.accepted = Some(judgement.accepted.iter().map(AcceptedPath::remembered).collect());
        }
        let asked =
            [&facts.oracle, &facts.oracle_again, &facts.create, &facts.claims, &facts.merged].into_iter().flatten().map(outcome).collect();
        Examined {
            judgement,
            state,
            writer,
            assumed: context.writer.clone(),
            write,
            unreachable: facts.unreachable,
            uid,
            asked,
            stale_leave: facts.stale_leave,
            has_paid,
            proposal,
        }
    }
}

/// How the release writes, as this object tells. Whoever deleted an object and created it again holds its ownership metadata too, so
/// only an entry no younger than the deployment is proof.
fn learnt(entries: &[manager::Entry], context: &Context) -> Option<Learnt> {
    let entry = manager::release_entry(entries, context.prefer, context.writer.as_ref())?;
    let proven = matches!((entry.time, context.deployed_at), (Some(written), Some(deployed)) if written <= deployed);
    Some(Learnt { writer: entry.writer(), proven })
}

fn uid_of(object: &Value) -> &str {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

fn version_of(object: &Value) -> String {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn json_bytes(value: &impl Serialize) -> Bytes {
    // Values built here have text keys only, which is all that serialising can fail on.
    serde_json::to_vec(value).unwrap_or_default().into()
}
