//! One chart installed by both Helms, what somebody does to its objects, and what must come of it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use holdfast_testkit::{Audit, Helm, Mark, Target, Writer, management::HUB_USER};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};

use crate::support::{World, finding, live};

/// The releases of every case: each template names its objects after its release.
pub const RELEASES: [(Helm, &str); 2] = [(Helm::V3, "h3"), (Helm::V4, "h4")];

/// A healthy object of every release. That its drift is corrected shows that the hub is alive and has seen all that came before.
pub const BEACON: &str = r#"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-beacon"}
data: {light: "on"}
"#;

/// API versions and kinds whose objects a case compares.
const KINDS: [(&str, &str, &[&str]); 8] = [
    ("", "v1", &["Service", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim", "ResourceQuota", "LimitRange"]),
    ("apps", "v1", &["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"]),
    ("batch", "v1", &["Job", "CronJob"]),
    ("autoscaling", "v2", &["HorizontalPodAutoscaler"]),
    ("policy", "v1", &["PodDisruptionBudget"]),
    ("coordination.k8s.io", "v1", &["Lease"]),
    ("networking.k8s.io", "v1", &["NetworkPolicy"]),
    ("rbac.authorization.k8s.io", "v1", &["Role", "RoleBinding"]),
];

/// Uid, resource version and generation by kind and name.
type Versions = BTreeMap<String, (String, String, i64)>;

/// An object of one kind, by namespace and name.
pub type Place = fn(&str, &str) -> Target;

/// What somebody does to one object of each release.
pub struct Row {
    /// What it shows.
    pub what: &'static str,
    /// The object, by namespace and name.
    pub object: Place,
    /// Its kind.
    pub kind: &'static str,
    /// Its name without the release's.
    pub name: &'static str,
    /// Who.
    pub manager: &'static str,
    /// How.
    pub edit: Edit,
    /// The drift that must be found: nothing more, nothing less.
    pub paths: &'static [&'static str],
    /// Where the object must be as before, by JSON pointer: all of these values.
    pub restored: &'static [&'static str],
    /// Writes that correct it on a server-side release; on a client-side one it is always one.
    pub writes_v4: usize,
}

/// A way to write.
pub enum Edit {
    /// JSON merge patch.
    Merge(Value),
    /// JSON patch.
    Json(Value),
    /// JSON patch that depends on the release.
    For(fn(&str) -> Value),
    /// JSON merge patch of the scale.
    Scale(i64),
    /// Forced server-side apply; `apiVersion`, `kind` and `metadata` are added.
    Apply(Value),
}

/// A world with both releases installed and guarded in mode `Correct`.
pub struct Case {
    /// The world.
    pub world: World,
    /// Where the audit log stood when the hub was started.
    pub mark: Mark,
    beacons: i64,
}

impl Case {
    /// Installs the chart by both Helms, starts a hub and waits until both are in sync, without a write.
    pub async fn start(name: &str, chart: &str) -> Self {
        let case = Self::guard(Self::install(name, chart).await).await;
        for (_, release) in RELEASES {
            let report = case.world.wait_in_sync(release).await;
            assert_eq!(report["status"]["deviations"].as_array().map_or(0, Vec::len), 0, "only respelling may differ: {report:#}");
        }
        case
    }

    /// Only installs.
    pub async fn install(name: &str, chart: &str) -> World {
        let world = World::new(name).await;
        for (helm, release) in RELEASES {
            world.install_text(helm, release, &format!("{chart}{BEACON}"), &[]).await;
        }
        world
    }

    /// Only starts the hub.
    pub async fn guard(mut world: World) -> Self {
        let mark = world.workload.audit_mark().await.unwrap();
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        Self { world, mark, beacons: 0 }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.world.namespace
    }

    /// What the hub asked about the namespace since it was started.
    pub async fn calls(&self) -> Audit {
        self.world.of_hub(&self.world.workload.audit_since(self.mark).await.unwrap())
    }

    /// The writes of the hub to one object since it was started.
    pub async fn writes_to(&self, target: &Target) -> Audit {
        let audit = self.world.workload.audit_since(self.mark).await.unwrap().by_user(HUB_USER).writes();
        audit.filter(|call| {
            call.resource == target.plural && call.name == target.name && call.namespace == *target.namespace.as_deref().unwrap_or_default()
        })
    }

    /// Versions of every object of the releases, the beacons apart.
    pub async fn versions(&self) -> Versions {
        let client = self.world.workload.admin().unwrap();
        let ours = ListParams::default().labels("app.kubernetes.io/managed-by=Helm");
        let mut versions = Versions::new();
        for (group, version, kind) in KINDS.iter().flat_map(|(group, version, kinds)| kinds.iter().map(move |kind| (group, version, kind)))
        {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), self.namespace(), &resource);
            for object in objects.list(&ours).await.unwrap() {
                let metadata = object.metadata;
                let name = metadata.name.unwrap();
                if !name.ends_with("-beacon") {
                    versions.insert(
                        format!("{kind} {name}"),
                        (metadata.uid.unwrap(), metadata.resource_version.unwrap(), metadata.generation.unwrap_or_default()),
                    );
                }
            }
        }
        versions
    }

    /// Nothing moves, and the hub is alive: drift of the beacons is corrected, and no other object is touched meanwhile.
    pub async fn stays_quiet(&mut self) {
        let before = self.versions().await;
        assert!(!before.is_empty());
        self.beacons += 1;
        let somebody = self.world.writer("kubectl-edit");
        for (_, release) in RELEASES {
            let beacon = Target::configmap(self.namespace(), &format!("{release}-beacon"));
            somebody.merge_patch(&beacon, &json!({"data": {"light": format!("off {}", self.beacons)}})).await.unwrap();
        }
        for (_, release) in RELEASES {
            let beacon = Target::configmap(self.namespace(), &format!("{release}-beacon"));
            self.world
                .wait("the beacon is corrected", async || {
                    let light = live(&somebody, &beacon, "/data/light").await;
                    ensure!(light == "on", "{light}");
                    Ok(())
                })
                .await;
        }
        assert_eq!(self.versions().await, before, "an object moved although nothing happened to it\n{}", self.calls().await.writes());
    }

    /// Carries out the edits on both releases, and checks that each is found, named, corrected and leaves quiet behind.
    pub async fn corrects(&mut self, rows: &[Row]) {
        let (mut before, mut counts) = (BTreeMap::new(), BTreeMap::new());
        for (_, release) in RELEASES {
            let report = self.world.report(Some(release)).await.unwrap();
            for row in rows {
                counts.insert((row.kind, row.name, release), times(&report, row.kind, &row.full_name(release)));
            }
        }
        let writes_before = self.calls().await.writes().len();
        for (_, release) in RELEASES {
            for row in rows {
                let target = row.target(self.namespace(), release);
                let writer = self.world.writer(row.manager);
                before.insert((row.kind, row.name, release), writer.get(&target).await.unwrap());
                row.act(&writer, &target, release).await.unwrap_or_else(|error| panic!("{}: {error:#}", row.what));
            }
        }
        for (_, release) in RELEASES {
            for row in rows {
                let what = format!("{} ({release}): corrected", row.what);
                let name = row.full_name(release);
                let report = self
                    .world
                    .wait_report(Some(release), &what, |status| {
                        finding(status, row.kind, &name).is_some_and(|found| {
                            found["action"] == "Corrected" && found["count"].as_u64() > Some(counts[&(row.kind, row.name, release)])
                        })
                    })
                    .await;
                let found = finding(&report["status"], row.kind, &name).unwrap();
                row.check_paths(found);
            }
        }
        self.stays_quiet().await;
        let mut expected = RELEASES.len();
        for (helm, release) in RELEASES {
            for row in rows {
                let target = row.target(self.namespace(), release);
                let after = self.world.writer(row.manager).get(&target).await.unwrap();
                for pointer in row.restored {
                    let (was, is) = (before[&(row.kind, row.name, release)].pointer(pointer), after.pointer(pointer));
                    assert_eq!(is, was, "{} ({release}): {pointer}", row.what);
                }
                let writes = if helm == Helm::V3 { 1 } else { row.writes_v4 };
                let sent = self.writes_to(&target).await;
                assert_eq!(sent.len(), writes, "{} ({release}): writes\n{sent}", row.what);
                expected += writes;
            }
        }
        let writes = self.calls().await.writes();
        assert_eq!(writes.len() - writes_before, expected, "{writes}");
        for (_, release) in RELEASES {
            self.world.wait_in_sync(release).await;
        }
    }
}

/// How often the report has told about an object.
fn times(report: &Value, kind: &str, name: &str) -> u64 {
    finding(&report["status"], kind, name).and_then(|found| found["count"].as_u64()).unwrap_or_default()
}

impl Row {
    /// A row with the values most have.
    pub fn new(what: &'static str, object: Place, kind: &'static str, name: &'static str, edit: Edit) -> Self {
        Self { what, object, kind, name, manager: "kubectl-edit", edit, paths: &[], restored: &[], writes_v4: 1 }
    }

    /// The drift that must be found.
    pub fn drifts(self, paths: &'static [&'static str]) -> Self {
        Self { paths, ..self }
    }

    /// What must be as before.
    pub fn restores(self, restored: &'static [&'static str]) -> Self {
        Self { restored, ..self }
    }

    /// By whom.
    pub fn by(self, manager: &'static str) -> Self {
        Self { manager, ..self }
    }

    /// Restored by position on a server-side release, which takes a second write for the ownership.
    pub fn by_position(self) -> Self {
        Self { writes_v4: 2, ..self }
    }

    fn full_name(&self, release: &str) -> String {
        format!("{release}-{}", self.name)
    }

    fn target(&self, namespace: &str, release: &str) -> Target {
        (self.object)(namespace, &self.full_name(release))
    }

    async fn act(&self, writer: &Writer, target: &Target, release: &str) -> anyhow::Result<Value> {
        match &self.edit {
            Edit::Merge(patch) => writer.merge_patch(target, patch).await,
            Edit::Json(operations) => writer.json_patch(target, operations).await,
            Edit::For(operations) => writer.json_patch(target, &operations(release)).await,
            Edit::Scale(replicas) => writer.merge_patch(&target.scale(), &json!({"spec": {"replicas": replicas}})).await,
            Edit::Apply(fields) => {
                let mut object = fields.clone();
                object["apiVersion"] = json!(target.api_version());
                object["kind"] = json!(self.kind);
                object["metadata"]["name"] = json!(target.name);
                writer.apply(target, &object).await
            }
        }
    }

    fn check_paths(&self, found: &Value) {
        // What somebody added beside the declared fields is listed with it, and is no drift.
        let entries = || found["paths"].as_array().unwrap().iter().filter(|entry| entry["change"] != "Added");
        let paths: BTreeSet<&str> = entries().filter_map(|entry| entry["path"].as_str()).collect();
        assert_eq!(paths, self.paths.iter().copied().collect(), "{}: {found:#}", self.what);
        for entry in entries().filter(|entry| entry["change"] == "Changed") {
            assert_eq!(entry["actor"]["manager"], self.manager, "{}: {entry:#}", self.what);
        }
    }
}
