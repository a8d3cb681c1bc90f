//! A policy is in force as a whole or only keeps others from writing, and what it says may change while the hub runs.

use anyhow::{Context, Result, ensure};
use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, hub_writes, lines, wait_live},
    support::{World, condition, finding, live, reason},
};

fn policy(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut full = json!({"clusterSelector": {}, "releases": [{"namespace": namespace}]});
    full.as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap());
    json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": name, "namespace": namespace}, "spec": full})
}

fn target(namespace: &str, name: &str) -> Target {
    Target::custom("holdfast.dev", "v1alpha1", "driftpolicies", namespace, name)
}

#[tokio::test]
async fn nonsense_is_refused_by_the_api_server() {
    let namespace = "refused-policies";
    let world = World::new(namespace).await;
    let rows = [
        ("mode", json!({"mode": "Fight"}), "spec.mode"),
        ("interval", json!({"interval": "29s"}), "interval"),
        ("interval-word", json!({"interval": "often"}), "interval"),
        ("no-selector", json!({"clusterSelector": null}), "clusterSelector"),
        ("empty-rule", json!({"ignore": [{"reason": "just because"}]}), "paths"),
        ("rounds", json!({"contest": {"rounds": 1}}), "rounds"),
        ("trust", json!({"releases": [{"trust": "Everything"}]}), "trust"),
        ("operator", json!({"clusterSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}), "operator"),
        ("until", json!({"ignore": [{"paths": ["/spec"], "until": "tomorrow"}]}), "until"),
        ("empty-name", json!({"releases": [{"name": ""}]}), "name"),
    ];
    let platform = world.mgmt.writer("platform").unwrap();
    for (name, spec, word) in rows {
        let error = platform.apply(&target(namespace, name), &policy(namespace, name, &spec)).await.expect_err(name);
        let text = format!("{error:#}");
        assert!(text.contains(word), "{name}: {text}");
    }
    platform.apply(&target(namespace, "fine"), &policy(namespace, "fine", &json!({"interval": "30s"}))).await.unwrap();
}

/// Waits until a policy's condition says what is wanted about its present generation.
async fn wait_accepted(world: &World, name: &str, status: &str, because: &str) {
    let platform = world.mgmt.writer("platform").unwrap();
    world
        .wait(&format!("policy {name} is accepted: {status}"), async || {
            let policy = platform.get(&target(&world.namespace, name)).await?;
            let condition = policy["status"]["conditions"].as_array().and_then(|all| all.first()).context("no condition")?;
            ensure!(
                condition["type"] == "Accepted"
                    && condition["status"] == status
                    && condition["reason"] == because
                    && policy["status"]["observedGeneration"] == policy["metadata"]["generation"],
                "{}",
                policy["status"]
            );
            Ok(())
        })
        .await;
}

#[tokio::test]
async fn nothing_is_corrected_while_a_policy_that_selects_it_is_invalid() {
    let namespace = "half-policies";
    let mut world = World::new(namespace).await;
    Release::new(&world, "web", Style::ClientSide).install(&[configmap(namespace, "settings", "color", "blue")]).await;
    let rows = [
        ("exclusive", json!({"exclusive": [{"paths": ["spec"]}]}), "Invalid"),
        ("path", json!({"ignore": [{"paths": ["spec/replicas"]}]}), "Invalid"),
        ("window", json!({"contest": {"rounds": 3, "window": "48h"}}), "Invalid"),
        ("selector", json!({"clusterSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": []}]}}), "Invalid"),
    ];
    let platform = world.mgmt.writer("platform").unwrap();
    for (name, spec, _) in &rows {
        let mut spec = spec.clone();
        spec["mode"] = json!("Correct");
        spec["priority"] = json!(100);
        platform.apply(&target(namespace, name), &policy(namespace, name, &spec)).await.unwrap();
    }
    // One that is fine but weaker may not take over what they select.
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    for (name, _, word) in &rows {
        wait_accepted(&world, name, "False", word).await;
    }
    wait_accepted(&world, "p", "True", "Accepted").await;
    world.wait_in_sync("web").await;
    let kubectl = world.writer("kubectl-edit");
    let settings = Target::configmap(namespace, "settings");
    let mark = world.workload.audit_mark().await.unwrap();
    let nothing_written = async || {
        let writes = hub_writes(world.workload, mark).await.in_namespace(namespace);
        assert!(writes.is_empty(), "{:?}", lines(&writes));
    };
    kubectl.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
    world.wait_report(Some("web"), "drifted", |status| status["summary"]["drifted"] == 1).await;
    nothing_written().await;

    // As long as one of them is left, whichever it is; the last one has an unreadable selector.
    for (name, _, _) in &rows[..rows.len() - 1] {
        platform.delete(&target(namespace, name)).await.unwrap();
    }
    kubectl.merge_patch(&settings, &json!({"data": {"color": "green"}})).await.unwrap();
    world
        .wait_report(Some("web"), "reported", |status| {
            finding(status, "ConfigMap", "settings")
                .is_some_and(|finding| finding["action"] == "Reported" && finding["paths"].to_string().contains("green"))
        })
        .await;
    nothing_written().await;

    // Repaired, it is in force, and wins.
    let repaired = json!({"spec": {"clusterSelector": {"matchExpressions": null}}});
    platform.merge_patch(&target(namespace, "selector"), &repaired).await.unwrap();
    wait_accepted(&world, "selector", "True", "Accepted").await;
    wait_live(&world, &kubectl, &settings, "/data/color", &json!("blue")).await;
    world.wait_in_sync("web").await;
    // Spoilt again, it reports, and nobody writes.
    platform.merge_patch(&target(namespace, "selector"), &json!({"spec": {"contest": {"rounds": 3, "window": "48h"}}})).await.unwrap();
    wait_accepted(&world, "selector", "False", "Invalid").await;
    let mark = world.workload.audit_mark().await.unwrap();
    kubectl.merge_patch(&settings, &json!({"data": {"color": "green"}})).await.unwrap();
    world
        .wait_report(Some("web"), "drifted", |status| {
            finding(status, "ConfigMap", "settings").is_some_and(|finding| finding["verdict"] == "Drifted")
        })
        .await;
    let writes = hub_writes(world.workload, mark).await.in_namespace(namespace);
    assert!(writes.is_empty(), "{:?}", lines(&writes));
    // Deleted, it leaves the release to the other one.
    platform.delete(&target(namespace, "selector")).await.unwrap();
    wait_live(&world, &kubectl, &settings, "/data/color", &json!("blue")).await;
}

#[tokio::test]
async fn modes_and_suspension_change_while_the_hub_runs() {
    let namespace = "modes";
    let mut world = World::new(namespace).await;
    Release::new(&world, "web", Style::ServerSide).install(&[configmap(namespace, "settings", "color", "blue")]).await;
    world.policy("Off", json!({})).await;
    world.start_hub(&[]);
    wait_accepted(&world, "p", "True", "Accepted").await;
    assert!(world.report(Some("web")).await.is_none());
    let kubectl = world.writer("kubectl-edit");
    let settings = Target::configmap(namespace, "settings");
    let paint = async |color: &str| _ = kubectl.merge_patch(&settings, &json!({"data": {"color": color}})).await.unwrap();
    let drifted = |status: &Value| {
        finding(status, "ConfigMap", "settings").is_some_and(|finding| finding["verdict"] == "Drifted" && finding["action"] == "Reported")
    };
    let mark = world.workload.audit_mark().await.unwrap();
    let written = async || hub_writes(world.workload, mark).await.in_namespace(namespace).len();

    // Drift from before it was guarded is found, too.
    paint("red").await;
    world.policy("Warn", json!({})).await;
    world.wait_report(Some("web"), "found", drifted).await;
    assert_eq!(written().await, 0);
    world.policy("Correct", json!({"suspend": true})).await;
    world
        .wait_report(Some("web"), "suspended", |status| {
            drifted(status) && finding(status, "ConfigMap", "settings").is_some_and(|finding| finding["reason"] == "Suspended")
        })
        .await;
    assert_eq!(written().await, 0);
    world.policy("Correct", json!({"suspend": false})).await;
    wait_live(&world, &kubectl, &settings, "/data/color", &json!("blue")).await;
    world.wait_in_sync("web").await;
    assert_eq!(written().await, 1);
    world.policy("Warn", json!({})).await;
    world.mgmt.kubectl(&["annotate", "driftpolicy", "p", "-n", namespace, "touched=yes"]).await.unwrap();
    wait_accepted(&world, "p", "True", "Accepted").await;
    paint("red").await;
    world.wait_report(Some("web"), "found", drifted).await;
    assert_eq!(written().await, 1);
    world.policy("Off", json!({})).await;
    world
        .wait("the reports go", async || {
            ensure!(world.report(Some("web")).await.is_none() && world.report(None).await.is_none());
            Ok(())
        })
        .await;
    world.policy("Correct", json!({})).await;
    wait_live(&world, &kubectl, &settings, "/data/color", &json!("blue")).await;
    assert_eq!(written().await, 2);
}

#[tokio::test]
async fn the_highest_policy_decides_and_the_default_only_warns() {
    let namespace = "priorities";
    let mut world = World::new(namespace).await;
    for name in ["both", "low", "nobody"] {
        Release::new(&world, name, Style::ClientSide).install(&[configmap(namespace, name, "color", "blue")]).await;
    }
    let platform = world.mgmt.writer("platform").unwrap();
    let releases = |names: &[&str]| names.iter().map(|name| json!({"namespace": namespace, "name": name})).collect::<Value>();
    let low = json!({"mode": "Correct", "priority": 1, "releases": releases(&["both", "low"])});
    let high = json!({"mode": "Warn", "priority": 2, "releases": releases(&["both"])});
    // However high, a policy for other clusters is none of this one's business.
    let other_cluster = json!({"mode": "Correct", "priority": 100, "clusterSelector": {"matchLabels": {"tier": "other"}}});
    for (name, spec) in [("low", &low), ("high", &high), ("other-cluster", &other_cluster)] {
        platform.apply(&target(namespace, name), &policy(namespace, name, spec)).await.unwrap();
    }
    world.start_hub(&["--default-mode", "Warn"]);
    let kubectl = world.writer("kubectl-edit");
    let mark = world.workload.audit_mark().await.unwrap();
    for name in ["both", "low", "nobody"] {
        world.wait_in_sync(name).await;
        kubectl.merge_patch(&Target::configmap(namespace, name), &json!({"data": {"color": "red"}})).await.unwrap();
    }
    wait_live(&world, &kubectl, &Target::configmap(namespace, "low"), "/data/color", &json!("blue")).await;
    for name in ["both", "nobody"] {
        world
            .wait_report(Some(name), "reported", |status| status["summary"]["drifted"] == 1 && condition(status, "InSync") == "False")
            .await;
        assert_eq!(live(&kubectl, &Target::configmap(namespace, name), "/data/color").await, json!("red"));
    }
    let writes = hub_writes(world.workload, mark).await.in_namespace(namespace);
    assert!(writes.len() == 1 && writes.iter().all(|call| call.name == "low"), "{:?}", lines(&writes));
    world
        .wait("the policies count what they decide about", async || {
            counts(&world, &[("low", 1, 1), ("high", 1, 1), ("other-cluster", 0, 0)]).await
        })
        .await;

    // The other way round.
    platform.merge_patch(&target(namespace, "low"), &json!({"spec": {"priority": 3}})).await.unwrap();
    wait_live(&world, &kubectl, &Target::configmap(namespace, "both"), "/data/color", &json!("blue")).await;
    assert_eq!(live(&kubectl, &Target::configmap(namespace, "nobody"), "/data/color").await, json!("red"));
    world.wait_report(Some("both"), "in sync", |status| reason(status, "InSync") == "AsDeclared").await;
}

async fn counts(world: &World, wanted: &[(&str, i64, i64)]) -> Result<()> {
    let platform = world.mgmt.writer("platform")?;
    for (name, clusters, releases) in wanted {
        let status = platform.get(&target(&world.namespace, name)).await?["status"].take();
        ensure!(
            status["clusters"].as_i64().unwrap_or(0) == *clusters && status["releases"].as_i64().unwrap_or(0) == *releases,
            "{name}: {status}"
        );
    }
    Ok(())
}
