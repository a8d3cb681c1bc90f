//! One guarded release: what is known of its objects, and the report that follows from it.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use holdfast_api::report::{
    Action, Change, CorrectionRecord, Deviation, DriftReportStatus, Finding, MAX_CORRECTIONS, MAX_LISTED, ObjectRef, Outcome, PathFinding,
    Reason, Source, SourceKind, Summary, Verdict,
};
use holdfast_engine::{
    blast::{Blast, Trip},
    canonical::Digest,
    decide::Judgement,
    manager::{Operation, Writer},
    object::ObjectKey,
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    book::{Phase, Revision},
    identities::Claim,
    pace::Pace,
    permits::Permits,
    records::ReleaseName,
    release::LoadError,
    state::StateId,
};
use crate::{
    policy::{Guard, PolicyName, tally::RuleUse},
    reports::bounds,
    state_secrets::StoredRelease,
};

mod added;
mod conditions;
mod deviations;
#[cfg(test)]
mod tests;

pub use conditions::{fresh, reachable, ready};

/// A report waits this long for the first judgements of its objects.
pub(super) const JUDGED_WITHIN: Duration = Duration::from_secs(10);

/// A release under guard.
#[derive(Debug)]
pub struct Guardianship {
    /// Which release.
    pub name: ReleaseName,
    /// The policy's word.
    pub guard: Arc<Guard>,
    /// Where the release stands.
    pub phase: Phase,
    /// The revision its objects were read from.
    pub loaded: Option<Loaded>,
    /// Why the desired revision could not be read.
    pub load_error: Option<LoadError>,
    writer: Option<Learnt>,
    findings: BTreeMap<StateId, Listed>,
    /// What an earlier hub reported of objects that were not judged yet.
    earlier: Vec<Finding>,
    /// What somebody added to objects, where that is only reported.
    added: BTreeMap<StateId, Finding>,
    verdicts: HashMap<StateId, Verdict>,
    deviations: BTreeMap<StateId, Vec<Deviation>>,
    normalized: HashMap<StateId, u64>,
    corrections: VecDeque<CorrectionRecord>,
    last_drift_at: Option<Timestamp>,
    last_correction_at: Option<Timestamp>,
    was_not_empty: bool,
    /// What may be written.
    pub permits: Permits,
    /// Which ignore rules change anything; `None` until that was looked at.
    pub(super) rule_uses: Option<Vec<RuleUse>>,
    /// Whose turn it is to be corrected.
    pub pace: Pace,
    /// What drifted lately.
    pub(super) blast: Blast<StateId>,
    /// When it was taken under guard, or its desired revision changed.
    since: Instant,
}

/// How a release writes, as one of its objects tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// Field manager and operation.
    pub writer: Writer,
    /// The entry is no younger than the deployment, so nobody but the release can have left it.
    pub proven: bool,
}

/// What a revision declares.
#[derive(Debug)]
pub struct Loaded {
    /// The revision.
    pub revision: Revision,
    /// How the record says it was applied.
    pub prefer: Operation,
    /// Its objects.
    pub objects: Vec<StateId>,
    /// What of its manifest cannot be judged.
    pub problems: Vec<Finding>,
    /// Some kinds were not served; read it again when discovery changes.
    pub incomplete: bool,
    /// Keyed hash of all it declares.
    pub hash: String,
}

#[derive(Debug)]
struct Listed {
    finding: Finding,
    /// A corrected object stays listed for one interval.
    until: Option<Timestamp>,
}

/// How the connection stands, for the conditions of every report of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    /// Which cluster it leads to, where that was asked.
    pub uid: Option<Arc<str>>,
    /// Why the cluster cannot be talked to.
    pub unreachable: Option<&'static str>,
    /// No watch and no audit backs the verdicts for longer than a minute.
    pub stale: bool,
    /// The cluster is paused.
    pub paused: bool,
    /// What is known of other names of the cluster.
    pub claim: Claim,
}

impl Guardianship {
    /// A release that is taken under guard now.
    pub fn new(name: ReleaseName, guard: Arc<Guard>, phase: Phase) -> Self {
        let pace = Pace::new(guard.limit.per_minute);
        Self {
            name,
            guard,
            phase,
            loaded: None,
            load_error: None,
            writer: None,
            findings: BTreeMap::new(),
            earlier: Vec::new(),
            added: BTreeMap::new(),
            verdicts: HashMap::new(),
            deviations: BTreeMap::new(),
            normalized: HashMap::new(),
            corrections: VecDeque::new(),
            last_drift_at: None,
            last_correction_at: None,
            was_not_empty: false,
            permits: Permits::default(),
            rule_uses: None,
            pace,
            blast: Blast::default(),
            since: Instant::now(),
        }
    }

    /// Goes on with what an earlier hub reported: history only, no verdicts.
    pub fn remember(&mut self, stored: &DriftReportStatus) {
        self.earlier.clone_from(&stored.findings);
        self.corrections = stored.corrections.iter().cloned().collect();
        self.last_drift_at = stored.last_drift_at;
        self.last_correction_at = stored.last_correction_at;
    }

    /// Goes on with what an earlier process knew of the release. Another revision may have been applied another way since.
    pub fn recall(&mut self, known: &StoredRelease) {
        self.was_not_empty |= known.not_empty;
        if let Some((desired, drifted)) = &known.tripped {
            self.blast.restore(Trip { desired: desired.clone(), drifted: usize::try_from(*drifted).unwrap_or(usize::MAX) });
        }
        if let Some((manager, applies)) = &known.writer {
            let operation = if *applies { Operation::Apply } else { Operation::Update };
            self.learn(Learnt { writer: Writer { manager: manager.clone(), operation }, proven: false });
        }
    }

    /// What the next process is to know of the release.
    pub fn stored(&self) -> StoredRelease {
        StoredRelease {
            namespace: self.name.namespace.clone(),
            name: self.name.name.clone(),
            not_empty: self.was_not_empty,
            writer: self.writer().map(|writer| (writer.manager.clone(), writer.operation == Operation::Apply)),
            tripped: self.blast.trip().map(|trip| (trip.desired.clone(), trip.drifted as u64)),
        }
    }

    /// Takes in the policy's word and where the release stands. Answers whether that is news.
    pub fn moves(&mut self, guard: Arc<Guard>, phase: Phase) -> bool {
        let is_news = self.phase != phase || *self.guard != *guard;
        if is_news {
            self.rule_uses = None;
        }
        let before = self.judgeable().cloned();
        (self.guard, self.phase) = (guard, phase);
        let same = match (&before, self.judgeable()) {
            (Some(before), Some(revision)) => before.is_record(revision),
            (None, Some(_)) => false,
            (_, None) => true,
        };
        if !same {
            self.since = Instant::now();
        }
        is_news
    }

    /// The revision that may be judged now, whether it may be corrected towards or not.
    pub fn judgeable(&self) -> Option<&Revision> {
        match &self.phase {
            Phase::Desired(revision) => Some(revision),
            Phase::Failed { deployed, .. } => deployed.as_ref(),
            Phase::Pending(_) | Phase::Held { .. } | Phase::Gone(_) => None,
        }
    }

    /// How it writes, as far as its objects have told.
    pub fn writer(&self) -> Option<&Writer> {
        self.writer.as_ref().map(|learnt| &learnt.writer)
    }

    /// Takes in how one object says the release writes; proof goes before appearance. Answers whether that is news.
    pub fn learn(&mut self, learnt: Learnt) -> bool {
        let is_news = self.writer.as_ref().is_none_or(|known| !known.proven && learnt.proven);
        if is_news {
            self.writer = Some(learnt);
        }
        is_news
    }

    /// Forgets what was found of objects that are declared otherwise now: it says nothing about the new revision.
    pub fn forget(&mut self, changed: &[StateId]) {
        let changed: HashSet<&StateId> = changed.iter().collect();
        self.keep(|id| !changed.contains(id));
    }

    fn keep(&mut self, stays: impl Fn(&StateId) -> bool) {
        self.findings.retain(|id, _| stays(id));
        self.added.retain(|id, _| stays(id));
        self.verdicts.retain(|id, _| stays(id));
        self.deviations.retain(|id, _| stays(id));
        self.normalized.retain(|id, _| stays(id));
    }

    /// Takes over what a revision declares; forgets objects it no longer does.
    pub fn load(&mut self, loaded: Loaded) {
        let declared: HashSet<StateId> = loaded.objects.iter().copied().collect();
        self.since = Instant::now();
        self.keep(|id| declared.contains(id));
        self.was_not_empty |= !loaded.objects.is_empty();
        // Another revision may have been applied another way.
        if let Some(learnt) = &mut self.writer {
            learnt.proven = false;
        }
        self.load_error = None;
        self.rule_uses = None;
        self.loaded = Some(loaded);
    }

    /// Takes in a judgement. Answers whether it says something new about drift.
    pub fn judged(&mut self, id: StateId, key: &ObjectKey, uid: &str, judgement: &Judgement, now: Timestamp) -> News {
        if self.verdicts.insert(id, judgement.verdict).is_none() {
            self.go_on(id, key, now);
        }
        if judgement.settled {
            self.take_deviations(id, key, uid, judgement, now);
        }
        let added = self.take_additions(id, key, uid, judgement, now);
        let drifted = is_drift(judgement);
        if judgement.verdict == Verdict::InSync && judgement.action == Action::None {
            // Keep showing a correction for its interval.
            if self.findings.get(&id).is_some_and(|listed| listed.until.is_none()) {
                self.findings.remove(&id);
            }
            return News { drift: false, added };
        }
        let old = self.findings.get(&id);
        let mut finding = Finding {
            object: object_ref(key, uid),
            verdict: judgement.verdict,
            action: judgement.action,
            reason: judgement.reason,
            message: judgement.message.clone(),
            paths: judgement.paths.iter().take(bounds::PATHS).cloned().collect(),
            paths_truncated: judgement.paths.len().saturating_sub(bounds::PATHS) as u64,
            first_seen: old.and_then(|old| old.finding.first_seen).or(Some(now)),
            last_seen: Some(now),
            count: old.map_or(0, |old| old.finding.count) + 1,
        };
        bounds::fit_finding(&mut finding);
        let same = old.is_some_and(|Listed { finding: old, .. }| {
            // Somebody goes on writing what is left alone: each value of a counter is no other fight.
            let is_contest = finding.verdict == Verdict::Contested && finding.action != Action::Corrected;
            let same_paths = if is_contest { same_sides(&old.paths, &finding.paths) } else { old.paths == finding.paths };
            old.verdict == finding.verdict && old.action == finding.action && same_paths && old.paths_truncated == finding.paths_truncated
        });
        let repeated = same && judgement.action != Action::Corrected && judgement.action != Action::Recreated;
        if let Some(Listed { finding: old, .. }) = old.filter(|_| repeated) {
            (finding.last_seen, finding.count) = (old.last_seen, old.count);
        }
        // One that stays listed although nothing differs says why it is inexact.
        let corrected = judgement.verdict == Verdict::InSync && judgement.action != Action::Reported;
        let until = if corrected { self.listed_until(now) } else { None };
        self.findings.insert(id, Listed { finding, until });
        if drifted && !repeated {
            self.last_drift_at = Some(now);
        }
        News { drift: drifted && !repeated, added }
    }

    /// A finding of an earlier process stands.
    pub fn stand(&mut self, id: StateId, finding: Finding) {
        self.verdicts.insert(id, finding.verdict);
        self.findings.insert(id, Listed { finding, until: None });
    }

    /// What was found of an object, where that stands while the object stays as it is. Neither what is missing nor what is on its way out
    /// shows in a list.
    pub fn standing(&self, id: StateId) -> Option<&Finding> {
        let listed = self.findings.get(&id).filter(|listed| listed.until.is_none())?;
        // Nor does anybody remember whose turn it was.
        let waits = listed.finding.reason == Reason::RateLimited;
        (!waits && !matches!(listed.finding.verdict, Verdict::Missing | Verdict::Terminating)).then_some(&listed.finding)
    }

    /// Whether an object is listed with this reason.
    pub fn is_listed_as(&self, id: StateId, reason: Reason) -> bool {
        self.findings.get(&id).is_some_and(|listed| listed.finding.reason == reason)
    }

    /// Since when an object is listed.
    pub fn first_seen(&self, id: StateId) -> Option<Timestamp> {
        self.findings.get(&id)?.finding.first_seen
    }

    /// How many objects are not as declared, as far as is known.
    pub fn differing(&self) -> usize {
        self.verdicts.values().filter(|verdict| differs(**verdict)).count()
    }

    /// Goes on with what an earlier hub reported of an object: since when, how often, and for how long a correction stays listed.
    fn go_on(&mut self, id: StateId, key: &ObjectKey, now: Timestamp) {
        let reference = object_ref(key, "");
        let is_it = |finding: &Finding| {
            let object = &finding.object;
            (&object.kind, &object.namespace, &object.name, &object.api_version)
                == (&reference.kind, &reference.namespace, &reference.name, &reference.api_version)
        };
        let Some(place) = self.earlier.iter().position(is_it) else { return };
        let finding = self.earlier.swap_remove(place);
        if finding.verdict == Verdict::InSync && finding.reason == Reason::ForeignField {
            self.added.entry(id).or_insert(finding);
            return;
        }
        let is_corrected = finding.verdict == Verdict::InSync && finding.action != Action::Reported;
        let until = finding.last_seen.filter(|_| is_corrected).and_then(|seen| self.listed_until(seen));
        if until.is_none_or(|until| now < until) {
            self.findings.entry(id).or_insert(Listed { finding, until });
        }
    }

    /// Until when a correction stays listed.
    fn listed_until(&self, corrected: Timestamp) -> Option<Timestamp> {
        corrected.checked_add(jiff::SignedDuration::try_from(self.guard.interval).unwrap_or_default()).ok()
    }

    /// Notes a write.
    pub fn wrote(&mut self, record: CorrectionRecord) {
        if self.corrections.len() == MAX_CORRECTIONS {
            self.corrections.pop_front();
        }
        if matches!(record.outcome, Outcome::Corrected | Outcome::Recreated) {
            self.last_correction_at = Some(record.time);
        }
        self.corrections.push_back(record);
    }

    /// Ends the listing of corrections whose interval is over. Answers whether anything ended.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let before = self.findings.len();
        self.findings.retain(|_, listed| listed.until.is_none_or(|until| now < until));
        self.findings.len() != before
    }

    /// The last verdict of an object.
    pub fn verdict(&self, id: StateId) -> Option<Verdict> {
        self.verdicts.get(&id).copied()
    }

    /// Objects with a finding of this reason.
    pub fn with_reason(&self, reason: Reason) -> Vec<StateId> {
        self.findings.iter().filter(|(_, listed)| listed.finding.reason == reason).map(|(id, _)| *id).collect()
    }

    /// Until when its report waits for its objects to be judged; `None` where it does not. One that says less than the stored one would
    /// flicker, and one that waits for ever would be wrong.
    pub fn withheld_until(&self, now: Instant) -> Option<Instant> {
        let until = self.since + JUDGED_WITHIN;
        (until > now && self.judgeable().is_some() && self.load_error.is_none() && !self.is_judged()).then_some(until)
    }

    /// Whether every object of the revision that counts has been judged.
    pub fn is_judged(&self) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| {
            self.judgeable().is_none_or(|revision| loaded.revision.is_record(revision))
                && loaded.objects.iter().all(|id| self.verdicts.contains_key(id))
        })
    }

    /// Objects by verdict, in the order of [`Verdict::ALL`].
    pub fn counts(&self) -> [u64; Verdict::ALL.len()] {
        let mut counts = [0; Verdict::ALL.len()];
        for (verdict, count) in Verdict::ALL.into_iter().zip(&mut counts) {
            *count = self.verdicts.values().filter(|known| **known == verdict).count() as u64;
        }
        counts
    }

    /// The report.
    pub fn status(&self, contact: &Contact, now: Timestamp) -> DriftReportStatus {
        let problems = self.loaded.as_ref().map(|loaded| loaded.problems.as_slice()).unwrap_or_default();
        let mut findings: Vec<Finding> = self.shown().into_iter().chain(problems.iter().cloned()).collect();
        findings.sort_by(|a, b| b.verdict.cmp(&a.verdict).then_with(|| a.object.cmp(&b.object)));
        let listed = findings.len().min(MAX_LISTED);
        let truncated = (findings.len() - listed) as u64;
        let summary = self.summary();
        findings.truncate(MAX_LISTED);
        let mut deviations: Vec<Deviation> = self.deviations.values().flatten().cloned().collect();
        let deviations_truncated = deviations.len().saturating_sub(MAX_LISTED) as u64;
        deviations.truncate(MAX_LISTED);
        DriftReportStatus {
            conditions: self.conditions(contact, &summary, &findings, now),
            source: Some(Source {
                kind: SourceKind::HelmRelease,
                namespace: self.name.namespace.clone(),
                name: self.name.name.clone(),
                revision: self.loaded.as_ref().map(|loaded| i64::try_from(loaded.revision.meta.version).unwrap_or(i64::MAX)),
                desired_hash: self.loaded.as_ref().map(|loaded| loaded.hash.clone()),
            }),
            policy: self.guard.policy.as_ref().map(PolicyName::to_reference),
            cluster_uid: contact.uid.as_ref().map(ToString::to_string),
            observed_at: Some(now),
            last_drift_at: self.last_drift_at,
            last_correction_at: self.last_correction_at,
            summary,
            findings,
            truncated,
            deviations,
            deviations_truncated,
            corrections: self.corrections.iter().cloned().collect(),
        }
    }

    /// Counts over all objects.
    pub fn summary(&self) -> Summary {
        let mut counts = self.counts().into_iter();
        let mut next = || counts.next().unwrap_or_default();
        // The order of `Verdict::ALL`.
        let [in_sync, terminating, drifted, missing, unknown, refused, contested] = std::array::from_fn(|_| next());
        let loaded = self.loaded.as_ref();
        let declared = loaded.map_or(0, |loaded| loaded.objects.len() as u64);
        let problems = loaded.map_or(0, |loaded| loaded.problems.len() as u64);
        let listed = || self.findings.values().map(|listed| &listed.finding);
        // What was corrected is there no more.
        let standing = listed().filter(|finding| finding.verdict != Verdict::InSync);
        Summary {
            objects: declared + problems,
            in_sync,
            drifted,
            missing,
            terminating,
            refused,
            contested,
            unknown: unknown + problems + declared.saturating_sub(self.verdicts.len() as u64),
            deviations: self.deviation_counts().iter().sum(),
            foreign: standing.flat_map(|finding| &finding.paths).filter(|path| path.change == Change::Added).count() as u64
                + self.added.values().map(|finding| finding.paths.len() as u64 + finding.paths_truncated).sum::<u64>(),
            corrected: listed().filter(|finding| matches!(finding.action, Action::Corrected | Action::Recreated)).count() as u64,
        }
    }
}

/// What a judgement adds to what was known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    /// Drift that was not listed before.
    pub drift: bool,
    /// What somebody added and that was not listed before.
    pub added: Vec<PathFinding>,
}

/// Whether the same managers write the same paths.
fn same_sides(a: &[PathFinding], b: &[PathFinding]) -> bool {
    let side = |path: &PathFinding| (path.path.clone(), path.actor.as_ref().map(|actor| actor.manager.clone()));
    a.iter().map(side).eq(b.iter().map(side))
}

/// Whether a judgement is about drift, corrected or not.
pub fn is_drift(judgement: &Judgement) -> bool {
    differs(judgement.verdict)
        || (judgement.verdict == Verdict::InSync && matches!(judgement.action, Action::Corrected | Action::Recreated))
}

/// Whether an object with this verdict is known not to be as declared.
pub const fn differs(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Drifted | Verdict::Missing | Verdict::Refused | Verdict::Contested => true,
        Verdict::InSync | Verdict::Terminating | Verdict::Unknown => false,
    }
}

/// A reference as reports show it.
pub fn object_ref(key: &ObjectKey, uid: &str) -> ObjectRef {
    ObjectRef {
        api_version: key.gvk.api_version(),
        kind: key.gvk.kind.clone(),
        namespace: key.namespace.as_deref().unwrap_or_default().to_owned(),
        name: key.name.to_string(),
        uid: uid.to_owned(),
    }
}

/// The keyed form in which a digest may leave the process.
pub fn keyed(key: &[u8], digest: Digest) -> String {
    use hmac::{Hmac, KeyInit, Mac};
    use sha2::Sha256;
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return String::new() };
    mac.update(digest.bytes());
    let bytes = mac.finalize().into_bytes();
    let mut text = String::with_capacity(32);
    for byte in bytes.iter().take(16) {
        for nibble in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(nibble), 16));
        }
    }
    text
}
