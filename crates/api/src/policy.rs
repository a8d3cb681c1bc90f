//! `DriftPolicy`: which clusters and releases are guarded and what happens about drift.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{condition::Condition, duration::Span};

/// What to do about drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Do not look.
    Off,
    /// Detect and report; write nothing to the workload cluster.
    #[default]
    Warn,
    /// Detect, report and put back.
    Correct,
}

/// What to do about fields that somebody added beside the declared ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Foreign {
    /// Say nothing.
    Ignore,
    /// List them.
    #[default]
    Report,
    /// Take them away.
    Remove,
}

/// Whether an object may be deleted and created again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Recreate {
    /// Never.
    #[default]
    Never,
    /// Where a correction is refused because the field is immutable; never for volumes, claims, namespaces, definitions and custom resources,
    /// for what runs once, for a set that takes its volumes with it, and for what has finalizers.
    OnImmutable,
}

/// What a newest release record with status `failed` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailedRelease {
    /// Report differences from the last deployed revision, write nothing.
    #[default]
    Report,
    /// Correct towards the last deployed revision.
    LastDeployed,
}

/// What a release may create beyond namespaced objects of its own namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Trust {
    /// Missing cluster-scoped objects, RBAC objects and objects of other namespaces may be created.
    ClusterScoped,
}

/// A label selector with the meaning Kubernetes gives it; `{}` selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements; all must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelRequirement {
    /// Label key.
    pub key: String,
    /// How the label is compared.
    pub operator: LabelOperator,
    /// Values for `In` and `NotIn`; empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Operators of a label requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// The value is one of `values`.
    In,
    /// The label is missing or its value is none of `values`.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

/// Releases by name and namespace, as globs (`*`, `?`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseSelector {
    /// Glob over the release name; missing means any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Glob over the release namespace; missing means any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
    /// What these releases may create beyond their own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<Trust>,
}

/// Which objects a rule is about; every given field must match. Texts are globs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// API group; `""` is the core group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// API version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Object name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Object namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Selector over the declared labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Selector over the declared annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation_selector: Option<LabelSelector>,
}

/// Drift that is accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("has(self.paths) && size(self.paths) > 0 || has(self.managers) && size(self.managers) > 0").message("give paths or managers; to ignore whole objects use paths: ['']"))]
pub struct IgnoreRule {
    /// Objects the rule is about; missing means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// Paths and everything below them; `*` stands for one segment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub paths: Vec<String>,
    /// Globs over the field manager that wrote the drift.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub managers: Vec<String>,
    /// Why, for the next reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule ends at this time, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub until: Option<jiff::Timestamp>,
}

/// Paths of some objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathRule {
    /// Objects the rule is about; missing means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// Paths; `*` stands for one segment.
    #[schemars(length(min = 1, max = 64))]
    pub paths: Vec<String>,
}

/// When a path counts as fought over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Contest {
    /// Alternations of the same two values that make a contest.
    #[serde(default = "default_rounds")]
    #[schemars(range(min = 2, max = 20))]
    pub rounds: u32,
    /// Time in which they must happen.
    #[serde(default = "default_window")]
    pub window: Span,
}

/// Brakes on corrections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// Corrections a minute for one source; more wait.
    #[serde(default = "default_corrections")]
    #[schemars(range(min = 1, max = 6000))]
    pub corrections_per_minute: u32,
    /// When many objects drift within a minute, desired state is suspected instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blast_radius: Option<BlastRadius>,
}

/// Both numbers must be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlastRadius {
    /// Share of the source's objects, in percent.
    #[schemars(range(min = 1, max = 100))]
    pub percent: u32,
    /// Number of objects.
    #[schemars(range(min = 1, max = 100_000))]
    pub min_objects: u32,
}

const fn default_rounds() -> u32 {
    3
}
const fn default_window() -> Span {
    Span::minutes(30)
}
const fn default_corrections() -> u32 {
    60
}
/// Audit interval where a policy names none.
pub const DEFAULT_INTERVAL: Span = Span::minutes(10);
const fn default_interval() -> Span {
    DEFAULT_INTERVAL
}

/// What a `DriftPolicy` asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "DriftPolicy",
    plural = "driftpolicies",
    shortname = "dp",
    category = "holdfast",
    namespaced,
    status = "DriftPolicyStatus",
    derive = "PartialEq",
    doc = "Which clusters and Helm releases Holdfast guards, and what it does about drift.",
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Clusters","type":"integer","jsonPath":".status.clusters"}"#,
    printcolumn = r#"{"name":"Releases","type":"integer","jsonPath":".status.releases"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Accepted\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.interval) || duration(self.interval) >= duration('30s')").message("interval must be 30s or more"))]
pub struct DriftPolicySpec {
    /// Clusters by their labels (those of the kubeconfig Secret where there is no Cluster object); `{}` selects all of the namespace.
    pub cluster_selector: LabelSelector,
    /// Releases; missing or empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub releases: Vec<ReleaseSelector>,
    /// What to do about drift.
    #[serde(default)]
    pub mode: Mode,
    /// Time between audits, at least 30s.
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// Drift that is accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub ignore: Vec<IgnoreRule>,
    /// What to do about fields that somebody added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Foreign>,
    /// Containers of fields in which anything added is drift.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub exclusive: Vec<PathRule>,
    /// Paths that are never yielded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub enforce: Vec<PathRule>,
    /// Whether objects may be deleted and created again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recreate: Option<Recreate>,
    /// When a path counts as fought over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contest: Option<Contest>,
    /// Brakes on corrections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// What a newest release record with status `failed` means.
    #[serde(default)]
    pub on_failed_release: OnFailedRelease,
    /// Hashes of what releases declare (`status.source.desiredHash` of their reports) that is right although many objects drifted from it
    /// at once: the blast radius does not hold their corrections back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    pub approve: Vec<String>,
    /// Keep detecting, stop correcting.
    #[serde(default)]
    pub suspend: bool,
    /// Among policies that select the same release the higher one wins, then the name that sorts first.
    #[serde(default)]
    pub priority: i32,
}

/// What became of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftPolicyStatus {
    /// `Accepted`: the policy is in force as a whole; `False` means that what it selects is only reported until it is repaired.
    /// `Decides`: it decides about what it selects; `False` where it selects no release, or other policies decide about every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Clusters it selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<i64>,
    /// Releases it decides about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<i64>,
    /// Releases it selects about which another policy decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden: Option<i64>,
    /// Ignore rules that change nothing. Those that match nothing are told once every selected release was judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub idle_rules: Vec<IdleRule>,
    /// Generation this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// An ignore rule that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleRule {
    /// Its place in `spec.ignore`, from 0.
    pub rule: i64,
    /// Why.
    pub reason: IdleReason,
}

/// Why an ignore rule changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum IdleReason {
    /// Its `until` is over.
    Expired,
    /// No declared object is what it is about.
    NoObject,
    /// None of these objects declares any of its paths.
    NoPath,
}
