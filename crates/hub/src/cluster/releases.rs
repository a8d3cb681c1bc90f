//! The actor's part about releases: taking them under guard, reading their records, letting them go.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use holdfast_api::{policy::Mode, report::SourceKind};
use holdfast_engine::object::Gvk;
use holdfast_fleet::{call::CallError, discovery::Catalog};
use holdfast_helm::{RecordMeta, Store};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    actor::{Actor, Slot},
    book::{Phase, Revision, same_record},
    following::is_break,
    records::ReleaseName,
    release::{Declared, LoadError},
    remembering::can_be_confirmed,
    source::{Guardianship, Loaded, keyed},
    state::{ObjectState, StateId},
};
use crate::{
    policy::{Guard, Ignore},
    reports::{ReportKey, SourceId},
};

impl Actor {
    /// Looks at a release after its records, its policy or discovery changed.
    pub(super) fn look_at(&mut self, release: &ReleaseName) {
        let phase = self.book.phase(release);
        let guard = self.policies.decide(&self.entry, &release.namespace, &release.name);
        if let Phase::Gone(_) = phase {
            let changed = self.claims.remove(release);
            self.claims_changed(release, &changed);
            self.loads.forget(release);
        }
        match guard {
            None => self.release_from_guard(release, &phase),
            Some(_) if matches!(phase, Phase::Gone(true)) => self.let_go(release),
            Some(guard) => {
                let known = self.releases.contains_key(release);
                if matches!(phase, Phase::Gone(false)) && !known {
                    return;
                }
                let held_before = self.releases.get(release).is_some_and(|known| known.judgeable().is_none());
                if known {
                    if self.releases.get_mut(release).is_some_and(|known| known.moves(guard, phase)) {
                        self.rules_moved();
                        self.limits_moved(release);
                    }
                } else {
                    self.take_under_guard(release, guard, phase);
                }
                if held_before {
                    self.resume_skipped(release);
                }
                self.dirty.insert(release.clone());
                self.flush_soon();
            }
        }
        self.want_record(release);
    }

    fn take_under_guard(&mut self, release: &ReleaseName, guard: Arc<Guard>, phase: Phase) {
        let mut guardianship = Guardianship::new(release.clone(), guard, phase);
        if let Some(stored) = self.remembered(&self.report_key(release)) {
            guardianship.remember(&stored);
        }
        if let Some(known) = self.memory.release(release) {
            guardianship.recall(known);
        }
        self.releases.insert(release.clone(), guardianship);
        self.permits_due = true;
    }

    /// Reports that an earlier hub left: those of releases that are guarded no more, and of another cluster, go, those of releases whose
    /// records are gone say so.
    pub(super) fn review_known_reports(&mut self) {
        for key in self.shared.reports.known(&self.name) {
            if key.source.kind != SourceKind::HelmRelease {
                continue;
            }
            let release = ReleaseName { namespace: key.source.namespace.clone(), name: key.source.name.clone() };
            if self.releases.contains_key(&release) {
                continue;
            }
            // One about another cluster tells nothing about this one.
            let is_foreign = self.shared.reports.stored(&key).is_some() && self.remembered(&key).is_none();
            let guard = self.policies.decide(&self.entry, &release.namespace, &release.name).filter(|_| !is_foreign);
            match (guard, self.book.phase(&release)) {
                (None, _) | (_, Phase::Gone(true)) => self.shared.reports.retire(&key),
                (Some(guard), phase @ Phase::Gone(false)) => {
                    self.take_under_guard(&release, guard, phase);
                    self.dirty.insert(release);
                    self.flush_soon();
                }
                // It is looked at like every other.
                (Some(_), _) => {}
            }
        }
    }

    /// The record to read next for a release, if not every one was read whose objects may stand on the cluster.
    pub(super) fn wanted_record(&self, release: &ReleaseName) -> Option<RecordMeta> {
        let judged = self.current_revision(release);
        let guarded = self.releases.get(release);
        let is_installed = |record: &RecordMeta| match (guarded, &judged) {
            (Some(guarded), Some(revision)) if same_record(&revision.meta, record) => {
                guarded.loaded.as_ref().is_some_and(|loaded| loaded.revision.is_record(revision))
            }
            _ => true,
        };
        let is_known =
            |record: &RecordMeta| self.loads.is_refused(release, record) || (self.claims.knows(release, record) && is_installed(record));
        self.book.in_force(release).into_iter().find(|record| !is_known(record))
    }

    pub(super) fn want_record(&mut self, release: &ReleaseName) {
        if self.wanted_record(release).is_none() {
            self.loads.unwant(release);
            let in_force = self.book.in_force(release);
            // What was declared before is not given up for a record that cannot be read.
            let is_clear = !matches!(self.book.phase(release), Phase::Held { reason: "RecordInvalid", .. });
            if is_clear && in_force.iter().all(|record| self.claims.knows(release, record)) {
                let changed = self.claims.keep(release, &in_force);
                self.claims_changed(release, &changed);
            }
            self.permits_due = true;
        } else if self.loads.want(release) {
            // What it claims is not known.
            self.rules_moved();
        }
    }

    /// A record was read, by what `catalog` says of the kinds.
    pub(super) fn loaded(&mut self, release: &ReleaseName, meta: &RecordMeta, catalog: &Arc<Catalog>, result: Result<Declared, LoadError>) {
        if !self.book.in_force(release).iter().any(|record| same_record(record, meta)) {
            // Helm went on meanwhile.
            self.want_record(release);
            return;
        }
        let judged = self.current_revision(release).filter(|revision| same_record(&revision.meta, meta));
        match result {
            Ok(declared) => {
                self.loads.succeeded(release);
                // Whoever may write ConfigMaps somewhere must not stop the corrections of objects elsewhere by claiming them.
                let claims = |namespace: Option<&str>| meta.store == Store::Secrets || namespace == Some(&*release.namespace);
                let claimed = declared.objects.iter().filter(|object| claims(object.key.namespace.as_deref()));
                let ids = claimed.map(|object| StateId::of(self.cluster, &object.key)).collect();
                let changed = self.claims.put(release, meta.clone(), ids, declared.incomplete);
                if declared.incomplete && !Arc::ptr_eq(catalog, &self.catalog) {
                    self.claims.outdate_release(release);
                }
                match (judged, declared.begun) {
                    (Some(revision), _) => self.install(release, revision, declared),
                    (None, Some(begun)) if meta.status.is_pending() => self.begins(release, meta, begun),
                    (None, _) => {}
                }
                self.claims_changed(release, &changed);
                self.want_record(release);
            }
            Err(error) => self.not_loaded(release, meta, error, judged.is_some()),
        }
        self.permits_due = true;
        self.dirty.insert(release.clone());
        self.flush_soon();
    }

    fn not_loaded(&mut self, release: &ReleaseName, meta: &RecordMeta, error: LoadError, is_judged: bool) {
        let is_news = match &error {
            LoadError::Record(_) => {
                self.loads.refuse(release, meta);
                self.want_record(release);
                true
            }
            // The watch on the records says what stands in its place.
            LoadError::Overtaken | LoadError::Read(CallError::NotFound) => {
                self.loads.failed(release, Instant::now());
                false
            }
            LoadError::Read(cause) => {
                if cause.is_connection() {
                    self.unreached(is_break(cause));
                }
                self.loads.failed(release, Instant::now())
            }
        };
        if is_news {
            tracing::warn!(cluster = %self.name, %release, revision = meta.version, %error, "a release record cannot be used");
        }
        if let Some(guardianship) = self.releases.get_mut(release).filter(|_| is_judged) {
            guardianship.load_error = Some(error);
        }
    }

    /// Helm began a pending revision earlier than its record was made.
    fn begins(&mut self, release: &ReleaseName, meta: &RecordMeta, at: Timestamp) {
        self.book.begins(release, meta, at);
        let phase = self.book.phase(release);
        if let Some(known) = self.releases.get_mut(release) {
            known.moves(Arc::clone(&known.guard), phase);
        }
    }

    /// Tells of pending revisions that got stuck, or a step older, without any event.
    pub(super) fn review_pending(&mut self, before: Timestamp, now: Timestamp) {
        let aged = |known: &Guardianship| matches!(&known.phase, Phase::Pending(pending) if pending.aged(before, now));
        let aged: Vec<ReleaseName> = self.releases.iter().filter(|(_, known)| aged(known)).map(|(name, _)| name.clone()).collect();
        if !aged.is_empty() {
            self.dirty.extend(aged);
            self.flush_soon();
        }
    }

    fn current_revision(&self, release: &ReleaseName) -> Option<Revision> {
        match self.book.phase(release) {
            Phase::Desired(revision) => Some(revision),
            Phase::Failed { deployed, .. } => deployed,
            Phase::Pending(_) | Phase::Held { .. } | Phase::Gone(_) => None,
        }
    }

    /// Puts the objects of a guarded release under guard, and lets go of those it no longer declares.
    fn install(&mut self, release: &ReleaseName, revision: Revision, declared: Declared) {
        let Some(mut guardianship) = self.releases.remove(release) else { return };
        let now = Instant::now();
        let mut ids = Vec::with_capacity(declared.objects.len());
        let (mut due, mut recalled) = (Vec::new(), Vec::new());
        for object in declared.objects.into_iter().filter(|object| object.most != Mode::Off) {
            let id = StateId::of(self.cluster, &object.key);
            let known = self.shared.states.get(id);
            let found = if known.is_none() { self.recall(release, id, &object) } else { None };
            let known = known.or_else(|| found.as_ref().map(|found| found.state.clone()));
            if known.is_none() {
                self.shared.states.put(id, ObjectState::new(object.hash));
            }
            // Each object that is read tells how the release writes; where nobody knows yet, all of them are read.
            let knows_writer = guardianship.writer().is_some();
            if let Some(found) = found.as_ref().filter(|found| knows_writer && can_be_confirmed(found, &object)) {
                self.awaiting.insert(id);
                self.standing.extend(found.standing.clone().map(|standing| (id, standing)));
                self.is_confirming = false;
            } else if known.is_none_or(|known| known.desired != object.hash) || guardianship.verdict(id).is_none() {
                self.awaiting.remove(&id);
                due.push(id);
            }
            let object = Arc::new(object);
            recalled.extend(found.filter(|found| found.state.desired == object.hash).map(|found| (id, Arc::clone(&object.key), found)));
            let slot = self.objects.entry(id).or_insert_with(|| Slot { claimants: Vec::new() });
            match slot.claimants.iter_mut().find(|(claimant, _)| claimant == release) {
                Some((_, guarded)) => *guarded = object,
                None => slot.claimants.push((release.clone(), object)),
            }
            ids.push(id);
        }
        let before = guardianship.loaded.take().map(|loaded| loaded.objects).unwrap_or_default();
        let kept: std::collections::HashSet<StateId> = ids.iter().copied().collect();
        for id in before {
            if !kept.contains(&id) {
                guardianship.pace.forget(id);
                self.drop_object(id, release);
            }
        }
        self.discover_for(&declared.problems);
        guardianship.forget(&due);
        guardianship.load(Loaded {
            revision,
            prefer: declared.prefer,
            objects: ids,
            problems: declared.problems,
            incomplete: declared.incomplete,
            hash: keyed(self.shared.secrets.hash_key(), declared.hash),
        });
        for id in &due {
            self.ledgers.remove(id);
            self.retries.remove(id);
            self.queue.push(*id, now, now);
        }
        for (id, key, found) in recalled {
            guardianship.recall_deviations(id, &key, &found);
            self.ledgers.extend(found.ledger.map(|ledger| (id, ledger)));
        }
        self.releases.insert(release.clone(), guardianship);
        self.limits_moved(release);
        self.remember();
        // What was noticed while the record was on its way.
        self.resume_skipped(release);
        self.watch_kinds();
        self.tally_soon();
    }

    fn drop_object(&mut self, id: StateId, release: &ReleaseName) {
        self.remember();
        if let Some(known) = self.releases.get_mut(release) {
            known.pace.forget(id);
        }
        let Some(slot) = self.objects.get_mut(&id) else { return };
        let was_judged_for = slot.claimants.first().is_some_and(|(claimant, _)| claimant == release);
        slot.claimants.retain(|(claimant, _)| claimant != release);
        match slot.claimants.first() {
            None => {
                self.objects.remove(&id);
                self.shared.states.remove(id);
                self.queue.forget(id);
                self.echoes.remove(&id);
                self.skipped.remove(&id);
                self.afresh.remove(&id);
                self.additions_looked_for.remove(&id);
                self.awaiting.remove(&id);
                self.standing.remove(&id);
                self.passed.remove(&id);
            }
            // That the object was seen with one release's metadata says nothing for the next one that claims it.
            Some((_, next)) if was_judged_for => _ = self.shared.states.put(id, ObjectState::new(next.hash)),
            Some(_) => return,
        }
        self.ledgers.remove(&id);
        self.retries.remove(&id);
    }

    /// Claims of a release on these objects, of which others claim some as well, came or went.
    fn claims_changed(&mut self, release: &ReleaseName, ids: &[StateId]) {
        if ids.is_empty() {
            return;
        }
        self.rules_moved();
        let now = Instant::now();
        for id in ids.iter().copied() {
            // It is reported on for as long as nobody else has it.
            let is_left_to_others =
                !self.claims.declares(release, id) && self.objects.get(&id).is_some_and(|slot| slot.claimants.len() > 1);
            if is_left_to_others {
                self.drop_object(id, release);
            }
            if self.objects.contains_key(&id) {
                self.queue.push(id, now, now);
            }
        }
    }

    /// The policy no longer guards a release; its record is still read for what it claims.
    fn release_from_guard(&mut self, release: &ReleaseName, phase: &Phase) {
        if self.releases.contains_key(release) {
            self.let_go(release);
        } else if !matches!(phase, Phase::Gone(_)) {
            self.shared.reports.retire(&self.report_key(release));
        }
    }

    /// Forgets a release and its report.
    fn let_go(&mut self, release: &ReleaseName) {
        if let Some(guardianship) = self.releases.remove(release) {
            self.rules_moved();
            for id in guardianship.loaded.map(|loaded| loaded.objects).unwrap_or_default() {
                self.drop_object(id, release);
            }
            self.watch_kinds();
            self.tally_soon();
        }
        self.dirty.remove(release);
        self.shared.reports.retire(&self.report_key(release));
        self.publish_cluster();
    }

    /// Judges what was noticed while Helm was at work.
    fn resume_skipped(&mut self, release: &ReleaseName) {
        let now = Instant::now();
        let skipped: Vec<StateId> = self
            .skipped
            .iter()
            .filter(|id| self.objects.get(id).is_some_and(|slot| slot.claimants.iter().any(|(claimant, _)| claimant == release)))
            .copied()
            .collect();
        for id in skipped {
            self.skipped.remove(&id);
            self.queue.push(id, now, now);
        }
    }

    /// Policies, labels or the gate changed: every release is looked at again, and the objects of those that are guarded otherwise are
    /// judged under the new rules.
    pub(super) fn policies_changed(&mut self) {
        self.rules_moved();
        let releases: Vec<ReleaseName> = self.book.releases().cloned().chain(self.releases.keys().cloned()).collect();
        let before: BTreeMap<ReleaseName, _> = self.releases.iter().map(|(name, known)| (name.clone(), Arc::clone(&known.guard))).collect();
        if self.book.complete {
            for release in &releases {
                self.look_at(release);
            }
        }
        let now = Instant::now();
        let ids: Vec<StateId> = self
            .releases
            .iter()
            .filter(|(name, known)| before.get(*name).is_none_or(|old| **old != *known.guard))
            .flat_map(|(_, known)| known.loaded.iter().flat_map(|loaded| loaded.objects.iter().copied()))
            .collect();
        for id in ids {
            self.judge_afresh(id, now);
        }
        self.watch_kinds();
        self.hasten_audits();
        self.tally_soon();
        self.all_dirty();
    }

    /// What time alone changes: ignore rules whose time is over ignore nothing any more, and pending revisions get stuck.
    pub(super) fn expire_rules(&mut self) {
        let now = self.shared.clock.now();
        let since = std::mem::replace(&mut self.rules_checked, now);
        self.review_pending(since, now);
        let ended = |known: &Guardianship| known.guard.ignore.iter().filter_map(Ignore::until).any(|until| since < until && until <= now);
        let ids: Vec<StateId> = self
            .releases
            .values()
            .filter(|known| ended(known))
            .flat_map(|known| known.loaded.iter().flat_map(|loaded| loaded.objects.clone()))
            .collect();
        for id in ids {
            self.judge_afresh(id, Instant::now());
        }
    }

    /// The shortest interval among the releases that declare objects of a kind.
    pub(super) fn audit_interval(&self, gvk: &Gvk) -> Duration {
        let declares =
            |slot: &Slot| slot.claimants.iter().find(|(_, guarded)| *guarded.key.gvk == *gvk).map(|(release, _)| release.clone());
        let releases: std::collections::BTreeSet<ReleaseName> = self.objects.values().filter_map(declares).collect();
        releases
            .iter()
            .filter_map(|release| self.releases.get(release))
            .map(|known| known.guard.interval)
            .min()
            .unwrap_or(holdfast_api::policy::DEFAULT_INTERVAL.0)
    }

    pub(super) fn report_key(&self, release: &ReleaseName) -> ReportKey {
        ReportKey { cluster: self.name.clone(), source: SourceId::helm(&release.namespace, &release.name) }
    }

    /// The actor ends: nothing of the cluster stays in the hash state.
    pub(super) fn forget_all(&mut self) {
        for id in self.objects.keys() {
            self.shared.states.remove(*id);
        }
        self.shared.tallies.remove(&self.name);
    }
}
