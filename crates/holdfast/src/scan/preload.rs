//! Reads the live objects of releases with few lists instead of many reads.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use holdfast_engine::object::Gvk;
use holdfast_fleet::{
    call::{ApiClient, CallError, ListQuery, Shape},
    meta::Meta,
};
use holdfast_hub::cluster::{guarded::Guarded, state::StateId};

use super::{CLUSTER, lists};

/// What every object of a release carries unless somebody took it away; such an object is read by itself.
const OF_HELM: &str = "app.kubernetes.io/managed-by=Helm";
/// Fewer objects of one kind and namespace are not worth a list, which may hold many others.
const WORTH_A_LIST: usize = 4;
/// Lists at the same time. Each may hold many megabytes.
const LISTS: usize = 2;

/// A kind and a namespace.
type Place = (Arc<Gvk>, Option<Arc<str>>);

/// Live objects as text, by id.
#[derive(Debug, Default)]
pub struct Preloaded(HashMap<StateId, Bytes>);

impl Preloaded {
    /// Reads what lists can tell about the declared objects. A list that fails leaves its objects to be read one by one, where the
    /// failure shows.
    pub async fn read(client: &ApiClient, objects: impl Iterator<Item = &Arc<Guarded>>) -> Self {
        let mut groups: BTreeMap<Place, Vec<&Arc<Guarded>>> = BTreeMap::new();
        for object in objects {
            groups.entry((Arc::clone(&object.key.gvk), object.key.namespace.clone())).or_default().push(object);
        }
        let lists = groups.into_values().filter(|group| group.len() >= WORTH_A_LIST).map(|group| list(client, group));
        let lists: Vec<HashMap<StateId, Bytes>> = stream::iter(lists).buffer_unordered(LISTS).collect().await;
        Self(lists.into_iter().flatten().collect())
    }

    /// The object, if a list held it. Only once: the text may be large.
    pub fn take(&mut self, id: StateId) -> Option<Bytes> {
        self.0.remove(&id)
    }
}

/// The objects of one kind and namespace, as far as a list holds them.
async fn list(client: &ApiClient, group: Vec<&Arc<Guarded>>) -> HashMap<StateId, Bytes> {
    let mut found = HashMap::new();
    let Some((first, collection)) = group.first().and_then(|first| Some((first, first.collection().ok()?))) else { return found };
    let wanted: HashSet<StateId> = group.iter().map(|object| StateId::of(CLUSTER, &object.key)).collect();
    let query = ListQuery { labels: OF_HELM.to_owned(), ..ListQuery::default() };
    let listed = lists::list(client, &collection, Shape::Full, query, |item| {
        let text = item.get().as_bytes();
        let meta = Meta::of_object(text).map_err(|_| CallError::BadAnswer)?;
        let id = StateId::new(CLUSTER, &first.key.gvk.group, &first.key.gvk.kind, first.key.namespace.as_deref(), &meta.name);
        if wanted.contains(&id) {
            found.insert(id, Bytes::copy_from_slice(text));
        }
        Ok(())
    })
    .await;
    if listed.is_err() {
        // A list that broke off in the middle is no snapshot of anything; better to read each object.
        found.clear();
    }
    found
}
