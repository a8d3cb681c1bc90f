//! Autoscalers that are custom resources: their kinds come and go while the hub runs.

use anyhow::ensure;
use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::support::{
    World, condition,
    fixture::{Marker, Release, Style, deployment, lines, wait_live, writes_to},
    live,
};

/// A definition without a schema.
fn definition(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn scaled_object(namespace: &str, name: &str, annotations: &Value, spec: &Value) -> Value {
    json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": name, "namespace": namespace, "annotations": annotations}, "spec": spec})
}

fn vertical(namespace: &str, name: &str, mode: &str, policy: &Value) -> Value {
    json!({"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": name, "namespace": namespace},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "updatePolicy": {"updateMode": mode},
            "resourcePolicy": {"containerPolicies": [policy]}}})
}

const REPLICAS: &str = "/spec/replicas";
const CPU: &str = "/spec/template/spec/containers/0/resources/requests/cpu";

/// An object, what its autoscaler may do, what is set, and what becomes of that.
struct Row {
    name: &'static str,
    scaler: Value,
    set: Value,
    becomes: Value,
}

fn rows(namespace: &str, elsewhere: &str) -> Vec<Row> {
    let none = json!({});
    let keda = |name: &'static str, annotations: &Value, mut spec: Value, set: i64, becomes: i64| {
        if spec["scaleTargetRef"].is_null() {
            spec["scaleTargetRef"] = json!({"name": name});
        }
        Row { name, scaler: scaled_object(namespace, name, annotations, &spec), set: json!(set), becomes: json!(becomes) }
    };
    let vpa = |name: &'static str, mode: &str, policy: Value, set: &str, becomes: &str| Row {
        name,
        scaler: vertical(namespace, name, mode, &policy),
        set: json!(set),
        becomes: json!(becomes),
    };
    let bounds = json!({"containerName": "*", "minAllowed": {"cpu": "100m"}, "maxAllowed": {"cpu": 2}});
    vec![
        keda("within", &none, json!({"minReplicaCount": 1, "maxReplicaCount": 9}), 7, 7),
        keda("asleep", &none, json!({}), 0, 0),
        keda("above", &none, json!({"minReplicaCount": 1, "maxReplicaCount": 9}), 12, 9),
        keda("idle", &none, json!({"minReplicaCount": 3, "idleReplicaCount": 0}), 0, 0),
        keda("paused", &json!({"autoscaling.keda.sh/paused-replicas": "12"}), json!({"maxReplicaCount": 9}), 12, 12),
        keda("other-kind", &none, json!({"scaleTargetRef": {"name": "other-kind", "kind": "StatefulSet"}}), 7, 2),
        Row {
            name: "other-place",
            scaler: scaled_object(elsewhere, "other-place", &none, &json!({"scaleTargetRef": {"name": "other-place"}})),
            set: json!(7),
            becomes: json!(2),
        },
        vpa("sized", "Auto", bounds.clone(), "1500m", "1500m"),
        vpa("too-large", "InPlaceOrRecreate", bounds.clone(), "3", "2"),
        vpa("recommended", "Off", bounds, "1500m", "500m"),
        vpa("left-alone", "Auto", json!({"containerName": "web", "mode": "Off"}), "1500m", "500m"),
    ]
}

impl Row {
    fn target(&self, namespace: &str) -> Target {
        Target::deployment(namespace, self.name)
    }

    fn pointer(&self) -> &'static str {
        if self.set.is_i64() { REPLICAS } else { CPU }
    }

    fn patch(&self) -> Value {
        json!([{"op": "replace", "path": self.pointer(), "value": self.set}])
    }
}

/// Everything in one test: the definitions belong to the whole cluster.
#[tokio::test]
async fn kinds_of_autoscalers_come_and_go() {
    let (namespace, elsewhere) = ("scalers", "scalers-elsewhere");
    let mut world = World::new(namespace).await;
    world.workload.namespace(elsewhere).await.unwrap();
    let rows = rows(namespace, elsewhere);
    let objects: Vec<Value> = rows
        .iter()
        .map(|row| {
            let mut object = deployment(namespace, row.name, 2);
            object["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m"}});
            object
        })
        .collect();
    let (half, other) = objects.split_at(objects.len() / 2);
    Release::new(&world, "one", Style::ServerSide).install(half).await;
    Release::new(&world, "two", Style::ClientSide).install(other).await;
    let marker = Marker::install(&world).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    for release in ["one", "two"] {
        world.wait_in_sync(release).await;
    }

    let platform = world.writer("platform");
    let kinds = [
        definition("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
        definition("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "verticalpodautoscalers"),
    ];
    let scalers = rows.iter().map(|row| row.scaler.to_string());
    let texts: Vec<String> = kinds.iter().map(ToString::to_string).chain(scalers).collect();
    // The autoscalers come together with their kinds and act at once.
    world.workload.apply_yaml("platform", &texts.join("\n---\n")).await.unwrap();
    let mark = world.workload.audit_mark().await.unwrap();
    for row in &rows {
        world.writer("keda-operator").json_patch(&row.target(namespace), &row.patch()).await.unwrap();
    }
    for row in &rows {
        wait_live(&world, &platform, &row.target(namespace), row.pointer(), &row.becomes).await;
    }
    let yields = |name: &str| {
        rows.iter().any(|row| {
            row.name == name && row.becomes != json!(2) && row.becomes != json!("500m") || name == "too-large" && row.name == name
        })
    };
    for release in ["one", "two"] {
        let count = if release == "one" { half } else { other }
            .iter()
            .filter(|object| yields(object["metadata"]["name"].as_str().unwrap()))
            .count();
        let report = world
            .wait_report(Some(release), "in sync with what is yielded", |status| {
                condition(status, "InSync") == "True" && status["deviations"].as_array().map_or(0, Vec::len) == count
            })
            .await;
        for deviation in report["status"]["deviations"].as_array().unwrap() {
            let name = deviation["object"]["name"].as_str().unwrap();
            assert!(yields(name) && deviation["reason"] == "Yielded", "{deviation}");
        }
    }
    marker.pass(&world).await;
    for row in &rows {
        let target = row.target(namespace);
        assert_eq!(live(&platform, &target, row.pointer()).await, row.becomes, "{}", row.name);
        let writes = writes_to(world.workload, mark, &target).await;
        assert_eq!(!writes.is_empty(), row.set != row.becomes, "{}: {:?}", row.name, lines(&writes));
    }

    // Without their kinds nobody scales any more.
    for kind in &kinds {
        platform.delete(&Target::crd(kind["metadata"]["name"].as_str().unwrap())).await.unwrap();
    }
    for row in &rows {
        let declared = if row.set.is_i64() { json!(2) } else { json!("500m") };
        wait_live(&world, &platform, &row.target(namespace), row.pointer(), &declared).await;
    }
    for release in ["one", "two"] {
        world
            .wait_report(Some(release), "nothing is yielded", |status| {
                condition(status, "InSync") == "True" && status["deviations"].as_array().is_none_or(Vec::is_empty)
            })
            .await;
    }
    world
        .wait("the definitions are gone", async || {
            for kind in &kinds {
                ensure!(platform.find(&Target::crd(kind["metadata"]["name"].as_str().unwrap())).await?.is_none(), "one is there");
            }
            Ok(())
        })
        .await;
}
