//! Every state that the two Helms leave a release in: what the user is told, and what is written.

use std::{cell::Cell, path::PathBuf};

use anyhow::ensure;
use holdfast_testkit::{Helm, Target, Writer, release};
use serde_json::{Value, json};

use crate::{
    fixture::{Marker, Release, Style, configmap, lines, wait_live, writes_to},
    support::{World, condition, finding, live, message, reason},
};

/// A ConfigMap with a color; a claim that nobody binds, to wait for; a Service that the server refuses, after all the rest is written.
const CHART: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}"}
data: {color: "{{ .Values.color }}", size: "1"}
{{- if .Values.claim }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: "{{ .Release.Name }}"}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
{{- end }}
{{- if .Values.broken }}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}"}
spec: {ports: [{port: 99999}]}
{{- end }}
"#;

/// One release on its way.
struct Life {
    world: World,
    helm: Helm,
    chart: PathBuf,
    target: Target,
    kubectl: Writer,
    markers: Vec<Marker>,
    drifts: Cell<u32>,
}

impl Life {
    async fn begin(helm: Helm, namespace: &str) -> Self {
        let mut world = World::new(namespace).await;
        let mut markers = Vec::new();
        for number in 0..3 {
            markers.push(Marker::named(&world, &format!("marker-{number}")).await);
        }
        let chart = world.chart_of_text("web", CHART);
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        let (target, kubectl) = (Target::configmap(namespace, "web"), world.writer("kubectl-edit"));
        Self { world, helm, chart, target, kubectl, markers, drifts: Cell::new(0) }
    }

    /// Runs a Helm command on the release. What somebody else wrote is overwritten, as Helm 3 does unasked.
    async fn run(&self, helm: Helm, command: &str, args: &[&str]) -> anyhow::Result<String> {
        let chart = self.chart.to_str().unwrap();
        let mut all = vec![command, "web", "--namespace", &self.world.namespace];
        if matches!(command, "install" | "upgrade") {
            all.push(chart);
        }
        if helm == Helm::V4 && command != "uninstall" && !args.contains(&"--server-side=false") {
            all.push("--force-conflicts");
        }
        helm.run(self.world.workload, &[&all, args].concat()).await
    }

    async fn helm(&self, command: &str, args: &[&str]) {
        self.run(self.helm, command, args).await.unwrap_or_else(|error| panic!("{command} {args:?}: {error:#}"));
    }

    async fn fails(&self, command: &str, args: &[&str]) {
        assert!(self.run(self.helm, command, args).await.is_err(), "{command} {args:?} succeeded");
    }

    /// Waits until the report tells this, about this revision where one is judged.
    async fn is_told(&self, truth: &str, word: &str, part: &str) -> Value {
        let what = format!("{truth} {word} {part}");
        let told = |status: &Value| {
            condition(status, "InSync") == truth && reason(status, "InSync") == word && message(status, "InSync").contains(part)
        };
        self.world.wait_report(Some("web"), &what, told).await["status"].clone()
    }

    async fn is_in_sync(&self, revision: u64) {
        let judged = |status: &Value| status["source"]["revision"] == revision && condition(status, "InSync") == "True";
        self.world.wait_report(Some("web"), &format!("in sync with revision {revision}"), judged).await;
    }

    /// Edits the color, never the same way twice.
    async fn drift(&self) -> String {
        self.drifts.set(self.drifts.get() + 1);
        let red = format!("red-{}", self.drifts.get());
        self.kubectl.merge_patch(&self.target, &json!({"data": {"color": red}})).await.unwrap();
        red
    }

    /// An edit goes back to the declared color, by one write.
    async fn corrects_to(&self, color: &str) {
        let mark = self.world.workload.audit_mark().await.unwrap();
        self.drift().await;
        wait_live(&self.world, &self.kubectl, &self.target, "/data/color", &json!(color)).await;
        let writes = writes_to(self.world.workload, mark, &self.target).await;
        assert_eq!(writes.len(), 1, "{:?}", lines(&writes));
    }

    /// An edit stays: nothing is written.
    async fn holds(&self) {
        let mark = self.world.workload.audit_mark().await.unwrap();
        let red = self.drift().await;
        self.passes().await;
        let writes = writes_to(self.world.workload, mark, &self.target).await;
        assert!(writes.is_empty(), "{:?}", lines(&writes));
        assert_eq!(live(&self.kubectl, &self.target, "/data/color").await, json!(red));
    }

    /// The hub has seen all that came before.
    async fn passes(&self) {
        self.markers[self.drifts.get() as usize % self.markers.len()].pass(&self.world).await;
    }

    async fn forget(&self, revision: u32) {
        self.world.writer("somebody").delete(&release::target(&self.world.namespace, "web", revision)).await.unwrap();
    }
}

#[tokio::test]
async fn a_helm_3_release_through_its_life() {
    let life = Life::begin(Helm::V3, "life3").await;
    upgrades_and_failures(&life, "--atomic").await;
    waits(&life).await;
    records_go(&life).await;
    uninstallation(&life).await;
    let upgrades: [(Helm, &[&str]); 3] = [(Helm::V4, &["--server-side=false"]), (Helm::V4, &["--server-side=true"]), (Helm::V3, &[])];
    other_helms(&life, &upgrades).await;
}

#[tokio::test]
async fn a_helm_4_release_through_its_life() {
    let life = Life::begin(Helm::V4, "life4").await;
    upgrades_and_failures(&life, "--rollback-on-failure").await;
    waits(&life).await;
    records_go(&life).await;
    uninstallation(&life).await;
    let upgrades: [(Helm, &[&str]); 3] = [(Helm::V3, &[]), (Helm::V4, &["--server-side=false"]), (Helm::V4, &["--server-side=true"])];
    other_helms(&life, &upgrades).await;
}

/// Revisions 1 to 6.
async fn upgrades_and_failures(life: &Life, atomic: &str) {
    life.helm("install", &["--set", "color=blue"]).await;
    life.is_in_sync(1).await;
    life.corrects_to("blue").await;

    life.helm("upgrade", &["--set", "color=green"]).await;
    life.is_in_sync(2).await;
    life.corrects_to("green").await;

    // The third revision wrote its ConfigMap and failed over the Service.
    let mark = life.world.workload.audit_mark().await.unwrap();
    life.fails("upgrade", &["--set", "color=pink,broken=true"]).await;
    let status = life.is_told("Unknown", "ReleaseFailed", "revision 3 failed").await;
    assert_eq!(live(&life.kubectl, &life.target, "/data/color").await, json!("pink"));
    life.world
        .wait_report(Some("web"), "against the last deployed revision", |status| {
            finding(status, "ConfigMap", "web").is_some_and(|finding| finding["verdict"] == "Drifted" && finding["action"] == "Reported")
        })
        .await;
    assert_eq!(status["source"]["revision"], 2);
    life.holds().await;
    let writes = writes_to(life.world.workload, mark, &life.target).await;
    assert!(writes.is_empty(), "{:?}", lines(&writes));
    // The policy may say which revision counts.
    life.world.policy("Correct", json!({"onFailedRelease": "LastDeployed"})).await;
    wait_live(&life.world, &life.kubectl, &life.target, "/data/color", &json!("green")).await;
    life.is_in_sync(2).await;
    life.corrects_to("green").await;
    life.world.policy("Correct", json!({})).await;
    life.is_told("Unknown", "ReleaseFailed", "revision 3 failed").await;

    life.helm("rollback", &["2"]).await;
    life.is_in_sync(4).await;
    life.corrects_to("green").await;

    // Fails and is rolled back by Helm itself.
    life.fails("upgrade", &["--set", "color=pink,broken=true", atomic]).await;
    life.is_in_sync(6).await;
    life.corrects_to("green").await;
}

/// Revision 7 waits for what does not come; 8 for what comes late.
async fn waits(life: &Life) {
    life.fails("upgrade", &["--set", "color=gold,claim=true", "--wait", "--timeout", "2s"]).await;
    life.is_told("Unknown", "ReleaseFailed", "revision 7 failed").await;

    let upgrade = life.helm("upgrade", &["--set", "color=gold,claim=true", "--wait", "--timeout", "100s"]);
    let claim = Target::custom("", "v1", "persistentvolumeclaims", &life.world.namespace, "web");
    let meanwhile = async {
        life.is_told("Unknown", "ReleasePending", "revision 8 is pending-upgrade").await;
        life.holds().await;
        life.kubectl.merge_patch(&claim.status(), &json!({"status": {"phase": "Bound"}})).await.unwrap();
    };
    tokio::join!(upgrade, meanwhile);
    // What was held back is done, by the new revision.
    wait_live(&life.world, &life.kubectl, &life.target, "/data/color", &json!("gold")).await;
    life.is_in_sync(8).await;
}

/// Records that Helm prunes, and that somebody deletes.
async fn records_go(life: &Life) {
    life.helm("upgrade", &["--set", "color=blue", "--history-max", "2"]).await;
    life.is_in_sync(9).await;
    life.corrects_to("blue").await;
    let history = life.helm.history(life.world.workload, "web", &life.world.namespace).await.unwrap();
    assert_eq!(history.as_array().unwrap().len(), 2, "the others were pruned: {history}");

    life.forget(9).await;
    life.is_told("Unknown", "RecordsVanished", "revision 9").await;
    life.holds().await;
    life.forget(8).await;
    life.is_told("Unknown", "RecordsVanished", "the release records are gone").await;
    life.holds().await;
    // Whoever installs it again takes over what is there.
    life.helm("install", &["--set", "color=green"]).await;
    life.is_in_sync(1).await;
    life.corrects_to("green").await;
}

async fn uninstallation(life: &Life) {
    let mark = life.world.workload.audit_mark().await.unwrap();
    life.helm("uninstall", &["--keep-history"]).await;
    life.is_told("Unknown", "ReleaseUninstalled", "revision 1 is uninstalled").await;
    life.passes().await;
    assert!(life.kubectl.find(&life.target).await.unwrap().is_none());
    life.helm("uninstall", &[]).await;
    life.world
        .wait("its report goes", async || {
            ensure!(life.world.report(Some("web")).await.is_none(), "it is there");
            Ok(())
        })
        .await;
    let writes = writes_to(life.world.workload, mark, &life.target).await.filter(|call| call.name == "web" || call.verb == "create");
    assert!(writes.is_empty(), "{:?}", lines(&writes));

    // Uninstalled and installed under the same name, at once.
    for color in ["blue", "green"] {
        life.helm("install", &["--set", &format!("color={color}")]).await;
        life.is_in_sync(1).await;
        life.corrects_to(color).await;
        if color == "blue" {
            life.helm("uninstall", &[]).await;
        }
    }
}

/// Later revisions by other Helms, and in other ways, than the first.
async fn other_helms(life: &Life, upgrades: &[(Helm, &[&str])]) {
    for (number, (helm, args)) in upgrades.iter().enumerate() {
        let color = format!("mixed-{number}");
        let set = format!("color={color}");
        life.run(*helm, "upgrade", &[&["--set", &set], *args].concat()).await.unwrap();
        life.is_in_sync(number as u64 + 2).await;
        life.corrects_to(&color).await;
        life.is_in_sync(number as u64 + 2).await;
    }
    // And none of it is in the first Helm's way.
    life.helm("upgrade", &["--set", "color=blue"]).await;
    life.is_in_sync(upgrades.len() as u64 + 2).await;
    life.corrects_to("blue").await;
}

/// A release, its records, what is told, and the revision that counts.
type Row<'a> = (&'a str, &'a [&'a str], &'a str, Option<u64>);

/// Histories that no Helm leaves, or only for a moment.
#[tokio::test]
async fn histories_made_by_hand() {
    let namespace = "histories";
    let mut world = World::new(namespace).await;
    let marker = Marker::install(&world).await;
    let rows: [Row<'_>; 9] = [
        ("superseded-only", &["superseded", "superseded"], "ReleasePending", None),
        ("unknown", &["deployed", "unknown"], "RecordInvalid", None),
        ("never-deployed", &["failed", "failed"], "ReleaseFailed", None),
        ("flipped", &["superseded", "pending-upgrade"], "ReleasePending", None),
        ("leftover", &["superseded", "pending-upgrade", "deployed"], "AsDeclared", Some(3)),
        ("failed-between", &["superseded", "failed", "deployed"], "AsDeclared", Some(3)),
        ("several", &["deployed", "deployed", "deployed"], "AsDeclared", Some(3)),
        ("several-and-pending", &["deployed", "deployed", "pending-rollback"], "ReleasePending", None),
        ("given-up", &["uninstalling", "deployed"], "AsDeclared", Some(2)),
    ];
    let objects = |name: &str| [configmap(namespace, name, "color", "blue")];
    for (name, statuses, _, _) in rows {
        let release = Release::new(&world, name, Style::ServerSide);
        release.write(&objects(name)[0]).await;
        for (revision, status) in (1..).zip(statuses) {
            release.record(revision, status, &objects(name)).await;
        }
    }
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    let mark = world.workload.audit_mark().await.unwrap();
    let kubectl = world.writer("kubectl-edit");
    for (name, _, word, revision) in rows {
        let report = world.wait_report(Some(name), word, |status| reason(status, "InSync") == word).await;
        assert_eq!(report["status"]["source"]["revision"].as_u64(), revision, "{name}: {report:#}");
        assert_eq!(reason(&report["status"], "Ready") == "SeveralDeployed", name == "several", "{name}: {report:#}");
        let target = Target::configmap(namespace, name);
        kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
        if revision.is_some() {
            wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;
        }
    }
    marker.pass(&world).await;
    for (name, _, _, revision) in rows {
        let writes = writes_to(world.workload, mark, &Target::configmap(namespace, name)).await.filter(|call| call.name == name);
        assert_eq!(writes.len(), usize::from(revision.is_some()), "{name}: {:?}", lines(&writes));
    }
}
