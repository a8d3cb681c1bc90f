//! One cluster of the fleet as the management cluster describes it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use holdfast_fleet::kubeconfig::{Kubeconfig, Rejection};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::policy::PolicySet;

/// Namespace and name of a cluster on the management cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ClusterName {
    /// A name from its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: Arc::from(namespace), name: Arc::from(name) }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The object a cluster stands for on the management cluster: its `Cluster`, or its Secret where there is none. Owns the reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerRef {
    /// `apiVersion` it was read at.
    pub api_version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Name; the namespace is that of the cluster.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
}

impl OwnerRef {
    /// The entry for `metadata.ownerReferences`. It controls nothing and blocks no deletion.
    pub fn to_owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.to_string(),
            kind: self.kind.to_string(),
            name: self.name.to_string(),
            uid: self.uid.to_string(),
            controller: None,
            block_owner_deletion: None,
        }
    }
}

/// What may be done with a cluster now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Everything.
    Open,
    /// Looking, not writing: `spec.paused` or the annotation `cluster.x-k8s.io/paused`.
    Paused,
    /// Nothing yet: the control plane was never initialised.
    NotInitialised,
    /// Nothing any more: no remote call, hub-side state goes.
    Deleting,
}

/// The kubeconfig of a cluster.
#[derive(Clone, Debug)]
pub enum Credential {
    /// There is no Secret.
    Missing,
    /// The Secret holds something that is not used.
    Rejected(Rejection),
    /// Checked and ready.
    Ready(Arc<Kubeconfig>),
}

impl PartialEq for Credential {
    /// Kubeconfigs are compared by fingerprint: a comment or an entry that is not selected makes no difference.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Missing, Self::Missing) => true,
            (Self::Rejected(a), Self::Rejected(b)) => a == b,
            (Self::Ready(a), Self::Ready(b)) => same_kubeconfig(a, b),
            _ => false,
        }
    }
}

fn same_kubeconfig(a: &Arc<Kubeconfig>, b: &Arc<Kubeconfig>) -> bool {
    Arc::ptr_eq(a, b) || a.fingerprint() == b.fingerprint()
}

/// One cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterEntry {
    /// Its name.
    pub name: ClusterName,
    /// Labels of the `Cluster`, else of the Secret. Policies select by them.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Labels of its namespace on the management cluster; `None` while they are not known. Policies of the whole cluster select by them.
    pub namespace_labels: Option<Arc<BTreeMap<String, String>>>,
    /// What it stands for.
    pub owner: OwnerRef,
    /// Since when that exists, by the management cluster's clock.
    pub created: Timestamp,
    /// What may be done.
    pub gate: Gate,
    /// The Secret that its kubeconfig is in.
    pub secret: Option<Arc<str>>,
    /// Its kubeconfig.
    pub credential: Credential,
}

/// The fleet at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetView {
    /// Whether every list was read. While not, the view is empty and nothing may be concluded from that.
    pub complete: bool,
    /// The clusters.
    pub clusters: BTreeMap<ClusterName, Arc<ClusterEntry>>,
    /// The policies in force.
    pub policies: Arc<PolicySet>,
}

impl FleetView {
    /// Whether the hub should look after the cluster: it is there, and a policy or the default mode selects it.
    pub fn guards(&self, cluster: &ClusterName) -> bool {
        self.clusters.get(cluster).is_some_and(|entry| self.policies.selects(entry))
    }
}
