//! Which watches a cluster needs now: records, autoscalers, definitions, and one for each kind in use.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use holdfast_engine::object::Gvk;
use holdfast_fleet::{
    call::{ApiClient, Endpoint},
    discovery::{Catalog, Lookup},
    watch::{Lease, WatchKey, Watches},
};
use tokio::time::Instant;

use super::{
    records::{RECORD_FIELDS, RECORD_LABELS},
    sighting::{Decoder, HELM_LABELS, Watched},
    state::StateId,
};

/// The watches of one cluster.
#[derive(Debug)]
pub struct Watching {
    watches: Watches<ApiClient, Decoder>,
    decoder: Decoder,
    fixed: Vec<Lease>,
    kinds: BTreeMap<Gvk, Kind>,
    has_scalers: bool,
    health: HashMap<Arc<WatchKey>, Option<Instant>>,
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
        Self { watches, decoder, fixed: Vec::new(), kinds: BTreeMap::new(), has_scalers: false, health: HashMap::new() }
    }

    /// Starts the watches every cluster has. Answers whether autoscalers are watched; where the kind is not served there are none.
    pub fn start(&mut self, catalog: &Catalog) -> bool {
        if let Ok(secrets) = Endpoint::new("", "v1", "secrets") {
            self.fix(WatchKey::new(secrets).labelled(RECORD_LABELS).with_fields(RECORD_FIELDS), Watched::Records);
        }
        if let Ok(definitions) = Endpoint::new("apiextensions.k8s.io", "v1", "customresourcedefinitions") {
            self.fix(WatchKey::new(definitions), Watched::Definitions);
        }
        self.has_scalers = catalog.lookup(&Gvk::new("autoscaling/v2", "HorizontalPodAutoscaler")) != Lookup::NotServed;
        if self.has_scalers
            && let Ok(scalers) = Endpoint::new("autoscaling", "v2", "horizontalpodautoscalers")
        {
            self.fix(WatchKey::new(scalers).full(), Watched::Scalers);
        }
        self.has_scalers
    }

    fn fix(&mut self, key: WatchKey, watched: Watched) {
        self.decoder.expect(&key, watched);
        self.fixed.push(self.watches.acquire(key));
    }

    /// Watches exactly these kinds of declared objects.
    pub fn want(&mut self, wanted: &BTreeMap<Gvk, Endpoint>) {
        let health = &mut self.health;
        self.kinds.retain(|gvk, kind| {
            let keep = wanted.contains_key(gvk);
            if !keep {
                health.remove(kind.lease.key());
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

    /// What a delivery's watch is for; `None` for leftovers of a watch that was stopped.
    pub fn watched(&self, key: &WatchKey, run: u64) -> Option<Watched> {
        let current =
            self.fixed.iter().chain(self.kinds.values().map(|kind| &kind.lease)).any(|lease| **lease.key() == *key && lease.run() == run);
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

    /// A watch is live, or broken since `now`.
    pub fn set_live(&mut self, key: &Arc<WatchKey>, live: bool, now: Instant) {
        let since = self.health.entry(Arc::clone(key)).or_insert(None);
        if live {
            *since = None;
        } else {
            since.get_or_insert(now);
        }
    }

    /// Since when the longest broken watch has been broken.
    pub fn broken_since(&self) -> Option<Instant> {
        self.health.values().flatten().min().copied()
    }

    /// Kinds watched.
    pub fn kinds(&self) -> impl Iterator<Item = (&Gvk, &WatchKey)> {
        self.kinds.iter().map(|(gvk, kind)| (gvk, &**kind.lease.key()))
    }

    /// Goes on over another connection to the same cluster.
    pub fn move_to(&self, client: Arc<ApiClient>) {
        self.watches.replace_source(client);
    }

    /// The decoder.
    pub const fn decoder(&self) -> &Decoder {
        &self.decoder
    }
}
