//! An object that two releases declare is written by nobody, and both reports say so (D14).

use anyhow::ensure;
use holdfast_testkit::{Helm, Target, management::HUB_USER, release};
use serde_json::{Value, json};

use crate::{
    case::RELEASES,
    support::{World, finding, live, reason},
};

fn chart(value: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: ConfigMap
metadata: {{name: shared}}
data: {{k: "{value}", same: "1"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: agreed}}
data: {{k: same}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: shared}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: shared}}}}
  template:
    metadata: {{labels: {{app: shared}}}}
    spec: {{containers: [{{name: c, image: "img:{value}"}}]}}
---
apiVersion: v1
kind: Secret
metadata: {{name: shared}}
stringData: {{p: "{value}"}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: d14-shared}}
rules: [{{apiGroups: [""], resources: [pods], verbs: [get, "{value}"]}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: "{{{{ .Release.Name }}}}-own"}}
data: {{k: own}}
"#
    )
}

#[tokio::test]
async fn d14_two_releases_declare_one_object() {
    let mut world = World::new("d14").await;
    world.install_text(Helm::V3, "a", &chart("a"), &[]).await;
    world.install_text(Helm::V4, "b", &chart("b"), &["--take-ownership", "--force-conflicts"]).await;
    // A third release is made by hand, is not guarded by any policy, and still is somebody.
    world.workload.namespace("d14-elsewhere").await.unwrap();
    let claim = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a-claimed, namespace: d14}\ndata: {k: c}\n";
    let record = release::secret("c", "d14-elsewhere", 1, "deployed", claim, &json!({})).unwrap();
    world.workload.put_release(&record).await.unwrap();
    let extra = format!("{}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a-claimed}}\ndata: {{k: a}}\n", chart("a"));
    let upgraded = world.chart_of_text("a", &extra);
    Helm::V3.upgrade(world.workload, "a", &world.namespace, &upgraded, &["--take-ownership"]).await.unwrap();

    let mark = world.workload.audit_mark().await.unwrap();
    world.policy("Correct", json!({"releases": [{"namespace": "d14"}]})).await;
    world.start_hub(&[]);
    let shared =
        [("ConfigMap", "shared"), ("ConfigMap", "agreed"), ("Deployment", "shared"), ("Secret", "shared"), ("ClusterRole", "d14-shared")];
    let names_other = |status: &Value, kind: &str, name: &str, other: &str| {
        finding(status, kind, name).is_some_and(|found| {
            found["verdict"] == "Contested"
                && found["reason"] == "SelfConflict"
                && found["message"].as_str().is_some_and(|message| message.contains(other))
        })
    };
    for (release, other) in [("a", "d14/b"), ("b", "d14/a")] {
        world
            .wait_report(Some(release), "contested", |status| shared.iter().all(|(kind, name)| names_other(status, kind, name, other)))
            .await;
    }
    let report = world
        .wait_report(Some("a"), "contested with an unguarded release", |status| {
            names_other(status, "ConfigMap", "a-claimed", "d14-elsewhere/c")
        })
        .await;
    assert_eq!(reason(&report["status"], "InSync"), "Contested", "{report:#}");

    // Drift of the shared objects is nobody's, drift of the own ones is healed.
    let somebody = world.writer("kubectl-edit");
    let targets = [
        (Target::configmap("d14", "shared"), json!({"data": {"same": "9"}})),
        (Target::configmap("d14", "agreed"), json!({"data": {"k": "9"}})),
        (Target::deployment("d14", "shared"), json!({"spec": {"replicas": 9}})),
        (Target::secret("d14", "shared"), json!({"data": {"p": "OQ=="}})),
        (Target::clusterrole("d14-shared"), json!({"rules": []})),
        (Target::configmap("d14", "a-claimed"), json!({"data": {"k": "9"}})),
    ];
    for (target, patch) in &targets {
        somebody.merge_patch(target, patch).await.unwrap();
    }
    for own in ["a-own", "b-own"] {
        let own = Target::configmap("d14", own);
        somebody.merge_patch(&own, &json!({"data": {"k": "9"}})).await.unwrap();
        world
            .wait("the own object is corrected", async || {
                let value = live(&somebody, &own, "/data/k").await;
                ensure!(value == "own", "{value}");
                Ok(())
            })
            .await;
    }
    let audit = world.workload.audit_since(mark).await.unwrap().by_user(HUB_USER).writes();
    let of_shared = audit.filter(|call| targets.iter().any(|(target, _)| target.plural == call.resource && target.name == call.name));
    assert!(of_shared.is_empty(), "{of_shared}");
    assert_eq!(world.of_hub(&audit).len(), 2, "one for each own object\n{audit}");
    assert_eq!(live(&somebody, &Target::deployment("d14", "shared"), "/spec/replicas").await, 9);

    // The other claim ends: what was contested is the first one's alone.
    somebody.delete(&release::target("d14-elsewhere", "c", 1)).await.unwrap();
    let claimed = Target::configmap("d14", "a-claimed");
    world
        .wait("no longer contested", async || {
            let value = live(&somebody, &claimed, "/data/k").await;
            ensure!(value == "a", "{value}");
            Ok(())
        })
        .await;
}

#[tokio::test]
async fn d14_two_hubs_guard_one_cluster() {
    let mut first = World::new("d14-hubs").await;
    let mut second = World::new("d14-hubs-too").await;
    let document = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-NUMBER\"}\ndata: {k: own}\n";
    let chart: String = (0..4).map(|number| document.replace("NUMBER", &number.to_string())).collect();
    for (helm, release) in RELEASES {
        first.install_text(helm, release, &chart, &[]).await;
    }
    for world in [&mut first, &mut second] {
        world.policy("Correct", json!({"releases": [{"namespace": "d14-hubs"}]})).await;
        world.start_hub(&[]);
    }
    let somebody = first.writer("kubectl-edit");
    let maps: Vec<Target> = RELEASES
        .iter()
        .flat_map(|(_, release)| (0..4).map(move |number| Target::configmap("d14-hubs", &format!("{release}-{number}"))))
        .collect();
    for world in [&first, &second] {
        for (_, release) in RELEASES {
            world.wait_in_sync(release).await;
        }
    }
    let mark = first.workload.audit_mark().await.unwrap();
    for map in &maps {
        somebody.merge_patch(map, &json!({"data": {"k": "9"}})).await.unwrap();
    }
    for map in &maps {
        first
            .wait("one of the hubs corrects it", async || {
                let value = live(&somebody, map, "/data/k").await;
                ensure!(value == "own", "{value}");
                Ok(())
            })
            .await;
    }
    for world in [&first, &second] {
        for (_, release) in RELEASES {
            world.wait_in_sync(release).await;
        }
    }
    // They agree without knowing of each other: who comes second finds another version, and then nothing to do.
    let writes = first.of_hub(&first.workload.audit_since(mark).await.unwrap()).writes();
    assert_eq!(writes.filter(|call| call.code == Some(200)).len(), maps.len(), "{writes}");
    assert!(writes.len() <= 2 * maps.len(), "{writes}");
}
