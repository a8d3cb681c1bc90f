//! The hash state of every guarded object of the fleet, behind one concurrent map.
//!
//! The map is wrapped: no guard of it leaves this module, so none can be held across an await or beside another.

use std::{
    mem::size_of,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use dashmap::{DashMap, Entry};
use holdfast_engine::{
    canonical::{Digest, Digester},
    case::{Accepted, Baseline},
    fields::Move,
    foreign::NOT_LOOKED_FOR,
    object::{Gvk, ObjectKey},
    owned::OwnedSet,
};
use holdfast_fleet::meta::Meta;

use super::sight::{News, Sight};

/// One object of one cluster: a digest, so that looking it up from a received line allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(Digest);

impl StateId {
    /// The id of an object. Versions of one kind are one object.
    pub fn new(cluster: ClusterId, group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        let mut digester = Digester::new();
        digester.add(&cluster.0.to_le_bytes());
        for part in [group, kind, namespace.unwrap_or_default(), name] {
            digester.add(part.as_bytes());
        }
        Self(digester.finish())
    }

    /// Which of `turns` turns the object has: spreads objects evenly.
    pub fn turn(&self, turns: u64) -> u64 {
        let number = self.0.number();
        number % turns.max(1)
    }

    /// The id of a key.
    pub fn of(cluster: ClusterId, key: &ObjectKey) -> Self {
        Self::new(cluster, &key.gvk.group, &key.gvk.kind, key.namespace.as_deref(), &key.name)
    }
}

/// One connection of the hub to a cluster; a new one each time a cluster is taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterId(pub u32);

/// What is remembered of one object.
#[derive(Clone, Debug)]
pub struct ObjectState {
    /// Digest of the declared object the rest was judged against.
    pub desired: Digest,
    /// The live object as last judged or explained; `None` before the first judgement and while it is missing.
    pub sight: Option<Sight>,
    /// The paths the declared object claims.
    pub owned: Option<Arc<OwnedSet>>,
    /// Digest of the owned paths when it was last in sync.
    pub in_sync: Option<Digest>,
    /// Accepted differences; `None` at first sight.
    pub accepted: Option<Box<[Accepted]>>,
    /// It was seen alive with its release's ownership metadata.
    pub seen: bool,
    /// It was once as this revision declares it.
    pub vouched: bool,
    /// Digest of what somebody added, as last judged; see [`holdfast_engine::foreign::Additions`].
    pub additions: u64,
    /// What the revision before this one claimed, which the release has really written, until the object is in sync with this one.
    pub previous: Option<Arc<OwnedSet>>,
    /// Ownership that a repair still has to move back to the release.
    pub owed: Option<Arc<Owed>>,
}

/// The second of a repair's two writes, where it did not go through.
#[derive(Clone, Debug)]
pub struct Owed {
    /// What it moves.
    pub change: Move,
    /// UID of the object.
    pub uid: String,
    /// The first write is known to have been made. An earlier process may have ended before it.
    pub is_certain: bool,
}

impl ObjectState {
    /// Nothing known but what is declared.
    pub fn new(desired: Digest) -> Self {
        Self {
            desired,
            sight: None,
            owned: None,
            in_sync: None,
            accepted: None,
            seen: false,
            vouched: false,
            additions: NOT_LOOKED_FOR,
            previous: None,
            owed: None,
        }
    }

    /// Forgets what was accepted: another revision or another incarnation proves nothing about this one. That the object was seen with
    /// its release's metadata stays.
    pub fn start_anew(&mut self, desired: Digest) {
        if self.desired == desired {
            self.previous = None;
        } else {
            let owned = self.owned.take();
            if self.vouched {
                self.previous = owned;
            }
            self.vouched = false;
            self.desired = desired;
        }
        self.additions = NOT_LOOKED_FOR;
        self.sight = None;
        self.in_sync = None;
        self.accepted = None;
    }

    /// Whether `other` holds the same as far as a restart is to find it again. A newer sight alone is not worth a write: an older one
    /// explains as much.
    pub fn is_kept_like(&self, other: &Self) -> bool {
        let sets = |state: &Self| [&state.owned, &state.previous].map(|set| set.as_ref().map(Arc::as_ptr));
        (self.desired, self.in_sync, self.seen, self.vouched) == (other.desired, other.in_sync, other.seen, other.vouched)
            && self.accepted == other.accepted
            && sets(self) == sets(other)
            && self.additions == other.additions
            && self.sight.is_some() == other.sight.is_some()
    }

    /// What counts as in sync, where the object was judged before.
    pub fn baseline(&self) -> Option<Baseline> {
        self.accepted.as_ref().map(|accepted| Baseline { in_sync: self.in_sync, accepted: accepted.clone() })
    }

    /// Bytes of hash state: the entry, its id and its accepted differences. Owned sets are shared by all objects of one shape.
    fn bytes(&self) -> usize {
        size_of::<StateId>() + size_of::<Self>() + self.accepted.as_ref().map_or(0, |accepted| size_of_val::<[Accepted]>(accepted))
    }
}

/// All hash state. Cheap to clone; clones are the same map.
#[derive(Clone, Debug, Default)]
pub struct States {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    objects: DashMap<StateId, ObjectState>,
    /// Owned sets that objects have, and some that none has any more.
    owned_sets: DashMap<Digest, Weak<OwnedSet>>,
    /// How many there may be before those are swept out.
    sweep_at: AtomicUsize,
    bytes: AtomicUsize,
}

/// As few owned sets as this are never swept.
const SWEPT_FROM: usize = 1024;

impl States {
    /// A copy of an object's state.
    pub fn get(&self, id: StateId) -> Option<ObjectState> {
        self.shared.objects.get(&id).map(|state| state.clone())
    }

    /// Remembers an object, replacing what was known. Answers whether a restart is to find something else than before.
    pub fn put(&self, id: StateId, state: ObjectState) -> bool {
        self.shared.bytes.fetch_add(state.bytes(), Ordering::Relaxed);
        let (old, is_news) = match self.shared.objects.entry(id) {
            Entry::Vacant(entry) => {
                entry.insert(state);
                (0, true)
            }
            Entry::Occupied(mut entry) => {
                let (old, is_news) = (entry.get().bytes(), !entry.get().is_kept_like(&state));
                entry.insert(state);
                (old, is_news)
            }
        };
        self.shared.bytes.fetch_sub(old, Ordering::Relaxed);
        is_news
    }

    /// Forgets an object.
    pub fn remove(&self, id: StateId) {
        if let Some((_, old)) = self.shared.objects.remove(&id) {
            self.shared.bytes.fetch_sub(old.bytes(), Ordering::Relaxed);
        }
    }

    /// What a received object's metadata means for the object `id`; `None` where it is not guarded. An object that is as last judged, or
    /// whose change is explained by writes beside its owned paths, is noted here and needs nothing more.
    pub fn look(&self, id: StateId, gvk: &Gvk, meta: &Meta<'_>) -> Option<News> {
        let mut state = self.shared.objects.get_mut(&id)?;
        let (Some(known), Some(owned)) = (state.sight, state.owned.clone()) else { return Some(News::Changed) };
        if known.is_version(meta) {
            return Some(News::Known);
        }
        let now = Sight::of(meta, &owned, gvk);
        let news = known.news(&now, gvk);
        if !matches!(news, News::Changed | News::Holdings) {
            state.sight = Some(now);
        }
        Some(news)
    }

    /// Whether the object was last judged at this version.
    pub fn is_judged_at(&self, id: StateId, version: u64) -> bool {
        self.shared.objects.get(&id).and_then(|state| state.sight).is_some_and(|sight| sight.version() == version)
    }

    /// One shared copy of an owned set: objects of one shape have equal ones.
    pub fn intern(&self, owned: OwnedSet) -> Arc<OwnedSet> {
        self.sweep();
        let mut slot = self.shared.owned_sets.entry(owned.digest()).or_default();
        if let Some(known) = slot.upgrade() {
            return known;
        }
        let owned = Arc::new(owned);
        *slot = Arc::downgrade(&owned);
        owned
    }

    /// Sweeps out owned sets that no object has any more, each time their number has doubled: over weeks of releases, shapes come and go.
    fn sweep(&self) {
        let sets = &self.shared.owned_sets;
        if sets.len() >= self.shared.sweep_at.load(Ordering::Relaxed).max(SWEPT_FROM) {
            sets.retain(|_, set| set.strong_count() > 0);
            self.shared.sweep_at.store(sets.len() * 2, Ordering::Relaxed);
        }
    }

    /// Objects remembered.
    pub fn len(&self) -> usize {
        self.shared.objects.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.shared.objects.is_empty()
    }

    /// Bytes of hash state, without the shared owned sets.
    pub fn bytes(&self) -> usize {
        self.shared.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_costs_at_most_the_promised_bytes() {
        let states = States::default();
        let gvk = Arc::new(Gvk::new("apps/v1", "Deployment"));
        for number in 0..1000 {
            let key = ObjectKey::new(Arc::clone(&gvk), Some("production"), &format!("deployment-{number:04}"));
            let mut state = ObjectState::new(Digest::of_bytes(b"d"));
            state.accepted = Some(Box::from([]));
            states.put(StateId::of(ClusterId(1), &key), state);
        }
        let each = states.bytes() / states.len();
        assert!(each <= 200, "{each} bytes an object");
        for number in 0..1000 {
            let key = ObjectKey::new(Arc::clone(&gvk), Some("production"), &format!("deployment-{number:04}"));
            states.remove(StateId::of(ClusterId(1), &key));
        }
        assert_eq!((states.bytes(), states.len()), (0, 0));
    }

    #[test]
    fn owned_sets_go_with_the_last_object_that_has_them() {
        let states = States::default();
        let set = |number: u32| {
            let mut set = OwnedSet::default();
            set.insert_path(&holdfast_engine::path::Path::of_fields(&["data", &format!("key-{number}")]));
            set
        };
        let kept: Vec<_> = (0..100).map(|number| states.intern(set(number))).collect();
        assert!(Arc::ptr_eq(&kept[7], &states.intern(set(7))), "one copy");
        for number in 100..10_000 {
            states.intern(set(number));
        }
        assert!(states.shared.owned_sets.len() <= 2 * SWEPT_FROM, "{}", states.shared.owned_sets.len());
        assert!(Arc::ptr_eq(&kept[7], &states.intern(set(7))), "what is in use stays");
    }
}
