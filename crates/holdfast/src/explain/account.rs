//! Everything there is to say about the decision on one object, as plain values.

use holdfast_api::report::{Action, Actor, CorrectionRecord, DeviationReason, Finding, ObjectRef, PathFinding, PolicyRef, Reason, Verdict};
use holdfast_engine::{assess::AcceptedPath, case::Permit, decide::Judgement, manager, project, redact, shown::ShownWrite};
use holdfast_fleet::{call::Shape, term::Term};
use holdfast_hub::{
    cluster::{
        context::{Context, Leave, Sends},
        guarded::Guarded,
        rules::ObjectRules,
        source::{Guardianship, object_ref},
    },
    fleet_view::Gate,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{advice, fleet::Managed};
use crate::scan::survey::{Subject, Surroundings, Survey};

/// The decision about one object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// The cluster, where it was found through the management cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The object.
    pub object: ObjectRef,
    /// What declares it.
    pub source: Declarer,
    /// Which policy decides.
    pub policy: Decider,
    /// The verdict.
    pub verdict: Verdict,
    /// Its reason.
    pub reason: Reason,
    /// One sentence.
    pub message: String,
    /// Fields that the declared object claims, and how many of them are literally as declared.
    pub fields: Fields,
    /// Differences that count as in sync.
    pub accepted: Vec<Accepted>,
    /// Differences that do not.
    pub differs: Vec<PathFinding>,
    /// What would be written, whether anybody writes it or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_write: Option<ShownWrite>,
    /// What the hub reports of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported: Option<Reported>,
    /// What comes next.
    pub next: String,
    /// When this was found.
    pub observed_at: Timestamp,
}

/// The release that declares an object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Declarer {
    /// Namespace and name.
    pub release: String,
    /// The revision it is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// When that was deployed, by the API server's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployed_at: Option<Timestamp>,
    /// Under which field manager the release writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// `Apply` or `Update`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<&'static str>,
}

/// The policy that decides, and why that one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decider {
    /// The policy; none where none selects the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRef>,
    /// `Off`, `Warn` or `Correct`.
    pub mode: String,
    /// Why it is this one.
    pub why: String,
}

/// Counts of claimed fields.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fields {
    /// All of them.
    pub claimed: usize,
    /// Those that are literally as declared.
    pub as_declared: usize,
}

/// A difference that counts as in sync.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// Where.
    pub path: String,
    /// Why.
    pub reason: DeviationReason,
    /// The same for people.
    pub note: String,
    /// The rule of the policy that says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The declared value, where it may be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Value>,
    /// The live value, where it may be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Value>,
    /// Who last wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

/// What the hub's report says of the object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reported {
    /// Its finding; none where it is as declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<Finding>,
    /// Writes to the object among the last of the release.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<CorrectionRecord>,
}

/// Whom to ask about an object.
pub struct Witness<'a> {
    /// The cluster.
    pub survey: &'a Survey,
    /// What all judgements share.
    pub around: &'a Surroundings,
    /// What the management cluster says.
    pub managed: Option<&'a Managed>,
}

impl Witness<'_> {
    /// Judges the object as if it were to be corrected, and tells everything that went into the decision.
    pub async fn account(&self, subject: &Subject, guarded: &Guarded) -> anyhow::Result<Account> {
        let known = &subject.guardianship;
        let now = self.survey.examiner.clock.now();
        let live = self.live(guarded).await?;
        let leave = Leave::now(&std::sync::Arc::default(), &Term::unlimited());
        let context = self.around.writing(known, guarded, now, leave, Sends::Nothing);
        let permit = context.permit;
        // Also where the policy does not let anybody write: what would be written is worth knowing.
        let context = if known.judgeable().is_some() { Context { permit: Permit::Write, ..context } } else { context };
        let examined = self.survey.examine(guarded, &context, None, self.around).await;
        if let Some(error) = examined.unreachable {
            return Err(anyhow::Error::from(error).context("the cluster stopped answering"));
        }
        let judgement = examined.judgement;
        let claimed = examined.state.owned.as_ref().zip(live.as_ref()).map_or(0, |(owned, live)| project::leaves(owned, live).len());
        let reported = self.reported(known, guarded);
        let would_write = examined.proposal.map(|proposal| proposal.shown);
        let situation = advice::Situation {
            judgement: &judgement,
            proposed: would_write.is_some(),
            permit,
            guard: &known.guard,
            is_managed: self.managed.is_some(),
            is_paused: self.managed.is_some_and(|managed| managed.entry.gate == Gate::Paused),
            contested: reported
                .as_ref()
                .and_then(|reported| reported.finding.as_ref())
                .filter(|finding| finding.verdict == Verdict::Contested),
        };
        Ok(Account {
            cluster: self.managed.map(|managed| managed.entry.name.to_string()),
            object: object_ref(&guarded.key, &examined.uid),
            source: declarer(known),
            policy: self.decider(known),
            verdict: judgement.verdict,
            reason: judgement.reason,
            message: judgement.message.clone(),
            fields: Fields { claimed, as_declared: claimed.saturating_sub(judgement.paths.len() + judgement.accepted.len()) },
            accepted: judgement.accepted.iter().map(|accepted| accepted_difference(known, guarded, live.as_ref(), accepted, now)).collect(),
            next: advice::next(&situation),
            differs: judgement.paths,
            would_write,
            reported,
            observed_at: now,
        })
    }

    async fn live(&self, guarded: &Guarded) -> anyhow::Result<Option<Value>> {
        let endpoint = guarded.endpoint()?;
        // What cannot be read is said by the judgement.
        Ok(self.survey.examiner.client.get(&endpoint, Shape::Full).await.and_then(|answer| answer.json()).ok())
    }

    fn reported(&self, known: &Guardianship, guarded: &Guarded) -> Option<Reported> {
        let status = self.managed?.report(&known.name)?;
        let key = object_ref(&guarded.key, "");
        let is_it = |object: &ObjectRef| {
            (&object.kind, &object.namespace, &object.name, &object.api_version) == (&key.kind, &key.namespace, &key.name, &key.api_version)
        };
        Some(Reported {
            finding: status.findings.iter().find(|finding| is_it(&finding.object)).cloned(),
            corrections: status.corrections.iter().filter(|record| is_it(&record.object)).cloned().collect(),
        })
    }

    fn decider(&self, known: &Guardianship) -> Decider {
        let Some(managed) = self.managed else {
            let why = "the kubeconfig leads to the cluster itself, and policies are kept on the management cluster".to_owned();
            return Decider { policy: None, mode: "Warn".to_owned(), why };
        };
        let ranking = managed.policies.ranking(&managed.entry, &known.name.namespace, &known.name.name);
        let Some(((priority, winner), losers)) = ranking.split_first() else {
            return Decider { policy: None, mode: "Off".to_owned(), why: "no policy selects this release".to_owned() };
        };
        let names: Vec<String> = losers.iter().filter_map(|(_, guard)| Some(guard.policy.as_ref()?.to_string())).collect();
        let why = match losers.first() {
            None => "the only one that selects this release".to_owned(),
            Some((next, _)) if next < priority => format!("its priority {priority} is higher than that of {}", names.join(", ")),
            Some(_) => format!("of the same priority {priority}, and named or kinded before {}", names.join(", ")),
        };
        Decider {
            policy: winner.policy.as_ref().map(holdfast_hub::policy::PolicyName::to_reference),
            mode: format!("{:?}", winner.mode),
            why,
        }
    }
}

fn declarer(known: &Guardianship) -> Declarer {
    let revision = known.judgeable();
    Declarer {
        release: known.name.to_string(),
        revision: revision.map(|revision| revision.meta.version),
        deployed_at: revision.and_then(|revision| revision.deployed_at),
        manager: known.writer().map(|writer| writer.manager.clone()),
        operation: known.writer().map(|writer| writer.operation.as_str()),
    }
}

fn accepted_difference(known: &Guardianship, guarded: &Guarded, live: Option<&Value>, accepted: &AcceptedPath, now: Timestamp) -> Accepted {
    let gvk = &guarded.key.gvk;
    let actor = live.and_then(|live| manager::actor(&manager::entries(live), &accepted.path));
    let rule = (accepted.reason == DeviationReason::Ignored).then(|| rule(known, guarded, accepted, actor.as_ref(), now)).flatten();
    Accepted {
        path: redact::path_text(gvk, &accepted.path),
        reason: accepted.reason,
        note: accepted.note.clone(),
        rule,
        declared: redact::shown(gvk, &accepted.path, project::lookup(&guarded.desired().value, &accepted.path)),
        live: live.and_then(|live| redact::shown(gvk, &accepted.path, project::lookup(live, &accepted.path))),
        actor,
    }
}

/// Which ignore rule it is.
fn rule(known: &Guardianship, guarded: &Guarded, accepted: &AcceptedPath, actor: Option<&Actor>, now: Timestamp) -> Option<String> {
    let manager = actor.map(|actor| actor.manager.as_str());
    let rule = ObjectRules::of(&known.guard, guarded, now).ignore.into_iter().find(|rule| rule.covers(&accepted.path, manager))?;
    let index = known.guard.ignore.iter().position(|candidate| *candidate == rule)?;
    let until = rule.until().map(|until| format!(", until {until}")).unwrap_or_default();
    Some(format!("spec.ignore[{index}]{until}"))
}

/// Whether a judgement leaves nothing to do.
pub fn is_settled(judgement: &Judgement) -> bool {
    judgement.verdict == Verdict::InSync && judgement.action != Action::Reported
}
