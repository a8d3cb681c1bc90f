//! Releases deployed by hand, and questions the tests share.

use anyhow::{Context, Result, bail, ensure};
use holdfast_fleet::clock::{Clock, SystemClock};
use holdfast_testkit::{Audit, ControlPlane, Mark, Target, Writer, management::HUB_USER, release};
use serde_json::{Value, json};

use super::{World, finding};

/// How a release writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `Update` entries, as Helm 3 leaves them.
    ClientSide,
    /// `Apply` entries, as Helm 4 leaves them.
    ServerSide,
}

impl Style {
    pub const BOTH: [Self; 2] = [Self::ClientSide, Self::ServerSide];

    /// Part of names of namespaces.
    pub fn word(self) -> &'static str {
        match self {
            Self::ClientSide => "csa",
            Self::ServerSide => "ssa",
        }
    }
}

/// A release that nobody installed by Helm.
pub struct Release {
    pub plane: &'static ControlPlane,
    pub namespace: String,
    pub name: String,
    pub manager: &'static str,
    pub style: Style,
}

impl Release {
    /// A release of the world's namespace that is written by `helm`.
    pub fn new(world: &World, name: &str, style: Style) -> Self {
        Self { plane: world.workload, namespace: world.namespace.clone(), name: name.to_owned(), manager: "helm", style }
    }

    /// The object as the release owns it.
    pub fn owned(&self, object: &Value) -> Value {
        let mut object = object.clone();
        object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("Helm");
        object["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!(self.name);
        object["metadata"]["annotations"]["meta.helm.sh/release-namespace"] = json!(self.namespace);
        object
    }

    /// Writes one object as the release would.
    pub async fn write(&self, object: &Value) {
        let text = self.owned(object).to_string();
        match self.style {
            Style::ClientSide => self.plane.create_yaml(self.manager, &text).await.unwrap(),
            Style::ServerSide => self.plane.apply_yaml(self.manager, &text).await.unwrap(),
        };
    }

    /// Writes the record of a revision.
    pub async fn record(&self, revision: u32, status: &str, objects: &[Value]) {
        let manifest = objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n");
        // Just now: a pending revision that began long ago is stuck.
        let mut extra = json!({"info": {"last_deployed": SystemClock.now()}});
        if self.style == Style::ServerSide {
            extra["apply_method"] = json!("ssa");
        }
        let secret = release::secret(&self.name, &self.namespace, revision, status, &manifest, &extra).unwrap();
        self.plane.put_release(&secret).await.unwrap();
    }

    /// Installs: the objects, then the record.
    pub async fn install(&self, objects: &[Value]) {
        for object in objects {
            self.write(object).await;
        }
        self.record(1, "deployed", objects).await;
    }

    /// Deletes the record of a revision.
    pub async fn forget(&self, revision: u32) {
        let target = release::target(&self.namespace, &self.name, revision);
        self.plane.writer("helm").unwrap().delete(&target).await.unwrap();
    }
}

/// A limit that no test comes near: many edits at once would be taken for a mistake in what is declared, or wait for their turn.
pub fn no_brakes() -> Value {
    json!({"correctionsPerMinute": 6000, "blastRadius": {"percent": 100, "minObjects": 1000}})
}

/// A ConfigMap with one key.
pub fn configmap(namespace: &str, name: &str, key: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {key: value}})
}

/// A Deployment with a number of replicas.
pub fn deployment(namespace: &str, name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "registry.example/web:1.0", "env": [{"name": "LEVEL", "value": "info"}]}]},
            },
        },
    })
}

/// The hub's writes, dry-runs left out, to one object since `mark`. A creation that failed carries no name: it counts for all of its
/// kind and namespace.
pub async fn writes_to(plane: &ControlPlane, mark: Mark, target: &Target) -> Audit {
    hub_writes(plane, mark).await.filter(|call| {
        call.resource == target.plural
            && call.group == target.group
            && call.namespace == target.namespace.as_deref().unwrap_or_default()
            && (call.name == target.name || call.name.is_empty())
    })
}

/// The hub's writes, dry-runs left out, since `mark`.
pub async fn hub_writes(plane: &ControlPlane, mark: Mark) -> Audit {
    plane.audit_since(mark).await.unwrap().by_user(HUB_USER).writes()
}

/// Writes one line per call, for assertions that print.
pub fn lines(audit: &Audit) -> Vec<String> {
    audit.iter().map(|call| format!("{} {} {:?}", call.verb, call.uri, call.code)).collect()
}

/// Waits until the value at a pointer of an object is `wanted`.
pub async fn wait_live(world: &World, writer: &Writer, target: &Target, pointer: &str, wanted: &Value) {
    let what = format!("{} {pointer} is {wanted}", target.name);
    world
        .wait(&what, async || {
            let object = writer.find(target).await?.context("the object is missing")?;
            let found = object.pointer(pointer).cloned().unwrap_or_default();
            ensure!(found == *wanted, "it is {found}");
            Ok(())
        })
        .await;
}

/// A ConfigMap under guard that proves that the hub went past everything that happened before: an edit of it goes back.
pub struct Marker {
    target: Target,
    edits: std::cell::Cell<u32>,
}

impl Marker {
    /// Installs the release `marker`.
    pub async fn install(world: &World) -> Self {
        Self::named(world, "marker").await
    }

    /// Installs such a release under another name.
    pub async fn named(world: &World, name: &str) -> Self {
        let release = Release::new(world, name, Style::ClientSide);
        release.install(&[configmap(&world.namespace, name, "at", "rest")]).await;
        Self { target: Target::configmap(&world.namespace, name), edits: std::cell::Cell::new(0) }
    }

    /// Edits the marker and waits until the hub put it back. Never the same value twice, and never often enough to be contested.
    pub async fn pass(&self, world: &World) {
        let edits = self.edits.get() + 1;
        assert!(edits < 10, "the marker would be contested");
        self.edits.set(edits);
        let writer = world.writer("marker");
        writer.merge_patch(&self.target, &json!({"data": {"at": format!("edit {edits}")}})).await.unwrap();
        wait_live(world, &writer, &self.target, "/data/at", &json!("rest")).await;
    }
}

/// All reports of a world's management namespace.
pub async fn reports(world: &World) -> Result<Vec<Value>> {
    let list = world.mgmt.kubectl(&["get", "driftreports", "-n", &world.namespace, "-o", "json"]).await?;
    let list: Value = serde_json::from_str(&list)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// The report about a cluster itself.
pub async fn cluster_report(world: &World, cluster: &str) -> Result<Value> {
    let of_cluster = |report: &Value| {
        report["status"]["source"]["kind"] == "Cluster" && report["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == cluster
    };
    reports(world).await?.into_iter().find(of_cluster).with_context(|| format!("no report about {cluster}"))
}

/// Waits until the report about a cluster satisfies `wanted`.
pub async fn wait_cluster(world: &World, cluster: &str, what: &str, wanted: impl Fn(&Value) -> bool) {
    world
        .wait(&format!("{cluster}: {what}"), async || {
            let report = cluster_report(world, cluster).await?;
            if !wanted(&report["status"]) {
                bail!("{}", report["status"]["conditions"]);
            }
            Ok(())
        })
        .await;
}

/// Events of a reason in a world's management namespace.
pub async fn events(world: &World, reason: &str) -> Result<Vec<Value>> {
    let list = world.mgmt.kubectl(&["get", "events.events.k8s.io", "-n", &world.namespace, "-o", "json"]).await?;
    let list: Value = serde_json::from_str(&list)?;
    Ok(list["items"].as_array().into_iter().flatten().filter(|event| event["reason"] == reason).cloned().collect())
}

/// Waits for an Event of a reason whose note contains a text.
pub async fn wait_event(world: &World, reason: &str, note: &str) {
    world
        .wait(&format!("an Event {reason} about {note}"), async || {
            let found = events(world, reason).await?;
            ensure!(found.iter().any(|event| event["note"].as_str().is_some_and(|text| text.contains(note))), "{found:?}");
            Ok(())
        })
        .await;
}

/// The value of a sample of `/metrics`, given with its labels as it is printed.
pub async fn metric(world: &World, sample: &str) -> Result<u64> {
    let page = world.metrics().await;
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ').map(str::to_owned));
    line.with_context(|| format!("no sample {sample}"))?.trim().parse().context("a number")
}

/// Whether two releases are said to declare the ConfigMap `shared`, `other` being one of them.
pub fn is_conflict(status: &Value, other: &str) -> bool {
    finding(status, "ConfigMap", "shared").is_some_and(|finding| {
        finding["verdict"] == "Contested"
            && finding["reason"] == "SelfConflict"
            && finding["message"].as_str().is_some_and(|message| message.contains(other))
    })
}
