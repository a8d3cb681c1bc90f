//! The decision about one object: a pure function from what is known to the next step.

use holdfast_api::report::{Action, PathFinding, Reason, Verdict};
use serde_json::Value;

use crate::{
    answer::{Answer, Fence, Live, Refusal},
    assess::{AcceptedPath, Assessment, Drift, assess},
    canonical::Digest,
    case::{Case, Permit},
    collateral, inexact,
    owned::OwnedSet,
    path::Path,
    plan::{self, Correction, Planned},
    project,
};

const NEWER_RELEASE: &str = "a newer or running release operation was seen";
const NO_RECORDS: &str = "the release records could not be read";

/// What to do next. The shell carries it out, adds the result to the case and asks again.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read the object, without a selector.
    FetchLive,
    /// Ask these questions, side by side.
    Ask(Ask),
    /// Dry-run a merge of the declared object into the live one.
    Merge,
    /// Dry-run the very request.
    Prove(Box<Correction>),
    /// Send it.
    Write(Box<Correction>),
    /// Nothing more to do: this is the judgement.
    Done(Box<Judgement>),
}

/// Questions to the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct Ask {
    /// Forced server-side-apply dry-run of the declared object as manager `holdfast`.
    pub oracle: bool,
    /// Dry-run create under a throw-away name.
    pub create: bool,
    /// Server-side-apply dry-run under a throw-away name: tells the claimed paths where what is there makes the oracle fail.
    pub claims: bool,
    /// Consistent list of the release's records.
    pub fence: bool,
}

/// What was found about one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// What was done.
    pub action: Action,
    /// Why.
    pub reason: Reason,
    /// One sentence for people, without values.
    pub message: String,
    /// Paths that differ, or that were put back.
    pub paths: Vec<PathFinding>,
    /// Accepted differences.
    pub accepted: Vec<AcceptedPath>,
    /// Digest of the owned paths where the object is in sync.
    pub in_sync: Option<Digest>,
    /// Every owned path was sorted and none is unverified: `accepted` may become the baseline. While false, what is remembered stays.
    pub settled: bool,
}

impl Judgement {
    /// A judgement without paths.
    pub fn plain(verdict: Verdict, action: Action, reason: Reason, message: impl Into<String>) -> Self {
        Self { verdict, action, reason, message: message.into(), paths: Vec::new(), accepted: Vec::new(), in_sync: None, settled: false }
    }

    pub(crate) fn about(mut self, assessment: Assessment) -> Self {
        self.paths = findings(&assessment);
        self.settled = assessment.unverified.is_empty();
        self.accepted = assessment.accepted;
        self
    }

    /// The judgement of an object whose owned paths are, by digest, what they were when it was last in sync.
    pub fn unchanged(in_sync: Digest) -> Self {
        let mut judgement = Self::plain(Verdict::InSync, Action::None, Reason::AsDeclared, "as declared");
        judgement.in_sync = Some(in_sync);
        judgement
    }
}

/// The next step for one object.
pub fn decide(case: &Case<'_>) -> Step {
    if let Some(other) = case.also_declared_by {
        return done(self_conflict(other));
    }
    match case.live {
        Live::NotRead => Step::FetchLive,
        Live::Unreadable(refusal) => {
            done(Judgement::plain(Verdict::Unknown, Action::Reported, refusal.reason, "the object could not be read"))
        }
        Live::Absent => missing(case),
        Live::Present(live) if live.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) => {
            done(Judgement::plain(Verdict::Terminating, Action::Reported, Reason::ObjectTerminating, "the object is being deleted"))
        }
        Live::Present(live) => present(case, live),
    }
}

/// The judgement of an object that another source declares too.
pub fn self_conflict(other: &str) -> Judgement {
    let message = format!("{other} declares this object too; neither is written");
    Judgement::plain(Verdict::Contested, Action::Reported, Reason::SelfConflict, message)
}

fn present(case: &Case<'_>, live: &Value) -> Step {
    let Some(owned) = case.owned else { return unowned(case, live) };
    let assessment = assess(case, owned, live);
    if assessment.needs.oracle || assessment.needs.create {
        // The record list runs beside the oracle: a correction needs both.
        let fence = assessment.needs.oracle && case.baseline.is_some() && case.permit == Permit::Write && case.fence == Fence::NotAsked;
        return Step::Ask(Ask { oracle: assessment.needs.oracle, create: assessment.needs.create, claims: false, fence });
    }
    if assessment.is_in_sync() {
        return done(in_sync(owned, live, assessment));
    }
    if !case.is_ours(live) {
        return done(not_owned(assessment));
    }
    if assessment.drifts.is_empty() {
        return done(stuck(assessment));
    }
    match case.permit {
        Permit::Report(why) => done(reported(assessment, why)),
        Permit::Write => correct(case, owned, live, assessment),
    }
}

/// The judgement of a differing object that may belong to somebody else.
pub(crate) fn not_owned(assessment: Assessment) -> Judgement {
    let message = "the object does not carry this release's ownership metadata";
    let judgement = Judgement::plain(Verdict::Unknown, Action::Reported, Reason::NotOwned, message);
    Judgement { settled: false, ..judgement.about(assessment) }
}

/// Only the server knows which paths the object claims.
fn unowned(case: &Case<'_>, live: &Value) -> Step {
    let (reason, message) = match case.oracle {
        Answer::NotAsked => return Step::Ask(Ask { oracle: true, ..Ask::default() }),
        // A changed list key or an immutable field of the live object may be all the server minds: the claims are the same under
        // any name. What is found then is judged at first sight, which needs the dry-run create.
        Answer::Refused(Refusal { reason: Reason::Invalid | Reason::Immutable | Reason::AdmissionDenied, .. })
            if matches!(case.claims, Answer::NotAsked) =>
        {
            let create = case.baseline.is_none() && matches!(case.create, Answer::NotAsked);
            return Step::Ask(Ask { claims: true, create, ..Ask::default() });
        }
        Answer::Refused(refusal) if inexact::applies(refusal) => return inexact::decide(case, live, refusal),
        Answer::Given(_) => (Reason::ServerError, "the answer to the dry-run did not tell which fields the manifest claims".to_owned()),
        Answer::Refused(refusal) if refusal.fields.is_empty() => {
            (refusal.reason, "the server refuses the manifest in a dry-run".to_owned())
        }
        Answer::Refused(refusal) => {
            (refusal.reason, format!("the server refuses the manifest in a dry-run at {}", refusal.fields.join(", ")))
        }
    };
    done(Judgement::plain(Verdict::Unknown, Action::Reported, reason, message))
}

fn correct(case: &Case<'_>, owned: &OwnedSet, live: &Value, assessment: Assessment) -> Step {
    let report =
        |action, reason, message: &str, assessment| done(Judgement::plain(Verdict::Drifted, action, reason, message).about(assessment));
    let Some(planned) = plan::plan(case, owned, live, &assessment) else {
        return report(
            Action::Reported,
            Reason::OwnerUnclear,
            "no field manager of the release could be found, so nothing is written",
            assessment,
        );
    };
    if planned == Planned::Impossible {
        return done(reported(assessment, None));
    }
    let create = plan::needs_creation(case, live);
    match case.fence {
        Fence::NotAsked => return Step::Ask(Ask { fence: true, create, ..Ask::default() }),
        _ if create => return Step::Ask(Ask { create, ..Ask::default() }),
        Fence::Closed => return report(Action::Deferred, Reason::ReleasePending, NEWER_RELEASE, assessment),
        Fence::Unknown => return report(Action::Deferred, Reason::ServerError, NO_RECORDS, assessment),
        Fence::Clear => {}
    }
    match planned {
        Planned::Proven(correction) => Step::Write(Box::new(correction)),
        Planned::Unproven(correction) => match case.proof {
            Answer::NotAsked => Step::Prove(Box::new(correction)),
            Answer::Refused(refusal) if refusal.reason == Reason::ServerError => {
                report(Action::Deferred, Reason::ServerError, "the dry-run of the correction was not answered", assessment)
            }
            Answer::Refused(refusal) => done(refused(refusal.reason, assessment)),
            Answer::Given(proof) => match unstable(case, live, proof, &correction) {
                None => Step::Write(Box::new(correction)),
                Some(why) => report(Action::Deferred, Reason::AdmissionUnstable, why, assessment),
            },
        },
        Planned::Impossible => done(reported(assessment, None)),
    }
}

/// Why the correction is not sent although the server would take it.
fn unstable(case: &Case<'_>, live: &Value, proof: &Value, correction: &Correction) -> Option<&'static str> {
    if collateral::only_changes(proof, live, &[]) {
        return Some("the server turns the correction back into what is there");
    }
    let explained = matches!(case.oracle, Answer::Given(oracle) if collateral::explained_by(proof, live, oracle, &correction.touched));
    let clean = explained || collateral::only_changes(proof, live, &correction.touched);
    (!clean).then_some("the correction would change more than what drifted")
}

fn missing(case: &Case<'_>) -> Step {
    let report = |reason, message: &str| done(Judgement::plain(Verdict::Missing, Action::Reported, reason, message));
    let key = &case.desired.key;
    if let Some(why) = case.held {
        let action = if case.permit == Permit::Write { Action::Deferred } else { Action::Reported };
        return done(Judgement::plain(Verdict::Missing, action, why, nowhere_to_be(why)));
    }
    let Permit::Write = case.permit else {
        let why = if let Permit::Report(Some(why)) = case.permit { why } else { Reason::ObjectMissing };
        return done(Judgement::plain(Verdict::Missing, action_without_permit(Some(why)), why, "the object does not exist"));
    };
    if key.gvk.is("batch", "Job") || key.gvk.is("", "Pod") {
        return report(Reason::RunOnce, "it ran once and is not run again");
    }
    if !(case.seen || case.takes_the_records_word()) {
        return report(
            Reason::NotOwned,
            "it was never seen with this release's ownership metadata, and the policy does not trust the release to create it",
        );
    }
    let Some(writer) = case.writer else {
        return report(Reason::OwnerUnclear, "no field manager of the release could be found, so nothing is created");
    };
    if let Some(held) = case.ledger.and_then(|ledger| ledger.held(&Path::root(), case.now)) {
        let message = format!("somebody deleted it {} times after it was created again; next try at {}", held.corrections, held.until);
        return done(Judgement::plain(Verdict::Contested, Action::Reported, Reason::Contested, message));
    }
    match case.fence {
        Fence::NotAsked => Step::Ask(Ask { fence: true, ..Ask::default() }),
        Fence::Closed => done(Judgement::plain(Verdict::Missing, Action::Deferred, Reason::ReleasePending, NEWER_RELEASE)),
        Fence::Unknown => done(Judgement::plain(Verdict::Missing, Action::Deferred, Reason::ServerError, NO_RECORDS)),
        Fence::Clear => Step::Write(Box::new(plan::create(case.desired, writer))),
    }
}

/// Why an object that does not exist is not created for now.
const fn nowhere_to_be(why: Reason) -> &'static str {
    match why {
        Reason::NamespaceTerminating => "the object does not exist, and its namespace is being deleted",
        Reason::NamespaceMissing => "the object does not exist, nor does its namespace",
        Reason::KindTerminating => "the object does not exist, and the definition of its kind is being deleted",
        _ => "the object does not exist, and nothing can be created in its place for now",
    }
}

fn in_sync(owned: &OwnedSet, live: &Value, assessment: Assessment) -> Judgement {
    let mut judgement = Judgement::plain(Verdict::InSync, Action::None, Reason::AsDeclared, "as declared");
    judgement.in_sync = Some(project::digest(&project::leaves(owned, live)));
    judgement.accepted = assessment.accepted;
    judgement.settled = true;
    judgement
}

/// Drift that may not be corrected whatever the mode.
fn stuck(assessment: Assessment) -> Judgement {
    let (verdict, reason, message) = match (assessment.held.first(), assessment.unverified.first()) {
        (Some((drift, held)), _) => {
            let actor = drift.finding.actor.as_ref().map_or("somebody", |actor| actor.manager.as_str());
            let message = format!("{} was corrected {} times against {actor}; next try at {}", drift.path, held.corrections, held.until);
            (Verdict::Contested, Reason::Contested, message)
        }
        (None, Some((_, reason))) => (Verdict::Unknown, *reason, unverified(*reason).to_owned()),
        (None, None) => (Verdict::Unknown, Reason::Unverified, String::new()),
    };
    Judgement::plain(verdict, Action::Reported, reason, message).about(assessment)
}

fn unverified(reason: Reason) -> &'static str {
    match reason {
        Reason::Unverified => "nothing tells whether it was so when the release was deployed",
        Reason::ServerError => "the server did not tell what it makes of the manifest",
        _ => "the server refuses to tell what it makes of the manifest",
    }
}

fn reported(assessment: Assessment, why: Option<Reason>) -> Judgement {
    let reason = why.or_else(|| assessment.drifts.first().map(|drift| drift.reason)).unwrap_or(Reason::FieldChanged);
    Judgement::plain(Verdict::Drifted, action_without_permit(why), reason, differ(assessment.drifts.len())).about(assessment)
}

/// What is done about drift that may not be written: a correction whose turn comes is only put off.
const fn action_without_permit(why: Option<Reason>) -> Action {
    match why {
        Some(Reason::RateLimited) => Action::Deferred,
        _ => Action::Reported,
    }
}

/// The judgement after the server said no to the dry-run of the very write.
fn refused(reason: Reason, assessment: Assessment) -> Judgement {
    Judgement::plain(Verdict::Refused, Action::Reported, reason, "the server refuses the correction").about(assessment)
}

/// The judgement after the server said no to a write.
pub fn refused_write(case: &Case<'_>, reason: Reason) -> Judgement {
    match (case.owned, case.live) {
        (Some(owned), Live::Present(live)) => refused(reason, assess(case, owned, live)),
        _ => Judgement::plain(Verdict::Missing, Action::Reported, reason, "the server refuses to create the object"),
    }
}

/// The judgement after a write met another one: the object is to be judged again at once.
pub fn overtaken(case: &Case<'_>) -> Judgement {
    let message = "the object changed while it was being corrected";
    match (case.owned, case.live) {
        (Some(owned), Live::Present(live)) => {
            Judgement::plain(Verdict::Drifted, Action::Deferred, Reason::FieldChanged, message).about(assess(case, owned, live))
        }
        _ => Judgement::plain(Verdict::Missing, Action::Deferred, Reason::ObjectMissing, message),
    }
}

/// The judgement after a correction was accepted. `answer` is the server's response; it becomes the baseline of the
/// paths that the write contained.
pub fn corrected(case: &Case<'_>, owned: &OwnedSet, before: &Value, correction: &Correction, answer: &Value) -> Judgement {
    let assessment = assess(case, owned, before);
    // Judged once more against the answer: what the server made of the written values is accepted by definition.
    let after = Case { live: Live::Present(answer), oracle: Answer::Given(answer), ..shallow(case) };
    let settled = assess(&after, owned, answer);
    let unverified = !assessment.unverified.is_empty();
    let corrected_paths: Vec<PathFinding> = assessment.drifts.into_iter().map(|drift| drift.finding).collect();
    let answered = settled.accepted.len();
    let accepted: Vec<AcceptedPath> =
        settled.accepted.into_iter().filter(|accepted| is_settled(case, accepted, correction, &assessment.accepted)).collect();
    // Where the write changed something nobody predicted, the object is in sync only once it has been judged again.
    let foreseen = accepted.len() == answered;
    let mut judgement = if assessment.held.is_empty() && assessment.unverified.is_empty() {
        let mut judgement = Judgement::plain(Verdict::InSync, Action::Corrected, Reason::AsDeclared, put_back(corrected_paths.len()));
        judgement.in_sync = foreseen.then(|| project::digest(&project::leaves(owned, answer)));
        judgement
    } else {
        let held = Assessment { held: assessment.held, unverified: assessment.unverified, ..Assessment::default() };
        let mut judgement = stuck(held);
        judgement.action = Action::Corrected;
        judgement
    };
    judgement.paths.extend(corrected_paths);
    judgement.settled = !unverified;
    judgement.accepted = accepted;
    judgement
}

/// The written paths take the answered values, and so do those that admission set on the way; every other path keeps what
/// was accepted before.
fn is_settled(case: &Case<'_>, accepted: &AcceptedPath, correction: &Correction, before: &[AcceptedPath]) -> bool {
    let written = || correction.touched.iter().any(|path| path.contains(&accepted.path) || accepted.path.contains(path));
    let predicted = || matches!(case.oracle, Answer::Given(oracle) if project::find(oracle, &accepted.path).digest() == accepted.value);
    written() || before.iter().any(|old| old.path == accepted.path && old.value == accepted.value) || predicted()
}

/// The judgement after a missing object was created.
pub fn recreated(case: &Case<'_>, owned: Option<&OwnedSet>, answer: &Value) -> Judgement {
    let mut judgement = Judgement::plain(Verdict::InSync, Action::Recreated, Reason::ObjectMissing, "it was missing and was created again");
    if let Some(owned) = owned {
        let after = Case { live: Live::Present(answer), oracle: Answer::Given(answer), ..shallow(case) };
        judgement.accepted = assess(&after, owned, answer).accepted;
        judgement.settled = true;
        judgement.in_sync = Some(project::digest(&project::leaves(owned, answer)));
    }
    judgement
}

fn shallow<'a>(case: &Case<'a>) -> Case<'a> {
    Case { ..*case }
}

/// Drift as a write would meet it, for ledgers and audit lines.
pub fn drifts(case: &Case<'_>) -> Vec<Drift> {
    match (case.owned, case.live) {
        (Some(owned), Live::Present(live)) => assess(case, owned, live).drifts,
        _ => Vec::new(),
    }
}

fn findings(assessment: &Assessment) -> Vec<PathFinding> {
    let held = assessment.held.iter().map(|(drift, _)| drift);
    let unverified = assessment.unverified.iter().map(|(drift, _)| drift);
    assessment.drifts.iter().chain(held).chain(unverified).map(|drift| drift.finding.clone()).collect()
}

pub(crate) fn differ(count: usize) -> String {
    if count == 1 { "one declared field differs".to_owned() } else { format!("{count} declared fields differ") }
}

fn put_back(count: usize) -> String {
    if count == 1 { "one field was put back".to_owned() } else { format!("{count} fields were put back") }
}

fn done(judgement: Judgement) -> Step {
    Step::Done(Box::new(judgement))
}
