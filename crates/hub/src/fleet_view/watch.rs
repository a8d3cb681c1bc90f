//! The task that watches the management cluster.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use holdfast_api::{CLUSTER_NAME_LABEL, KUBECONFIG_LABEL, policy::DriftPolicyStatus};
use holdfast_fleet::{
    backoff::{Backoff, BackoffPolicy},
    kubeconfig::ServerPolicy,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource, api::ListParams, core::DynamicResourceScope, runtime::watcher};
use serde_json::Value;
use tokio::{sync::watch, time::sleep};

use super::{
    ClusterInput, FleetView, Inputs, NamespaceInput, SecretInput,
    capi::{self, Served},
    collect::{Cell, NotServed, Objects, collect},
    fold, secret,
    wire::{ClusterObject, ClusterPolicyObject, NamespaceObject, PolicyObject, SecretObject},
};
use crate::{
    management::{self, Failure},
    policy::{DefaultMode, PolicyInput},
};

/// How long changes are gathered before the view is computed: a burst of events is one change.
const GATHER: Duration = Duration::from_millis(20);
/// Pause before a kind is tried again that the server said it does not know.
const ABSENT: Duration = Duration::from_secs(15);
/// Pause before a hub that is restricted to a namespace asks again whether it may read what belongs to none.
const REFUSED: Duration = Duration::from_mins(10);

/// What is watched.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only this namespace of the management cluster; `None` means all.
    pub namespace: Option<String>,
    /// What is done about releases without a policy.
    pub default_mode: DefaultMode,
    /// Which servers a kubeconfig may name.
    pub servers: ServerPolicy,
}

/// A policy as it stands on the management cluster, for the writer of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivePolicy {
    /// What the fold needs.
    pub input: PolicyInput,
    /// Its status; `None` where there is none or it cannot be read.
    pub status: Option<DriftPolicyStatus>,
}

/// All policies, once they were read.
pub type LivePolicies = Option<Arc<Objects<LivePolicy>>>;

/// Where the results arrive.
#[derive(Clone, Debug)]
pub struct FleetReceivers {
    /// The fleet.
    pub view: watch::Receiver<Arc<FleetView>>,
    /// The policies with their statuses.
    pub policies: watch::Receiver<LivePolicies>,
    /// Those of the whole cluster.
    pub cluster_policies: watch::Receiver<LivePolicies>,
}

/// Watches the management cluster.
pub struct FleetWatch {
    client: Client,
    options: Options,
    clusters: Cell<ClusterInput>,
    capi_secrets: Cell<SecretInput>,
    labelled_secrets: Cell<SecretInput>,
    policies: Cell<LivePolicy>,
    cluster_policies: Cell<LivePolicy>,
    namespaces: Cell<NamespaceInput>,
    view: watch::Sender<Arc<FleetView>>,
}

impl fmt::Debug for FleetWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetWatch").field("options", &self.options).finish_non_exhaustive()
    }
}

impl FleetWatch {
    /// A watch that does nothing until it is run.
    pub fn new(client: Client, options: Options) -> (Self, FleetReceivers) {
        let watch = Self {
            client,
            options,
            clusters: Cell::new(None),
            capi_secrets: Cell::new(None),
            labelled_secrets: Cell::new(None),
            policies: Cell::new(None),
            cluster_policies: Cell::new(None),
            namespaces: Cell::new(None),
            view: watch::Sender::new(Arc::default()),
        };
        let receivers = FleetReceivers {
            view: watch.view.subscribe(),
            policies: watch.policies.subscribe(),
            cluster_policies: watch.cluster_policies.subscribe(),
        };
        (watch, receivers)
    }

    /// Watches for ever. May be dropped at any await and run again; what was learned stays.
    pub async fn run(&self) -> Infallible {
        let capi_label = CLUSTER_NAME_LABEL;
        let own_label = format!("{KUBECONFIG_LABEL}=true");
        tokio::select! {
            never = Box::pin(self.watch_clusters()) => never,
            never = Box::pin(self.watch_secrets("Cluster API Secrets", capi_label, &self.capi_secrets)) => never,
            never = Box::pin(self.watch_secrets("labelled Secrets", &own_label, &self.labelled_secrets)) => never,
            never = Box::pin(self.watch_policies()) => never,
            never = Box::pin(self.watch_what_has_no_namespace()) => never,
            never = self.fold_changes() => never,
        }
    }

    fn api<K: Resource<Scope = DynamicResourceScope>>(&self, resource: &K::DynamicType) -> Api<K> {
        match &self.options.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    async fn watch_secrets(&self, what: &'static str, selector: &str, cell: &Cell<SecretInput>) -> Infallible {
        loop {
            let reduce = |object: SecretObject, before: Option<&SecretInput>| secret::reduce(object, before, &self.options.servers);
            let NotServed = collect(what, self.api(&()), watcher::Config::default().labels(selector), cell, reduce).await;
            sleep(ABSENT).await;
        }
    }

    async fn watch_policies(&self) -> Infallible {
        loop {
            let reduce = |object: PolicyObject, _: Option<&LivePolicy>| Some(LivePolicy::of_namespace(object));
            let NotServed = collect("DriftPolicies", self.api(&()), watcher::Config::default(), &self.policies, reduce).await;
            tracing::warn!("the management cluster does not know DriftPolicies: are Holdfast's CRDs installed?");
            sleep(ABSENT).await;
        }
    }

    /// Policies of the whole cluster, and the labels of namespaces that they select by.
    ///
    /// Where they cannot be had there are none: a policy of the whole cluster never decides where one of a namespace does, so without them
    /// less is guarded, and nothing is written that would not be otherwise.
    async fn watch_what_has_no_namespace(&self) -> Infallible {
        loop {
            if self.options.namespace.is_some() && self.is_confined().await {
                tracing::warn!(
                    "ClusterDriftPolicies are not in force: this hub is restricted to a namespace and may not read them, or not the labels of it"
                );
                self.without_cluster_policies();
                sleep(REFUSED).await;
                continue;
            }
            let policies = Api::<ClusterPolicyObject>::all_with(self.client.clone(), &());
            let namespaces = Api::<NamespaceObject>::all_with(self.client.clone(), &());
            let own = self.options.namespace.as_ref().map(|name| format!("metadata.name={name}"));
            let which = own.map_or_else(watcher::Config::default, |own| watcher::Config::default().fields(&own));
            let read = |object: ClusterPolicyObject, _: Option<&LivePolicy>| Some(LivePolicy::of_cluster(object));
            let labels = |object: NamespaceObject, _: Option<&NamespaceInput>| {
                Some(NamespaceInput { labels: Arc::new(object.metadata.labels.unwrap_or_default()) })
            };
            tokio::select! {
                NotServed = collect("ClusterDriftPolicies", policies, watcher::Config::default(), &self.cluster_policies, read) => {}
                NotServed = collect("Namespaces", namespaces, which, &self.namespaces, labels) => {}
            }
            tracing::warn!("the management cluster does not know ClusterDriftPolicies: are Holdfast's CRDs up to date?");
            self.without_cluster_policies();
            sleep(ABSENT).await;
        }
    }

    /// Whether this hub may not read what belongs to no namespace.
    async fn is_confined(&self) -> bool {
        let one = ListParams::default().limit(1);
        let policies = Api::<ClusterPolicyObject>::all_with(self.client.clone(), &());
        let namespaces = Api::<NamespaceObject>::all_with(self.client.clone(), &());
        let own = self.options.namespace.iter().fold(one.clone(), |one, name| one.fields(&format!("metadata.name={name}")));
        matches!(management::call(policies.list(&one)).await, Err(Failure::Forbidden))
            || matches!(management::call(namespaces.list(&own)).await, Err(Failure::Forbidden))
    }

    /// What was read before stays.
    fn without_cluster_policies(&self) {
        fill(&self.cluster_policies);
        fill(&self.namespaces);
    }

    async fn watch_clusters(&self) -> Infallible {
        let mut served = self.discover().await;
        loop {
            served = match &served {
                Served::At(resource) => {
                    tracing::info!(version = %resource.version, "watching Cluster API clusters");
                    let reduce = |object: ClusterObject, _: Option<&ClusterInput>| Some(object.reduce(resource));
                    let collecting = collect("Clusters", self.api(resource), watcher::Config::default(), &self.clusters, reduce);
                    tokio::select! {
                        biased;
                        // Dropping a watch loses nothing: the next one starts with a list.
                        next = capi::changed(&self.client, &served) => next,
                        // The list answered 404, but only discovery tells whether the kind is gone.
                        NotServed = collecting => {
                            sleep(ABSENT).await;
                            capi::confirmed(&self.client, &served).await
                        }
                    }
                }
                Served::No => {
                    tracing::info!("Cluster API is not installed: watching labelled kubeconfig Secrets only");
                    self.clusters.send_replace(Some(Arc::default()));
                    capi::changed(&self.client, &served).await
                }
            };
        }
    }

    /// Discovers until it gets an answer.
    async fn discover(&self) -> Served {
        let mut backoff = Backoff::new(BackoffPolicy::WATCH);
        loop {
            match capi::discover(&self.client).await {
                Ok(served) => return served,
                Err(failure) => {
                    tracing::warn!(failure = failure.as_str(), "cannot discover what the management cluster serves, retrying");
                    sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    /// Computes the view whenever a list changed, and publishes it when it differs.
    async fn fold_changes(&self) -> Infallible {
        let (mut clusters, mut capi_secrets) = (self.clusters.subscribe(), self.capi_secrets.subscribe());
        let (mut labelled_secrets, mut policies) = (self.labelled_secrets.subscribe(), self.policies.subscribe());
        let (mut cluster_policies, mut namespaces) = (self.cluster_policies.subscribe(), self.namespaces.subscribe());
        loop {
            let inputs = Inputs {
                clusters: clusters.borrow_and_update().clone(),
                capi_secrets: capi_secrets.borrow_and_update().clone(),
                labelled_secrets: labelled_secrets.borrow_and_update().clone(),
                policies: policies.borrow_and_update().clone(),
                cluster_policies: cluster_policies.borrow_and_update().clone(),
                namespaces: namespaces.borrow_and_update().clone(),
            };
            let before = Arc::clone(&self.view.borrow());
            let next = fold(&inputs, self.options.default_mode, &before);
            if next != *before {
                self.view.send_replace(Arc::new(next));
            }
            // `changed` is cancel-safe: an unseen change stays unseen. The senders live in `self`, so no receiver ever fails.
            tokio::select! {
                _ = clusters.changed() => {}
                _ = capi_secrets.changed() => {}
                _ = labelled_secrets.changed() => {}
                _ = policies.changed() => {}
                _ = cluster_policies.changed() => {}
                _ = namespaces.changed() => {}
            }
            sleep(GATHER).await;
        }
    }
}

/// Nothing is there, unless something was read before.
fn fill<T>(cell: &Cell<T>) {
    cell.send_if_modified(|list| {
        let is_missing = list.is_none();
        list.get_or_insert_default();
        is_missing
    });
}

impl LivePolicy {
    fn of_namespace(object: PolicyObject) -> Self {
        Self::read(object.metadata, object.spec, object.status)
    }

    fn of_cluster(object: ClusterPolicyObject) -> Self {
        // A spec that cannot be read otherwise still says which namespaces it is for.
        let namespaces = object.spec.get("namespaceSelector").and_then(|selector| serde_json::from_value(selector.clone()).ok());
        let mut policy = Self::read(object.metadata, object.spec, object.status);
        policy.input.namespaces = namespaces;
        policy
    }

    fn read(metadata: ObjectMeta, spec: Value, status: Value) -> Self {
        Self {
            input: PolicyInput {
                generation: metadata.generation.unwrap_or_default(),
                uid: metadata.uid.unwrap_or_default(),
                spec: serde_json::from_value(spec).ok(),
                namespaces: None,
            },
            status: serde_json::from_value(status).ok(),
        }
    }
}
