//! A cluster behind a fault proxy, kinds with definitions of their own, and what is asked about them.

use std::time::Duration;

use anyhow::{Context, ensure};
use holdfast_testkit::{
    FaultProxy, FaultRule, Target, Writer, eventually,
    management::{CapiVersion, HUB_USER},
};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, no_brakes},
    support::{World, condition, finding, planes, reason},
};

/// A world whose cluster `c` is reached through a proxy.
pub struct Site {
    pub world: World,
    pub proxy: FaultProxy,
    pub writer: Writer,
}

impl Site {
    /// Without a hub and without releases.
    pub async fn new(namespace: &str) -> Self {
        let (workload, mgmt) = planes().await;
        let world = World::empty(workload, mgmt, namespace).await;
        let proxy = FaultProxy::start(workload).unwrap();
        let kubeconfig = proxy.kubeconfig(workload, HUB_USER, &["system:masters"]).unwrap();
        mgmt.capi_kubeconfig(namespace, "c", &kubeconfig).await.unwrap();
        mgmt.capi_cluster_object(namespace, "c", proxy.url(), CapiVersion::V1Beta2, true, &[]).await.unwrap();
        let writer = world.writer("setup");
        Self { world, proxy, writer }
    }

    /// Guards everything in the world's namespace, and starts the hub while `rules` are in force.
    pub async fn guard(&mut self, trusted: bool, rules: Vec<FaultRule>) -> Vec<FaultRule> {
        let mut release = json!({"namespace": self.world.namespace});
        if trusted {
            release["trust"] = json!("ClusterScoped");
        }
        self.world.policy("Correct", json!({"releases": [release], "limit": no_brakes()})).await;
        self.world.start_hub(&[]);
        rules
    }

    pub fn namespace(&self) -> &str {
        &self.world.namespace
    }

    /// A release of these objects, of which only a ConfigMap was written: by that one, the hub learns how the release writes.
    pub async fn declare(&self, name: &str, style: Style, objects: &[Value]) -> Release {
        let release = Release::new(&self.world, name, style);
        let teacher = configmap(self.namespace(), &format!("{name}-teacher"), "at", "rest");
        release.write(&teacher).await;
        release.record(1, "deployed", &[objects, &[teacher]].concat()).await;
        release
    }

    /// Waits until the only thing said about an object is this verdict and reason; answers with the finding.
    pub async fn wait_finding(&self, release: &str, kind: &str, name: &str, verdict: &str, why: &str) -> Value {
        let what = format!("{kind} {name} is {verdict} {why}");
        let report = self
            .world
            .wait_report(Some(release), &what, |status| {
                finding(status, kind, name).is_some_and(|finding| finding["verdict"] == verdict && finding["reason"] == why)
            })
            .await;
        finding(&report["status"], kind, name).unwrap().clone()
    }

    /// Waits until a release's report is `Unknown` for this reason; nothing of it is called missing then.
    pub async fn wait_unknown(&self, release: &str, why: &str) -> Value {
        let report = self
            .world
            .wait_report(Some(release), why, |status| condition(status, "InSync") == "Unknown" && reason(status, "InSync") == why)
            .await;
        let missing = report["status"]["summary"]["missing"].as_u64().unwrap_or_default();
        assert_eq!(missing, 0, "{}", report["status"]["summary"]);
        report
    }

    /// Waits until an object is there and its value at a pointer as wanted.
    pub async fn wait_live(&self, target: &Target, pointer: &str, wanted: &Value) {
        let live = eventually("the object is as declared", AFTER_A_RETRY, async || {
            let object = self.writer.find(target).await?.context("it is missing")?;
            ensure!(object.pointer(pointer) == Some(wanted), "{pointer} is {:?}", object.pointer(pointer));
            Ok(())
        });
        live.await.unwrap_or_else(|error| panic!("{}: {error:#}\n{}", target.name, self.world.log()));
    }

    /// Waits until an object is gone.
    pub async fn wait_gone(&self, target: &Target) {
        self.world
            .wait("it is gone", async || {
                ensure!(self.writer.find(target).await?.is_none(), "{} is still there", target.name);
                Ok(())
            })
            .await;
    }

    /// Waits until a kind is served and its objects can be listed.
    pub async fn wait_served(&self, target: &Target) {
        self.world.wait("the kind is served", async || self.writer.find(target).await.map(|_| ())).await;
    }
}

/// A custom kind.
#[derive(Clone, Copy, Debug)]
pub struct Custom {
    pub group: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// Those that can be served; the last one is stored.
    pub versions: &'static [&'static str],
}

impl Custom {
    /// Its definition, which serves `served`.
    pub fn definition(&self, served: &[&str]) -> Value {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}});
        let version = |name: &&str| {
            let stored = Some(name) == self.versions.last();
            json!({"name": name, "served": served.contains(name), "storage": stored, "schema": schema})
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": self.crd().name},
            "spec": {
                "group": self.group, "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
                "names": {"kind": self.kind, "plural": self.plural, "singular": self.plural.trim_end_matches('s'), "listKind": format!("{}List", self.kind)},
                "versions": self.versions.iter().map(version).collect::<Vec<_>>(),
            },
        })
    }

    pub fn crd(&self) -> Target {
        Target::crd(&format!("{}.{}", self.plural, self.group))
    }

    /// Where one of its objects is.
    pub fn target(&self, version: &str, namespace: &str, name: &str) -> Target {
        if self.namespaced {
            Target::custom(self.group, version, self.plural, namespace, name)
        } else {
            Target::cluster_scoped(self.group, version, self.plural, name)
        }
    }

    /// One of its objects as a manifest declares it.
    pub fn object(&self, version: &str, namespace: &str, name: &str) -> Value {
        let mut object =
            json!({"apiVersion": format!("{}/{version}", self.group), "kind": self.kind, "metadata": {"name": name}, "spec": {"size": 1}});
        if self.namespaced {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object
    }
}

/// What was refused is tried again after 30 s.
const AFTER_A_RETRY: Duration = Duration::from_secs(90);
/// How long passes for what is asked about something absent to add up.
pub const A_WHILE: Duration = Duration::from_secs(5);
