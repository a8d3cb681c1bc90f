//! The actor's part about objects: what a judgement needs, and what follows from it.

use std::{sync::Arc, time::Duration};

use holdfast_api::{
    policy::Recreate,
    report::{Action, CorrectionRecord, Outcome, PathFinding, Reason, Verdict},
};
use holdfast_engine::{
    case::{Permit, Word},
    contest::Alternation,
    decide::{Judgement, self_conflict},
    foreign::{NOT_LOOKED_FOR, is_listed},
    path::Path,
};
use holdfast_helm::Store;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::{
    actor::{Actor, UnderWay},
    context::{Context, Examined, Leave, Sends, Written},
    following::is_break,
    guarded::Guarded,
    loads::doubling,
    queue::Due,
    records::{FenceQuestion, ReleaseName},
    rules::ObjectRules,
    source::{Guardianship, Learnt, differs, is_drift},
    state::{ObjectState, StateId},
};
use crate::{
    events::{EventReason, Happening, Regarding},
    text::cut,
};

/// First wait before a refused or deferred write is tried again; doubles up to [`LAST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(30);
/// Longest wait.
const LAST_RETRY: Duration = Duration::from_hours(1);
/// First wait before a write is tried again that met somebody else's; doubles up to [`LAST_CONFLICT`].
const FIRST_CONFLICT: Duration = Duration::from_millis(50);
/// Longest wait.
const LAST_CONFLICT: Duration = Duration::from_secs(30);
/// Bytes of paths in one log line. Container runtimes split lines of more than 16 KiB.
const LOGGED: usize = 8 * 1024;

impl Actor {
    /// What a judgement needs; `None` where none is due now.
    pub(super) fn prepare(&mut self, due: Due) -> Option<(UnderWay, ObjectState, Context)> {
        let echo = self.echoes.remove(&due.id);
        let slot = self.objects.get(&due.id)?;
        let (release, guarded) = slot.claimants.first().cloned()?;
        let was_called = self.was_called(&release, due.id);
        if !self.claims.others(due.id, &release).is_empty() {
            self.judge_conflict(due.id);
            return None;
        }
        let known = self.releases.get(&release)?;
        let Some(revision) = known.judgeable() else {
            self.skipped.insert(due.id);
            return None;
        };
        let loaded = known.loaded.as_ref().filter(|loaded| loaded.revision.is_record(revision));
        let Some(loaded) = loaded else {
            self.skipped.insert(due.id);
            return None;
        };
        let mut state = self.shared.states.get(due.id).unwrap_or_else(|| ObjectState::new(guarded.hash));
        if self.afresh.contains(&due.id) {
            state.in_sync = None;
            state.additions = NOT_LOOKED_FOR;
        } else if due.only_if_news && echo.is_some_and(|version| self.is_known_version(due.id, version)) {
            return None;
        }
        if is_listed(state.additions) && known.added(due.id).is_none() {
            // "As before" would tell nothing.
            state.additions = NOT_LOOKED_FOR;
        }
        // Before the permit is looked up: leave that ends in between was never given.
        let leave = Leave::now(&self.seat.leave, &self.shared.term);
        let ObjectRules { ignore, enforce, exclusive } = ObjectRules::of(&known.guard, &guarded, self.shared.clock.now());
        let mut context = Context {
            permit: self.permit(known, &guarded, Instant::now()),
            recreate: known.guard.recreate == Recreate::OnImmutable,
            ignore,
            enforce,
            foreign: known.guard.foreign,
            exclusive,
            foreign_tag: known.guard.foreign_tag,
            ledger: self.ledgers.get(&due.id).cloned().map(Arc::new),
            writer: known.writer().cloned(),
            prefer: Some(loaded.prefer),
            deployed_at: loaded.revision.deployed_at,
            scalers: self.scalers.of(due.id),
            admission: Arc::clone(&self.admission),
            word: word_of(known, revision.meta.store),
            also_declared_by: None,
            held: self.held(&guarded),
            fence: Some(FenceQuestion {
                store: revision.meta.store,
                namespace: release.namespace.clone(),
                name: release.name.clone(),
                judged: revision.judged.clone(),
            }),
            leave: Some(leave),
            sends: Sends::Everything,
        };
        // The second write of a repair is never late.
        if context.permit == Permit::Write && state.owed.is_none() {
            context.permit = self.in_turn(&release, due.id, was_called);
        }
        let afresh = self.afresh.remove(&due.id);
        Some((UnderWay { due, release, guarded, afresh }, state, context))
    }

    /// Two releases declare the object: both say so, and nobody asks or writes anything.
    fn judge_conflict(&mut self, id: StateId) {
        let Some(slot) = self.objects.get(&id) else { return };
        for (release, guarded) in slot.claimants.clone() {
            let others = self.claims.others(id, &release).into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let judgement = self_conflict(&format!("release {others}"));
            self.take_in(id, &release, &guarded, "", &judgement, Instant::now());
        }
    }

    pub(super) fn examined(&mut self, under: &UnderWay, mut examined: Examined) {
        let UnderWay { due, ref release, ref guarded, afresh } = *under;
        self.queue.done(due.id);
        for outcome in &examined.asked {
            self.shared.metrics.oracle_asked(*outcome);
        }
        let write = examined.write.take();
        if let Some(known) = self.releases.get_mut(release) {
            known.pace.ended(due.id, write.is_some());
        }
        // First of all, and whatever became of the release meanwhile: what was written is never left unsaid.
        let record = write.as_ref().map(|write| self.say_written(release, guarded, &examined.uid, write));
        if let Some(error) = &examined.unreachable {
            self.unreached(is_break(error));
        } else {
            self.reached();
        }
        let current = self
            .objects
            .get(&due.id)
            .and_then(|slot| slot.claimants.iter().find(|(claimant, _)| claimant == release))
            .map(|(_, guarded)| Arc::clone(guarded));
        let Some(guarded) = current else {
            if let (Some(record), Some(known)) = (record, self.releases.get_mut(release)) {
                known.wrote(record);
                self.dirty.insert(release.clone());
                self.flush_soon();
            }
            return;
        };
        if examined.has_paid {
            self.say_paid(due.id, release, &guarded);
        }
        if examined.unreachable.is_some() || examined.stale_leave {
            if afresh {
                self.afresh.insert(due.id);
            }
            let is_first = examined.stale_leave || !self.retries.contains_key(&due.id);
            if is_first {
                let wait = if examined.stale_leave { Duration::ZERO } else { FIRST_RETRY / 10 };
                self.queue.push(due.id, Instant::now() + wait, due.noticed);
            }
            if examined.unreachable.is_some() && is_first {
                self.retries.insert(due.id, 0);
            }
            // The cluster answered in between, or this would not have been tried again: it is this object that cannot be read.
            if write.is_none() && is_first {
                return;
            }
        }
        if guarded.hash == examined.state.desired && self.shared.states.put(due.id, examined.state) {
            self.remember();
        }
        if let Some(writer) = examined.writer {
            self.learn_writer(release, writer);
        }
        let mut again = None;
        if write.is_some() {
            self.learn_where(&guarded, &examined.judgement);
        }
        if let (Some(write), Some(record)) = (write, record) {
            match write.passed {
                Some(version) => self.passed.insert(due.id, version),
                None => self.passed.remove(&due.id),
            };
            again = self.wrote(due, release, &write, record);
        }
        let judgement = &examined.judgement;
        if judgement.action == Action::Corrected && judgement.verdict == Verdict::InSync && judgement.in_sync.is_none() {
            again = again.or_else(|| Some(Instant::now()));
        }
        self.take_in(due.id, release, &guarded, &examined.uid, &examined.judgement, due.noticed);
        // What tells a release's own writes from others may have been learnt while this was judged.
        let known = self.releases.get(release).and_then(Guardianship::writer);
        if matches!(examined.judgement.reason, Reason::OwnerUnclear | Reason::Unverified) && known != examined.assumed.as_ref() {
            again = Some(Instant::now());
        }
        self.schedule_again(due.id, release, &examined.judgement, again);
    }

    /// What could not be told apart from the release's own writes can be now.
    fn learn_writer(&mut self, release: &ReleaseName, learnt: Learnt) {
        let Some(known) = self.releases.get_mut(release) else { return };
        if !known.learn(learnt) {
            return;
        }
        let now = Instant::now();
        for id in known.with_reason(Reason::OwnerUnclear).into_iter().chain(known.with_reason(Reason::Unverified)) {
            self.queue.push(id, now, now);
        }
        self.remember();
    }

    /// Says that an earlier repair was finished. It is done, whatever becomes of this judgement.
    fn say_paid(&mut self, id: StateId, release: &ReleaseName, guarded: &Guarded) {
        tracing::info!(
            audit = "correction",
            cluster = %self.name,
            release = %release,
            object = %guarded.key,
            outcome = "OwnershipMoved",
            "finished a repair that was begun earlier"
        );
        if let Some(mut state) = self.shared.states.get(id) {
            state.owed = None;
            self.shared.states.put(id, state);
        }
    }

    /// Says a write in log and metric.
    fn say_written(&self, release: &ReleaseName, guarded: &Guarded, uid: &str, write: &Written) -> CorrectionRecord {
        self.shared.metrics.corrected(&guarded.key.gvk.kind, write.outcome);
        let record = write.record(&guarded.key, uid, self.shared.clock.now());
        let policy = self.releases.get(release).and_then(|known| known.guard.policy.as_ref());
        tracing::info!(
            audit = "correction",
            cluster = %self.name,
            release = %release,
            object = %guarded.key,
            paths = cut(&record.paths.join(" "), LOGGED),
            more_paths = (record.paths_truncated > 0).then_some(record.paths_truncated),
            actor = record.actor.as_ref().map_or("", |actor| actor.manager.as_str()),
            policy = policy.map(ToString::to_string).unwrap_or_default(),
            outcome = record.outcome.as_str(),
            "wrote to the workload cluster"
        );
        record
    }

    /// Notes a write where later judgements and the report look. Answers when to judge again, where the write met another one.
    fn wrote(&mut self, due: Due, release: &ReleaseName, write: &Written, record: CorrectionRecord) -> Option<Instant> {
        let known = self.releases.get_mut(release)?;
        let succeeded = matches!(write.outcome, Outcome::Corrected | Outcome::Recreated);
        if succeeded {
            let contest = known.guard.contest;
            let rule = Alternation {
                rounds: usize::try_from(contest.rounds).unwrap_or(usize::MAX),
                window: SignedDuration::try_from(contest.window).unwrap_or(SignedDuration::MAX),
            };
            self.ledgers.entry(due.id).or_default().record(&write.paths, record.time, rule);
            self.shared.metrics.correction_took(due.noticed.elapsed());
        }
        known.wrote(record);
        self.remember();
        if write.outcome != Outcome::Conflict {
            return None;
        }
        let tries = self.retries.entry(due.id).or_default();
        let wait = doubling(FIRST_CONFLICT, *tries, LAST_CONFLICT);
        *tries = tries.saturating_add(1);
        Some(Instant::now() + wait)
    }

    /// Takes a judgement into the report, and tells who wants to know.
    pub(super) fn take_in(
        &mut self,
        id: StateId,
        release: &ReleaseName,
        guarded: &Guarded,
        uid: &str,
        judgement: &Judgement,
        noticed: Instant,
    ) {
        let now = self.shared.clock.now();
        let Some(known) = self.releases.get_mut(release) else { return };
        self.awaiting.remove(&id);
        self.standing.remove(&id);
        let verdict_before = known.verdict(id);
        // What waited for its turn was told when it was found.
        let waited = known.is_listed_as(id, Reason::RateLimited);
        let admission_before = known.admission_paths(id);
        let news = known.judged(id, &guarded.key, uid, judgement, now);
        let differed_before = verdict_before.map(differs);
        let new_value = |path: &String| judgement.accepted.iter().any(|accepted| accepted.is_new && accepted.path.to_string() == **path);
        let admission: Vec<String> =
            known.admission_paths(id).into_iter().filter(|path| !admission_before.contains(path) || new_value(path)).collect();
        if news.drift || !news.added.is_empty() || verdict_before != Some(judgement.verdict) {
            self.remember();
        }
        let key = self.report_key(release);
        let emit = |reason, note: String| {
            self.shared.events.emit(Happening {
                regarding: Regarding::Report(key.clone()),
                reason,
                object: Some(guarded.key.to_string()),
                note,
            });
        };
        if news.drift && !waited {
            tracing::info!(cluster = %self.name, release = %release, object = %guarded.key, verdict = judgement.verdict.as_str(), "drift found");
            self.count_drift(guarded, judgement, now, noticed);
            emit(EventReason::DriftDetected, describe(guarded, judgement));
        }
        if !news.added.is_empty() {
            tracing::info!(cluster = %self.name, release = %release, object = %guarded.key, fields = news.added.len(), "added fields found");
            for path in &news.added {
                self.shared.metrics.drift_detected(&guarded.key.gvk.kind, path.change);
            }
            self.count_detection(&news.added, now, noticed);
            emit(EventReason::DriftDetected, name_paths(guarded, &news.added));
        }
        match (judgement.verdict, judgement.action) {
            (_, Action::Corrected | Action::Recreated) => emit(EventReason::DriftCorrected, describe(guarded, judgement)),
            (Verdict::Contested, _) if news.drift => emit(EventReason::DriftContested, describe(guarded, judgement)),
            (Verdict::Refused, _) if news.drift => {
                emit(EventReason::CorrectionRefused, format!("{}: {}", guarded.key, judgement.reason.as_str()));
            }
            _ => {}
        }
        if !admission.is_empty() {
            self.shared.metrics.admission_changed(admission.len());
            emit(EventReason::AdmissionChanged, format!("{}: the server rewrites {}", guarded.key, admission.join(", ")));
        }
        self.note_for_blast(id, release, judgement, differed_before);
        self.dirty.insert(release.clone());
        self.flush_soon();
    }

    fn count_drift(&self, guarded: &Guarded, judgement: &Judgement, now: Timestamp, noticed: Instant) {
        let kind = &guarded.key.gvk.kind;
        if judgement.paths.is_empty() {
            self.shared.metrics.drift_detected(kind, holdfast_api::report::Change::Removed);
        }
        for path in &judgement.paths {
            self.shared.metrics.drift_detected(kind, path.change);
        }
        self.count_detection(&judgement.paths, now, noticed);
    }

    fn count_detection(&self, paths: &[PathFinding], now: Timestamp, noticed: Instant) {
        let written_at = paths.iter().filter_map(|path| path.actor.as_ref()?.time).max();
        let took = written_at.and_then(|at| Duration::try_from(now.duration_since(at)).ok()).unwrap_or_else(|| noticed.elapsed());
        self.shared.metrics.detection_took(took);
    }

    /// How long until a path of an object that is held is tried again; `None` where none is.
    pub(super) fn until_next_probe(&self, id: StateId) -> Option<Duration> {
        let ledger = self.ledgers.get(&id)?;
        let (release, guarded) = self.objects.get(&id)?.claimants.first()?;
        let now = self.shared.clock.now();
        let ObjectRules { enforce: enforced, .. } = ObjectRules::of(&self.releases.get(release)?.guard, guarded, now);
        let probe = ledger.next_probe(|path: &Path| enforced.iter().any(|pattern| pattern.covers(path)), now)?;
        Duration::try_from(probe.duration_since(now)).ok()
    }

    /// When an object is judged again without an event.
    fn schedule_again(&mut self, id: StateId, release: &ReleaseName, judgement: &Judgement, again: Option<Instant>) {
        let now = Instant::now();
        if let Some(at) = again {
            self.queue.push(id, at, now);
            return;
        }
        if judgement.reason == Reason::RateLimited {
            return self.wait_for_turn(id, release);
        }
        let waits = match judgement.verdict {
            Verdict::Refused => true,
            Verdict::Unknown => matches!(
                judgement.reason,
                Reason::ServerError | Reason::AdmissionDenied | Reason::QuotaExceeded | Reason::Forbidden | Reason::KindNotServed
            ),
            Verdict::Missing => {
                matches!(judgement.action, Action::Deferred)
                    || matches!(
                        judgement.reason,
                        Reason::NamespaceMissing
                            | Reason::NamespaceTerminating
                            | Reason::QuotaExceeded
                            | Reason::AdmissionDenied
                            | Reason::ServerError
                            | Reason::KindNotServed
                    )
            }
            Verdict::Drifted => judgement.action == Action::Deferred,
            Verdict::Contested => {
                if let Some(wait) = self.until_next_probe(id) {
                    self.queue.push(id, now + wait, now);
                }
                return;
            }
            Verdict::InSync | Verdict::Terminating => false,
        };
        if waits {
            let tries = self.retries.entry(id).or_default();
            let wait = retry_after(*tries);
            *tries = tries.saturating_add(1);
            self.queue.push(id, now + wait, now);
        } else {
            self.retries.remove(&id);
        }
    }
}

/// How long a write that was tried in vain `tries` times before waits.
pub(super) fn retry_after(tries: u32) -> Duration {
    doubling(FIRST_RETRY, tries, LAST_RETRY)
}

/// How far a release's word goes.
pub fn word_of(known: &Guardianship, store: Store) -> Word {
    match store {
        _ if known.guard.trust => Word::Trusted,
        Store::Secrets => Word::OwnNamespace,
        Store::ConfigMaps => Word::ConfigMaps,
    }
}

/// One sentence for an Event: paths and managers, never values.
fn describe(guarded: &Guarded, judgement: &Judgement) -> String {
    if judgement.paths.is_empty() || !is_drift(judgement) {
        return format!("{}: {}", guarded.key, judgement.message);
    }
    name_paths(guarded, &judgement.paths)
}

fn name_paths(guarded: &Guarded, paths: &[PathFinding]) -> String {
    let paths: Vec<String> = paths
        .iter()
        .map(|path| match &path.actor {
            Some(actor) => format!("{} ({})", path.path, actor.manager),
            None => path.path.clone(),
        })
        .collect();
    format!("{}: {}", guarded.key, paths.join(", "))
}
