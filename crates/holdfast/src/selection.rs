//! Which releases of which cluster a command looks at: flags that `scan` and `fix` share.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use holdfast_fleet::{
    call::{ApiClient, Deadlines},
    transport::{Connection, Unobserved},
};

use crate::{
    kubeconfig,
    scan::{
        Scope,
        survey::{Guards, Purpose, Survey},
    },
};

/// Flags that choose a cluster.
#[derive(Debug, Args)]
pub struct Target {
    /// Kubeconfig; else KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long)]
    pub context: Option<String>,
}

/// Flags that choose releases.
#[derive(Debug, Args)]
pub struct Selection {
    /// Releases of all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Releases of this namespace; else that of the kubeconfig's context.
    #[arg(short = 'n', long, conflicts_with = "all_namespaces")]
    pub namespace: Option<String>,
    /// Only this release.
    #[arg(long)]
    pub release: Option<String>,
    /// The cluster.
    #[command(flatten)]
    pub target: Target,
}

/// The cluster a kubeconfig leads to.
pub struct Reached {
    /// Calls to it.
    pub client: ApiClient,
    /// Its address.
    pub server: String,
    /// The namespace of the kubeconfig's context.
    pub namespace: String,
}

impl Target {
    /// Reads the kubeconfig and prepares calls to its cluster.
    pub async fn reach(&self) -> anyhow::Result<Reached> {
        let config = kubeconfig::load(self.kubeconfig.as_deref(), self.context.clone()).await?;
        let namespace = config.default_namespace.clone();
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let connection = Connection::from_client_config(config, Arc::new(Unobserved)).await?;
        Ok(Reached { client: ApiClient::new(connection, Deadlines::default()), server, namespace })
    }
}

impl Selection {
    /// Where releases are looked for, given the namespace of the context.
    pub fn scope(&self, default: &str) -> Scope {
        if self.all_namespaces { Scope::Cluster } else { Scope::Namespace(self.namespace.clone().unwrap_or_else(|| default.to_owned())) }
    }
}

impl Reached {
    /// Prepares a look at the cluster.
    pub async fn survey(self, scope: Scope, purpose: Purpose, guards: Guards) -> anyhow::Result<Survey> {
        let Self { client, server, .. } = self;
        Survey::prepare(client, scope, purpose, guards)
            .await
            .map_err(|error| anyhow::anyhow!("{server}: {error:#}; --context and --kubeconfig choose another cluster"))
    }
}
