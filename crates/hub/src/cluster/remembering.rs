//! The actor's part about what outlives it: taking up what an earlier process knew, and keeping what is known now.
//!
//! The last judgement of an object stands once a fresh list shows that no owned path can have changed since: a restart asks nothing about
//! it and reads nothing of it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use holdfast_api::report::{DeviationReason, Finding, Verdict};
use holdfast_engine::{
    canonical::Digest,
    decide::Judgement,
    foreign::{is_listed, is_nothing},
    object::Gvk,
    owned::OwnedSet,
    stored::{StoredAccepted, StoredDigest, StoredSet},
};
use tokio::time::{Instant, timeout};

use super::{
    actor::{Actor, Job},
    guarded::Guarded,
    judging::retry_after,
    memory::{Recalled, Written},
    records::ReleaseName,
    source::Guardianship,
    state::{ObjectState, StateId},
};
use crate::state_secrets::{
    ClusterSecrets, Part, Plain, Stored, StoredContests, StoredId, StoredLedger, StoredObject, StoredObjects, StoredStanding, plain_parts,
};

/// How long the last write may take when the hub stops.
const LAST_WRITE: Duration = Duration::from_millis(800);
/// How long a start waits for the permits of its releases before it judges anew what was found.
const PERMITS_WITHIN: Duration = Duration::from_secs(3);
/// Bytes of the longest finding that is kept.
const MOST_KEPT: usize = 8 << 10;

impl Actor {
    /// Takes up what an earlier process knew of an object; `None` where it knew nothing.
    pub(super) fn recall(&mut self, release: &ReleaseName, id: StateId, guarded: &Guarded) -> Option<Recalled> {
        let recalled = self.memory.recall(release, StoredId::of(&guarded.key), guarded.hash)?;
        self.shared.states.put(id, recalled.state.clone());
        Some(recalled)
    }

    /// Judges what was recalled: by a fresh list where that can suffice, else one by one.
    pub(super) fn start_recalled(&mut self, now: Instant) {
        if self.awaiting.is_empty() || self.is_confirming || !self.may_judge() {
            return;
        }
        // What was found stands only under the same permit.
        if self.is_permit_open() && now < self.started + PERMITS_WITHIN {
            return;
        }
        self.is_confirming = true;
        let kinds: Vec<Gvk> = self.kinds_of(self.awaiting.iter());
        for gvk in kinds {
            self.audits.insert(gvk, now);
        }
    }

    fn kinds_of<'a>(&self, ids: impl Iterator<Item = &'a StateId>) -> Vec<Gvk> {
        let slots = ids.filter_map(|id| self.objects.get(id));
        let kinds = slots.filter_map(|slot| Some(Gvk::clone(&slot.claimants.first()?.1.key.gvk)));
        kinds.collect::<std::collections::HashSet<_>>().into_iter().collect()
    }

    /// A fresh list of a kind holds these objects, unchanged as far as their owned paths go; `None` where there is no list.
    pub(super) fn vouch_for(&mut self, gvk: &Gvk, unchanged: Option<&dyn Fn(StateId) -> bool>, now: Instant) {
        let of_kind = |id: &&StateId| {
            self.objects.get(*id).is_none_or(|slot| slot.claimants.first().is_none_or(|(_, guarded)| *guarded.key.gvk == *gvk))
        };
        let ids: Vec<StateId> = self.awaiting.iter().filter(of_kind).copied().collect();
        for id in ids {
            self.awaiting.remove(&id);
            if !unchanged.is_some_and(|unchanged| unchanged(id)) || !self.stands(id, now) {
                self.queue.push(id, now, now);
            }
        }
        if self.awaiting.is_empty() {
            self.is_confirming = false;
        }
    }

    /// Whether the last judgement of an object stands, which is taken in then.
    fn stands(&mut self, id: StateId, now: Instant) -> bool {
        let Some((release, guarded)) = self.objects.get(&id).and_then(|slot| slot.claimants.first()).cloned() else { return false };
        let Some(known) = self.releases.get(&release).filter(|known| known.judgeable().is_some()) else { return false };
        let Some(state) = self.shared.states.get(id).filter(|state| state.desired == guarded.hash) else { return false };
        if !self.claims.others(id, &release).is_empty() {
            return false;
        }
        let tag = known.guard.foreign_tag;
        let standing = self.standing.remove(&id);
        let added = standing.as_ref().and_then(|standing| standing.added.as_deref()).map(serde_json::from_str::<Finding>);
        let stands = match (&standing, state.in_sync) {
            // What was added and is listed cannot be told without its finding.
            _ if is_listed(state.additions) != matches!(added, Some(Ok(_))) => false,
            (Some(StoredStanding { rules, .. }), _) if *rules != StoredDigest::from(self.rules_of(known, &guarded, now)) => false,
            (Some(standing @ StoredStanding { finding: Some(finding), .. }), _) => {
                self.stands_found(id, &release, finding, standing.tries, now)
            }
            // Whether what was added is to be told may have changed with the rules; what was not looked for could be anything.
            (None, Some(_)) if !is_nothing(state.additions, tag) => false,
            (_, Some(in_sync)) => {
                self.take_in(id, &release, &guarded, "", &Judgement::unchanged(in_sync, state.additions), now);
                true
            }
            (_, None) => false,
        };
        if let (true, Some(Ok(added)), Some(known)) = (stands, added, self.releases.get_mut(&release)) {
            known.stand_added(id, added);
        }
        stands
    }

    /// What was found stands. Where a write was tried in vain, the next try is as far away as it was at most.
    fn stands_found(&mut self, id: StateId, release: &ReleaseName, finding: &str, tries: u32, now: Instant) -> bool {
        let Ok(finding) = serde_json::from_str::<Finding>(finding) else { return false };
        let probe = self.until_next_probe(id);
        let again = match finding.verdict {
            // Its time to be tried again has come.
            Verdict::Contested if probe.is_none() => return false,
            Verdict::Contested => probe,
            _ => tries.checked_sub(1).map(retry_after),
        };
        if let Some(wait) = again {
            self.retries.insert(id, tries);
            self.queue.push(id, now + wait, now);
        }
        if let Some(known) = self.releases.get_mut(release) {
            known.stand(id, finding);
        }
        self.dirty.insert(release.clone());
        self.flush_soon();
        true
    }

    /// What an object is judged by, beside itself.
    fn rules_of(&self, known: &Guardianship, guarded: &Guarded, now: Instant) -> Digest {
        let rules = format!("{:?} {:?}", known.guard, self.permit(known, guarded, now));
        Digest::of_bytes(rules.as_bytes())
    }

    /// Something changed that a restart is to find again.
    pub(super) fn remember(&mut self) {
        if self.secrets.is_some() {
            self.memory.touch(Instant::now());
        }
    }

    pub(super) fn start_keeping(&mut self, now: Instant) {
        if self.memory.next().is_none_or(|at| at > now) {
            return;
        }
        let Some(keeping) = self.keeping() else { return };
        self.jobs.push(Box::pin(async move { Job::Kept(keeping.await) }));
    }

    fn keeping(&mut self) -> Option<impl Future<Output = Written> + use<>> {
        let secrets = self.secrets.clone()?;
        let parts = self.snapshot();
        let (changed, gone) = self.memory.begin(parts);
        Some(keep(secrets, changed, gone))
    }

    pub(super) fn kept(&mut self, written: &Written) {
        if self.memory.written(written, Instant::now())
            && let Some(reason) = written.failure
        {
            tracing::warn!(cluster = %self.name, reason, "what is known of the cluster cannot be kept");
        }
    }

    /// The last write when the hub stops.
    pub(super) async fn keep_last(&mut self) {
        if !self.memory.is_touched() {
            return;
        }
        if let Some(keeping) = self.keeping()
            && let Ok(written) = timeout(LAST_WRITE, keeping).await
        {
            self.kept(&written);
        }
    }

    fn standing_of(&self, id: StateId, known: &Guardianship, guarded: &Guarded) -> Option<StoredStanding> {
        // One that is to be judged anew was judged by other rules.
        if self.afresh.contains(&id) || self.queue.is_in_flight(id) {
            return None;
        }
        // A few long ones are not worth their place: they are asked for again.
        let text = |finding: Option<&Finding>| match finding {
            None => Some(None),
            Some(finding) => serde_json::to_string(finding).ok().filter(|text| text.len() <= MOST_KEPT).map(Some),
        };
        let (finding, added) = (text(known.standing(id))?, text(known.added(id))?);
        if finding.is_none() && added.is_none() {
            return None;
        }
        let rules = self.rules_of(known, guarded, Instant::now()).into();
        Some(StoredStanding { finding, added, rules, tries: self.retries.get(&id).copied().unwrap_or_default() })
    }

    /// Everything that a restart is to find again.
    fn snapshot(&mut self) -> Vec<Plain> {
        if self.book.complete {
            let (book, guarded) = (&self.book, &self.releases);
            self.memory.keep_releases(|release| guarded.contains_key(release) || book.has(release));
        }
        let mut lists = Lists::default();
        let mut objects = Vec::with_capacity(self.objects.len());
        let mut contests = StoredContests::default();
        for (id, slot) in &self.objects {
            let Some((release, guarded)) = slot.claimants.first() else { continue };
            let stored_id = StoredId::of(&guarded.key);
            if let Some(state) = self.shared.states.get(*id) {
                let known = self.releases.get(release);
                let (uid, normalized, shown) = known.map(|known| known.kept_deviations(*id)).unwrap_or_default();
                let standing = known.and_then(|known| self.standing_of(*id, known, guarded));
                let object = stored_object(&mut lists, stored_id, release, &state);
                objects.push(StoredObject { uid, normalized, shown, standing, ..object });
            }
            if let Some(ledger) = self.ledgers.get(id) {
                contests.ledgers.push((stored_id, StoredLedger::from(ledger)));
            }
        }
        for (release, object, sets) in self.memory.waiting() {
            let [set, previous] = sets.map(|set| set.map(|set| lists.set(set)));
            objects.push(StoredObject { release: lists.release(release), set, previous, ..object.clone() });
        }
        contests.ledgers.extend(self.memory.waiting_ledgers().map(|(id, ledger)| (id, ledger.clone())));
        contests.releases = self.releases.values().map(Guardianship::stored).collect();
        let unasked = self.memory.releases().filter(|(release, _)| !self.releases.contains_key(*release));
        contests.releases.extend(unasked.map(|(_, known)| known.clone()));
        plain_parts(StoredObjects { releases: lists.releases, sets: lists.sets, objects }, contests)
    }
}

/// Whether a fresh list can suffice for an object that was recalled: everything that was accepted there is the server's own doing, so
/// nothing beside the object can have changed that.
pub(super) fn can_be_confirmed(recalled: &Recalled, desired: &Guarded) -> bool {
    let state = &recalled.state;
    let of_the_server = |reason: DeviationReason| matches!(reason, DeviationReason::Normalized | DeviationReason::Admission);
    state.desired == desired.hash
        && state.owed.is_none()
        && state.sight.is_some()
        && (state.in_sync.is_some() || recalled.standing.is_some())
        && state.accepted.as_ref().is_none_or(|all| all.iter().all(|accepted| of_the_server(accepted.reason)))
}

/// Each release and owned set once.
#[derive(Default)]
struct Lists {
    releases: Vec<(String, String)>,
    release_places: HashMap<ReleaseName, u32>,
    sets: Vec<StoredSet>,
    set_places: HashMap<*const OwnedSet, u32>,
}

impl Lists {
    fn release(&mut self, release: &ReleaseName) -> u32 {
        if let Some(place) = self.release_places.get(release) {
            return *place;
        }
        let place = u32::try_from(self.releases.len()).unwrap_or(u32::MAX);
        self.releases.push((release.namespace.clone(), release.name.clone()));
        self.release_places.insert(release.clone(), place);
        place
    }

    fn set(&mut self, set: &Arc<OwnedSet>) -> u32 {
        // Equal sets are one: they were interned.
        *self.set_places.entry(Arc::as_ptr(set)).or_insert_with(|| {
            self.sets.push(StoredSet::from(&**set));
            u32::try_from(self.sets.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

fn stored_object(lists: &mut Lists, id: StoredId, release: &ReleaseName, state: &ObjectState) -> StoredObject {
    StoredObject {
        id,
        release: lists.release(release),
        desired: state.desired.into(),
        set: state.owned.as_ref().map(|owned| lists.set(owned)),
        sight: state.sight.map(|sight| sight.stored()),
        in_sync: state.in_sync.map(Into::into),
        accepted: state.accepted.as_ref().map(|all| all.iter().map(StoredAccepted::from).collect()),
        seen: state.seen,
        vouched: state.vouched,
        uid: String::new(),
        normalized: 0,
        shown: Vec::new(),
        standing: None,
        additions: state.additions,
        previous: state.previous.as_ref().map(|previous| lists.set(previous)),
    }
}

async fn keep(secrets: ClusterSecrets, changed: Vec<(Plain, Option<String>)>, gone: Vec<Part>) -> Written {
    let mut written = Written::default();
    for (plain, version) in changed {
        let content = Digest::of_bytes(&plain.bytes);
        match secrets.write(&plain, version).await {
            Ok(version) => written.stored.push((plain.part, Stored { version, content: Some(content) })),
            Err(failure) => written.failure = Some(failure.as_str()),
        }
    }
    if written.failure.is_some() {
        // What replaces them is not stored.
        return written;
    }
    for part in gone {
        match secrets.remove(part).await {
            Ok(()) => written.removed.push(part),
            Err(failure) => written.failure = Some(failure.as_str()),
        }
    }
    written
}
