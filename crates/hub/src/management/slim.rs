//! Objects of the management cluster as they are decoded: only what is used, and in particular never `managedFields`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

/// Annotation that pauses reconciliation of any object of Cluster API, by being there.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";

/// Metadata without what grows.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
}

/// Decodes metadata, for `#[serde(deserialize_with = …)]`. Of the annotations only [`PAUSED_ANNOTATION`] is kept: they can be as large
/// as `managedFields`.
pub fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let meta = SlimMeta::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        generation: meta.generation,
        labels: meta.labels,
        annotations: meta.annotations.map(|all| all.into_iter().filter(|(key, _)| key == PAUSED_ANNOTATION).collect()),
        owner_references: meta.owner_references,
        creation_timestamp: meta.creation_timestamp,
        deletion_timestamp: meta.deletion_timestamp,
        ..ObjectMeta::default()
    })
}

/// Since when an object exists. Every stored object says it; one that does not is the youngest of all.
pub fn created(metadata: &ObjectMeta) -> Timestamp {
    metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0)
}

/// Lets a slim type with a field `metadata` be listed and watched under the name of the full one.
macro_rules! resource_like {
    ($slim:ty, $full:ty) => {
        impl kube::Resource for $slim {
            type DynamicType = ();
            type Scope = kube::core::DynamicResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::kind(&())
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::group(&())
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::version(&())
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::plural(&())
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use resource_like;
