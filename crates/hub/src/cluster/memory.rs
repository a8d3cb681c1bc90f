//! What an earlier process kept of a cluster until it is asked for, and when to keep what is known now. Pure: told the time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use holdfast_engine::{canonical::Digest, contest::Ledger, owned::OwnedSet, stored::StoredAccepted};
use tokio::time::Instant;

use super::{
    loads::doubling,
    records::ReleaseName,
    sight::Sight,
    state::{ObjectState, Owed},
};
use crate::state_secrets::{
    Kept, Part, Plain, Stored, StoredId, StoredIntent, StoredLedger, StoredObject, StoredRelease, StoredShown, StoredStanding,
};

/// A change is kept this long after it, so that a burst is one write.
const GATHER: Duration = Duration::from_secs(2);
/// At least this long lies between two writes.
const AT_LEAST: Duration = Duration::from_secs(5);
/// First wait after nothing could be written; doubles up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// Longest wait.
const LAST_WAIT: Duration = Duration::from_mins(5);

/// The memory of one cluster.
#[derive(Debug, Default)]
pub struct Memory {
    waiting: HashMap<StoredId, Waiting>,
    ledgers: HashMap<StoredId, StoredLedger>,
    intents: HashMap<StoredId, StoredIntent>,
    releases: BTreeMap<ReleaseName, StoredRelease>,
    parts: BTreeMap<Part, Stored>,
    due: Option<Instant>,
    /// No write before.
    not_before: Option<Instant>,
    is_writing: bool,
    failures: u32,
}

/// An object of a release that was not read again yet.
#[derive(Debug)]
struct Waiting {
    release: ReleaseName,
    object: StoredObject,
    owned: Option<Arc<OwnedSet>>,
    previous: Option<Arc<OwnedSet>>,
}

/// What an earlier process knew of an object.
#[derive(Debug)]
pub struct Recalled {
    /// Hash state.
    pub state: ObjectState,
    /// Corrections it needed.
    pub ledger: Option<Ledger>,
    /// Accepted differences that reports show.
    pub shown: Vec<StoredShown>,
    /// UID, as reports show it.
    pub uid: String,
    /// Accepted differences that are only counted.
    pub normalized: u32,
    /// What was found, where that was not in sync.
    pub standing: Option<StoredStanding>,
}

/// How keeping the parts of a cluster went.
#[derive(Debug, Default)]
pub struct Written {
    /// Parts that are stored now, as they are.
    pub stored: Vec<(Part, Stored)>,
    /// Parts that are gone.
    pub removed: Vec<Part>,
    /// Why not everything was written.
    pub failure: Option<&'static str>,
}

impl Memory {
    /// What was kept. Equal owned sets become one by `intern`.
    pub fn of(kept: Kept, intern: impl Fn(OwnedSet) -> Arc<OwnedSet>) -> Self {
        let mut waiting = HashMap::new();
        for share in kept.objects {
            let sets: Vec<Option<Arc<OwnedSet>>> = share.sets.iter().map(|set| set.restore().map(&intern)).collect();
            let releases: Vec<ReleaseName> = share.releases.into_iter().map(|(namespace, name)| ReleaseName { namespace, name }).collect();
            for object in share.objects {
                let Some(release) = at(&releases, object.release).cloned() else { continue };
                let set = |place: Option<u32>| place.and_then(|place| at(&sets, place).cloned().flatten());
                let (owned, previous) = (set(object.set), set(object.previous));
                waiting.insert(object.id, Waiting { release, object, owned, previous });
            }
        }
        Self {
            waiting,
            ledgers: kept.contests.ledgers.into_iter().collect(),
            intents: kept.intents.into_iter().collect(),
            releases: kept
                .contests
                .releases
                .into_iter()
                .map(|known| (ReleaseName { namespace: known.namespace.clone(), name: known.name.clone() }, known))
                .collect(),
            parts: kept.parts,
            ..Self::default()
        }
    }

    /// What was known of an object of a release, `desired` being the digest of what it declares now. Each object is recalled once; what
    /// another release knew of it counts for nothing. A repair that was begun is recalled whatever else was kept.
    pub fn recall(&mut self, release: &ReleaseName, id: StoredId, desired: Digest) -> Option<Recalled> {
        let waiting = self.waiting.remove(&id).filter(|waiting| waiting.release == *release);
        let (ledger, intent) = (self.ledgers.remove(&id), self.intents.remove(&id));
        let unpaid = intent.and_then(|intent| {
            let change = intent.change.restore()?;
            Some(Arc::new(Owed { change, uid: intent.uid, is_certain: false }))
        });
        let Some(waiting) = waiting else {
            let state = ObjectState { owed: Some(unpaid?), ..ObjectState::new(desired) };
            return Some(Recalled { state, ledger: None, shown: Vec::new(), uid: String::new(), normalized: 0, standing: None });
        };
        let (object, owned, previous) = (&waiting.object, waiting.owned, waiting.previous);
        // A set that cannot be read takes with it what was judged by it.
        let is_whole = owned.is_some() == object.set.is_some();
        let accepted = object.accepted.as_ref().filter(|_| is_whole);
        let accepted = accepted.and_then(|all| all.iter().map(StoredAccepted::restore).collect::<Option<Box<[_]>>>());
        let state = ObjectState {
            additions: object.additions,
            previous,
            desired: object.desired.into(),
            sight: object.sight.as_ref().filter(|_| owned.is_some()).map(Sight::restored),
            in_sync: object.in_sync.filter(|_| accepted.is_some()).map(Digest::from),
            owned,
            accepted,
            seen: object.seen,
            vouched: object.vouched,
            owed: unpaid,
        };
        let ledger = ledger.map(|ledger| ledger.restore());
        let Waiting { object, .. } = waiting;
        Some(Recalled { state, ledger, shown: object.shown, uid: object.uid, normalized: object.normalized, standing: object.standing })
    }

    /// What an earlier process knew of a release.
    pub fn release(&self, release: &ReleaseName) -> Option<&StoredRelease> {
        self.releases.get(release)
    }

    /// What an earlier process knew of all releases.
    pub fn releases(&self) -> impl Iterator<Item = (&ReleaseName, &StoredRelease)> {
        self.releases.iter()
    }

    /// Forgets releases that are gone for good.
    pub fn keep_releases(&mut self, keep: impl Fn(&ReleaseName) -> bool) {
        self.waiting.retain(|_, waiting| keep(&waiting.release));
        self.releases.retain(|release, _| keep(release));
    }

    /// Objects that nobody asked for yet, with what they claim and what the revision before claimed: they are kept on.
    pub fn waiting(&self) -> impl Iterator<Item = (&ReleaseName, &StoredObject, [Option<&Arc<OwnedSet>>; 2])> {
        self.waiting.values().map(|waiting| (&waiting.release, &waiting.object, [waiting.owned.as_ref(), waiting.previous.as_ref()]))
    }

    /// Contests of objects that nobody asked for yet.
    pub fn waiting_ledgers(&self) -> impl Iterator<Item = (StoredId, &StoredLedger)> {
        self.ledgers.iter().filter(|(id, _)| self.waiting.contains_key(id)).map(|(id, ledger)| (*id, ledger))
    }

    /// Something changed that a restart is to find again.
    pub fn touch(&mut self, now: Instant) {
        let at = self.not_before.map_or(now + GATHER, |before| before.max(now + GATHER));
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Something changed that a restart must not miss: a write is due at once.
    pub fn hurry(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// Whether a write is under way.
    pub const fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// Whether something is to be written, whenever.
    pub const fn is_touched(&self) -> bool {
        self.due.is_some()
    }

    /// When the next write is due.
    pub fn next(&self) -> Option<Instant> {
        self.due.filter(|_| !self.is_writing)
    }

    /// What is to be written and removed so that `parts` is what is stored. One write at a time, until [`Memory::written`].
    pub fn begin(&mut self, parts: Vec<Plain>) -> (Vec<(Plain, Option<String>)>, Vec<Part>) {
        self.due = None;
        self.is_writing = true;
        let gone = self.parts.keys().filter(|part| !matches!(part, Part::Intent(_)) && !parts.iter().any(|plain| plain.part == **part));
        let gone = gone.copied().collect();
        let changed = parts.into_iter().filter_map(|plain| {
            let stored = self.parts.get(&plain.part);
            let is_stored = stored.is_some_and(|stored| stored.content == Some(Digest::of_bytes(&plain.bytes)));
            (!is_stored).then(|| (plain, stored.map(|stored| stored.version.clone())))
        });
        (changed.collect(), gone)
    }

    /// A write has ended. Answers whether it is the first failure in a row.
    pub fn written(&mut self, written: &Written, now: Instant) -> bool {
        self.is_writing = false;
        self.parts.extend(written.stored.iter().cloned());
        for part in &written.removed {
            self.parts.remove(part);
        }
        if written.failure.is_none() {
            self.failures = 0;
            self.not_before = Some(now + AT_LEAST);
            if let Some(due) = &mut self.due {
                *due = (*due).max(now + AT_LEAST);
            }
            return false;
        }
        let at = now + doubling(FIRST_WAIT, self.failures, LAST_WAIT);
        self.not_before = Some(at);
        self.due = Some(at);
        self.failures = self.failures.saturating_add(1);
        self.failures == 1
    }
}

fn at<T>(list: &[T], place: u32) -> Option<&T> {
    list.get(usize::try_from(place).ok()?)
}
