//! `ClusterDriftPolicy`: a `DriftPolicy` for clusters of several namespaces.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::{DriftPolicySpec, DriftPolicyStatus, LabelSelector};

/// What a `ClusterDriftPolicy` asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "ClusterDriftPolicy",
    plural = "clusterdriftpolicies",
    shortname = "cdp",
    category = "holdfast",
    status = "DriftPolicyStatus",
    derive = "PartialEq",
    doc = "Which clusters of which namespaces and which Helm releases Holdfast guards, and what it does about drift, where no DriftPolicy decides.",
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Clusters","type":"integer","jsonPath":".status.clusters"}"#,
    printcolumn = r#"{"name":"Releases","type":"integer","jsonPath":".status.releases"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Accepted\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDriftPolicySpec {
    /// Namespaces of the management cluster, by their labels; `{}` selects all.
    pub namespace_selector: LabelSelector,
    /// What holds for the clusters of these namespaces.
    #[serde(flatten)]
    pub policy: DriftPolicySpec,
}
