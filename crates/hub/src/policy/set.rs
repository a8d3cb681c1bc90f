//! All policies of the hub and which of them decides about a release.

use std::{collections::BTreeMap, fmt, sync::Arc};

use holdfast_api::{
    policy::{DriftPolicySpec, LabelSelector, Mode},
    report::PolicyRef,
};

use super::{
    Guard, Policy, PolicyError,
    compile::{Problem, at},
};
use crate::fleet_view::{ClusterEntry, ClusterName};

/// Namespace and name of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyName {
    /// Namespace; the policy selects clusters of this namespace only. Empty for a `ClusterDriftPolicy`, which has none.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl PolicyName {
    /// A name from its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: Arc::from(namespace), name: Arc::from(name) }
    }

    /// As a report names it.
    pub fn to_reference(&self) -> PolicyRef {
        let kind = if self.is_of_cluster() { "ClusterDriftPolicy" } else { "DriftPolicy" };
        PolicyRef { kind: kind.to_owned(), namespace: self.namespace.to_string(), name: self.name.to_string() }
    }

    /// The name of a `ClusterDriftPolicy`.
    pub fn of_cluster(name: &str) -> Self {
        Self::new("", name)
    }

    /// Whether it is that of a `ClusterDriftPolicy`.
    pub fn is_of_cluster(&self) -> bool {
        self.namespace.is_empty()
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_of_cluster() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// What is done about releases that no policy selects (`--default-mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultMode {
    /// They are not watched.
    #[default]
    Off,
    /// They are watched and reported.
    Warn,
}

/// One policy as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInput {
    /// Generation of the object.
    pub generation: i64,
    /// UID of the object.
    pub uid: String,
    /// Its spec; `None` where it does not have the shape of one.
    pub spec: Option<DriftPolicySpec>,
    /// Namespaces of the clusters, for a `ClusterDriftPolicy` whose spec has its shape.
    pub namespaces: Option<LabelSelector>,
}

/// Whether a policy is valid, and what that was said about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// Generation this is about.
    pub generation: i64,
    /// `Err`: nothing of the policy is applied but its selection, and what it selects is only reported.
    pub result: Result<(), PolicyError>,
}

/// All policies, in the order in which they win. An invalid one takes part with its selection and reports what it selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySet {
    policies: Vec<Policy>,
    acceptance: BTreeMap<PolicyName, Acceptance>,
    default: Option<Arc<Guard>>,
}

impl PolicySet {
    /// Compiles what was read. An invalid policy keeps what it selects from being corrected until it is repaired or deleted.
    pub fn compile<'a>(inputs: impl IntoIterator<Item = (PolicyName, &'a PolicyInput)>, default_mode: DefaultMode) -> Self {
        let mut policies = Vec::new();
        let mut acceptance = BTreeMap::new();
        for (name, input) in inputs {
            let spec = input.spec.as_ref();
            let compiled = spec
                .ok_or_else(|| at("spec", Problem::Unreadable))
                .and_then(|spec| Policy::compile(name.clone(), spec, input.namespaces.as_ref()));
            let (policy, result) = match compiled {
                Ok(policy) => (policy, Ok(())),
                Err(error) => (Policy::report_only(name.clone(), spec, input.namespaces.as_ref()), Err(error)),
            };
            policies.push(policy);
            acceptance.insert(name, Acceptance { generation: input.generation, result });
        }
        policies.sort_by(|a: &Policy, b: &Policy| {
            a.rank().cmp(&b.rank()).then_with(|| b.priority.cmp(&a.priority)).then_with(|| a.name.cmp(&b.name))
        });
        let default = (default_mode == DefaultMode::Warn).then(|| Arc::new(Guard::default_warn()));
        Self { policies, acceptance, default }
    }

    /// The guard of a release: a `DriftPolicy` goes before a `ClusterDriftPolicy`; among those of one kind that select the release the highest
    /// priority decides, then the name that sorts first.
    /// `None`: the release is not watched, because no policy selects it or the winner says `Off`.
    pub fn decide(&self, cluster: &ClusterEntry, release_namespace: &str, release_name: &str) -> Option<Arc<Guard>> {
        let winner = self.selecting(cluster).find_map(|policy| policy.guard(release_namespace, release_name));
        winner.or(self.default.as_ref()).filter(|guard| guard.mode != Mode::Off).cloned()
    }

    /// Every policy that selects a release, with its priority and what it says, in the order in which they win.
    pub fn ranking(&self, cluster: &ClusterEntry, release_namespace: &str, release_name: &str) -> Vec<(i32, Arc<Guard>)> {
        let selecting = self.selecting(cluster);
        selecting.filter_map(|policy| Some((policy.priority, Arc::clone(policy.guard(release_namespace, release_name)?)))).collect()
    }

    /// Whether any release of the cluster could have a guard, so that the hub connects to it and reports about it.
    pub fn selects(&self, cluster: &ClusterEntry) -> bool {
        self.default.is_some() || self.selecting(cluster).any(|policy| policy.mode() != Mode::Off)
    }

    /// The policies that select the cluster, winners first.
    fn selecting(&self, cluster: &ClusterEntry) -> impl Iterator<Item = &Policy> {
        self.policies.iter().filter(|policy| policy.selects(cluster))
    }

    /// Every policy that selects a release, the one that decides about it first.
    pub fn selecting_release(&self, cluster: &ClusterEntry, namespace: &str, name: &str) -> impl Iterator<Item = &PolicyName> {
        self.selecting(cluster).filter(move |policy| policy.guard(namespace, name).is_some()).map(|policy| &policy.name)
    }

    /// Which of `clusters` each policy selects.
    pub fn selected_clusters<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterEntry>,
    ) -> BTreeMap<PolicyName, Vec<&'a ClusterName>> {
        let mut selected: BTreeMap<PolicyName, Vec<&ClusterName>> =
            self.policies.iter().map(|policy| (policy.name.clone(), Vec::new())).collect();
        for cluster in clusters {
            for policy in self.selecting(cluster) {
                selected.entry(policy.name.clone()).or_default().push(&cluster.name);
            }
        }
        selected
    }

    /// What became of each policy that was read.
    pub fn acceptance(&self) -> &BTreeMap<PolicyName, Acceptance> {
        &self.acceptance
    }
}
