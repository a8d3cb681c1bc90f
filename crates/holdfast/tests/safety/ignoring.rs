//! Ignore rules hold in the verdict and in every correction beside what they ignore.

use holdfast_testkit::{Helm, Target};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, hub_writes, lines, wait_live},
    support::{World, condition, live},
};

#[expect(clippy::disallowed_methods, reason = "rules end by wall time, in the hub as here")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[tokio::test]
async fn what_a_policy_ignores_stays_and_its_siblings_go_back() {
    for (helm, namespace) in [(Helm::V3, "ignore3"), (Helm::V4, "ignore4")] {
        let mut world = World::new(namespace).await;
        world.install(helm, "web", "mini10", &[]).await;
        let past = now().checked_sub(SignedDuration::from_hours(1)).unwrap();
        let future = now().checked_add(SignedDuration::from_hours(1)).unwrap();
        let ignore = json!([
            {"target": {"kind": "Deployment"}, "paths": ["/spec/replicas", "/spec/template/spec/containers/*/env/[name=LOG_LEVEL]"], "reason": "tuned by hand", "until": future},
            {"target": {"kind": "ConfigMap", "name": "*-settings"}, "paths": ["/data/color"]},
            {"target": {"kind": "ConfigMap", "annotationSelector": {"matchLabels": {"test.example/owner": "web"}}}, "paths": ["/metadata/annotations/test.example~1owner"]},
            {"managers": ["chaos-*"]},
            {"target": {"kind": "Service"}, "paths": ["/spec/ports"], "until": past},
            {"target": {"kind": "Deployment", "namespace": "another"}, "paths": [""]},
        ]);
        world.policy("Correct", json!({"ignore": ignore})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;

        let (kubectl, chaos) = (world.writer("kubectl-edit"), world.writer("chaos-monkey"));
        let (deployment, settings, features, page, service) = (
            Target::deployment(namespace, "web-web"),
            Target::configmap(namespace, "web-settings"),
            Target::configmap(namespace, "web-features"),
            Target::configmap(namespace, "web-page"),
            Target::service(namespace, "web-web"),
        );
        // Ignored paths first, by both writers.
        let containers = |container: Value| json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        kubectl.merge_patch(&deployment, &json!({"spec": {"replicas": 5}})).await.unwrap();
        kubectl
            .strategic_patch(&deployment, &containers(json!({"name": "web", "env": [{"name": "LOG_LEVEL", "value": "debug"}]})))
            .await
            .unwrap();
        kubectl.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
        kubectl.merge_patch(&page, &json!({"metadata": {"annotations": {"test.example/owner": "nobody"}}})).await.unwrap();
        chaos.merge_patch(&features, &json!({"data": {"beta": "true"}})).await.unwrap();
        // Beside them, on the same objects, what is not ignored; and what a rule of the past ignored.
        kubectl.strategic_patch(&deployment, &containers(json!({"name": "web", "image": "registry.example/evil:1"}))).await.unwrap();
        kubectl.merge_patch(&settings, &json!({"data": {"settings.ini": "[evil]"}})).await.unwrap();
        kubectl.merge_patch(&page, &json!({"data": {"index.html": "evil"}})).await.unwrap();
        kubectl.merge_patch(&features, &json!({"data": {"dark-mode": "false"}})).await.unwrap();
        kubectl.json_patch(&service, &json!([{"op": "replace", "path": "/spec/ports/0/targetPort", "value": "evil"}])).await.unwrap();

        let image = "/spec/template/spec/containers/0/image";
        wait_live(&world, &kubectl, &deployment, image, &json!("registry.example/web:1.0")).await;
        wait_live(&world, &kubectl, &settings, "/data/settings.ini", &json!("[web]\nworkers = 4\n")).await;
        wait_live(&world, &kubectl, &page, "/data/index.html", &json!("<h1>Hello</h1>")).await;
        wait_live(&world, &kubectl, &features, "/data/dark-mode", &json!("true")).await;
        wait_live(&world, &kubectl, &service, "/spec/ports/0/targetPort", &json!("http")).await;
        let ignored = |status: &Value| {
            let mut found: Vec<String> = status["deviations"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|deviation| deviation["reason"] == "Ignored")
                .map(|deviation| format!("{} {}", deviation["object"]["name"].as_str().unwrap(), deviation["path"].as_str().unwrap()))
                .collect();
            found.sort();
            found
        };
        let wanted = [
            "web-features /data/beta",
            "web-page /metadata/annotations/test.example~1owner",
            "web-settings /data/color",
            "web-web /spec/replicas",
            "web-web /spec/template/spec/containers/[name=web]/env/[name=LOG_LEVEL]/value",
        ];
        world
            .wait_report(Some("web"), "in sync but for what is ignored", |status| {
                condition(status, "InSync") == "True" && ignored(status) == wanted
            })
            .await;
        for (target, pointer, value) in [
            (&deployment, "/spec/replicas", json!(5)),
            (&deployment, "/spec/template/spec/containers/0/env/0/value", json!("debug")),
            (&settings, "/data/color", json!("red")),
            (&page, "/metadata/annotations/test.example~1owner", json!("nobody")),
            (&features, "/data/beta", json!("true")),
        ] {
            assert_eq!(live(&kubectl, target, pointer).await, value, "{helm:?} {} {pointer}", target.name);
        }

        // Without the rules all of it goes back.
        world.policy("Correct", json!({"ignore": []})).await;
        for (target, pointer, value) in [
            (&deployment, "/spec/replicas", json!(2)),
            (&deployment, "/spec/template/spec/containers/0/env/0/value", json!("info")),
            (&settings, "/data/color", json!("blue")),
            (&page, "/metadata/annotations/test.example~1owner", json!("web")),
            (&features, "/data/beta", json!("false")),
        ] {
            wait_live(&world, &kubectl, target, pointer, &value).await;
        }
        world
            .wait_report(Some("web"), "nothing is ignored", |status| condition(status, "InSync") == "True" && ignored(status).is_empty())
            .await;
    }
}

#[tokio::test]
async fn a_broken_glass_is_mended_when_its_time_is_over() {
    let namespace = "until";
    let mut world = World::new(namespace).await;
    let names = ["early", "late"];
    let objects: Vec<Value> = names.iter().map(|name| configmap(namespace, name, "color", "blue")).collect();
    Release::new(&world, "web", Style::ServerSide).install(&objects).await;
    let in_seconds = |seconds: i64| now().checked_add(SignedDuration::from_secs(seconds)).unwrap();
    let rule = |name: &str, until: Timestamp| json!({"target": {"name": name}, "paths": ["/data"], "until": until});
    // No audit is due before the test ends: the rule's own time must be enough.
    let policy = |until| json!({"interval": "30m", "ignore": [rule("early", until), rule("late", in_seconds(3600))]});
    world.policy("Correct", policy(in_seconds(3600))).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let kubectl = world.writer("kubectl-edit");
    for name in names {
        kubectl.merge_patch(&Target::configmap(namespace, name), &json!({"data": {"color": "red"}})).await.unwrap();
    }
    world.wait_report(Some("web"), "both ignored", |status| status["deviations"].as_array().is_some_and(|all| all.len() == 2)).await;
    let mark = world.workload.audit_mark().await.unwrap();
    world.policy("Correct", policy(in_seconds(5))).await;
    wait_live(&world, &kubectl, &Target::configmap(namespace, "early"), "/data/color", &json!("blue")).await;
    assert_eq!(live(&kubectl, &Target::configmap(namespace, "late"), "/data/color").await, json!("red"));
    let writes = hub_writes(world.workload, mark).await.in_namespace(namespace);
    assert_eq!(writes.len(), 1, "{:?}", lines(&writes));
}
