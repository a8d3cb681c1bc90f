//! `DriftReport`: what Holdfast found in one source on one cluster. Output only.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::condition::Condition;

/// Findings and deviations a report lists at most; more are counted in `truncated`.
pub const MAX_LISTED: usize = 50;
/// Corrections a report remembers.
pub const MAX_CORRECTIONS: usize = 20;

/// What a report is about. Its spec only repeats this, so that `kubectl get` and field selectors can use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "DriftReport",
    plural = "driftreports",
    shortname = "dr",
    category = "holdfast",
    namespaced,
    status = "DriftReportStatus",
    derive = "PartialEq",
    doc = "What Holdfast found in one Helm release (or about the connection) of one cluster. Written by the hub; editing it changes no decision.",
    printcolumn = r#"{"name":"Cluster","type":"string","jsonPath":".spec.cluster"}"#,
    printcolumn = r#"{"name":"Source","type":"string","jsonPath":".spec.source"}"#,
    printcolumn = r#"{"name":"InSync","type":"string","jsonPath":".status.conditions[?(@.type==\"InSync\")].status"}"#,
    printcolumn = r#"{"name":"Objects","type":"integer","jsonPath":".status.summary.objects"}"#,
    printcolumn = r#"{"name":"Drifted","type":"integer","jsonPath":".status.summary.drifted"}"#,
    printcolumn = r#"{"name":"Corrected","type":"integer","jsonPath":".status.summary.corrected"}"#,
    printcolumn = r#"{"name":"LastDrift","type":"date","jsonPath":".status.lastDriftAt"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"InSync\")].reason"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"InSync\")].message"}"#
)]
pub struct DriftReportSpec {
    /// Name of the cluster.
    pub cluster: String,
    /// Kind, namespace and name of the source, for people.
    pub source: String,
}

/// Where desired state comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SourceKind {
    /// The connection to a cluster itself.
    Cluster,
    /// A release record found on the workload cluster.
    HelmRelease,
    /// Plain manifests.
    Manifests,
}

/// Identity of the source at the time of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// What kind of source it is.
    pub kind: SourceKind,
    /// Its namespace on the workload cluster; empty for a cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Helm revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Keyed hash of the desired state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_hash: Option<String>,
}

/// A policy, as a report names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRef {
    /// `DriftPolicy` or `ClusterDriftPolicy`.
    pub kind: String,
    /// Its namespace; empty for one of the whole management cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What was found about one object, best first: the order is that of the report, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Verdict {
    /// Every owned path has its accepted value.
    InSync,
    /// The object is being deleted.
    Terminating,
    /// At least one owned path differs.
    Drifted,
    /// The object is gone.
    Missing,
    /// It could not be judged; the reason says why. Never leads to a write.
    Unknown,
    /// A correction was tried and the server said no.
    Refused,
    /// Somebody else keeps writing another value.
    Contested,
}

impl Verdict {
    /// Every verdict, for metrics and summaries.
    pub const ALL: [Self; 7] =
        [Self::InSync, Self::Terminating, Self::Drifted, Self::Missing, Self::Unknown, Self::Refused, Self::Contested];

    /// The word users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InSync => "InSync",
            Self::Terminating => "Terminating",
            Self::Drifted => "Drifted",
            Self::Missing => "Missing",
            Self::Unknown => "Unknown",
            Self::Refused => "Refused",
            Self::Contested => "Contested",
        }
    }
}

/// What was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Action {
    /// Nothing needed doing.
    None,
    /// It was reported.
    Reported,
    /// The drifted paths were put back.
    Corrected,
    /// The object was created again.
    Recreated,
    /// The path belongs to somebody with a right to it, such as an autoscaler.
    Yielded,
    /// A correction waits; the reason says for what.
    Deferred,
}

/// Why, as one word of a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Reason {
    /// Nothing differs.
    AsDeclared,
    /// A declared field has another value.
    FieldChanged,
    /// A declared field is gone.
    FieldRemoved,
    /// The order of declared list items differs.
    OrderChanged,
    /// The object does not exist.
    ObjectMissing,
    /// A Job or Pod that ran in this revision is gone; it is not run again.
    RunOnce,
    /// The object is being deleted.
    ObjectTerminating,
    /// A field was added beside the declared ones.
    ForeignField,
    /// The last revision dropped a field, and it is still there: only the release's own manager holds it.
    LeftOver,
    /// An autoscaler or another rightful writer owns the path.
    Yielded,
    /// Somebody else keeps undoing corrections.
    Contested,
    /// Two releases declare the object.
    SelfConflict,
    /// The field cannot be changed on an existing object.
    Immutable,
    /// An admission webhook or policy said no.
    AdmissionDenied,
    /// A quota is used up.
    QuotaExceeded,
    /// The hub's credentials do not allow it.
    Forbidden,
    /// The server calls the value invalid.
    Invalid,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The manifest has a field that the server does not know, or of a wrong type.
    ManifestInvalid,
    /// The server does not know the kind.
    KindNotServed,
    /// The definition of the kind is being deleted.
    KindTerminating,
    /// The server could not tell whether it knows the kind: discovery of its group failed.
    DiscoveryIncomplete,
    /// The namespace does not exist.
    NamespaceMissing,
    /// The object does not carry this release's ownership metadata.
    NotOwned,
    /// Nothing tells whether the difference was there from the start.
    Unverified,
    /// A correction would have changed more than what drifted.
    AdmissionUnstable,
    /// It is unclear under which field manager the release writes.
    OwnerUnclear,
    /// A newer or running release operation was seen.
    ReleasePending,
    /// The server did not answer properly.
    ServerError,
    /// As many corrections were made as the policy allows in a minute; this one waits for its turn.
    RateLimited,
    /// Too many objects drifted at once: what is declared is suspected, and nothing is written.
    BlastRadius,
    /// Corrections are switched off: paused cluster, suspended policy, a manifest that asks for less, or an older name of the cluster that
    /// writes instead.
    Suspended,
}

impl Reason {
    /// The word users see.
    pub fn as_str(self) -> String {
        // Unit variants serialise to their own name; one spelling serves status, Events and metrics.
        match serde_json::to_value(self) {
            Ok(Value::String(word)) => word,
            _ => String::new(),
        }
    }
}

/// Which object a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID, where the object exists.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Change {
    /// Another value.
    Changed,
    /// The declared field is gone.
    Removed,
    /// Something was added.
    Added,
}

impl Change {
    /// The word users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "Changed",
            Self::Removed => "Removed",
            Self::Added => "Added",
        }
    }
}

/// Who wrote a path, as `managedFields` tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Actor {
    /// Field manager, or `unattributed` where the server keeps no trace (removals, admission).
    pub manager: String,
    /// `Apply` or `Update`; empty when unattributed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// Subresource the write went through.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// When, to the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub time: Option<jiff::Timestamp>,
    /// Who might have been it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<String>,
}

impl Actor {
    /// The name used where nobody can be named.
    pub const UNATTRIBUTED: &'static str = "unattributed";

    /// An actor nobody can name.
    pub fn unattributed(candidates: Vec<String>) -> Self {
        Self { manager: Self::UNATTRIBUTED.to_owned(), operation: String::new(), subresource: String::new(), time: None, candidates }
    }
}

/// One path that differs. Values are left out where they could be secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathFinding {
    /// Where.
    pub path: String,
    /// How it differs.
    pub change: Change,
    /// Declared value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AnyValue>")]
    pub desired: Option<Value>,
    /// Value that counts as in sync, where it is not the declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AnyValue>")]
    pub accepted: Option<Value>,
    /// Value found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AnyValue>")]
    pub live: Option<Value>,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

/// Schema of any JSON value.
struct AnyValue;

impl JsonSchema for AnyValue {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnyValue".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
    }
}

/// What was found about one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The object.
    pub object: ObjectRef,
    /// The judgement.
    pub verdict: Verdict,
    /// What was done.
    pub action: Action,
    /// Why.
    pub reason: Reason,
    /// One sentence for people.
    pub message: String,
    /// Paths that differ, 50 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathFinding>,
    /// Paths beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub paths_truncated: u64,
    /// When this finding first appeared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub first_seen: Option<jiff::Timestamp>,
    /// When it was last seen anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_seen: Option<jiff::Timestamp>,
    /// How often it came up.
    #[serde(default)]
    pub count: u64,
}

/// Why an accepted value differs from the declared one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DeviationReason {
    /// The server writes the same value another way.
    Normalized,
    /// A webhook or policy rewrites it.
    Admission,
    /// A policy says so.
    Ignored,
    /// An autoscaler or another rightful writer owns it.
    Yielded,
    /// Somebody else keeps writing another value.
    Contested,
}

impl DeviationReason {
    /// Every reason, for metrics.
    pub const ALL: [Self; 5] = [Self::Normalized, Self::Admission, Self::Ignored, Self::Yielded, Self::Contested];

    /// The word users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normalized => "Normalized",
            Self::Admission => "Admission",
            Self::Ignored => "Ignored",
            Self::Yielded => "Yielded",
            Self::Contested => "Contested",
        }
    }
}

/// A difference that is accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deviation {
    /// The object.
    pub object: ObjectRef,
    /// Where.
    pub path: String,
    /// Why it is accepted.
    pub reason: DeviationReason,
    /// Since when.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: jiff::Timestamp,
    /// One sentence for people.
    pub message: String,
}

/// How a correction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// The paths have their values again.
    Corrected,
    /// The object exists again.
    Recreated,
    /// The server said no.
    Refused,
    /// The object changed meanwhile; it is judged again.
    Conflict,
    /// The call failed.
    Failed,
}

impl Outcome {
    /// Every outcome, for metrics.
    pub const ALL: [Self; 5] = [Self::Corrected, Self::Recreated, Self::Refused, Self::Conflict, Self::Failed];

    /// The word users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Corrected => "Corrected",
            Self::Recreated => "Recreated",
            Self::Refused => "Refused",
            Self::Conflict => "Conflict",
            Self::Failed => "Failed",
        }
    }
}

/// One write to the workload cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CorrectionRecord {
    /// The object.
    pub object: ObjectRef,
    /// Paths it put back, 50 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Paths beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub paths_truncated: u64,
    /// Whose change it undid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// How it ended.
    pub outcome: Outcome,
    /// When.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub time: jiff::Timestamp,
}

/// Counts over all objects of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Objects the source declares.
    pub objects: u64,
    /// … with every owned path as accepted.
    pub in_sync: u64,
    /// … with a path that differs.
    pub drifted: u64,
    /// … that do not exist.
    pub missing: u64,
    /// … being deleted.
    pub terminating: u64,
    /// … whose correction was refused.
    pub refused: u64,
    /// … somebody fights over.
    pub contested: u64,
    /// … that could not be judged.
    pub unknown: u64,
    /// Accepted differences.
    pub deviations: u64,
    /// Fields somebody added.
    pub foreign: u64,
    /// Objects corrected within the last interval.
    pub corrected: u64,
}

/// What the hub found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftReportStatus {
    /// `Ready`, `InSync`, `Reachable`, `Fresh`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The policy that decides about the source; none where it is only watched by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRef>,
    /// UID of the `kube-system` namespace of the workload cluster this was found on; absent before the cluster was reached.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// When the content of this status was last computed anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub observed_at: Option<jiff::Timestamp>,
    /// When drift was last found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_drift_at: Option<jiff::Timestamp>,
    /// When something was last put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_correction_at: Option<jiff::Timestamp>,
    /// Counts.
    #[serde(default)]
    pub summary: Summary,
    /// Findings, worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Findings beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub truncated: u64,
    /// Accepted differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deviations: Vec<Deviation>,
    /// Deviations beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deviations_truncated: u64,
    /// The last writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<CorrectionRecord>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
