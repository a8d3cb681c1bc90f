//! A cluster behind a fault proxy, with one release under guard.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use holdfast_testkit::{
    Fault, FaultProxy, FaultRule, Mark, Match, Target, Writer, eventually,
    management::{CapiVersion, HUB_USER},
};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, cluster_report, configmap, deployment, hub_writes, lines, metric},
    support::{World, condition, planes},
};

/// The collection that faults are about.
pub const CONFIGMAPS: &str = "/api/v1/configmaps";
/// Back-offs grow to a minute; whatever waits for one of them is over within two.
pub const AFTER_A_BACKOFF: Duration = Duration::from_mins(2);

/// One cluster `c` behind a proxy, guarded in `Correct`, in sync when the scene begins.
pub struct Scene {
    pub world: World,
    pub proxy: FaultProxy,
    pub edit: Writer,
    mark: Mark,
    open: Open,
    /// The condition `Reachable` when the scene began, with the time of its last change.
    connected: Value,
}

/// What a hub has open when nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Open {
    watches: u64,
    tasks: usize,
    exchanges: usize,
    connections: u64,
}

impl Scene {
    /// A release of two ConfigMaps and a Deployment, watched through the proxy.
    pub async fn start(namespace: &str) -> Self {
        Self::start_struck(namespace, |_| Vec::new()).await
    }

    /// The same with rules that are in force when the hub comes; they go when it has seen everything.
    pub async fn start_struck(namespace: &str, rules: impl Fn(&FaultProxy) -> Vec<FaultRule>) -> Self {
        let (workload, mgmt) = planes().await;
        let mut world = World::empty(workload, mgmt, namespace).await;
        let proxy = FaultProxy::start(workload).unwrap();
        let rules = rules(&proxy);
        add_cluster(&world, "c", &proxy).await;
        Release::new(&world, "web", Style::ClientSide)
            .install(&[
                configmap(namespace, "settings", "color", "blue"),
                configmap(namespace, "other", "color", "blue"),
                deployment(namespace, "web", 2),
            ])
            .await;
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        drop(rules);
        let mark = workload.audit_mark().await.unwrap();
        let edit = world.writer("kubectl-edit");
        let mut scene =
            Self { world, proxy, edit, mark, open: Open { watches: 0, tasks: 0, exchanges: 0, connections: 0 }, connected: Value::Null };
        scene.settle().await;
        scene
    }

    /// Waits until the hub has open what it needs, and remembers that.
    async fn settle(&mut self) {
        let kinds = |open: &Open| open.exchanges as u64 == open.watches;
        let settled = eventually("every watch is open", AFTER_A_BACKOFF, async || {
            let open = self.count().await?;
            ensure!(kinds(&open), "{open:?}");
            Ok(open)
        });
        self.open = settled.await.unwrap();
        let connected = eventually("the cluster is said to be connected", AFTER_A_BACKOFF, async || {
            let condition = self.reachable().await?;
            ensure!(condition["status"] == "True" && condition["reason"] == "Connected", "{condition}");
            Ok(condition)
        });
        self.connected = connected.await.unwrap();
    }

    async fn count(&self) -> Result<Open> {
        Ok(Open {
            watches: metric(&self.world, "holdfast_watches").await?,
            tasks: self.world.http("/debug/tasks").await.lines().count(),
            exchanges: self.proxy.open(&Match::any()),
            connections: self.proxy.connections(),
        })
    }

    pub fn settings(&self) -> Target {
        Target::configmap(&self.world.namespace, "settings")
    }

    pub fn web(&self) -> Target {
        Target::deployment(&self.world.namespace, "web")
    }

    /// Somebody edits the ConfigMap.
    pub async fn drift(&self) {
        self.edit.merge_patch(&self.settings(), &json!({"data": {"color": "red"}})).await.unwrap();
    }

    /// Waits until the edit was put back.
    pub async fn corrected(&self, what: &str) {
        self.wait_live(what, &self.settings(), "/data/color", &json!("blue")).await;
    }

    /// Somebody edits the Deployment, of whose kind nothing is disturbed, and the hub puts it back.
    pub async fn another_kind_is_corrected(&self, image: &str) {
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": image}]}}}});
        self.edit.strategic_patch(&self.web(), &patch).await.unwrap();
        self.wait_live("another kind", &self.web(), "/spec/template/spec/containers/0/image", &json!("registry.example/web:1.0")).await;
    }

    async fn wait_live(&self, what: &str, target: &Target, pointer: &str, wanted: &Value) {
        let found = eventually(what, AFTER_A_BACKOFF, async || {
            let object = self.edit.get(target).await?;
            let found = object.pointer(pointer);
            ensure!(found == Some(wanted), "{pointer} is {found:?}");
            Ok(())
        })
        .await;
        found.unwrap_or_else(|error| panic!("{}: {error:#}\n{}", self.world.namespace, self.world.log()));
    }

    /// Waits for a rule to have struck `hits` times.
    pub async fn struck(&self, rule: &FaultRule, hits: u64) {
        let struck = eventually("the fault strikes", AFTER_A_BACKOFF, async || {
            ensure!(rule.hits() >= hits, "{} times", rule.hits());
            Ok(())
        })
        .await;
        struck.unwrap_or_else(|error| panic!("{}: {error:#}\n{}", self.world.namespace, self.world.log()));
    }

    /// What the cluster's own report says of it being reachable.
    async fn reachable(&self) -> Result<Value> {
        let report = cluster_report(&self.world, "c").await?;
        let conditions = report["status"]["conditions"].as_array().context("no conditions")?;
        conditions.iter().find(|condition| condition["type"] == "Reachable").cloned().context("no such condition")
    }

    /// The cluster has been called reachable all the time: one watch is not the cluster.
    pub async fn was_always_reachable(&self) {
        assert_eq!(self.reachable().await.unwrap(), self.connected, "{}", self.world.namespace);
    }

    /// At the end: each drift was written back once and nothing else was, nothing is reported as missing, and nothing is left open that
    /// was not at the beginning.
    pub async fn ends(self, corrections: usize) {
        self.world
            .wait("the report is in sync again", async || {
                let report = self.world.report(Some("web")).await.unwrap_or_default();
                let status = &report["status"];
                ensure!(condition(status, "InSync") == "True" && condition(status, "Fresh") == "True", "{}", status["conditions"]);
                ensure!(status["summary"]["missing"].as_u64().unwrap_or_default() == 0, "{}", status["summary"]);
                ensure!(status["corrections"].as_array().map_or(0, Vec::len) == corrections, "{}", status["corrections"]);
                Ok(())
            })
            .await;
        let writes = hub_writes(self.world.workload, self.mark).await.in_namespace(&self.world.namespace);
        assert_eq!(writes.len(), corrections, "{:?}", lines(&writes));
        assert!(writes.iter().all(|write| write.verb == "patch" && write.code == Some(200)), "{:?}", lines(&writes));
        let kept = eventually("nothing is left open", AFTER_A_BACKOFF, async || {
            let now = self.count().await?;
            let Open { watches, tasks, exchanges, connections } = self.open;
            if now.watches != watches || now.tasks > tasks || now.exchanges != exchanges || now.connections > connections {
                bail!("{now:?} instead of {:?}", self.open);
            }
            Ok(())
        });
        let tasks = self.world.http("/debug/tasks").await;
        kept.await.unwrap_or_else(|error| panic!("{}: {error:#}\n{tasks}", self.world.namespace));
    }
}

/// Adds a cluster whose kubeconfig leads through a proxy.
pub async fn add_cluster(world: &World, name: &str, proxy: &FaultProxy) {
    let kubeconfig = proxy.kubeconfig(world.workload, HUB_USER, &["system:masters"]).unwrap();
    world.mgmt.capi_kubeconfig(&world.namespace, name, &kubeconfig).await.unwrap();
    world.mgmt.capi_cluster_object(&world.namespace, name, proxy.url(), CapiVersion::V1Beta2, true, &[]).await.unwrap();
}

/// Watches of the ConfigMaps.
pub fn watches() -> Match {
    of_objects(Match::watches(CONFIGMAPS))
}

/// Lists of the kind, in both forms.
pub fn lists() -> Match {
    of_objects(Match::lists(CONFIGMAPS))
}

/// Release records may be ConfigMaps too, and have a watch of their own.
pub fn of_objects(asked: Match) -> Match {
    asked.when(|asked| asked.query("labelSelector").is_some_and(|labels| labels.contains("managed-by")))
}

/// What a cluster does that compacted everything a watch stood on: the open watch ends by an ERROR event.
pub fn expires_open_watches(proxy: &FaultProxy) -> FaultRule {
    proxy.rule(watches().already_open(), Fault::expired_in_stream())
}
