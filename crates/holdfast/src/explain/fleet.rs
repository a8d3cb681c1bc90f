//! One workload cluster as the management cluster describes it: credentials, gate, policies and reports, read with the user's rights.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use holdfast_api::{
    CLUSTER_NAME_LABEL,
    report::{DriftReport, DriftReportStatus, SourceKind},
};
use holdfast_fleet::{
    call::{ApiClient, Deadlines},
    kubeconfig::{HostRule, ServerPolicy},
    transport::{Connection, Options as ConnectOptions, Unobserved},
};
use holdfast_hub::{
    cluster::records::ReleaseName,
    fleet_view::{ClusterEntry, Credential, FleetView, FleetWatch, Gate, Options},
    management,
    policy::{DefaultMode, PolicySet},
};
use kube::{Api, Client, api::ListParams};
use tokio::time::timeout;

use crate::{kubeconfig, selection::Target};

/// How long reading the management cluster may take: a list that is refused is tried again until then.
const READING: Duration = Duration::from_secs(20);

/// A cluster of the fleet.
pub struct Managed {
    /// What the management cluster says about it.
    pub entry: Arc<ClusterEntry>,
    /// The policies in force.
    pub policies: Arc<PolicySet>,
    servers: ServerPolicy,
    reports: Vec<DriftReportStatus>,
}

impl Managed {
    /// Reads what is known of a cluster: `NAME`, or `NAMESPACE/NAME` where several have the name.
    pub async fn find(target: &Target, cluster: &str, allowed: &[HostRule]) -> anyhow::Result<Self> {
        let config = kubeconfig::load(target.kubeconfig.as_deref(), target.context.clone()).await?;
        let client = management::client(config).context("cannot use the kubeconfig of the management cluster")?;
        let servers = ServerPolicy::new(allowed.to_vec(), Vec::new());
        let (namespace, name) = cluster.split_once('/').map_or((None, cluster), |(namespace, name)| (Some(namespace), name));
        let view = read(&client, namespace, &servers).await?;
        let entry = one_of(&view, name)?;
        let reports = reports(&client, &entry).await?;
        Ok(Self { entry, policies: Arc::clone(&view.policies), servers, reports })
    }

    /// Prepares calls to the cluster, by the same rules as the hub's.
    pub fn connect(&self) -> anyhow::Result<ApiClient> {
        let name = &self.entry.name;
        match self.entry.gate {
            Gate::Deleting => bail!("cluster {name} is being deleted"),
            Gate::NotInitialised => bail!("the control plane of cluster {name} was not initialised yet"),
            Gate::Open | Gate::Paused => {}
        }
        let kubeconfig = match &self.entry.credential {
            Credential::Ready(kubeconfig) => kubeconfig,
            Credential::Missing => bail!("there is no kubeconfig Secret for cluster {name}"),
            Credential::Rejected(rejection) => bail!("the kubeconfig of cluster {name} is not used: {rejection}"),
        };
        let connection = Connection::new(kubeconfig, &self.servers, ConnectOptions::default(), Arc::new(Unobserved))
            .with_context(|| format!("cannot connect to cluster {name}"))?;
        Ok(ApiClient::new(connection, Deadlines::default()))
    }

    /// What the hub reports of a release.
    pub fn report(&self, release: &ReleaseName) -> Option<&DriftReportStatus> {
        self.reports.iter().find(|status| {
            status.source.as_ref().is_some_and(|source| {
                source.kind == SourceKind::HelmRelease && source.namespace == release.namespace && source.name == release.name
            })
        })
    }
}

/// Clusters, their credentials and the policies, as the hub reads them.
async fn read(client: &Client, namespace: Option<&str>, servers: &ServerPolicy) -> anyhow::Result<Arc<FleetView>> {
    let options = Options { namespace: namespace.map(str::to_owned), default_mode: DefaultMode::Off, servers: servers.clone() };
    let (watch, mut receivers) = FleetWatch::new(client.clone(), options);
    let complete = async {
        let view = receivers.view.wait_for(|view| view.complete).await;
        view.map(|view| Arc::clone(&view)).context("the management cluster cannot be read")
    };
    // Cancel-safe: the watch writes nothing.
    let read = async {
        tokio::select! {
            never = Box::pin(watch.run()) => match never {},
            view = complete => view,
        }
    };
    timeout(READING, read).await.unwrap_or_else(|_| {
        bail!(
            "the management cluster did not show clusters, kubeconfig Secrets and policies in time; these credentials must be allowed to \
             get, list and watch them (--log warn tells what fails), and a NAMESPACE/CLUSTER asks for one namespace only"
        )
    })
}

fn one_of(view: &FleetView, name: &str) -> anyhow::Result<Arc<ClusterEntry>> {
    let found: Vec<&Arc<ClusterEntry>> = view.clusters.values().filter(|entry| *entry.name.name == *name).collect();
    match found.as_slice() {
        [entry] => Ok(Arc::clone(entry)),
        [] => bail!("the management cluster knows no cluster {name}"),
        several => {
            let names: Vec<String> = several.iter().map(|entry| entry.name.to_string()).collect();
            bail!("several clusters are called {name}: {}", names.join(", "))
        }
    }
}

async fn reports(client: &Client, entry: &ClusterEntry) -> anyhow::Result<Vec<DriftReportStatus>> {
    let reports: Api<DriftReport> = Api::namespaced(client.clone(), &entry.name.namespace);
    let params = ListParams::default().labels(&format!("{CLUSTER_NAME_LABEL}={}", entry.name.name));
    let list = management::call(reports.list(&params)).await.context("cannot list DriftReports")?;
    Ok(list.items.into_iter().filter_map(|report| report.status).collect())
}
