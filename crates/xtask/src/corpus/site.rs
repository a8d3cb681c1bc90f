//! One cluster with one Helm, on which chart after chart is installed, looked at and taken away.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use holdfast_testkit::{ControlPlane, Helm};

use super::{
    charts::Chart,
    edits::{Edits, Guarded},
    mutators::Mutators,
    node::Node,
    scan::{Scan, Scanner},
    table::{Place, Totals},
};
use crate::fleet::Fleet;

/// How long Helm may wait for hooks.
const HOOKS: &str = "60s";
/// Cluster-scoped kinds of which charts leave objects behind: definitions, what hooks made, what is to be kept.
const LEFT_BEHIND: &str = "customresourcedefinitions,apiservices,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,\
                           validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,priorityclasses,\
                           ingressclasses,storageclasses,csidrivers,runtimeclasses,persistentvolumes,namespaces";

/// A cluster and its Helm.
pub struct Site<'a> {
    helm: Helm,
    fleet: &'a Fleet,
    cluster: &'static str,
    plane: &'a ControlPlane,
    scanner: Scanner,
    mutators: Option<Mutators>,
    seed: u64,
    /// Cluster-scoped objects that were there from the start.
    own: BTreeSet<String>,
    _node: Node,
}

impl<'a> Site<'a> {
    /// The cluster's name for a Helm.
    pub fn cluster(helm: Helm) -> &'static str {
        match helm {
            Helm::V3 => "helm-3",
            Helm::V4 => "helm-4",
        }
    }

    /// Prepares the cluster of a Helm.
    pub async fn prepare(helm: Helm, fleet: &'a Fleet, program: PathBuf, with_webhooks: bool, seed: u64) -> Result<Self> {
        let cluster = Self::cluster(helm);
        let plane = fleet.workload(cluster)?;
        let mutators = if with_webhooks { Some(Mutators::start(plane).await?) } else { None };
        let own = objects(plane).await?;
        Ok(Self { helm, fleet, cluster, plane, scanner: Scanner::new(program, plane)?, mutators, seed, own, _node: Node::start(plane)? })
    }

    /// Goes through all charts.
    pub async fn all(&self, charts: &[Chart]) -> Result<Totals> {
        let mut totals = Totals::default();
        for chart in charts {
            self.chart(chart, &mut totals).await.with_context(|| format!("{} with {}", chart.name, self.cluster))?;
        }
        Ok(totals)
    }

    async fn chart(&self, chart: &Chart, totals: &mut Totals) -> Result<()> {
        let release = chart.release();
        let place = |stage| Place { chart: &chart.name, helm: self.version(), stage };
        let namespace = format!("{release}-plain");
        let arguments = match self.install(chart, &release, &namespace).await {
            Ok(arguments) => arguments,
            Err(error) => {
                totals.skipped(place("installed"), &format!("{error:#}"));
                return Ok(());
            }
        };
        if self.helm.manifest(self.plane, &release, &namespace).await?.trim().is_empty() {
            totals.skipped(place("installed"), "it declares nothing");
            return self.remove(&release, &namespace).await;
        }
        totals.installed();
        let scan = self.scan(&release, &namespace, false).await?;
        totals.scan(place("installed"), &scan, false);
        if let Some(mutators) = &self.mutators {
            mutators.switch(true);
            let scan = self.scan(&release, &namespace, true).await;
            mutators.switch(false);
            totals.scan(place("webhooks after"), &scan?, true);
        }
        match self.edit(&release, &namespace, &scan).await {
            Ok(edits) => totals.edits(place("edits"), &edits),
            Err(error) => totals.edits(place("edits"), &failed(&error)),
        }
        self.remove(&release, &namespace).await?;
        if let Some(mutators) = &self.mutators {
            mutators.switch(true);
            let ended = self.under_webhooks(chart, &release, &arguments, totals).await;
            mutators.switch(false);
            ended?;
        }
        Ok(())
    }

    /// Installs the chart while the webhooks change everything.
    async fn under_webhooks(&self, chart: &Chart, release: &str, arguments: &[String], totals: &mut Totals) -> Result<()> {
        let namespace = format!("{release}-hooked");
        let place = |stage| Place { chart: &chart.name, helm: self.version(), stage };
        if let Err(error) = self.install_with(&chart.path, release, &namespace, arguments).await {
            totals.skipped(place("webhooks before"), &format!("{error:#}"));
        } else {
            totals.installed();
            let scan = self.scan(release, &namespace, true).await?;
            totals.scan(place("webhooks before"), &scan, true);
        }
        self.remove(release, &namespace).await
    }

    /// Installs in the first way that works; answers with which arguments.
    async fn install(&self, chart: &Chart, release: &str, namespace: &str) -> Result<Vec<String>> {
        let mut first = None;
        for arguments in chart.attempts() {
            match self.install_with(&chart.path, release, namespace, &arguments).await {
                Ok(()) => return Ok(arguments),
                Err(error) => {
                    self.remove(release, namespace).await?;
                    first.get_or_insert(error);
                }
            }
        }
        Err(first.context("there is no way to install it")?)
    }

    async fn install_with(&self, chart: &Path, release: &str, namespace: &str, arguments: &[String]) -> Result<()> {
        let mut all = vec!["--timeout", HOOKS];
        all.extend(arguments.iter().map(String::as_str));
        self.helm.install(self.plane, release, namespace, chart, &all).await.map(drop)
    }

    async fn scan(&self, release: &str, namespace: &str, others_add: bool) -> Result<Scan> {
        self.scanner.scan(self.plane, namespace, release, others_add).await
    }

    async fn edit(&self, release: &str, namespace: &str, scan: &Scan) -> Result<Edits> {
        let (fleet, cluster, plane, helm) = (self.fleet, self.cluster, self.plane, self.helm);
        Guarded { fleet, cluster, plane, helm, namespace, release }.edit(self.seed, scan).await
    }

    /// Takes everything away that came with the chart.
    async fn remove(&self, release: &str, namespace: &str) -> Result<()> {
        // There may be no release, and hooks may fail without what they need: what is left goes below.
        self.helm.uninstall(self.plane, release, namespace, &["--wait", "--timeout", HOOKS]).await.ok();
        let now = objects(self.plane).await?;
        let left: Vec<&str> = now.difference(&self.own).map(String::as_str).collect();
        let (namespaces, others): (Vec<&str>, Vec<&str>) = left.into_iter().partition(|object| object.starts_with("namespace/"));
        for (objects, wait) in [(others, "--wait=true"), (namespaces, "--wait=false")] {
            if !objects.is_empty() {
                let arguments = [&["delete", "--ignore-not-found", "--timeout=60s", wait], objects.as_slice()].concat();
                self.plane.kubectl(&arguments).await?;
            }
        }
        Ok(())
    }

    fn version(&self) -> &'static str {
        match self.helm {
            Helm::V3 => "3",
            Helm::V4 => "4",
        }
    }
}

/// The cluster-scoped objects that charts leave behind, as kubectl names them.
async fn objects(plane: &ControlPlane) -> Result<BTreeSet<String>> {
    let list = plane.kubectl(&["get", LEFT_BEHIND, "-o", "name"]).await?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// Edits that could not be made count as one that was not restored.
fn failed(error: &anyhow::Error) -> Edits {
    Edits { edited: 1, details: vec![format!("{error:#}")], ..Edits::default() }
}
