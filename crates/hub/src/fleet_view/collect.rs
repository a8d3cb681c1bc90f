//! A complete list of one kind, kept up to date by a watch.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::{StreamExt, pin_mut};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::ClusterName;
use crate::{management, policy::PolicyName};

/// Namespace and name of an object on the management cluster; the namespace is empty where it has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjectName {
    /// The name of an object that was read.
    pub fn of(object: &impl Resource) -> Self {
        Self { namespace: Arc::from(object.namespace().unwrap_or_default()), name: Arc::from(object.name_any()) }
    }
}

impl From<&ObjectName> for ClusterName {
    fn from(name: &ObjectName) -> Self {
        Self { namespace: Arc::clone(&name.namespace), name: Arc::clone(&name.name) }
    }
}

impl From<&ObjectName> for PolicyName {
    fn from(name: &ObjectName) -> Self {
        Self { namespace: Arc::clone(&name.namespace), name: Arc::clone(&name.name) }
    }
}

/// The objects of a kind, reduced to what matters.
pub type Objects<T> = BTreeMap<ObjectName, Arc<T>>;

/// Where a list is published: `None` until it was read completely once.
pub type Cell<T> = watch::Sender<Option<Arc<Objects<T>>>>;

/// Why a list is no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotServed;

/// Objects a page of a list may have: bounds what is decoded at a time.
const PAGE: u32 = 100;

/// Keeps `cell` up to date for as long as the kind is served.
///
/// `reduce` makes of an object what is kept, or nothing where the object does not matter; it gets what it made of the same object
/// before. A list that was published stays as it is while it is read anew. Errors are retried with back-off by the watcher.
pub async fn collect<K, T>(
    what: &'static str,
    api: Api<K>,
    config: watcher::Config,
    cell: &Cell<T>,
    reduce: impl Fn(K, Option<&T>) -> Option<T>,
) -> NotServed
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    T: PartialEq,
{
    let events = watcher::watcher(api, config.page_size(PAGE)).default_backoff();
    pin_mut!(events);
    let mut list = List { cell, reading: None };
    let mut said = None;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => list.reading = Some(Objects::new()),
            Ok(Event::InitApply(object)) => list.listed(object, &reduce),
            Ok(Event::InitDone) => {
                said = None;
                list.listed_all();
            }
            Ok(Event::Apply(object)) => list.changed(object, &reduce),
            Ok(Event::Delete(object)) => list.remove(&ObjectName::of(&object)),
            Err(error) => {
                let failure = management::Failure::of_watch(&error);
                if failure == management::Failure::NotFound {
                    return NotServed;
                }
                // A standing problem is worth one line, not one a minute.
                if said.replace(failure) != Some(failure) {
                    tracing::warn!(list = what, failure = failure.as_str(), "cannot watch on the management cluster, retrying");
                }
            }
        }
    }
    NotServed
}

struct List<'a, T> {
    cell: &'a Cell<T>,
    reading: Option<Objects<T>>,
}

impl<T: PartialEq> List<'_, T> {
    fn listed<K: Resource>(&mut self, object: K, reduce: impl Fn(K, Option<&T>) -> Option<T>) {
        let name = ObjectName::of(&object);
        let before = self.cell.borrow().as_ref().and_then(|objects| objects.get(&name).cloned());
        let Some(reduced) = reduce(object, before.as_deref()) else { return };
        let kept = before.filter(|before| **before == reduced).unwrap_or_else(|| Arc::new(reduced));
        self.reading.get_or_insert_default().insert(name, kept);
    }

    fn listed_all(&mut self) {
        let read = self.reading.take().unwrap_or_default();
        self.cell.send_if_modified(|objects| {
            if objects.as_deref() == Some(&read) {
                return false;
            }
            *objects = Some(Arc::new(read));
            true
        });
    }

    fn changed<K: Resource>(&mut self, object: K, reduce: impl Fn(K, Option<&T>) -> Option<T>) {
        let name = ObjectName::of(&object);
        let before = self.cell.borrow().as_ref().and_then(|objects| objects.get(&name).cloned());
        match reduce(object, before.as_deref()) {
            None => self.remove(&name),
            Some(reduced) if before.as_deref() == Some(&reduced) => {}
            Some(reduced) => self.cell.send_modify(|objects| {
                Arc::make_mut(objects.get_or_insert_default()).insert(name, Arc::new(reduced));
            }),
        }
    }

    fn remove(&mut self, name: &ObjectName) {
        self.cell.send_if_modified(|objects| {
            objects.as_mut().is_some_and(|objects| objects.contains_key(name) && Arc::make_mut(objects).remove(name).is_some())
        });
    }
}
