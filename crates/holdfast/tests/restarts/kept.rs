//! What a new hub knows of the old one.

use anyhow::ensure;
use holdfast_testkit::{Helm, Target};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, deployment, hub_writes, lines, wait_live},
    secrets::wait_kept,
    support::{World, condition, finding, live},
};

const CHART: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "img:1", resources: {requests: {cpu: 1000m}}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {minReplicas: 2, maxReplicas: 6, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fixed}
data: {color: blue}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: hunter2}
"#;

/// Every object of every release is judged, whatever the verdict.
async fn wait_judged(world: &World, objects: u64) {
    world
        .wait("every object is judged", async || {
            let page = world.try_metrics().await?;
            let counts =
                page.lines().filter_map(|line| line.strip_prefix("holdfast_objects{verdict=")?.rsplit(' ').next()?.parse::<u64>().ok());
            let judged: u64 = counts.sum();
            ensure!(judged == objects, "{judged} of {objects}");
            Ok(())
        })
        .await;
}

/// Drift that stays, under a policy that only reports and under one that cannot write: neither is asked about again.
#[tokio::test]
async fn what_was_found_stands_over_a_restart() {
    for (name, helm, mode) in [("stands-warn", Helm::V3, "Warn"), ("stands-correct", Helm::V4, "Correct")] {
        let mut world = World::new(name).await;
        world.install_text(helm, "web", CHART, &[]).await;
        world.policy(mode, json!({})).await;
        let editor = world.writer("kubectl-edit");
        // Yielded, and refused or reported.
        editor.merge_patch(&Target::deployment(name, "web").scale(), &json!({"spec": {"replicas": 4}})).await.unwrap();
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        // An immutable one refuses to be put back.
        editor.merge_patch(&Target::configmap(name, "fixed"), &json!({"data": {"color": "red"}, "immutable": true})).await.unwrap();
        if mode == "Warn" {
            editor.merge_patch(&Target::configmap(name, "settings"), &json!({"data": {"color": "red"}})).await.unwrap();
            editor.merge_patch(&Target::secret(name, "login"), &json!({"data": {"password": "b3RoZXI="}})).await.unwrap();
        }
        let (verdict, bad) = if mode == "Warn" { ("Drifted", 3) } else { ("Refused", 1) };
        let found = world
            .wait_report(Some("web"), verdict, |status| {
                status["findings"].as_array().is_some_and(|all| all.iter().filter(|finding| finding["verdict"] == verdict).count() == bad)
            })
            .await;
        wait_kept(&world).await;
        world.kill_hub();
        let mark = world.workload.audit_mark().await.unwrap();
        world.start_hub(&[]);
        wait_judged(&world, 5).await;
        // Drift made now is found, so the new hub is at work; and it counts on what it was told.
        if mode == "Warn" {
            editor.merge_patch(&Target::configmap(name, "settings"), &json!({"data": {"color": "green"}})).await.unwrap();
            let changed = |status: &Value| {
                finding(status, "ConfigMap", "settings")
                    .is_some_and(|finding| finding["paths"][0]["live"] == "green" && finding["count"] == 2)
            };
            world.wait_report(Some("web"), "the next edit", changed).await;
        } else {
            editor.merge_patch(&Target::configmap(name, "settings"), &json!({"data": {"color": "red"}})).await.unwrap();
            wait_live(&world, &editor, &Target::configmap(name, "settings"), "/data/color", &json!("blue")).await;
        }
        let calls = world.of_hub(&world.workload.audit_since(mark).await.unwrap());
        assert!(calls.writes().iter().all(|call| call.name == "settings"), "{mode}: {}", calls.writes());
        assert!(calls.dry_runs().iter().all(|call| call.name == "settings"), "{mode}: {}", calls.dry_runs());
        let after = world.report(Some("web")).await.unwrap();
        for (kind, object) in [("ConfigMap", "fixed"), ("Secret", "login")] {
            assert_eq!(finding(&after["status"], kind, object), finding(&found["status"], kind, object), "{mode}");
        }
        assert_eq!(after["status"]["deviations"], found["status"]["deviations"]);
    }
}

/// Rules that changed while no hub was running are in force at once.
#[tokio::test]
async fn what_was_found_does_not_outlive_the_rules() {
    let name = "stands-not";
    let mut world = World::new(name).await;
    world.install_text(Helm::V4, "web", CHART, &[]).await;
    world.policy("Warn", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let editor = world.writer("kubectl-edit");
    let settings = Target::configmap(name, "settings");
    editor.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
    world.wait_report(Some("web"), "drift", |status| status["summary"]["drifted"] == 1).await;
    wait_kept(&world).await;
    world.kill_hub();
    world.policy("Warn", json!({"ignore": [{"target": {"kind": "ConfigMap"}, "paths": ["/data/color"]}]})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    wait_kept(&world).await;
    world.kill_hub();
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    wait_live(&world, &editor, &settings, "/data/color", &json!("blue")).await;
    world.wait_in_sync("web").await;
}

/// Drift made while no hub was running is found and put back; also where only the old hub could know whose the object is.
#[tokio::test]
async fn drift_that_nobody_saw_is_found_afterwards() {
    for style in Style::BOTH {
        let name = &format!("unseen-{}", style.word());
        let mut world = World::new(name).await;
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader", "namespace": name}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
        let release = Release::new(&world, "web", style);
        release
            .install(&[
                deployment(name, "web", 2),
                configmap(name, "settings", "color", "blue"),
                configmap(name, "lost", "color", "blue"),
                role,
            ])
            .await;
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        wait_kept(&world).await;
        world.kill_hub();
        let editor = world.writer("kubectl-edit");
        let of_role = Target::custom("rbac.authorization.k8s.io", "v1", "roles", name, "reader");
        let (web, settings, lost) = (Target::deployment(name, "web"), Target::configmap(name, "settings"), Target::configmap(name, "lost"));
        editor.merge_patch(&web, &json!({"spec": {"replicas": 7}})).await.unwrap();
        editor.delete(&lost).await.unwrap();
        editor.delete(&of_role).await.unwrap();
        // Without its annotation an object is nobody's, except to those who saw it.
        let strip = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": null, "meta.helm.sh/release-namespace": null}}, "data": {"color": "red"}});
        editor.merge_patch(&settings, &strip).await.unwrap();
        let mark = world.workload.audit_mark().await.unwrap();
        world.start_hub(&[]);
        wait_live(&world, &editor, &web, "/spec/replicas", &json!(2)).await;
        wait_live(&world, &editor, &lost, "/data/color", &json!("blue")).await;
        wait_live(&world, &editor, &settings, "/data/color", &json!("blue")).await;
        wait_live(&world, &editor, &settings, "/metadata/annotations/meta.helm.sh~1release-name", &json!("web")).await;
        world.wait("the Role is back", async || editor.find(&of_role).await?.map(|_| ()).ok_or_else(|| anyhow::anyhow!("gone"))).await;
        world.wait_in_sync("web").await;
        let writes = hub_writes(world.workload, mark).await.in_namespace(name);
        assert_eq!(writes.len(), 4, "{:?}", lines(&writes));
    }
}

/// A fight does not begin anew with every restart.
#[tokio::test]
async fn a_contest_goes_on_after_a_restart() {
    let name = "fight-on";
    let mut world = World::new(name).await;
    Release::new(&world, "web", Style::ServerSide)
        .install(&[deployment(name, "web", 2), configmap(name, "settings", "color", "blue")])
        .await;
    world.policy("Correct", json!({})).await;
    let (target, rival) = (Target::deployment(name, "web"), world.writer("rival-operator"));
    let mark = world.workload.audit_mark().await.unwrap();
    // One correction each by three hubs.
    for _ in 0..3 {
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        rival.merge_patch(&target, &json!({"spec": {"replicas": 20}})).await.unwrap();
        wait_live(&world, &rival, &target, "/spec/replicas", &json!(2)).await;
        wait_kept(&world).await;
        world.kill_hub();
    }
    rival.merge_patch(&target, &json!({"spec": {"replicas": 20}})).await.unwrap();
    for _ in 0..2 {
        world.start_hub(&[]);
        let contested = |status: &Value| finding(status, "Deployment", "web").is_some_and(|finding| finding["verdict"] == "Contested");
        let report = world.wait_report(Some("web"), "contested", contested).await;
        assert_eq!(condition(&report["status"], "InSync"), "False");
        // The hub is at work.
        let settings = Target::configmap(name, "settings");
        rival.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
        wait_live(&world, &rival, &settings, "/data/color", &json!("blue")).await;
        assert_eq!(live(&rival, &target, "/spec/replicas").await, json!(20));
        wait_kept(&world).await;
        world.kill_hub();
    }
    let writes = hub_writes(world.workload, mark).await.in_namespace(name).of_resource("deployments");
    assert_eq!(writes.len(), 3, "{:?}", lines(&writes));
}
