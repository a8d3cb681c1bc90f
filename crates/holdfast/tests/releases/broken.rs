//! Records that are not what Helm writes (D17): each is named on its own release, and everything else goes on.

use std::fmt::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use holdfast_testkit::{Target, management::CapiVersion, release};
use serde_json::{Value, json};

use crate::{
    fixture::{Marker, Release, Style, configmap, deployment, events, lines, wait_live, writes_to},
    support::{World, condition, finding, message, reason},
};

/// Stands in every record; must never be seen again.
const CANARY: &str = "canary-7f3a";

/// More than the hub takes for a whole test with every broken record; the bomb alone would take three times as much.
const MEMORY_MIB: u64 = 256;

/// The record of revision 1 with a body that is merged over a valid one.
fn with_body(world: &World, name: &str, body: &Value) -> Value {
    release::secret(name, &world.namespace, 1, "deployed", &manifest(world, name), body).unwrap()
}

/// The record of revision 1 with these bytes as Helm's encoded record.
fn of_bytes(world: &World, name: &str, bytes: &[u8]) -> Value {
    release::secret_of_bytes(name, &world.namespace, 1, "deployed", bytes)
}

fn manifest(world: &World, name: &str) -> String {
    let mut object = configmap(&world.namespace, name, "color", "blue");
    object["metadata"]["annotations"] = json!({"note": CANARY});
    object.to_string()
}

/// What Helm would store, before base64.
fn gzipped(world: &World, name: &str) -> Vec<u8> {
    let record = json!({"name": name, "namespace": world.namespace, "version": 1, "info": {"status": "deployed"}, "config": {"password": CANARY},
        "manifest": manifest(world, name)});
    release::gzip(&serde_json::to_vec(&record).unwrap()).unwrap()
}

/// Records that cannot be used, with a part of what is said about each.
fn broken(world: &World) -> Vec<(&'static str, Value, &'static str)> {
    let base64 = |bytes: &[u8]| BASE64_STANDARD.encode(bytes).into_bytes();
    let truncated = |name| {
        let whole = gzipped(world, name);
        base64(&whole[..whole.len() / 2])
    };
    let damaged = |name| {
        let mut bytes = gzipped(world, name);
        let middle = bytes.len() / 2;
        bytes[middle..middle + 8].fill(0xff);
        base64(&bytes)
    };
    let text = |text: &str| base64(&release::gzip(text.as_bytes()).unwrap());
    let mut no_key = of_bytes(world, "no-key", b"");
    no_key["data"] = json!({"other": BASE64_STANDARD.encode(CANARY)});
    let mut label = with_body(world, "label-version", &json!({}));
    label["metadata"]["labels"]["version"] = json!("x");
    let mut status_label = with_body(world, "label-status", &json!({}));
    status_label["metadata"]["labels"]["status"] = json!(CANARY);
    let padded = [gzipped(world, "trailing"), CANARY.as_bytes().to_vec()].concat();
    vec![
        ("once", of_bytes(world, "once", &gzipped(world, "once")), "not base64"),
        ("truncated", of_bytes(world, "truncated", &truncated("truncated")), "truncated"),
        ("damaged", of_bytes(world, "damaged", &damaged("damaged")), "damaged"),
        ("trailing", of_bytes(world, "trailing", &base64(&padded)), "after its end"),
        ("bad-json", of_bytes(world, "bad-json", &text(&format!("{{\"name\": {CANARY}}}"))), "not the JSON"),
        ("no-manifest", with_body(world, "no-manifest", &json!({"manifest": null})), "no manifest"),
        ("bomb", of_bytes(world, "bomb", &base64(&release::bomb(725).unwrap())), "too large"),
        ("no-key", no_key, "no data"),
        ("empty", of_bytes(world, "empty", b""), "no data"),
        ("label-version", label, "label `version`"),
        ("label-status", status_label, "label `status`"),
        ("other-name", with_body(world, "other-name", &json!({"name": CANARY})), "different releases"),
        ("other-namespace", with_body(world, "other-namespace", &json!({"namespace": CANARY})), "different releases"),
        ("other-revision", with_body(world, "other-revision", &json!({"version": 7})), "different releases"),
        ("other-status", with_body(world, "other-status", &json!({"info": {"status": "superseded"}})), "disagree about the status"),
        ("odd-status", with_body(world, "odd-status", &json!({"info": {"status": CANARY}})), "status is not one of Helm's"),
        ("no-name", with_body(world, "no-name", &json!({"name": null})), "which release it is"),
    ]
}

#[tokio::test]
async fn d17_a_broken_record_is_named_and_hinders_no_other_release() {
    let namespace = "d17";
    let mut world = World::new(namespace).await;
    let marker = Marker::install(&world).await;
    let kubectl = world.writer("kubectl-edit");
    for (name, record, _) in &broken(&world) {
        Release::new(&world, name, Style::ClientSide).write(&configmap(namespace, name, "color", "blue")).await;
        world.workload.put_release(record).await.unwrap();
    }
    // Those that can be judged all the same.
    let usable = ["ok", "uncompressed", "two-deployed", "long-history"];
    for name in usable {
        let release = Release::new(&world, name, Style::ClientSide);
        let (old, new) = ([configmap(namespace, name, "color", "green")], [configmap(namespace, name, "color", "blue")]);
        release.write(&new[0]).await;
        match name {
            "uncompressed" => {
                let record = json!({"name": name, "namespace": namespace, "version": 1, "info": {"status": "deployed"}, "manifest": new[0].to_string()});
                let plain = BASE64_STANDARD.encode(record.to_string()).into_bytes();
                world.workload.put_release(&of_bytes(&world, name, &plain)).await.unwrap();
            }
            "two-deployed" => {
                release.record(1, "deployed", &old).await;
                release.record(2, "deployed", &new).await;
            }
            "long-history" => {
                for revision in 1..60 {
                    release.record(revision, "superseded", &old).await;
                }
                release.record(60, "deployed", &new).await;
            }
            _ => release.record(1, "deployed", &new).await,
        }
    }
    world.policy("Correct", json!({})).await;
    let mark = world.workload.audit_mark().await.unwrap();
    world.start_hub(&["--log", "trace"]);

    for (name, _, told) in &broken(&world) {
        world
            .wait_report(Some(name), told, |status| {
                condition(status, "InSync") == "Unknown"
                    && reason(status, "InSync") == "RecordInvalid"
                    && message(status, "InSync").contains(told)
            })
            .await;
        kubectl.merge_patch(&Target::configmap(namespace, name), &json!({"data": {"color": "red"}})).await.unwrap();
    }
    for name in usable {
        let report = world.wait_in_sync(name).await;
        let warned = reason(&report["status"], "Ready") == "SeveralDeployed";
        assert_eq!(warned, name == "two-deployed", "{report:#}");
        let target = Target::configmap(namespace, name);
        kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
        wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;
    }
    marker.pass(&world).await;
    for (name, _, _) in &broken(&world) {
        let writes = writes_to(world.workload, mark, &Target::configmap(namespace, name)).await.filter(|call| call.name == *name);
        assert!(writes.is_empty(), "{name}: {:?}", lines(&writes));
    }
    let memory = world.hub_peak_memory();
    assert!(memory < MEMORY_MIB, "the hub took {memory} MiB");
    assert_canary_is_silent(&world).await;

    // One is mended in place and goes on like the others.
    for (name, _, _) in broken(&world).iter().filter(|(name, ..)| ["damaged", "label-version", "bomb"].contains(name)) {
        Release::new(&world, name, Style::ClientSide).record(1, "deployed", &[configmap(namespace, name, "color", "blue")]).await;
        wait_live(&world, &kubectl, &Target::configmap(namespace, name), "/data/color", &json!("blue")).await;
        world.wait_in_sync(name).await;
    }
}

/// Nothing of any record is in what the hub says.
async fn assert_canary_is_silent(world: &World) {
    let reports = world.mgmt.kubectl(&["get", "driftreports", "--namespace", &world.namespace, "--output", "json"]).await.unwrap();
    let events = format!("{:?}", events(world, "DriftCorrected").await.unwrap());
    let all_events =
        world.mgmt.kubectl(&["get", "events.events.k8s.io", "--namespace", &world.namespace, "--output", "json"]).await.unwrap();
    let (log, metrics) = (world.log(), world.metrics().await);
    assert!(log.contains("a release record cannot be used") && reports.contains("RecordInvalid") && events.contains("two-deployed"));
    let encoded = BASE64_STANDARD.encode(CANARY);
    for (where_from, text) in [("reports", &reports), ("Events", &all_events), ("the log", &log), ("metrics", &metrics)] {
        let found = text.lines().find(|line| line.contains(CANARY) || line.contains(&encoded));
        assert!(found.is_none(), "{where_from} tell of a record: {found:?}");
    }
}

/// Manifests with something in them that cannot be judged: the rest of the release can.
#[tokio::test]
async fn what_cannot_be_judged_of_a_manifest_is_named_and_the_rest_is_judged() {
    let namespace = "odd-manifests";
    let mut world = World::new(namespace).await;
    // Each level repeats the one below ten times.
    let mut laughs = format!("a: &a [{CANARY}]\n");
    for (below, level) in "abcdefghi".chars().zip("bcdefghij".chars()) {
        let repeated = vec![format!("*{below}"); 10].join(",");
        writeln!(laughs, "{level}: &{level} [{repeated}]").unwrap();
    }
    let unnamed = format!("apiVersion: v1\nkind: ConfigMap\ndata: {{k: {CANARY}}}\n");
    let rows: Vec<(&str, String, &str, &str)> = vec![
        ("unclosed", format!("{CANARY}: [b\n"), "ManifestInvalid", "document 2"),
        ("tabs", format!("data:\n\t{CANARY}: b\n"), "ManifestInvalid", "document 2"),
        ("scalar", CANARY.to_owned(), "ManifestInvalid", "not an object"),
        ("unnamed", unnamed, "ManifestInvalid", "no usable name"),
        ("bad-kind", format!("apiVersion: v1\nkind: \"{CANARY} \"\nmetadata: {{name: x}}\n"), "ManifestInvalid", "no usable kind"),
        ("bad-list", "apiVersion: v1\nkind: List\nitems: none\n".to_owned(), "ManifestInvalid", "no list"),
        ("generated", "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: x-}\n".to_owned(), "ManifestInvalid", "a generated name"),
        ("laughs", laughs, "ManifestInvalid", "document 2"),
        ("documents", "# nothing\n---\n".repeat(60_000), "ManifestInvalid", "document 50001"),
        ("no-kind", "apiVersion: none.example/v1\nkind: Gizmo\nmetadata: {name: gizmo}\n".to_owned(), "KindNotServed", "does not serve"),
        ("no-version", "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: old}\n".to_owned(), "KindNotServed", "does not serve"),
    ];
    for (name, odd, _, _) in &rows {
        let good = configmap(namespace, name, "color", "blue");
        Release::new(&world, name, Style::ClientSide).write(&good).await;
        let record = release::secret(name, namespace, 1, "deployed", &format!("{good}\n---\n{odd}"), &json!({})).unwrap();
        world.workload.put_release(&record).await.unwrap();
    }
    world.policy("Correct", json!({})).await;
    let mark = world.workload.audit_mark().await.unwrap();
    world.start_hub(&["--log", "trace"]);
    let kubectl = world.writer("kubectl-edit");
    for (name, _, word, told) in &rows {
        let target = Target::configmap(namespace, name);
        let report = world
            .wait_report(Some(name), "the good one is judged", |status| {
                status["summary"]["inSync"] == 1 && status["summary"]["unknown"] == 1 && condition(status, "InSync") == "Unknown"
            })
            .await;
        let found = report["status"]["findings"].as_array().unwrap().iter().find(|finding| finding["verdict"] == "Unknown").unwrap();
        assert_eq!(found["reason"], *word, "{name}: {found:#}");
        assert!(found["message"].as_str().unwrap().contains(told), "{name}: {found:#}");
        kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
        wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;
        world
            .wait_report(Some(name), "told", |status| {
                finding(status, "ConfigMap", name).is_some_and(|found| found["action"] == "Corrected")
            })
            .await;
    }
    let writes = world.of_hub(&world.workload.audit_since(mark).await.unwrap()).writes();
    assert_eq!(writes.len(), rows.len(), "one for each good object\n{writes}");
    let (log, reports) = (world.log(), world.mgmt.kubectl(&["get", "driftreports", "-n", namespace, "-o", "json"]).await.unwrap());
    assert!(!log.contains(CANARY) && !reports.contains(CANARY), "the manifest's text got out");
}

/// Kinds that these credentials do not reach.
#[tokio::test]
async fn what_the_hub_may_not_touch_is_named_and_the_rest_is_corrected() {
    let namespace = "forbidden-kinds";
    let (workload, mgmt) = crate::support::planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    let user = "limited-hub";
    let rights = format!(
        "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: {user}}},
          rules: [{{apiGroups: ['', autoscaling, apiextensions.k8s.io], resources: ['*'], verbs: ['*']}}]}}
---
{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {{name: {user}}},
  roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {user}}}, subjects: [{{kind: User, name: {user}, apiGroup: rbac.authorization.k8s.io}}]}}"
    );
    workload.apply_yaml("platform", &rights).await.unwrap();
    mgmt.capi_kubeconfig(namespace, "c", &workload.kubeconfig(user, &[]).unwrap()).await.unwrap();
    mgmt.capi_cluster_object(namespace, "c", workload.url(), CapiVersion::V1Beta2, true, &[]).await.unwrap();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"holderIdentity": "web"}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "web", "namespace": namespace},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let objects = [lease, role, deployment(namespace, "web", 1), configmap(namespace, "web", "color", "blue")];
    for style in Style::BOTH {
        let mut named = objects.clone();
        for object in &mut named {
            object["metadata"]["name"] = json!(style.word());
        }
        Release::new(&world, style.word(), style).install(&named).await;
    }
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    let kubectl = world.writer("kubectl-edit");
    for style in Style::BOTH {
        let name = style.word();
        world
            .wait_report(Some(name), "forbidden", |status| {
                let is_forbidden =
                    |kind| finding(status, kind, name).is_some_and(|found| found["verdict"] == "Unknown" && found["reason"] == "Forbidden");
                ["Lease", "Role", "Deployment"].into_iter().all(is_forbidden)
                    && status["summary"]["inSync"] == 1
                    && condition(status, "InSync") == "Unknown"
                    && reason(status, "InSync") == "Forbidden"
            })
            .await;
        let target = Target::configmap(namespace, name);
        kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
        wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;
    }
}
