//! The objects the fleet view reads, as they are decoded.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use holdfast_api::{cluster_policy::ClusterDriftPolicy, policy::DriftPolicy};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Resource, ResourceExt,
    core::{ApiResource, DynamicResourceScope},
};
use serde::Deserialize;
use serde_json::Value;

use super::{ClusterInput, OwnerRef};
use crate::management::slim::{self, PAUSED_ANNOTATION, resource_like};

/// Condition that says that the control plane was reached once; never taken back.
const INITIALISED_CONDITION: &str = "ControlPlaneInitialized";

/// A Cluster API `Cluster`, v1beta1 or v1beta2.
#[derive(Clone, Debug, Deserialize)]
pub struct ClusterObject {
    #[serde(deserialize_with = "slim::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<ClusterSpec>,
    #[serde(default)]
    status: Option<ClusterStatus>,
}

#[derive(Clone, Debug, Deserialize)]
struct ClusterSpec {
    paused: Option<bool>,
}

/// The places where either version says that the control plane was initialised.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterStatus {
    /// v1beta2.
    initialization: Option<Initialization>,
    /// v1beta1.
    control_plane_ready: Option<bool>,
    conditions: Option<Vec<ClusterCondition>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialization {
    control_plane_initialized: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct ClusterCondition {
    #[serde(rename = "type")]
    kind: String,
    status: Option<String>,
}

impl ClusterObject {
    /// What the fold needs.
    pub fn reduce(self, resource: &ApiResource) -> ClusterInput {
        ClusterInput {
            owner: OwnerRef {
                api_version: Arc::from(resource.api_version.as_str()),
                kind: Arc::from(resource.kind.as_str()),
                name: Arc::from(self.name_any()),
                uid: Arc::from(self.uid().unwrap_or_default()),
            },
            created: slim::created(&self.metadata),
            paused: self.spec.as_ref().is_some_and(|spec| spec.paused == Some(true)) || self.annotations().contains_key(PAUSED_ANNOTATION),
            initialised: self.status.as_ref().is_some_and(ClusterStatus::initialised),
            deleting: self.metadata.deletion_timestamp.is_some(),
            labels: Arc::new(self.metadata.labels.unwrap_or_default()),
        }
    }
}

impl ClusterStatus {
    fn initialised(&self) -> bool {
        let by_condition =
            |condition: &ClusterCondition| condition.kind == INITIALISED_CONDITION && condition.status.as_deref() == Some("True");
        self.control_plane_ready == Some(true)
            || self.initialization.as_ref().is_some_and(|initialization| initialization.control_plane_initialized == Some(true))
            || self.conditions.as_ref().is_some_and(|conditions| conditions.iter().any(by_condition))
    }
}

impl Resource for ClusterObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }
    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }
    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }
    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A Secret. Lives only between decoding and [`super::secret::reduce`].
#[derive(Clone, Deserialize)]
pub struct SecretObject {
    #[serde(deserialize_with = "slim::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub data: BTreeMap<String, ByteString>,
}

impl fmt::Debug for SecretObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretObject").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

/// A policy whose spec may be of another version than this hub's: one that cannot be read must not stop the list.
#[derive(Clone, Debug, Deserialize)]
pub struct PolicyObject {
    #[serde(deserialize_with = "slim::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default)]
    pub status: Value,
}

/// The same of the whole cluster.
#[derive(Clone, Debug, Deserialize)]
pub struct ClusterPolicyObject {
    #[serde(deserialize_with = "slim::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default)]
    pub status: Value,
}

/// A namespace, of which labels matter.
#[derive(Clone, Debug, Deserialize)]
pub struct NamespaceObject {
    #[serde(deserialize_with = "slim::metadata")]
    pub metadata: ObjectMeta,
}

resource_like!(SecretObject, Secret);
resource_like!(PolicyObject, DriftPolicy);
resource_like!(ClusterPolicyObject, ClusterDriftPolicy);
resource_like!(NamespaceObject, Namespace);
