//! Ignore rules that reach into what the server keeps as one value: the rest of it still counts, and a correction leaves the ignored part
//! alone.

use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, wait_live},
    support::{World, live},
};

fn ingress(namespace: &str) -> Value {
    let item = |host: &str, secret: &str| json!({"hosts": [host], "secretName": secret});
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}},
            "tls": [item("a.example", "one"), item("b.example", "two")],
        },
    })
}

#[tokio::test]
async fn a_part_of_a_list_is_ignored_and_the_rest_goes_back() {
    for style in Style::BOTH {
        let namespace = format!("parts-{}", style.word());
        let mut world = World::new(&namespace).await;
        Release::new(&world, "web", style).install(&[ingress(&namespace)]).await;
        let rule = json!([{"target": {"kind": "Ingress"}, "paths": ["/spec/tls/*/secretName"]}]);
        world.policy("Correct", json!({"ignore": rule})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        let target = Target::custom("networking.k8s.io", "v1", "ingresses", &namespace, "web");
        let kubectl = world.writer("kubectl-edit");
        let edit = async |tls: Value| _ = kubectl.merge_patch(&target, &json!({"spec": {"tls": tls}})).await.unwrap();

        edit(json!([{"hosts": ["a.example"], "secretName": "rotated"}, {"hosts": ["b.example"], "secretName": "two"}])).await;
        let ignored =
            |status: &Value| status["deviations"].as_array().is_some_and(|all| all.iter().any(|found| found["reason"] == "Ignored"));
        world.wait_report(Some("web"), "the part is ignored", ignored).await;
        world.wait_in_sync("web").await;

        edit(json!([{"hosts": ["evil.example"], "secretName": "rotated"}, {"hosts": ["b.example"], "secretName": "three"}])).await;
        wait_live(&world, &kubectl, &target, "/spec/tls/0/hosts/0", &json!("a.example")).await;
        world.wait_in_sync("web").await;
        for (pointer, value) in [("/spec/tls/0/secretName", "rotated"), ("/spec/tls/1/secretName", "three")] {
            assert_eq!(live(&kubectl, &target, pointer).await, json!(value), "{style:?} {pointer}");
        }
    }
}
