//! Which watches a cluster needs now: records, definitions, what rules objects from beside them, and one for each kind in use.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use holdfast_engine::object::Gvk;
use holdfast_fleet::{
    call::{ApiClient, Endpoint},
    watch::{Lease, Reason, WatchKey, Watches},
};
use holdfast_helm::Store;
use tokio::time::Instant;

use super::{
    health::Health,
    records::{RECORD_LABELS, record_fields, record_place},
    sighting::{Beside, Decoder, HELM_LABELS, Watched},
    state::StateId,
};

/// The watches of one cluster.
#[derive(Debug)]
pub struct Watching {
    watches: Watches<ApiClient, Decoder>,
    decoder: Decoder,
    fixed: Vec<Lease>,
    beside: BTreeMap<Beside, Lease>,
    kinds: BTreeMap<Gvk, Kind>,
    namespaces: Option<Lease>,
    health: HashMap<Arc<WatchKey>, Health>,
}

/// The watch of one kind.
#[derive(Debug)]
struct Kind {
    lease: Lease,
    /// Objects shown since the list began; `None` outside a list.
    listed: Option<HashSet<StateId>>,
}

impl Watching {
    /// No watch yet.
    pub fn new(watches: Watches<ApiClient, Decoder>, decoder: Decoder) -> Self {
        Self {
            watches,
            decoder,
            fixed: Vec::new(),
            beside: BTreeMap::new(),
            kinds: BTreeMap::new(),
            namespaces: None,
            health: HashMap::new(),
        }
    }

    /// Starts the watches every cluster has.
    pub fn start(&mut self) {
        for store in Store::ALL {
            if let Ok(records) = record_place(store) {
                self.fix(WatchKey::new(records).labelled(RECORD_LABELS).with_fields(record_fields(store)), Watched::Records(store));
            }
        }
        if let Ok(definitions) = Endpoint::new("apiextensions.k8s.io", "v1", "customresourcedefinitions") {
            self.fix(WatchKey::new(definitions), Watched::Definitions);
        }
    }

    /// Watches what rules objects from beside them, at this place. Answers whether it was not watched there before.
    pub fn watch_beside(&mut self, beside: Beside, place: Endpoint) -> bool {
        if self.beside.get(&beside).is_some_and(|lease| *lease.key().endpoint() == place) {
            return false;
        }
        self.leave_beside(beside);
        let key = WatchKey::new(place).full();
        self.decoder.expect(&key, Watched::Beside(beside));
        self.beside.insert(beside, self.watches.acquire(key));
        true
    }

    /// Watches it no more. Answers whether it was watched.
    pub fn leave_beside(&mut self, beside: Beside) -> bool {
        let Some(lease) = self.beside.remove(&beside) else { return false };
        self.health.remove(lease.key());
        self.decoder.forget(lease.key());
        true
    }

    fn fix(&mut self, key: WatchKey, watched: Watched) {
        self.decoder.expect(&key, watched);
        self.fixed.push(self.watches.acquire(key));
    }

    /// Watches exactly these kinds of declared objects.
    pub fn want(&mut self, wanted: &BTreeMap<Gvk, Endpoint>) {
        let (health, decoder) = (&mut self.health, &self.decoder);
        self.kinds.retain(|gvk, kind| {
            // A definition that was made anew may have another plural.
            let keep = wanted.get(gvk) == Some(kind.lease.key().endpoint());
            if !keep {
                health.remove(kind.lease.key());
                decoder.forget(kind.lease.key());
            }
            keep
        });
        for (gvk, endpoint) in wanted {
            if !self.kinds.contains_key(gvk) {
                let key = WatchKey::new(endpoint.clone()).labelled(HELM_LABELS);
                self.decoder.expect(&key, Watched::Objects(Arc::new(gvk.clone())));
                self.kinds.insert(gvk.clone(), Kind { lease: self.watches.acquire(key), listed: None });
            }
        }
    }

    /// Watches the namespaces, or does so no more.
    pub fn watch_namespaces(&mut self, wanted: bool) {
        if wanted == self.namespaces.is_some() {
            return;
        }
        if let Some(lease) = self.namespaces.take() {
            self.health.remove(lease.key());
        } else if let Ok(namespaces) = Endpoint::new("", "v1", "namespaces") {
            let key = WatchKey::new(namespaces);
            self.decoder.expect(&key, Watched::Namespaces);
            self.namespaces = Some(self.watches.acquire(key));
        }
    }

    /// What a delivery's watch is for; `None` for leftovers of a watch that was stopped.
    pub fn watched(&self, key: &WatchKey, run: u64) -> Option<Watched> {
        let current = self
            .fixed
            .iter()
            .chain(self.beside.values())
            .chain(&self.namespaces)
            .chain(self.kinds.values().map(|kind| &kind.lease))
            .any(|lease| **lease.key() == *key && lease.run() == run);
        if current { self.decoder.watched(key) } else { None }
    }

    /// A list of a kind begins.
    pub fn list_begins(&mut self, gvk: &Gvk) {
        if let Some(kind) = self.kinds.get_mut(gvk) {
            kind.listed = Some(HashSet::new());
        }
    }

    /// A list of a kind holds this object.
    pub fn listed(&mut self, gvk: &Gvk, id: StateId) {
        if let Some(listed) = self.kinds.get_mut(gvk).and_then(|kind| kind.listed.as_mut()) {
            listed.insert(id);
        }
    }

    /// A list of a kind is complete: what it showed.
    pub fn list_ends(&mut self, gvk: &Gvk) -> Option<HashSet<StateId>> {
        self.kinds.get_mut(gvk)?.listed.take()
    }

    /// A watch is live.
    pub fn is_live(&mut self, key: &Arc<WatchKey>) {
        self.health.entry(Arc::clone(key)).or_default().live();
    }

    /// A watch is broken.
    pub fn is_broken(&mut self, key: &Arc<WatchKey>, reason: Reason, now: Instant) {
        self.health.entry(Arc::clone(key)).or_default().broken(reason, now);
    }

    /// A kind was audited.
    pub fn audited(&mut self, gvk: &Gvk, now: Instant) {
        if let Some(kind) = self.kinds.get(gvk) {
            self.health.entry(Arc::clone(kind.lease.key())).or_default().audited(now);
        }
    }

    /// Whether any watch is broken, for however short.
    pub fn any_broken(&self) -> bool {
        self.health.values().any(Health::is_broken)
    }

    /// Whether every watch is broken, for however short. One that is not allowed says nothing about the others.
    pub fn all_broken(&self) -> bool {
        let mut allowed = self.health.values().filter(|health| !health.is_forbidden()).peekable();
        allowed.peek().is_some() && allowed.all(Health::is_broken)
    }

    /// Whether the watch of a kind is broken, for however short.
    pub fn is_kind_broken(&self, gvk: &Gvk) -> bool {
        self.kinds.get(gvk).and_then(|kind| self.health.get(kind.lease.key())).is_some_and(Health::is_broken)
    }

    /// Whether nothing backs what is known of a kind's objects.
    pub fn is_kind_stale(&self, gvk: &Gvk, interval: Duration, now: Instant) -> bool {
        self.kinds.get(gvk).and_then(|kind| self.health.get(kind.lease.key())).is_some_and(|health| health.is_stale(interval, now))
    }

    /// Whether nothing backs what is known of the releases: their records are not watched.
    pub fn is_stale(&self, now: Instant) -> bool {
        self.fixed_health(|watched| matches!(watched, Watched::Records(_))).any(|health| health.is_broken_longer(now))
    }

    /// Whether all kinds of autoscalers are in sight that the cluster has.
    pub fn sees_scalers(&self, now: Instant) -> bool {
        self.scaler_watches().all(|lease| self.health.get(lease.key()).is_some_and(|health| health.is_recent(now)))
    }

    /// Whether autoscalers of some kind may not be watched.
    pub fn may_not_see_scalers(&self) -> bool {
        self.scaler_watches().filter_map(|lease| self.health.get(lease.key())).any(Health::is_forbidden)
    }

    fn scaler_watches(&self) -> impl Iterator<Item = &Lease> {
        self.beside.iter().filter(|(beside, _)| matches!(beside, Beside::Scalers(_))).map(|(_, lease)| lease)
    }

    /// Whether release records may not be watched.
    pub fn may_not_see_records(&self) -> bool {
        self.fixed_health(|watched| matches!(watched, Watched::Records(_))).any(Health::is_forbidden)
    }

    fn fixed_health(&self, is_it: impl Fn(&Watched) -> bool) -> impl Iterator<Item = &Health> {
        let leases = self.fixed.iter().filter(move |lease| self.decoder.watched(lease.key()).is_some_and(|watched| is_it(&watched)));
        leases.filter_map(|lease| self.health.get(lease.key()))
    }

    /// Kinds watched.
    pub fn kinds(&self) -> impl Iterator<Item = (&Gvk, &WatchKey)> {
        self.kinds.iter().map(|(gvk, kind)| (gvk, &**kind.lease.key()))
    }

    /// Goes on over another connection to the same cluster.
    pub fn move_to(&self, client: Arc<ApiClient>) {
        self.watches.replace_source(client);
    }

    /// Lets watches that wait after a failure try again now: there is a new token.
    pub fn retry_now(&self) {
        self.watches.retry_now();
    }

    /// Holds watches that wait after a failure, or lets them go on at once: the cluster does not answer, or does again.
    pub fn hold(&self, held: bool) {
        self.watches.hold(held);
    }

    /// The decoder.
    pub const fn decoder(&self) -> &Decoder {
        &self.decoder
    }
}
