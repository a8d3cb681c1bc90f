//! A fight ends by giving in: bounded writes, siblings still healed, the opponent named.

use anyhow::ensure;
use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, deployment, lines, metric, wait_event, wait_live, writes_to},
    support::{World, condition, finding, live, path_of},
};

/// How somebody fights, and after how many corrections the hub gives in.
struct Fight {
    style: Style,
    policy: Value,
    value: fn(u32) -> i64,
    corrections: u32,
}

#[tokio::test]
async fn a_path_that_is_undone_again_and_again_is_left_alone() {
    let fights = [
        Fight { style: Style::ClientSide, policy: json!({}), value: |round| 10 + i64::from(round), corrections: 10 },
        Fight { style: Style::ServerSide, policy: json!({}), value: |_| 7, corrections: 3 },
        Fight { style: Style::ServerSide, policy: json!({"contest": {"rounds": 2, "window": "10m"}}), value: |_| 7, corrections: 2 },
    ];
    for (index, fight) in fights.iter().enumerate() {
        let namespace = &format!("fight-{index}");
        let mut world = World::new(namespace).await;
        Release::new(&world, "web", fight.style)
            .install(&[deployment(namespace, "web", 2), configmap(namespace, "settings", "color", "blue")])
            .await;
        world.policy("Correct", fight.policy.clone()).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        let mark = world.workload.audit_mark().await.unwrap();
        let target = Target::deployment(namespace, "web");
        let rival = world.writer("rival-operator");
        for round in 0..fight.corrections {
            rival.merge_patch(&target, &json!({"spec": {"replicas": (fight.value)(round)}})).await.unwrap();
            wait_live(&world, &rival, &target, "/spec/replicas", &json!(2)).await;
        }
        let last = (fight.value)(fight.corrections);
        rival.merge_patch(&target, &json!({"spec": {"replicas": last}})).await.unwrap();
        let report = world
            .wait_report(Some("web"), "contested", |status| {
                finding(status, "Deployment", "web").is_some_and(|finding| finding["verdict"] == "Contested")
            })
            .await;
        let found = finding(&report["status"], "Deployment", "web").unwrap();
        assert_eq!((&found["action"], &found["reason"]), (&json!("Reported"), &json!("Contested")), "{found}");
        let sides = format!("/spec/replicas: helm wants 2, rival-operator wants {last}; put back {} times", fight.corrections);
        assert!(found["message"].as_str().unwrap().starts_with(&sides), "{sides}: {found}");
        assert_eq!(path_of(found, "/spec/replicas").unwrap()["actor"]["manager"], "rival-operator");
        assert_eq!(report["status"]["summary"]["contested"], 1);
        assert_eq!(condition(&report["status"], "InSync"), "False");

        // Everything else of the object and of the release is still healed.
        let kubectl = world.writer("kubectl-edit");
        kubectl
            .strategic_patch(
                &target,
                &json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "registry.example/evil:1"}]}}}}),
            )
            .await
            .unwrap();
        wait_live(&world, &kubectl, &target, "/spec/template/spec/containers/0/image", &json!("registry.example/web:1.0")).await;
        let settings = Target::configmap(namespace, "settings");
        kubectl.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
        wait_live(&world, &kubectl, &settings, "/data/color", &json!("blue")).await;
        assert_eq!(live(&rival, &target, "/spec/replicas").await, json!(last), "the contested value stays");

        // One write a correction; the sibling's took one more, or two where its ownership had to be moved back.
        let writes = writes_to(world.workload, mark, &target).await;
        let sibling = u32::try_from(writes.len()).unwrap() - fight.corrections;
        assert!((1..=2).contains(&sibling), "{:?}", lines(&writes));
        wait_event(&world, "DriftContested", "rival-operator").await;
        world
            .wait("the contest is counted", async || {
                let contested = metric(&world, "holdfast_contested_paths").await?;
                ensure!(contested == 1, "{contested}");
                Ok(())
            })
            .await;
    }
}

#[tokio::test]
async fn an_object_that_is_deleted_again_and_again_stays_deleted() {
    let namespace = "fight-gone";
    let mut world = World::new(namespace).await;
    Release::new(&world, "web", Style::ClientSide)
        .install(&[configmap(namespace, "settings", "color", "blue"), configmap(namespace, "sibling", "color", "blue")])
        .await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let mark = world.workload.audit_mark().await.unwrap();
    let target = Target::configmap(namespace, "settings");
    let rival = world.writer("rival");
    for _ in 0..3 {
        rival.delete(&target).await.unwrap();
        wait_live(&world, &rival, &target, "/data/color", &json!("blue")).await;
    }
    rival.delete(&target).await.unwrap();
    let is_contested = |status: &Value| finding(status, "ConfigMap", "settings").is_some_and(|finding| finding["verdict"] == "Contested");
    world.wait_report(Some("web"), "contested", is_contested).await;
    let sibling = Target::configmap(namespace, "sibling");
    rival.delete(&sibling).await.unwrap();
    wait_live(&world, &rival, &sibling, "/data/color", &json!("blue")).await;
    let writes = writes_to(world.workload, mark, &target).await;
    assert_eq!(writes.len(), 3, "{:?}", lines(&writes));
    assert!(rival.find(&target).await.unwrap().is_none());
}

#[tokio::test]
async fn what_is_enforced_is_never_given_up() {
    let namespace = "fight-enforced";
    let mut world = World::new(namespace).await;
    Release::new(&world, "web", Style::ServerSide).install(&[deployment(namespace, "web", 2)]).await;
    let enforce = json!({"enforce": [{"target": {"kind": "Deployment"}, "paths": ["/spec/replicas"]}]});
    world.policy("Correct", enforce).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let mark = world.workload.audit_mark().await.unwrap();
    let target = Target::deployment(namespace, "web");
    let rival = world.writer("rival-operator");
    let undo = async || rival.merge_patch(&target, &json!({"spec": {"replicas": 7}})).await.unwrap();
    for _ in 0..3 {
        undo().await;
        wait_live(&world, &rival, &target, "/spec/replicas", &json!(2)).await;
    }
    undo().await;
    let is_put_off = |status: &Value| {
        finding(status, "Deployment", "web").is_some_and(|found| found["verdict"] == "Contested" && found["action"] == "Deferred")
    };
    let report = world.wait_report(Some("web"), "put off", is_put_off).await;
    let message = finding(&report["status"], "Deployment", "web").unwrap()["message"].as_str().unwrap();
    assert!(message.contains("enforced, next write at"), "{message}");
    wait_event(&world, "DriftContested", "rival-operator").await;
    // Other paths are left alone for ten minutes by then; this one is written once more, and says that it is fought over.
    wait_live(&world, &rival, &target, "/spec/replicas", &json!(2)).await;
    let is_alarm = |status: &Value| {
        finding(status, "Deployment", "web").is_some_and(|found| found["action"] == "Corrected" && found["reason"] == "Contested")
    };
    world.wait_report(Some("web"), "written and said", is_alarm).await;
    let writes = writes_to(world.workload, mark, &target).await;
    assert_eq!(writes.len(), 4, "{:?}", lines(&writes));
}
