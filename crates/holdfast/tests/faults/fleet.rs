//! Many clusters behind one API server: each has a proxy, a namespace and an identity of its own.

use anyhow::{Context, Result, ensure};
use holdfast_testkit::{
    Fault, FaultProxy, FaultRule, Link, Match, Reply, Target, Writer, eventually,
    management::{CapiVersion, HUB_USER},
};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, cluster_report, configmap},
    scene::AFTER_A_BACKOFF,
    support::{World, condition, reason},
};

/// Where the identity of a cluster is read.
const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";

/// How a cluster fails as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    Not,
    Way(Link),
    Throttles,
    Errs,
}

/// One cluster and the release `web` of its own namespace.
pub struct Member {
    pub name: String,
    pub proxy: FaultProxy,
    namespace: String,
    edit: Writer,
    poses: Option<FaultRule>,
    struck: Option<FaultRule>,
}

impl Member {
    /// A cluster that is guarded in `Correct`. The server's objects are shared, so that each member may write in its namespace only.
    pub async fn add(world: &World, name: &str) -> Self {
        let namespace = format!("{}-{name}", world.namespace);
        world.workload.namespace(&namespace).await.unwrap();
        let proxy = FaultProxy::start(world.workload).unwrap();
        let release = Release { namespace: namespace.clone(), ..Release::new(world, "web", Style::ClientSide) };
        release.install(&[configmap(&namespace, "settings", "color", "blue")]).await;
        let spec = json!({
            "clusterSelector": {"matchLabels": {"member": name}}, "releases": [{"namespace": namespace}], "mode": "Correct", "interval": "10m",
        });
        let policy = json!({
            "apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": name, "namespace": world.namespace}, "spec": spec,
        });
        world.mgmt.apply_yaml("platform", &policy.to_string()).await.unwrap();
        let mut member = Self { name: name.to_owned(), proxy, namespace, edit: world.writer("kubectl-edit"), poses: None, struck: None };
        member.pose();
        let kubeconfig = member.proxy.kubeconfig(world.workload, HUB_USER, &["system:masters"]).unwrap();
        world.mgmt.capi_kubeconfig(&world.namespace, name, &kubeconfig).await.unwrap();
        let (url, labels) = (member.proxy.url(), [("member", name)]);
        world.mgmt.capi_cluster_object(&world.namespace, name, url, CapiVersion::V1Beta2, true, &labels).await.unwrap();
        member
    }

    /// To whoever asks through the proxy this is a cluster of its own.
    fn pose(&mut self) {
        self.poses = Some(self.proxy.pose_as(&format!("uid-of-{}", self.name)));
    }

    /// Begins to fail, or ends it.
    pub fn fail(&mut self, how: Failing) {
        self.struck = None;
        self.poses = None;
        match how {
            Failing::Not => self.proxy.set_link(Link::Open),
            Failing::Way(link) => self.proxy.set_link(link),
            Failing::Throttles => {
                let reply = Reply::text(429, "Too many requests, please try again later.").retry_after(1);
                self.struck = Some(self.proxy.rule(Match::any(), Fault::Answer(reply)));
                self.proxy.reset();
            }
            Failing::Errs => {
                self.struck = Some(self.proxy.rule(Match::any(), Fault::Answer(Reply::text(503, "upstream connect error"))));
                self.proxy.reset();
            }
        }
        // Behind whatever strikes all requests.
        self.pose();
    }

    fn settings(&self) -> Target {
        Target::configmap(&self.namespace, "settings")
    }

    /// Somebody edits the ConfigMap.
    pub async fn drift(&self, color: &str) {
        self.edit.merge_patch(&self.settings(), &json!({"data": {"color": color}})).await.unwrap();
    }

    /// Waits until the edit was put back.
    pub async fn corrected(&self, world: &World) {
        let found = eventually("it is corrected", AFTER_A_BACKOFF, async || {
            let object = self.edit.get(&self.settings()).await?;
            ensure!(object["data"]["color"] == "blue", "{}", object["data"]);
            Ok(())
        });
        found.await.unwrap_or_else(|error| panic!("{}: {error:#}\n{}", self.name, world.log()));
    }

    /// Waits until the report of the cluster, and that of its release, say how it stands.
    pub async fn says(&self, world: &World, what: &str, wanted: impl Fn(&Value) -> bool) {
        let said = eventually(what, AFTER_A_BACKOFF, async || {
            let report = cluster_report(world, &self.name).await?;
            ensure!(wanted(&report["status"]), "{}", report["status"]["conditions"]);
            let release = self.release_report(world).await?;
            let (cluster, release) = (condition(&report["status"], "Reachable"), condition(&release["status"], "Reachable"));
            ensure!(cluster == release, "the release says {release}");
            Ok(())
        });
        said.await.unwrap_or_else(|error| panic!("{}: {error:#}\n{}", self.name, world.log()));
    }

    pub async fn release_report(&self, world: &World) -> Result<Value> {
        let of_release = |report: &Value| {
            report["status"]["source"]["kind"] == "HelmRelease"
                && report["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == self.name.as_str()
        };
        crate::fixture::reports(world).await?.into_iter().find(of_release).context("no report of the release")
    }

    pub async fn is_well(&self, world: &World) {
        self.says(world, "reachable", |status| condition(status, "Reachable") == "True" && condition(status, "Fresh") == "True").await;
        let in_sync = eventually("in sync", AFTER_A_BACKOFF, async || {
            let report = self.release_report(world).await?;
            ensure!(condition(&report["status"], "InSync") == "True", "{}", report["status"]["conditions"]);
            Ok(())
        });
        in_sync.await.unwrap_or_else(|error| panic!("{}: {error:#}\n{}", self.name, world.log()));
    }

    pub async fn is_down(&self, world: &World, reasons: &[&str]) {
        self.says(world, "unreachable", |status| {
            condition(status, "Reachable") == "False"
                && reasons.contains(&reason(status, "Reachable"))
                && reason(status, "InSync") == "ClusterUnreachable"
                && condition(status, "Fresh") == "False"
        })
        .await;
        let report = self.release_report(world).await.unwrap();
        assert_eq!(condition(&report["status"], "InSync"), "Unknown", "{}: an old green", self.name);
    }

    /// Requests for the cluster's identity: what an open breaker asks.
    pub fn questions() -> Match {
        Match::path(KUBE_SYSTEM)
    }
}
