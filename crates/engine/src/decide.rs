//! The decision about one object: a pure function from what is known to the next step.

use holdfast_api::report::{Action, DeviationReason, PathFinding, Reason, Verdict};
use serde_json::Value;

use crate::{
    answer::{Answer, Fence, Live, Refusal},
    assess::{AcceptedPath, Assessment, Drift, Needs, assess},
    canonical::Digest,
    case::{ANY, Case, Permit},
    collateral::{self, Predicted},
    contest, coupled,
    foreign::{self, Additions},
    inexact, manager,
    owned::OwnedSet,
    path::Path,
    plan::{self, Correction, Planned},
    project, yields,
};

const NEWER_RELEASE: &str = "a newer or running release operation was seen";
const NO_DRY_RUN: &str = "a webhook allows no dry-run, so nothing tells what the correction would change";
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
    /// Dry-run it once more: something in the answer may be another each time.
    ProveAgain(Box<Correction>),
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
    /// The same once more.
    pub again: bool,
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
    /// What somebody added and that is only reported.
    pub additions: Additions,
}

impl Judgement {
    /// A judgement without paths.
    pub fn plain(verdict: Verdict, action: Action, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            verdict,
            action,
            reason,
            message: message.into(),
            paths: Vec::new(),
            accepted: Vec::new(),
            in_sync: None,
            settled: false,
            additions: Additions::default(),
        }
    }

    pub(crate) fn about(mut self, assessment: Assessment) -> Self {
        self.paths = findings(&assessment);
        self.settled = assessment.unverified.is_empty();
        self.accepted = assessment.accepted;
        self.additions = assessment.additions;
        self
    }

    /// The judgement of an object whose owned paths are, by digest, what they were when it was last in sync, and so are `additions`.
    pub fn unchanged(in_sync: Digest, additions: u64) -> Self {
        let mut judgement = Self::plain(Verdict::InSync, Action::None, Reason::AsDeclared, "as declared");
        judgement.in_sync = Some(in_sync);
        judgement.additions.digest = additions;
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
    let Needs { oracle, again, create } = assessment.needs;
    if oracle || again || create {
        // The record list runs beside the oracle: a correction needs both.
        let fence = oracle && case.baseline.is_some() && case.permit == Permit::Write && case.fence == Fence::NotAsked;
        return Step::Ask(Ask { oracle, again, create, claims: false, fence });
    }
    if assessment.is_in_sync() {
        return done(in_sync(owned, live, assessment));
    }
    if !case.is_ours(live) {
        return done(not_owned(assessment));
    }
    if assessment.drifts.is_empty() {
        return done(stuck(case, live, assessment));
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
        Answer::Refused(refusal) if refusal.reason == Reason::ServerError => {
            (refusal.reason, "the server gave no proper answer to the dry-run".to_owned())
        }
        Answer::Refused(refusal) if refusal.fields.is_empty() => {
            (refusal.reason, "the server refuses the manifest in a dry-run".to_owned())
        }
        Answer::Refused(refusal) => {
            (refusal.reason, format!("the server refuses the manifest in a dry-run at {}", refusal.fields.join(", ")))
        }
    };
    done(Judgement::plain(Verdict::Unknown, Action::Reported, reason, message))
}

fn correct(case: &Case<'_>, owned: &OwnedSet, live: &Value, mut assessment: Assessment) -> Step {
    let Some(obstacles) = coupled::obstacles(case, owned, live, &assessment.drifts) else {
        return Step::Ask(Ask { create: true, fence: case.fence == Fence::NotAsked, ..Ask::default() });
    };
    assessment.drifts.extend(obstacles);
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
            // Nobody said no to the write itself.
            Answer::Refused(refusal) if refusal.reason == Reason::Unverified => {
                report(Action::Deferred, Reason::Unverified, NO_DRY_RUN, assessment)
            }
            Answer::Refused(refusal) => done(refused(refusal.reason, assessment)),
            Answer::Given(proof) => match weigh(case, live, proof, &correction, assessment.drifts.iter().any(foreign::is_removal)) {
                Weighed::Clean => Step::Write(Box::new(plan::settle(correction, live, proof))),
                // Admission that acts on any write changes what the dry-run of the declared object changes.
                _ if matches!(case.oracle, Answer::NotAsked) => Step::Ask(Ask { oracle: true, ..Ask::default() }),
                Weighed::Unsure => Step::ProveAgain(Box::new(correction)),
                Weighed::Unstable(why) => report(Action::Deferred, Reason::AdmissionUnstable, why, assessment),
            },
        },
        Planned::Impossible => done(reported(assessment, None)),
    }
}

/// What the dry-run of a correction says about it.
enum Weighed {
    /// It changes what drifted, and what admission changes on any write.
    Clean,
    /// It changes more, which may be another each time.
    Unsure,
    /// It is not sent although the server would take it.
    Unstable(&'static str),
}

fn weigh(case: &Case<'_>, live: &Value, proof: &Value, correction: &Correction, takes_away: bool) -> Weighed {
    if collateral::only_changes(proof, live, &[]) {
        return Weighed::Unstable("the server turns the correction back into what is there");
    }
    let given = |answer| if let Answer::Given(answer) = answer { Some(answer) } else { None };
    let [oracle, again, created] = [case.oracle, case.proof_again, case.create].map(given);
    let beside = Predicted { live, oracle, again };
    // Where something is taken away, the server may put defaults beside it, as it does when the object is created.
    let explained = || takes_away && Predicted { oracle: created, ..beside }.explains(proof, &correction.touched);
    if collateral::only_changes(proof, live, &correction.touched) || beside.explains(proof, &correction.touched) || explained() {
        return Weighed::Clean;
    }
    match case.proof_again {
        Answer::NotAsked => Weighed::Unsure,
        Answer::Given(_) | Answer::Refused(_) => Weighed::Unstable("the correction would change more than what drifted"),
    }
}

fn missing(case: &Case<'_>) -> Step {
    let report = |reason, message: &str| done(Judgement::plain(Verdict::Missing, Action::Reported, reason, message));
    let key = &case.desired.key;
    if let Some(why) = case.held {
        let action = if case.permit == Permit::Write { Action::Deferred } else { Action::Reported };
        return done(Judgement::plain(Verdict::Missing, action, why, nowhere_to_be(why)));
    }
    if yields::has_ended(case) {
        let message = "it ended, and a Job that ended is not kept";
        return done(Judgement::plain(Verdict::InSync, Action::Yielded, Reason::RunOnce, message));
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
    if let Some(held) = case.held_at(&Path::root()) {
        let action = if held.enforced { Action::Deferred } else { Action::Reported };
        return done(Judgement::plain(Verdict::Contested, action, Reason::Contested, contest::deleted(held)));
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
    judgement.additions = assessment.additions;
    judgement.settled = true;
    judgement
}

/// Drift that may not be corrected now, whatever the mode.
fn stuck(case: &Case<'_>, live: &Value, assessment: Assessment) -> Judgement {
    let mut action = Action::Reported;
    let (verdict, reason, message) = match assessment.unverified.first() {
        _ if !assessment.held.is_empty() => {
            if assessment.held.iter().any(|(_, held)| held.enforced) {
                action = Action::Deferred;
            }
            (Verdict::Contested, Reason::Contested, contest::fought(&ours(case, live), &assessment.held))
        }
        Some((_, reason)) => (Verdict::Unknown, *reason, unverified(*reason).to_owned()),
        None => (Verdict::Unknown, Reason::Unverified, String::new()),
    };
    Judgement::plain(verdict, action, reason, message).about(assessment)
}

/// Under which name the release writes, for people.
fn ours(case: &Case<'_>, live: &Value) -> String {
    case.release_writer(&manager::entries(live)).map_or_else(|| "the release".to_owned(), |writer| writer.manager)
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
    let (removals, others) = counts(&assessment.drifts);
    let message = match (others, removals) {
        (_, 0) => differ(others),
        (0, 1) => "one field that is not declared was added or left behind".to_owned(),
        (0, _) => format!("{removals} fields that are not declared were added or left behind"),
        (_, _) => format!("{}, and {removals} undeclared were added or left behind", differ(others)),
    };
    Judgement::plain(Verdict::Drifted, action_without_permit(why), reason, message).about(assessment)
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

/// The judgement where a write was decided on and is only told.
pub fn proposed(case: &Case<'_>) -> Judgement {
    match decide(&Case { permit: Permit::Report(None), ..shallow(case) }) {
        Step::Done(judgement) => *judgement,
        // A question is left open only where the object could not be judged at all.
        _ => overtaken(case),
    }
}

/// The judgement after a correction was accepted. `answer` is the server's response; it becomes the baseline of the
/// paths that the write contained.
pub fn corrected(case: &Case<'_>, owned: &OwnedSet, before: &Value, correction: &Correction, answer: &Value) -> Judgement {
    let mut assessment = assess(case, owned, before);
    let obstacles = coupled::obstacles(case, owned, before, &assessment.drifts);
    assessment.drifts.extend(obstacles.unwrap_or_default());
    // Judged once more against the answer: what the server made of the written values is accepted by definition.
    let after = Case { live: Live::Present(answer), oracle: Answer::Given(answer), ..shallow(case) };
    let settled = assess(&after, owned, answer);
    let unverified = !assessment.unverified.is_empty();
    let is_fought =
        |drift: &Drift| (case.enforced)(&drift.path) && case.ledger.is_some_and(|ledger| ledger.is_fought(&drift.path, case.now));
    let is_fought = assessment.drifts.iter().any(is_fought);
    let message = put_back(&assessment.drifts);
    let corrected_paths: Vec<PathFinding> = assessment.drifts.into_iter().map(|drift| drift.finding).collect();
    let answered = settled.accepted.len();
    let calibrated = settled.accepted.into_iter().map(|accepted| calibrate(case, accepted, correction, &assessment.accepted));
    let accepted: Vec<AcceptedPath> = calibrated.filter(|accepted| is_settled(case, accepted, correction, &assessment.accepted)).collect();
    // Where the write changed something nobody predicted, the object is in sync only once it has been judged again.
    let foreseen = accepted.len() == answered;
    // What was added and could not be sorted before, or came with the write, is judged next.
    let is_clear = !settled.needs.create && !settled.drifts.iter().any(foreign::is_removal);
    let mut judgement = if assessment.held.is_empty() && assessment.unverified.is_empty() {
        let (reason, message) = if is_fought {
            (Reason::Contested, format!("{message}, against somebody who keeps changing what is enforced"))
        } else {
            (Reason::AsDeclared, message)
        };
        let mut judgement = Judgement::plain(Verdict::InSync, Action::Corrected, reason, message);
        judgement.in_sync = (foreseen && is_clear).then(|| project::digest(&project::leaves(owned, answer)));
        judgement
    } else {
        let held = Assessment { held: assessment.held, unverified: assessment.unverified, ..Assessment::default() };
        let mut judgement = stuck(case, before, held);
        judgement.action = Action::Corrected;
        judgement
    };
    judgement.paths.extend(corrected_paths);
    judgement.settled = !unverified;
    judgement.accepted = accepted;
    judgement.additions = settled.additions;
    judgement
}

/// What is another each time stays so. Where the answer to a write is not what the dry-run said, no dry-run can tell what admission makes
/// of that path: whatever it makes is accepted, or each of its whims would cost a write.
fn calibrate(case: &Case<'_>, accepted: AcceptedPath, correction: &Correction, before: &[AcceptedPath]) -> AcceptedPath {
    if let Some(known) = before.iter().find(|old| old.path == accepted.path && old.value == ANY) {
        return known.clone();
    }
    let foretold = match case.oracle {
        Answer::Given(oracle) => project::find(oracle, &accepted.path).digest() == accepted.value,
        Answer::NotAsked | Answer::Refused(_) => true,
    };
    if foretold || accepted.reason != DeviationReason::Admission || !is_written(&accepted, correction) {
        return accepted;
    }
    AcceptedPath { value: ANY, note: "the server makes of it what no dry-run tells".to_owned(), ..accepted }
}

fn is_written(accepted: &AcceptedPath, correction: &Correction) -> bool {
    correction.touched.iter().any(|path| path.contains(&accepted.path) || accepted.path.contains(path))
}

/// The written paths take the answered values, and so do those that admission set on the way; every other path keeps what
/// was accepted before.
fn is_settled(case: &Case<'_>, accepted: &AcceptedPath, correction: &Correction, before: &[AcceptedPath]) -> bool {
    let written = || is_written(accepted, correction);
    let predicted = || matches!(case.oracle, Answer::Given(oracle) if project::find(oracle, &accepted.path).digest() == accepted.value);
    written() || before.iter().any(|old| old.path == accepted.path && old.value == accepted.value) || predicted()
}

/// The judgement after a missing object was created.
pub fn recreated(case: &Case<'_>, owned: Option<&OwnedSet>, answer: &Value) -> Judgement {
    let mut judgement = Judgement::plain(Verdict::InSync, Action::Recreated, Reason::ObjectMissing, "it was missing and was created again");
    if let Some(owned) = owned {
        let after = Case { live: Live::Present(answer), oracle: Answer::Given(answer), ..shallow(case) };
        let settled = assess(&after, owned, answer);
        judgement.accepted = settled.accepted;
        judgement.additions = settled.additions;
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
        (Some(owned), Live::Present(live)) => {
            let mut drifts = assess(case, owned, live).drifts;
            drifts.extend(coupled::obstacles(case, owned, live, &drifts).unwrap_or_default());
            drifts
        }
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

fn put_back(drifts: &[Drift]) -> String {
    let count = |count: usize| if count == 1 { "one field was".to_owned() } else { format!("{count} fields were") };
    match counts(drifts) {
        (0, others) => format!("{} put back", count(others)),
        (removals, 0) => format!("{} taken away again", count(removals)),
        (removals, others) => format!("{} put back and {removals} taken away again", count(others)),
    }
}

/// How many drifts a correction takes away, and how many it puts back.
fn counts(drifts: &[Drift]) -> (usize, usize) {
    let removals = drifts.iter().filter(|drift| foreign::is_removal(drift)).count();
    (removals, drifts.len() - removals)
}

fn done(judgement: Judgement) -> Step {
    Step::Done(Box::new(judgement))
}
