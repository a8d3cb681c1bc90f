//! Case D04: the rules of an aggregated `ClusterRole` are the controller's, whatever the manifest says of them and whatever the policy does
//! about added fields.

use anyhow::ensure;
use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::support::{
    World, finding,
    fixture::{Marker, Release, Style, hub_writes, lines, wait_live},
};

/// Name, whether it is aggregated, and the rules it declares.
fn roles(namespace: &str) -> Vec<(String, bool, Option<Value>)> {
    let rule = |resource: &str| json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
    [
        ("empty", true, Some(json!([]))),
        ("null", true, Some(Value::Null)),
        ("silent", true, None),
        ("full", true, Some(rule("secrets"))),
        ("plain", false, Some(rule("secrets"))),
    ]
    .map(|(name, is_aggregated, rules)| (format!("{namespace}-{name}"), is_aggregated, rules))
    .into()
}

#[tokio::test]
async fn d04_aggregated_cluster_roles() {
    for (namespace, style) in [("d04-client", Style::ClientSide), ("d04-server", Style::ServerSide)] {
        let mut world = World::new(namespace).await;
        let marker = Marker::install(&world).await;
        let objects: Vec<Value> = roles(namespace)
            .into_iter()
            .map(|(name, is_aggregated, rules)| {
                let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}});
                if is_aggregated {
                    role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to-agg": namespace}}]});
                }
                if let Some(rules) = rules {
                    role["rules"] = rules;
                }
                role
            })
            .collect();
        let release = Release::new(&world, "web", style);
        release.install(&objects).await;
        // What is aggregated stands, whatever was written beside it; nothing runs the controller here, so somebody writes as it does.
        let controller = world.writer("clusterrole-aggregation-controller");
        let filled = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]}]);
        world.policy("Correct", json!({"foreign": "Remove", "releases": [{"namespace": namespace, "trust": "ClusterScoped"}]})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        let mark = world.workload.audit_mark().await.unwrap();
        for (name, is_aggregated, _) in roles(namespace) {
            let target = Target::clusterrole(&name);
            if is_aggregated {
                let body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": filled});
                controller.apply(&target, &body).await.unwrap();
            } else {
                // A look-alike: the same name of a writer makes no aggregated role.
                controller.merge_patch(&target, &json!({"rules": filled})).await.unwrap();
            }
        }
        let plain = Target::clusterrole(&format!("{namespace}-plain"));
        wait_live(&world, &controller, &plain, "/rules/0/resources/0", &json!("secrets")).await;
        marker.pass(&world).await;
        let judged = |status: &Value| finding(status, "ClusterRole", &plain.name).is_some_and(|found| found["action"] == "Corrected");
        let report = world.wait_report(Some("web"), "judged", judged).await;
        assert_eq!(report["status"]["summary"]["inSync"], json!(objects.len()), "{report:#}");
        world
            .wait("the rules stay", async || {
                for (name, ..) in roles(namespace).into_iter().filter(|(_, is_aggregated, _)| *is_aggregated) {
                    let rules = controller.get(&Target::clusterrole(&name)).await?["rules"].clone();
                    ensure!(rules == filled, "{name}: {rules}");
                }
                Ok(())
            })
            .await;
        let of_aggregated = |name: &str| name.starts_with(namespace) && name != plain.name;
        let writes = hub_writes(world.workload, mark).await.filter(|call| call.resource == "clusterroles" && of_aggregated(&call.name));
        assert!(writes.is_empty(), "{:?}", lines(&writes));
    }
}
