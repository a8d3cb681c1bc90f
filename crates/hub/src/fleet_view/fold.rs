//! From the lists to the fleet view. Pure.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use super::{ClusterEntry, ClusterName, Credential, FleetView, Gate, LivePolicy, ObjectName, OwnerRef, collect::Objects};
use crate::policy::{DefaultMode, PolicyName, PolicySet};

/// What the hub needs of a Cluster API `Cluster`, whatever version it was read at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInput {
    /// The object.
    pub owner: OwnerRef,
    /// Since when it exists.
    pub created: Timestamp,
    /// Its labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Field or annotation.
    pub paused: bool,
    /// Whether its control plane was ever usable.
    pub initialised: bool,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
}

/// A Secret that holds a kubeconfig.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretInput {
    /// The cluster it is for.
    pub cluster: ClusterName,
    /// The Secret.
    pub owner: OwnerRef,
    /// Since when it exists.
    pub created: Timestamp,
    /// UID of the `Cluster` that owns it, where one does.
    pub made_for: Option<Arc<str>>,
    /// Its labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Marked by `holdfast.dev/kubeconfig=true`: makes a cluster also without a `Cluster`.
    pub labelled: bool,
    /// Annotation `cluster.x-k8s.io/paused`.
    pub paused: bool,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// SHA-256 of the kubeconfig's bytes, so that the same bytes are parsed once. Never leaves the process.
    pub(super) digest: Option<[u8; 32]>,
    /// What became of the kubeconfig.
    pub credential: Credential,
}

impl SecretInput {
    /// Whether it belongs to another `Cluster` than this one.
    pub(super) fn is_of_another(&self, cluster: &OwnerRef) -> bool {
        *cluster.kind == *"Cluster" && self.made_for.as_ref().is_some_and(|uid| *uid != cluster.uid)
    }
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInput {
    /// Its labels.
    pub labels: Arc<BTreeMap<String, String>>,
}

/// The lists; `None` while one was not read completely yet.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// `Cluster`s; empty where the kind is not served.
    pub clusters: Option<Arc<Objects<ClusterInput>>>,
    /// Secrets with Cluster API's label.
    pub capi_secrets: Option<Arc<Objects<SecretInput>>>,
    /// Secrets with Holdfast's label.
    pub labelled_secrets: Option<Arc<Objects<SecretInput>>>,
    /// Policies of namespaces.
    pub policies: Option<Arc<Objects<LivePolicy>>>,
    /// Policies of the whole cluster; empty where this hub may not read them.
    pub cluster_policies: Option<Arc<Objects<LivePolicy>>>,
    /// Namespaces; empty where this hub may not read them.
    pub namespaces: Option<Arc<Objects<NamespaceInput>>>,
}

/// The view that follows from the lists; `before` is the last one, for what outlives a Secret and for sharing what did not change.
pub fn fold(inputs: &Inputs, default_mode: DefaultMode, before: &FleetView) -> FleetView {
    let (Some(clusters), Some(capi), Some(labelled)) = (&inputs.clusters, &inputs.capi_secrets, &inputs.labelled_secrets) else {
        return FleetView::default();
    };
    let (Some(policies), Some(cluster_policies), Some(namespaces)) = (&inputs.policies, &inputs.cluster_policies, &inputs.namespaces)
    else {
        return FleetView::default();
    };
    let namespace_labels = |cluster: &ClusterName| {
        let name = ObjectName { namespace: Arc::from(""), name: Arc::clone(&cluster.namespace) };
        namespaces.get(&name).map(|namespace| Arc::clone(&namespace.labels))
    };

    let mut secrets = choose_secrets(labelled.values().chain(capi.values()));
    let mut entries = BTreeMap::new();
    for (name, input) in clusters.iter() {
        let cluster = ClusterName::from(name);
        // One that belongs to an earlier `Cluster` of this name leads to the earlier cluster.
        let secret = secrets.remove(&cluster).filter(|secret| !secret.is_of_another(&input.owner));
        let entry = ClusterEntry {
            namespace_labels: namespace_labels(&cluster),
            name: cluster,
            labels: Arc::clone(&input.labels),
            owner: input.owner.clone(),
            created: input.created,
            gate: gate(input.deleting, input.initialised, input.paused),
            secret: secret.map(|secret| Arc::clone(&secret.owner.name)),
            credential: secret.map_or(Credential::Missing, |secret| secret.credential.clone()),
        };
        add(&mut entries, before, entry);
    }
    // What is left has no `Cluster`. Cluster API's own Secrets outlive theirs for a moment and are no cluster of their own.
    for (cluster, secret) in secrets.into_iter().filter(|(_, secret)| secret.labelled) {
        let entry = ClusterEntry {
            namespace_labels: namespace_labels(&cluster),
            name: cluster,
            labels: Arc::clone(&secret.labels),
            owner: secret.owner.clone(),
            created: secret.created,
            gate: gate(secret.deleting, true, secret.paused),
            secret: Some(Arc::clone(&secret.owner.name)),
            credential: secret.credential.clone(),
        };
        add(&mut entries, before, entry);
    }

    let named = policies.iter().chain(cluster_policies.iter()).map(|(name, live)| (PolicyName::from(name), &live.input));
    let compiled = PolicySet::compile(named, default_mode);
    let policies = if *before.policies == compiled { Arc::clone(&before.policies) } else { Arc::new(compiled) };
    FleetView { complete: true, clusters: entries, policies }
}

/// One Secret per cluster: the one with Holdfast's label was put there for Holdfast, so it wins over Cluster API's administrator;
/// among equals the name that sorts first.
fn choose_secrets<'a>(secrets: impl Iterator<Item = &'a Arc<SecretInput>>) -> BTreeMap<ClusterName, &'a SecretInput> {
    let mut chosen: BTreeMap<ClusterName, &SecretInput> = BTreeMap::new();
    let rank = |secret: &SecretInput| (!secret.labelled, Arc::clone(&secret.owner.name));
    for secret in secrets {
        chosen
            .entry(secret.cluster.clone())
            .and_modify(|other| {
                if rank(secret) < rank(other) {
                    *other = secret;
                }
            })
            .or_insert(secret);
    }
    chosen
}

fn gate(deleting: bool, initialised: bool, paused: bool) -> Gate {
    match (deleting, initialised, paused) {
        (true, _, _) => Gate::Deleting,
        (false, false, _) => Gate::NotInitialised,
        (false, true, true) => Gate::Paused,
        (false, true, false) => Gate::Open,
    }
}

fn add(entries: &mut BTreeMap<ClusterName, Arc<ClusterEntry>>, before: &FleetView, entry: ClusterEntry) {
    // What did not change is shared.
    let old = before.clusters.get(&entry.name);
    let name = entry.name.clone();
    let entry = old.filter(|old| ***old == entry).map_or_else(|| Arc::new(entry), Arc::clone);
    entries.insert(name, entry);
}
