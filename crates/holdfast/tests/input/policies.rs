//! Policies with nonsense in every field, beside what `safety` has: refused by the API server, or named in the policy's status.

use anyhow::{Context, ensure};
use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, wait_live},
    search::{canary, find},
    support::World,
};

fn target(namespace: &str, name: &str) -> Target {
    Target::custom("holdfast.dev", "v1alpha1", "driftpolicies", namespace, name)
}

/// A policy for a release that does not exist, so that nothing else depends on it.
fn policy(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut full = json!({"clusterSelector": {}, "releases": [{"name": "nobody"}], "mode": "Correct"});
    full.as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap());
    json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": name, "namespace": namespace}, "spec": full})
}

/// What the schema and its rules refuse, and a word of why.
fn refused() -> Vec<(&'static str, Value, &'static str)> {
    let long = "x".repeat(254);
    let ignore = |rule: Value| json!({"ignore": [rule]});
    let many = |count: usize, item: Value| Value::Array(vec![item; count]);
    vec![
        ("duration-empty", json!({"interval": ""}), "interval"),
        ("duration-unit", json!({"interval": "1d"}), "interval"),
        ("duration-sign", json!({"interval": "-5m"}), "interval"),
        ("duration-blank", json!({"interval": "5 m"}), "interval"),
        ("duration-long", json!({"interval": "1".repeat(40) + "h"}), "interval"),
        ("duration-huge", json!({"interval": "99999999999999999999h"}), "interval"),
        ("duration-number", json!({"interval": 600}), "interval"),
        ("window", json!({"contest": {"window": "soon"}}), "window"),
        ("priority-text", json!({"priority": "high"}), "priority"),
        ("priority-large", json!({"priority": 4_294_967_296_u64}), "priority"),
        ("priority-float", json!({"priority": 1.5}), "priority"),
        ("unknown-field", json!({"modus": "Correct"}), "modus"),
        ("glob-long", json!({"releases": [{"name": long}]}), "name"),
        ("glob-empty", json!({"releases": [{"namespace": ""}]}), "namespace"),
        ("releases-many", json!({"releases": many(129, json!({"name": "x"}))}), "releases"),
        ("ignore-many", json!({"ignore": many(129, json!({"paths": ["/a"]}))}), "ignore"),
        ("paths-many", ignore(json!({"paths": many(65, json!("/a"))})), "paths"),
        ("managers-many", ignore(json!({"managers": many(33, json!("x"))})), "managers"),
        ("paths-text", ignore(json!({"paths": "/spec"})), "paths"),
        (
            "expressions-many",
            json!({"clusterSelector": {"matchExpressions": many(65, json!({"key": "a", "operator": "Exists"}))}}),
            "matchExpressions",
        ),
        ("selector-text", json!({"clusterSelector": "all"}), "clusterSelector"),
        ("percent", json!({"limit": {"correctionsPerMinute": 60, "blastRadius": {"percent": 101, "minObjects": 20}}}), "percent"),
        ("suspend", json!({"suspend": "yes"}), "suspend"),
    ]
}

/// What only the hub can tell, and the field it names.
fn invalid() -> Vec<(&'static str, Value, String)> {
    let secret = canary("policy-text");
    let rule = |field: &str, value: Value| json!({"ignore": [{"paths": ["/a"]}, {"paths": ["/a"], field: value}]});
    let expression = |key: &str, operator: &str, values: Value| json!({"clusterSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
    let labels: Value = (0..65).map(|n| (format!("l{n}"), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    let at = |field: &str| format!("spec.{field}");
    vec![
        ("path-slash", rule("paths", json!(["/ok", secret])), at("ignore[1].paths[1]")),
        ("path-escape", rule("paths", json!([format!("/{secret}~2")])), at("ignore[1].paths[0]")),
        ("path-item", rule("paths", json!([format!("/[name={secret}")])), at("ignore[1].paths[0]")),
        ("path-empty-item", rule("paths", json!(["/containers/[]/image"])), at("ignore[1].paths[0]")),
        ("path-long", rule("paths", json!(["/a".repeat(65)])), at("ignore[1].paths[0]")),
        ("manager-long", rule("managers", json!(["x".repeat(254)])), at("ignore[1].managers[0]")),
        ("kind-long", rule("target", json!({"kind": "x".repeat(254)})), at("ignore[1].target.kind")),
        (
            "target-labels",
            rule("target", json!({"labelSelector": {"matchLabels": {format!("{secret} x"): "y"}}})),
            at("ignore[1].target.labelSelector"),
        ),
        ("labels-many", json!({"clusterSelector": {"matchLabels": labels}}), at("clusterSelector.matchLabels")),
        ("label-value", json!({"clusterSelector": {"matchLabels": {"a": format!("{secret}!")}}}), at("clusterSelector.matchLabels")),
        ("values-none", expression("a", "In", json!([])), at("clusterSelector.matchExpressions[0]")),
        ("values-some", expression("a", "Exists", json!([secret])), at("clusterSelector.matchExpressions[0]")),
        ("values-many", expression("a", "In", Value::Array(vec![json!("x"); 257])), at("clusterSelector.matchExpressions[0]")),
        ("key", expression(&format!("-{secret}"), "Exists", json!([])), at("clusterSelector.matchExpressions[0]")),
        ("window-zero", json!({"contest": {"window": "0s"}}), at("contest")),
    ]
}

#[tokio::test]
async fn each_bad_policy_is_refused_or_named_and_the_others_go_on() {
    let namespace = "odd-policies";
    let mut world = World::new(namespace).await;
    Release::new(&world, "web", Style::ClientSide).install(&[configmap(namespace, "settings", "color", "blue")]).await;
    world.policy("Correct", json!({})).await;
    let platform = world.mgmt.writer("platform").unwrap();
    for (name, spec, word) in refused() {
        let error = platform.apply(&target(namespace, name), &policy(namespace, name, &spec)).await.expect_err(name);
        assert!(format!("{error:#}").contains(word), "{name}: {error:#}");
    }
    for (name, spec, _) in invalid() {
        platform.apply(&target(namespace, name), &policy(namespace, name, &spec)).await.unwrap();
    }
    world.start_hub(&[]);
    for (name, _, field) in invalid() {
        world
            .wait(&format!("{name} is named"), async || {
                let policy = platform.get(&target(namespace, name)).await?;
                let accepted = policy["status"]["conditions"].as_array().and_then(|all| all.first()).context("no condition")?;
                let message = accepted["message"].as_str().unwrap_or_default();
                ensure!(accepted["type"] == "Accepted" && accepted["status"] == "False" && accepted["reason"] == "Invalid", "{accepted}");
                ensure!(message.contains(&field) && find(message.as_bytes()).is_none(), "{message}");
                Ok(())
            })
            .await;
    }
    let kubectl = world.writer("kubectl-edit");
    let settings = Target::configmap(namespace, "settings");
    kubectl.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
    wait_live(&world, &kubectl, &settings, "/data/color", &json!("blue")).await;
    assert_eq!(find(world.log().as_bytes()), None, "the log quotes a policy");
}
