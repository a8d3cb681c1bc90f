//! Fields that cannot be changed: under `recreate: OnImmutable` the object is made anew, but never what holds data.

use anyhow::ensure;
use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, deployment, lines, wait_live, writes_to},
    support::{World, finding},
};

/// An object, and how somebody makes it anew with another value where nothing can be changed.
struct Row {
    kind: &'static str,
    target: Target,
    declared: Value,
    pointer: &'static str,
    other: Value,
}

fn immutable(namespace: &str, name: &str) -> Value {
    let mut object = configmap(namespace, name, "color", "blue");
    object["immutable"] = json!(true);
    object
}

fn role_binding(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "readers", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    })
}

fn claim(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn rows(namespace: &str) -> [Row; 3] {
    [
        Row {
            kind: "ConfigMap",
            target: Target::configmap(namespace, "fixed"),
            declared: immutable(namespace, "fixed"),
            pointer: "/data/color",
            other: json!("red"),
        },
        Row {
            kind: "RoleBinding",
            target: Target::role_binding(namespace, "readers"),
            declared: role_binding(namespace),
            pointer: "/roleRef/name",
            other: json!("edit"),
        },
        Row {
            kind: "Deployment",
            target: Target::deployment(namespace, "web"),
            declared: deployment(namespace, "web", 1),
            pointer: "/spec/selector/matchLabels/app",
            other: json!("other"),
        },
    ]
}

/// Somebody deletes the object and creates it otherwise, as the release's as before.
async fn remake(world: &World, release: &Release, row: &Row, further: &Value) {
    let somebody = world.writer("kubectl-create");
    let mut object = release.owned(&row.declared);
    *object.pointer_mut(row.pointer).unwrap() = row.other.clone();
    if row.kind == "Deployment" {
        object["spec"]["template"]["metadata"]["labels"]["app"] = row.other.clone();
    }
    if let Some(further) = further.as_object() {
        object["metadata"].as_object_mut().unwrap().extend(further.clone());
    }
    somebody.delete(&row.target).await.unwrap();
    // The hub may have been faster.
    if somebody.create(&row.target, &object).await.is_err() {
        somebody.delete(&row.target).await.unwrap();
        somebody.create(&row.target, &object).await.unwrap();
    }
}

/// Waits until whatever is created now is younger than what is there, by the server's clock, which counts seconds.
async fn wait_for_the_next_second(world: &World) {
    let (writer, probe) = (world.writer("clock"), Target::configmap(&world.namespace, "clock"));
    let created = async || -> anyhow::Result<Value> {
        let object = writer.create(&probe, &configmap(&world.namespace, "clock", "a", "b")).await?;
        writer.delete(&probe).await?;
        Ok(object["metadata"]["creationTimestamp"].clone())
    };
    let first = created().await.unwrap();
    world
        .wait("a second passes", async || {
            let now = created().await?;
            ensure!(now != first, "it is still {now}");
            Ok(())
        })
        .await;
}

fn is_refused(status: &Value, kind: &str) -> bool {
    finding(status, kind, name_of(kind)).is_some_and(|finding| finding["verdict"] == "Refused" && finding["reason"] == "Immutable")
}

fn name_of(kind: &str) -> &'static str {
    match kind {
        "ConfigMap" => "fixed",
        "RoleBinding" => "readers",
        "Deployment" => "web",
        _ => "data",
    }
}

#[tokio::test]
async fn what_cannot_be_changed_is_made_anew_only_where_the_policy_says_so() {
    for style in Style::BOTH {
        let namespace = format!("anew-{}", style.word());
        let mut world = World::new(&namespace).await;
        let release = Release::new(&world, "web", style);
        let rows = rows(&namespace);
        let objects: Vec<Value> = rows.iter().map(|row| row.declared.clone()).chain([configmap(&namespace, "plain", "a", "b")]).collect();
        release.install(&objects).await;
        // The hub stays away while somebody is at it.
        world.policy("Warn", json!({})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        wait_for_the_next_second(&world).await;
        for row in &rows {
            remake(&world, &release, row, &json!({})).await;
        }
        world.policy("Correct", json!({})).await;
        world.wait_report(Some("web"), "refused", |status| rows.iter().all(|row| is_refused(status, row.kind))).await;
        let mark = world.workload.audit_mark().await.unwrap();
        world.policy("Correct", json!({"recreate": "OnImmutable"})).await;
        let reader = world.writer("reader");
        for row in &rows {
            let declared = row.declared.pointer(row.pointer).unwrap();
            wait_live(&world, &reader, &row.target, row.pointer, declared).await;
        }
        let report = world.wait_in_sync("web").await;
        for row in &rows {
            let found = finding(&report["status"], row.kind, name_of(row.kind)).unwrap();
            assert_eq!((&found["action"], &found["reason"]), (&json!("Recreated"), &json!("Immutable")), "{found:#}");
            let writes = writes_to(world.workload, mark, &row.target).await;
            let verbs: Vec<&str> = writes.iter().map(|call| call.verb.as_str()).collect();
            let create = if style == Style::ClientSide { "create" } else { "patch" };
            assert_eq!(verbs, ["delete", create], "{:?}", lines(&writes));
        }
    }
}

#[tokio::test]
async fn what_holds_data_or_would_not_be_taken_stays() {
    let namespace = "not-anew";
    let mut world = World::new(namespace).await;
    let release = Release::new(&world, "web", Style::ClientSide);
    let data = Row {
        kind: "PersistentVolumeClaim",
        target: Target::custom("", "v1", "persistentvolumeclaims", namespace, "data"),
        declared: claim(namespace),
        pointer: "/spec/storageClassName",
        other: json!("slow"),
    };
    let [fixed, ..] = rows(namespace);
    release.install(&[data.declared.clone(), fixed.declared.clone()]).await;
    world.policy("Warn", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    wait_for_the_next_second(&world).await;
    // Nobody removes the protection of a claim here: no controller runs that would.
    let somebody = world.writer("kubectl-create");
    let unprotected = json!({"metadata": {"finalizers": null}});
    somebody.merge_patch(&data.target, &unprotected).await.unwrap();
    remake(&world, &release, &data, &json!({})).await;
    somebody.merge_patch(&data.target, &unprotected).await.unwrap();
    remake(&world, &release, &fixed, &json!({"finalizers": ["test.example/wait"]})).await;
    let mark = world.workload.audit_mark().await.unwrap();
    world.policy("Correct", json!({"recreate": "OnImmutable"})).await;
    let says = |status: &Value, kind: &str, why: &str| {
        let found = finding(status, kind, name_of(kind));
        is_refused(status, kind) && found.is_some_and(|found| found["message"].as_str().unwrap().contains(why))
    };
    let refused = |status: &Value| says(status, "PersistentVolumeClaim", "what it holds") && says(status, "ConfigMap", "finalizers");
    world.wait_report(Some("web"), "both are refused", refused).await;
    for row in [&data, &fixed] {
        let writes = writes_to(world.workload, mark, &row.target).await;
        assert!(writes.is_empty(), "{:?}", lines(&writes));
    }
    somebody.merge_patch(&fixed.target, &unprotected).await.unwrap();
    wait_live(&world, &somebody, &fixed.target, fixed.pointer, &json!("blue")).await;
}

/// The manifest asks for less than the policy; what stands on the cluster asks for nothing.
#[tokio::test]
async fn a_manifest_can_ask_for_less_and_the_cluster_cannot() {
    let namespace = "asks-for-less";
    let mut world = World::new(namespace).await;
    let release = Release::new(&world, "web", Style::ClientSide);
    let asking = |name: &str, mode: &str| {
        let mut object = configmap(namespace, name, "color", "blue");
        object["metadata"]["annotations"] = json!({"holdfast.dev/mode": mode});
        object
    };
    release
        .install(&[
            asking("off", "Off"),
            asking("warn", "Warn"),
            asking("correct", "Correct"),
            configmap(namespace, "silent", "color", "blue"),
        ])
        .await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let kubectl = world.writer("kubectl-edit");
    let off_there = json!({"metadata": {"annotations": {"holdfast.dev/mode": "Off"}}});
    kubectl.merge_patch(&Target::configmap(namespace, "silent"), &off_there).await.unwrap();
    for name in ["off", "warn", "correct", "silent"] {
        kubectl.merge_patch(&Target::configmap(namespace, name), &json!({"data": {"color": "red"}})).await.unwrap();
    }
    for name in ["correct", "silent"] {
        wait_live(&world, &kubectl, &Target::configmap(namespace, name), "/data/color", &json!("blue")).await;
    }
    let report = world
        .wait_report(Some("web"), "the one that only warns", |status| {
            finding(status, "ConfigMap", "warn").is_some_and(|finding| finding["action"] == "Reported" && finding["reason"] == "Suspended")
        })
        .await;
    assert_eq!(report["status"]["summary"]["objects"], 3, "{}", report["status"]["summary"]);
    world
        .wait("nobody touched the others", async || {
            for name in ["off", "warn"] {
                let color = kubectl.get(&Target::configmap(namespace, name)).await?["data"]["color"].take();
                ensure!(color == "red", "{name}: {color}");
            }
            Ok(())
        })
        .await;
}
