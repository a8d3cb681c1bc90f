//! Holdfast's custom resources, group `holdfast.dev/v1alpha1`: types, schemas and the closed word lists users see.
//!
//! No client and no runtime live here; every other crate may depend on this one.

pub mod cluster_policy;
pub mod condition;
pub mod duration;
pub mod policy;
pub mod report;

/// API group of every Holdfast resource.
pub const GROUP: &str = "holdfast.dev";
/// API version of every Holdfast resource.
pub const VERSION: &str = "v1alpha1";
/// Label that every report carries: the name of its cluster.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Label that every report carries: kind, namespace and name of its source, as a label value.
pub const SOURCE_LABEL: &str = "holdfast.dev/source";
/// Annotation by which a manifest asks for less than the policy would do about an object: `Off`, `Warn`. It counts as it is declared, never
/// as it stands on the workload cluster.
pub const MODE_ANNOTATION: &str = "holdfast.dev/mode";
/// Label that marks a Secret as a kubeconfig of a cluster without a Cluster API object.
pub const KUBECONFIG_LABEL: &str = "holdfast.dev/kubeconfig";
