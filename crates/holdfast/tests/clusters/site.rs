//! Planes beside the shared ones, releases on any of them, and reports by cluster.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, ensure};
use holdfast_testkit::{Audit, ControlPlane, Mark, Options, Target, Writer, eventually, management::CapiVersion};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    fixture::{Release, Style, configmap, lines, reports, wait_live},
    support::{SOON, World, condition},
};

static MORE: OnceCell<Vec<ControlPlane>> = OnceCell::const_new();

/// Another workload cluster, and one whose serving certificate may be changed by one test.
pub async fn more_planes() -> (&'static ControlPlane, &'static ControlPlane) {
    let planes =
        MORE.get_or_init(|| async { ControlPlane::start_many(vec![Options::named("other"), Options::named("tls")]).await.unwrap() }).await;
    (planes.first().unwrap(), planes.last().unwrap())
}

/// The release `web` with ConfigMaps `c0`, `c1`, … on a plane, and somebody who edits them, each at most once.
pub struct Site {
    pub plane: &'static ControlPlane,
    pub namespace: String,
    pub kubectl: Writer,
    next: AtomicU32,
    count: u32,
}

impl Site {
    /// Installs the release; everything says `blue`.
    pub async fn install(world: &World, plane: &'static ControlPlane, count: u32) -> Self {
        Self::install_saying(world, plane, count, "blue").await
    }

    /// The same with another color.
    pub async fn install_saying(world: &World, plane: &'static ControlPlane, count: u32, color: &str) -> Self {
        plane.namespace(&world.namespace).await.unwrap();
        let release = Release { plane, ..Release::new(world, "web", Style::ClientSide) };
        let objects: Vec<Value> = (0..count).map(|number| configmap(&world.namespace, &format!("c{number}"), "color", color)).collect();
        release.install(&objects).await;
        let kubectl = plane.writer("kubectl-edit").unwrap();
        Self { plane, namespace: world.namespace.clone(), kubectl, next: AtomicU32::new(0), count }
    }

    /// Edits the next object and says which.
    pub async fn drift(&self) -> Target {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        assert!(number < self.count, "no object is left to edit");
        let target = Target::configmap(&self.namespace, &format!("c{number}"));
        self.kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
        target
    }

    /// Waits until an object says a color.
    pub async fn wait_says(&self, world: &World, target: &Target, color: &str) {
        wait_live(world, &self.kubectl, target, "/data/color", &json!(color)).await;
    }

    /// Edits an object and waits until it was put back.
    pub async fn is_corrected(&self, world: &World) {
        let target = self.drift().await;
        self.wait_says(world, &target, "blue").await;
    }

    /// The calls since `mark` of users whose names begin so, that concern the hub's way of working at all.
    pub async fn calls(&self, mark: Mark, user: &str) -> Audit {
        self.plane.audit_since(mark).await.unwrap().filter(|call| call.user.starts_with(user))
    }
}

/// Lists that a write asks for right before it: the records of one release. All others are lists of a watch or an audit.
pub fn lists_of_watches(calls: &Audit) -> Audit {
    let of_fence = |uri: &str| uri.contains("labelSelector=") && uri.contains("name%3Dweb");
    calls.filter(|call| {
        let initial = call.verb == "watch" && call.uri.contains("sendInitialEvents=true");
        (call.verb == "list" && !of_fence(&call.uri)) || initial
    })
}

/// Fails with the calls if there are any.
pub fn assert_none(calls: &Audit, what: &str) {
    assert!(calls.is_empty(), "{what}: {:?}", lines(calls));
}

/// Adds a Cluster with this kubeconfig.
pub async fn add_cluster(world: &World, cluster: &str, plane: &ControlPlane, kubeconfig: &str) {
    world.mgmt.capi_kubeconfig(&world.namespace, cluster, kubeconfig).await.unwrap();
    world.mgmt.capi_cluster_object(&world.namespace, cluster, plane.url(), CapiVersion::V1Beta2, true, &[]).await.unwrap();
}

/// The Cluster object.
pub fn cluster_target(world: &World, cluster: &str) -> Target {
    CapiVersion::V1Beta2.target(&world.namespace, cluster)
}

/// The report of the release `web` on a cluster.
pub async fn web_report(world: &World, cluster: &str) -> anyhow::Result<Value> {
    let is_it = |report: &Value| {
        report["status"]["source"]["kind"] == "HelmRelease"
            && report["status"]["source"]["name"] == "web"
            && report["status"]["source"]["namespace"] == *world.namespace
            && report["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == cluster
    };
    reports(world).await?.into_iter().find(is_it).with_context(|| format!("no report about web on {cluster}"))
}

/// Waits until the report of `web` on a cluster satisfies `wanted`, and answers with it.
pub async fn wait_web(world: &World, cluster: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    world
        .wait(&format!("web on {cluster}: {what}"), async || {
            let report = web_report(world, cluster).await?;
            ensure!(wanted(&report["status"]), "{}", serde_json::to_string_pretty(&report["status"])?);
            Ok(())
        })
        .await;
    web_report(world, cluster).await.unwrap()
}

/// Waits until `web` on a cluster is in sync.
pub async fn wait_web_in_sync(world: &World, cluster: &str) -> Value {
    wait_web(world, cluster, "in sync", |status| condition(status, "InSync") == "True").await
}

/// Waits until a cluster has no report any more. Reports of a removed cluster are gone within a minute.
pub async fn wait_no_reports(world: &World, cluster: &str) {
    let gone = eventually("the reports go", SOON * 2, async || {
        let left = reports(world).await?;
        let left = left.iter().filter(|report| report["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == cluster).count();
        ensure!(left == 0, "{left} left");
        Ok(())
    });
    gone.await.unwrap_or_else(|error| panic!("{error:#}\n{}", world.log()));
}
