//! Several policies select a release: one decides, the others say so, and rules that change nothing are named.

use anyhow::ensure;
use holdfast_testkit::Target;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, deployment, hub_writes, lines, wait_live},
    support::{World, finding},
};

fn of_cluster(name: &str) -> Target {
    Target::cluster_scoped("holdfast.dev", "v1alpha1", "clusterdriftpolicies", name)
}

/// A policy of the whole cluster, for clusters of the world's namespace.
async fn cluster_policy(world: &World, name: &str, further: Value) {
    let own = json!({"matchLabels": {"kubernetes.io/metadata.name": world.namespace}});
    let mut spec = json!({"namespaceSelector": own, "clusterSelector": {}, "releases": [{"namespace": world.namespace}]});
    spec.as_object_mut().unwrap().extend(further.as_object().cloned().unwrap());
    let policy = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "ClusterDriftPolicy", "metadata": {"name": name}, "spec": spec});
    world.mgmt.writer("platform").unwrap().apply(&of_cluster(name), &policy).await.unwrap();
}

#[tokio::test]
async fn a_policy_of_the_cluster_decides_where_none_of_the_namespace_does() {
    let namespace = "precedence";
    let mut world = World::new(namespace).await;
    for name in ["web", "db"] {
        Release::new(&world, name, Style::ClientSide).install(&[configmap(namespace, name, "color", "blue")]).await;
    }
    cluster_policy(&world, "precedence-all", json!({"mode": "Correct", "priority": 100})).await;
    // However low its priority, it is nearer.
    world.policy("Warn", json!({"releases": [{"namespace": namespace, "name": "web"}], "priority": -1})).await;
    world.start_hub(&[]);
    for name in ["web", "db"] {
        world.wait_in_sync(name).await;
    }
    let kubectl = world.writer("kubectl-edit");
    let mark = world.workload.audit_mark().await.unwrap();
    let paint =
        async |name: &str| _ = kubectl.merge_patch(&Target::configmap(namespace, name), &json!({"data": {"color": "red"}})).await.unwrap();
    for name in ["web", "db"] {
        paint(name).await;
    }
    wait_live(&world, &kubectl, &Target::configmap(namespace, "db"), "/data/color", &json!("blue")).await;
    let reported = |status: &Value| finding(status, "ConfigMap", "web").is_some_and(|finding| finding["action"] == "Reported");
    world.wait_report(Some("web"), "only reported", reported).await;
    let writes = hub_writes(world.workload, mark).await.in_namespace(namespace);
    assert!(writes.iter().all(|call| call.name == "db"), "{:?}", lines(&writes));
    assert!(world.log().contains(r#""policy":"precedence-all""#), "the audit line names it");

    // Without the nearer one the other decides; for no namespace, nobody does.
    world.mgmt.kubectl(&["delete", "driftpolicy", "p", "-n", namespace]).await.unwrap();
    wait_live(&world, &kubectl, &Target::configmap(namespace, "web"), "/data/color", &json!("blue")).await;
    world.mgmt.kubectl(&["label", "namespace", namespace, "tier=elsewhere"]).await.unwrap();
    let not_here = json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]});
    cluster_policy(&world, "precedence-all", json!({"mode": "Correct", "namespaceSelector": not_here})).await;
    let gone = async || {
        ensure!(world.report(Some("web")).await.is_none() && world.report(Some("db")).await.is_none());
        Ok(())
    };
    world.wait("the reports go", gone).await;
    // The labels of the namespace alone bring it back.
    world.mgmt.kubectl(&["label", "namespace", namespace, "tier-"]).await.unwrap();
    world.wait_in_sync("web").await;
    world.mgmt.kubectl(&["delete", "clusterdriftpolicy", "precedence-all"]).await.unwrap();
    world.wait("the reports go", gone).await;
}

/// Waits until the status of the world's policy of this name is as wanted.
async fn wait_policy(world: &World, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) {
    let target = Target::custom("holdfast.dev", "v1alpha1", "driftpolicies", &world.namespace, name);
    let reader = world.mgmt.writer("platform").unwrap();
    world
        .wait(&format!("policy {name}: {what}"), async || {
            let status = reader.get(&target).await?["status"].take();
            ensure!(wanted(&status), "{status:#}");
            Ok(())
        })
        .await;
}

/// Status, reason and message of the condition `Decides`.
fn decides(status: &Value) -> (&str, &str, &str) {
    let condition = status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == "Decides");
    let text = |field: &str| condition.and_then(|condition| condition[field].as_str()).unwrap_or_default();
    (text("status"), text("reason"), text("message"))
}

#[tokio::test]
async fn policies_say_who_decides_and_which_rules_change_nothing() {
    let namespace = "told";
    let mut world = World::new(namespace).await;
    for name in ["web", "db"] {
        let objects = [configmap(namespace, name, "color", "blue"), deployment(namespace, name, 1)];
        Release::new(&world, name, Style::ServerSide).install(&objects).await;
    }
    #[expect(clippy::disallowed_methods, reason = "rules end by wall time, in the hub as here")]
    let past = Timestamp::now().checked_sub(SignedDuration::from_hours(1)).unwrap();
    let ignore = json!([
        {"paths": ["/spec/replicas"]},
        {"paths": ["/spec/replica"]},
        {"paths": [""], "target": {"kind": "StatefulSet"}},
        {"paths": ["/data/color"], "until": past},
        {"managers": ["scaler"], "target": {"kind": "Deployment", "annotationSelector": {"matchLabels": {"meta.helm.sh/release-name": "db"}}}},
        {"managers": ["scaler"], "target": {"labelSelector": {"matchLabels": {"tier": "nowhere"}}}},
        {"paths": ["/spec/template/spec/containers/*/image"]},
    ]);
    world.policy("Warn", json!({"ignore": ignore})).await;
    let platform = world.mgmt.writer("platform").unwrap();
    let strong = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": "strong", "namespace": namespace},
        "spec": {"clusterSelector": {}, "releases": [{"namespace": namespace, "name": "web"}], "priority": 5}});
    let target = Target::custom("holdfast.dev", "v1alpha1", "driftpolicies", namespace, "strong");
    platform.apply(&target, &strong).await.unwrap();
    world.start_hub(&[]);

    let idle = json!([
        {"rule": 1, "reason": "NoPath"}, {"rule": 2, "reason": "NoObject"}, {"rule": 3, "reason": "Expired"}, {"rule": 5, "reason": "NoObject"},
    ]);
    wait_policy(&world, "p", "it says what is idle", |status| status["idleRules"] == idle).await;
    wait_policy(&world, "p", "it says who decides", |status| {
        let (truth, reason, message) = decides(status);
        truth == "True"
            && reason == "PartlyOverridden"
            && message.contains("told/strong (1)")
            && status["overridden"] == 1
            && status["releases"] == 1
    })
    .await;
    wait_policy(&world, "strong", "it decides", |status| decides(status).1 == "Decides" && status["overridden"] == 0).await;
    // The stronger one takes everything.
    platform.merge_patch(&target, &json!({"spec": {"releases": null}})).await.unwrap();
    wait_policy(&world, "p", "it is overridden", |status| {
        let (truth, reason, message) = decides(status);
        truth == "False" && reason == "Overridden" && message.contains("told/strong (2)") && status["releases"] == 0
    })
    .await;
    platform.delete(&target).await.unwrap();
    wait_policy(&world, "p", "it decides alone", |status| decides(status).1 == "Decides" && status["releases"] == 2).await;
}
