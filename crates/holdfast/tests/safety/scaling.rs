//! Replicas belong to an autoscaler within its bounds, and to nobody else.

use anyhow::ensure;
use holdfast_testkit::{Target, management::HUB_USER};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, deployment, lines, wait_live, writes_to},
    support::{World, condition, finding, live, path_of},
};

fn hpa(namespace: &str, name: &str, target: (&str, &str, &str), min: i64, max: i64) -> Value {
    let (api_version, kind, target) = target;
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name, "namespace": namespace},
        "spec": {"minReplicas": min, "maxReplicas": max, "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": target}},
    })
}

const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");

/// One Deployment with two declared replicas: what scales it, to what somebody scales it, and what the hub makes of that.
struct Row {
    name: &'static str,
    scaler: (&'static str, &'static str, &'static str),
    elsewhere: bool,
    bounds: (i64, i64),
    set: i64,
    wanted: i64,
}

const fn row(name: &'static str, set: i64, wanted: i64) -> Row {
    Row { name, scaler: (DEPLOYMENT.0, DEPLOYMENT.1, name), elsewhere: false, bounds: (2, 6), set, wanted }
}

#[tokio::test]
async fn an_autoscaler_keeps_what_is_within_its_bounds() {
    let rows = [
        row("inside", 4, 4),
        row("at-the-bound", 6, 6),
        row("above", 9, 6),
        Row { bounds: (3, 6), ..row("below", 1, 3) },
        Row { scaler: ("apps/v1", "Deployment", "somebody-else"), ..row("other-name", 4, 2) },
        Row { scaler: ("apps/v1", "StatefulSet", "other-kind"), ..row("other-kind", 4, 2) },
        Row { scaler: ("example.com/v1", "Deployment", "other-group"), ..row("other-group", 4, 2) },
        Row { elsewhere: true, ..row("other-namespace", 4, 2) },
    ];
    for style in Style::BOTH {
        let namespace = &format!("scaled-{}", style.word());
        let elsewhere = &format!("{namespace}-elsewhere");
        let mut world = World::new(namespace).await;
        world.workload.namespace(elsewhere).await.unwrap();
        let objects: Vec<Value> = rows.iter().map(|row| deployment(namespace, row.name, 2)).collect();
        Release::new(&world, "web", style).install(&objects).await;
        let scalers: Vec<String> = rows
            .iter()
            .map(|row| hpa(if row.elsewhere { elsewhere } else { namespace }, row.name, row.scaler, row.bounds.0, row.bounds.1).to_string())
            .collect();
        world.workload.apply_yaml("platform", &scalers.join("\n---\n")).await.unwrap();
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;

        let mark = world.workload.audit_mark().await.unwrap();
        let scaler = world.writer("scaler");
        for row in &rows {
            let scale = Target::deployment(namespace, row.name).scale();
            scaler.merge_patch(&scale, &json!({"spec": {"replicas": row.set}})).await.unwrap();
        }
        for row in &rows {
            wait_live(&world, &scaler, &Target::deployment(namespace, row.name), "/spec/replicas", &json!(row.wanted)).await;
        }
        let yields = |name: &str| {
            rows.iter().any(|row| row.name == name && !row.elsewhere && row.scaler == (DEPLOYMENT.0, DEPLOYMENT.1, name) && row.wanted != 2)
        };
        let report = world
            .wait_report(Some("web"), "in sync with the yielded replicas", |status| {
                let deviations = status["deviations"].as_array().map_or(0, Vec::len);
                condition(status, "InSync") == "True" && deviations == rows.iter().filter(|row| yields(row.name)).count()
            })
            .await;
        for deviation in report["status"]["deviations"].as_array().unwrap() {
            let name = deviation["object"]["name"].as_str().unwrap();
            assert!(yields(name), "{deviation}");
            assert_eq!((&deviation["path"], &deviation["reason"]), (&json!("/spec/replicas"), &json!("Yielded")), "{deviation}");
        }
        for row in &rows {
            let target = Target::deployment(namespace, row.name);
            let writes = writes_to(world.workload, mark, &target).await;
            assert_eq!(!writes.is_empty(), row.set != row.wanted, "{style:?} {}: {:?}", row.name, lines(&writes));
            assert_eq!(live(&scaler, &target, "/spec/replicas").await, json!(row.wanted), "{style:?} {}", row.name);
        }

        // Drift beside the yielded replicas goes back and takes them along for neither style.
        let kubectl = world.writer("kubectl-edit");
        for name in ["inside", "above"] {
            let target = Target::deployment(namespace, name);
            let before = live(&kubectl, &target, "/spec/replicas").await;
            let evil = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "registry.example/evil:1"}]}}}});
            kubectl.strategic_patch(&target, &evil).await.unwrap();
            wait_live(&world, &kubectl, &target, "/spec/template/spec/containers/0/image", &json!("registry.example/web:1.0")).await;
            assert_eq!(live(&kubectl, &target, "/spec/replicas").await, before, "{style:?} {name}");
        }
    }
}

#[tokio::test]
async fn autoscalers_come_change_and_go() {
    let namespace = "scalers-move";
    let mut world = World::new(namespace).await;
    let web = Target::deployment(namespace, "web");
    let api = Target::deployment(namespace, "api");
    Release::new(&world, "web", Style::ServerSide)
        .install(&[deployment(namespace, "web", 2), deployment(namespace, "api", 2), configmap(namespace, "settings", "color", "blue")])
        .await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let scaler = world.writer("scaler");
    let platform = world.writer("platform");
    let scale = async |target: &Target, to: i64| _ = scaler.merge_patch(&target.scale(), &json!({"spec": {"replicas": to}})).await.unwrap();
    // The hub reads an object anew once it has taken in what scales it.
    let taken_in = async |mark, target: &Target| {
        world
            .wait("the hub looks at what is scaled", async || {
                let reads = world.workload.audit_since(mark).await?.by_user(HUB_USER).gets();
                ensure!(reads.iter().any(|call| call.name == target.name && call.resource == "deployments"), "{:?}", lines(&reads));
                Ok(())
            })
            .await;
    };

    scale(&web, 4).await;
    wait_live(&world, &scaler, &web, "/spec/replicas", &json!(2)).await;

    let mark = world.workload.audit_mark().await.unwrap();
    let target = Target::hpa(namespace, "web");
    platform.apply(&target, &hpa(namespace, "web", (DEPLOYMENT.0, DEPLOYMENT.1, "web"), 2, 6)).await.unwrap();
    taken_in(mark, &web).await;
    scale(&web, 5).await;
    world
        .wait_report(Some("web"), "yielded", |status| {
            status["deviations"][0]["reason"] == "Yielded" && condition(status, "InSync") == "True"
        })
        .await;
    assert_eq!(live(&scaler, &web, "/spec/replicas").await, json!(5));

    // Narrower bounds: the nearest one, not the manifest's number.
    platform.merge_patch(&target, &json!({"spec": {"maxReplicas": 3}})).await.unwrap();
    wait_live(&world, &scaler, &web, "/spec/replicas", &json!(3)).await;

    // Pointed at another object: the first is the manifest's again, the other one is scaled.
    let mark = world.workload.audit_mark().await.unwrap();
    platform.merge_patch(&target, &json!({"spec": {"scaleTargetRef": {"name": "api"}}})).await.unwrap();
    taken_in(mark, &api).await;
    wait_live(&world, &scaler, &web, "/spec/replicas", &json!(2)).await;
    scale(&api, 3).await;
    world
        .wait_report(Some("web"), "the other one is yielded", |status| {
            status["deviations"][0]["object"]["name"] == "api" && condition(status, "InSync") == "True"
        })
        .await;

    platform.delete(&target).await.unwrap();
    wait_live(&world, &scaler, &api, "/spec/replicas", &json!(2)).await;
    let report = world
        .wait_report(Some("web"), "nothing is yielded any more", |status| status["deviations"].as_array().is_none_or(Vec::is_empty))
        .await;
    let found = finding(&report["status"], "Deployment", "api").unwrap();
    let path = path_of(found, "/spec/replicas").unwrap();
    assert_eq!((&path["desired"], &path["live"]), (&json!(2), &json!(3)), "{found}");
}
