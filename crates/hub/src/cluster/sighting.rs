//! What the watches of a cluster deliver: decoded on the spot, so that an event about nothing new costs no allocation.

use std::sync::Arc;

use holdfast_engine::object::Gvk;
use holdfast_fleet::{
    call::{Endpoint, Shape},
    meta::{Meta, MetaError},
    watch::{Decode, Versioned, WatchKey},
};
use holdfast_helm::Store;
use parking_lot::RwLock;
use serde_json::value::RawValue;

use super::{
    admission::{AdmissionKind, AdmissionSight},
    records::RecordSight,
    scalers::{ScalerKind, ScalerSight},
    sight::{News, version_of},
    state::{ClusterId, StateId, States},
};

/// Label selector of the objects of Helm releases.
pub const HELM_LABELS: &str = "app.kubernetes.io/managed-by=Helm";

/// One delivered object.
#[derive(Clone, Debug)]
pub enum Sighting {
    /// A release record.
    Record(Box<RecordSight>),
    /// An autoscaler.
    Scaler(Box<ScalerSight>),
    /// Somebody who rewrites objects.
    Admission(Box<AdmissionSight>),
    /// A definition or a namespace: only its name matters, and whether it is on its way out.
    Named {
        /// Name.
        name: Box<str>,
        /// It is being deleted.
        is_leaving: bool,
    },
    /// A guarded object.
    Object {
        /// Which.
        id: StateId,
        /// What changed.
        news: News,
        /// Its version.
        version: u64,
    },
    /// An object that no guarded release declares, or that is no record.
    Stranger,
}

/// Decodes what the watches of one cluster deliver.
#[derive(Clone, Debug)]
pub struct Decoder {
    cluster: ClusterId,
    states: States,
    /// Which kind a watched collection holds. Changed only when watches start and stop.
    kinds: Arc<RwLock<Vec<(Endpoint, Watched)>>>,
}

/// What a watch is for.
#[derive(Clone, Debug)]
pub enum Watched {
    /// Helm release records of one store.
    Records(Store),
    /// What rules objects from beside them.
    Beside(Beside),
    /// `CustomResourceDefinitions`, for discovery.
    Definitions,
    /// Namespaces, while creations are suspended in one.
    Namespaces,
    /// Objects of a kind that releases declare.
    Objects(Arc<Gvk>),
}

/// A kind of object that says something about declared objects; read in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beside {
    /// Who scales them.
    Scalers(ScalerKind),
    /// Who rewrites them.
    Admission(AdmissionKind),
}

impl Decoder {
    /// A decoder that knows no watch yet.
    pub fn new(cluster: ClusterId, states: States) -> Self {
        Self { cluster, states, kinds: Arc::default() }
    }

    /// Says what the watch of a collection is for. Full objects, metadata and labels make different watches of one collection;
    /// `watch_key` tells them apart.
    pub fn expect(&self, watch_key: &WatchKey, watched: Watched) {
        let mut kinds = self.kinds.write();
        kinds.retain(|(endpoint, old)| {
            !(endpoint == watch_key.endpoint() && std::mem::discriminant(old) == std::mem::discriminant(&watched))
        });
        kinds.push((watch_key.endpoint().clone(), watched));
    }

    /// A collection is watched no more for its objects, or for what they say about others.
    pub fn forget(&self, watch_key: &WatchKey) {
        let is_full = watch_key.shape() == Shape::Full;
        let is_it = |watched: &Watched| match watched {
            Watched::Beside(_) => is_full,
            Watched::Objects(_) => !is_full,
            Watched::Records(_) | Watched::Definitions | Watched::Namespaces => false,
        };
        self.kinds.write().retain(|(endpoint, watched)| endpoint != watch_key.endpoint() || !is_it(watched));
    }

    /// What the watch is for.
    pub fn watched(&self, key: &WatchKey) -> Option<Watched> {
        let is_full = key.shape() == Shape::Full;
        let is_objects = key.labels() == HELM_LABELS;
        self.kinds
            .read()
            .iter()
            .find(|(endpoint, watched)| {
                endpoint == key.endpoint()
                    && match watched {
                        Watched::Beside(_) => is_full,
                        Watched::Objects(_) => is_objects,
                        Watched::Records(_) | Watched::Definitions | Watched::Namespaces => !is_full && !is_objects,
                    }
            })
            .map(|(_, watched)| watched.clone())
    }

    fn see(&self, watched: &Watched, meta: &Meta<'_>, text: &RawValue) -> Sighting {
        match watched {
            Watched::Records(store) => RecordSight::of(*store, meta).map_or(Sighting::Stranger, |sight| Sighting::Record(Box::new(sight))),
            Watched::Beside(Beside::Scalers(kind)) => {
                let sight = ScalerSight::read(*kind, self.cluster, text.get());
                sight.map_or(Sighting::Stranger, |sight| Sighting::Scaler(Box::new(sight)))
            }
            Watched::Beside(Beside::Admission(kind)) => {
                let sight = AdmissionSight::read(*kind, text.get());
                sight.map_or(Sighting::Stranger, |sight| Sighting::Admission(Box::new(sight)))
            }
            Watched::Definitions | Watched::Namespaces => {
                Sighting::Named { name: meta.name.as_ref().into(), is_leaving: meta.deletion_timestamp.is_some() }
            }
            Watched::Objects(gvk) => self.object(gvk, meta),
        }
    }

    /// What an object's metadata means.
    pub fn object(&self, gvk: &Gvk, meta: &Meta<'_>) -> Sighting {
        let id = StateId::new(self.cluster, &gvk.group, &gvk.kind, meta.namespace.as_deref(), &meta.name);
        match self.states.look(id, gvk, meta) {
            Some(news) => Sighting::Object { id, news, version: version_of(meta) },
            None => Sighting::Stranger,
        }
    }
}

impl Decode for Decoder {
    type Item = Sighting;

    fn decode(&self, key: &WatchKey, object: &RawValue) -> Result<Versioned<Sighting>, MetaError> {
        let meta = Meta::of_object(object.get().as_bytes())?;
        let item = self.watched(key).map_or(Sighting::Stranger, |watched| self.see(&watched, &meta, object));
        Ok(Versioned { version: meta.resource_version.into_owned(), item })
    }
}
