//! A release and its twin: the same chart under the same name in a namespace that no policy guards.

use std::collections::BTreeMap;

use anyhow::Result;
use holdfast_testkit::{Helm, programs};
use serde_json::Value;
use tokio::sync::RwLock;

use super::{
    World,
    alike::{comparable, same},
    drifts::{Drift, target},
};

/// Values of the first revision: all that the second one drops or changes.
const FIRST: &[&str] = &["--set", "extraEnv.EXTRA=on,extraLabels.team=red,extraConfigMap=true,service.type=NodePort"];
/// Values of the second revision: every value changes, and what the first added is gone.
const SECOND: &[&str] = &["--set", "image.tag=2.0,replicas=3,password=n3w,service.port=8080,service.type=NodePort,widget.size=4"];

/// Kinds of the chart.
const KINDS: &str = "configmaps,deployments,rolebindings,roles,secrets,serviceaccounts,services,widgets.test.example";

/// Held for writing while Helm writes records, for reading while calls are counted.
pub static HELM_AT_WORK: RwLock<()> = RwLock::const_new(());

/// The release `web` in the world's namespace and in the twin's.
pub struct Twins {
    helm: Helm,
    twin: String,
}

impl Twins {
    /// Installs both.
    pub async fn install(world: &World, helm: Helm) -> Self {
        let _at_work = HELM_AT_WORK.write().await;
        let twin = format!("{}-twin", world.namespace);
        world.install(helm, "web", "mini10", FIRST).await;
        helm.install(world.workload, "web", &twin, &programs::chart("mini10").unwrap(), FIRST).await.unwrap();
        Self { helm, twin }
    }

    /// The guarded object of a drift is what the twin's is, to the last managed field.
    pub async fn assert_equal(&self, world: &World, drift: &Drift) {
        self.same(world, drift).await.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Whether it is.
    pub async fn same(&self, world: &World, drift: &Drift) -> Result<()> {
        let reader = world.writer("reader");
        let ours = reader.get(&target(drift.kind, &world.namespace, drift.object)).await?;
        let theirs = reader.get(&target(drift.kind, &self.twin, drift.object)).await?;
        same(drift.editor, &comparable(ours, &world.namespace, self.helm), &comparable(theirs, &self.twin, self.helm))
    }

    /// Every object of the release is what the twin's is.
    pub async fn assert_all_equal(&self, world: &World, when: &str) {
        let (ours, theirs) = (self.objects(world, &world.namespace).await, self.objects(world, &self.twin).await);
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{when}");
        for (name, ours) in &ours {
            same(&format!("{when}: {name}"), ours, &theirs[name]).unwrap_or_else(|error| panic!("{error:#}"));
        }
    }

    /// Helm has not been used since revision `revision`.
    pub async fn assert_revision(&self, world: &World, revision: usize) {
        let history = self.helm.history(world.workload, "web", &world.namespace).await.unwrap();
        assert_eq!(history.as_array().map(Vec::len), Some(revision), "{history}");
    }

    /// `helm upgrade` and `helm rollback` end as they do on the twin, and nothing of that is drift.
    pub async fn upgrade_and_roll_back(&self, world: &World) {
        let _at_work = HELM_AT_WORK.write().await;
        let chart = programs::chart("mini10").unwrap();
        let mark = world.workload.audit_mark().await.unwrap();
        for namespace in [&world.namespace, &self.twin] {
            self.helm.upgrade(world.workload, "web", namespace, &chart, SECOND).await.unwrap();
        }
        self.assert_all_equal(world, "upgraded").await;
        self.wait_in_sync(world, 2).await;
        for namespace in [&world.namespace, &self.twin] {
            self.helm.rollback(world.workload, "web", namespace, 1).await.unwrap();
        }
        self.assert_all_equal(world, "rolled back").await;
        self.wait_in_sync(world, 3).await;
        let writes = world.of_hub(&world.workload.audit_since(mark).await.unwrap()).writes();
        assert!(writes.is_empty(), "the hub wrote although only Helm did:\n{writes}");
        self.assert_all_equal(world, "at the end").await;
    }

    /// The guarded objects, to the last version.
    pub async fn state(&self, world: &World) -> String {
        let objects = ["get", KINDS, "--namespace", &world.namespace, "--output", "json", "--show-managed-fields"];
        world.workload.kubectl(&objects).await.unwrap()
    }

    async fn wait_in_sync(&self, world: &World, revision: u64) {
        world
            .wait_report(Some("web"), "in sync after Helm", |status| {
                status["source"]["revision"] == revision && super::condition(status, "InSync") == "True"
            })
            .await;
    }

    async fn objects(&self, world: &World, namespace: &str) -> BTreeMap<String, Value> {
        let args = ["get", KINDS, "--namespace", namespace, "--output", "json", "--show-managed-fields"];
        let list: Value = serde_json::from_str(&world.workload.kubectl(&args).await.unwrap()).unwrap();
        let objects = list["items"].as_array().unwrap().iter().filter(|object| object["type"] != "helm.sh/release.v1");
        objects
            .map(|object| {
                let name = format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
                (name, comparable(object.clone(), namespace, self.helm))
            })
            .collect()
    }
}
