//! The task that watches the management cluster.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use holdfast_api::{CLUSTER_NAME_LABEL, KUBECONFIG_LABEL, policy::DriftPolicyStatus};
use holdfast_fleet::{
    backoff::{Backoff, BackoffPolicy},
    kubeconfig::ServerPolicy,
};
use kube::{Api, Client, Resource, ResourceExt, core::DynamicResourceScope};
use tokio::{sync::watch, time::sleep};

use super::{
    ClusterInput, FleetView, Inputs, SecretInput,
    capi::{self, Served},
    collect::{Cell, NotServed, Objects, collect},
    fold, secret,
    wire::{ClusterObject, PolicyObject, SecretObject},
};
use crate::policy::{DefaultMode, PolicyInput};

/// How long changes are gathered before the view is computed: a burst of events is one change.
const GATHER: Duration = Duration::from_millis(20);
/// Pause before a kind is tried again that the server said it does not know.
const ABSENT: Duration = Duration::from_secs(15);

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
}

/// Watches the management cluster.
pub struct FleetWatch {
    client: Client,
    options: Options,
    clusters: Cell<ClusterInput>,
    capi_secrets: Cell<SecretInput>,
    labelled_secrets: Cell<SecretInput>,
    policies: Cell<LivePolicy>,
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
            view: watch::Sender::new(Arc::default()),
        };
        let receivers = FleetReceivers { view: watch.view.subscribe(), policies: watch.policies.subscribe() };
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
            let NotServed = collect(what, self.api(&()), Some(selector), cell, reduce).await;
            sleep(ABSENT).await;
        }
    }

    async fn watch_policies(&self) -> Infallible {
        loop {
            let reduce = |object: PolicyObject, _: Option<&LivePolicy>| Some(LivePolicy::read(object));
            let NotServed = collect("DriftPolicies", self.api(&()), None, &self.policies, reduce).await;
            tracing::warn!("the management cluster does not know DriftPolicies: are Holdfast's CRDs installed?");
            sleep(ABSENT).await;
        }
    }

    async fn watch_clusters(&self) -> Infallible {
        let mut served = self.discover().await;
        loop {
            served = match &served {
                Served::At(resource) => {
                    tracing::info!(version = %resource.version, "watching Cluster API clusters");
                    let reduce = |object: ClusterObject, _: Option<&ClusterInput>| Some(object.reduce(resource));
                    let collecting = collect("Clusters", self.api(resource), None, &self.clusters, reduce);
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
        loop {
            let inputs = Inputs {
                clusters: clusters.borrow_and_update().clone(),
                capi_secrets: capi_secrets.borrow_and_update().clone(),
                labelled_secrets: labelled_secrets.borrow_and_update().clone(),
                policies: policies.borrow_and_update().clone(),
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
            }
            sleep(GATHER).await;
        }
    }
}

impl LivePolicy {
    fn read(object: PolicyObject) -> Self {
        Self {
            input: PolicyInput {
                generation: object.metadata.generation.unwrap_or_default(),
                uid: object.uid().unwrap_or_default(),
                spec: serde_json::from_value(object.spec).ok(),
            },
            status: serde_json::from_value(object.status).ok(),
        }
    }
}
