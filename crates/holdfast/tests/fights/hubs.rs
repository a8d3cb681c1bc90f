//! Two hubs that guard the same cluster know nothing of each other: each correction is one write, whoever makes it.

use anyhow::ensure;
use holdfast_testkit::{Target, management::CapiVersion};
use serde_json::{Value, json};

use crate::{
    fixture::{Marker, Release, Style, configmap, deployment, lines, wait_live, writes_to},
    support::{World, finding, path_of},
};

const ROUNDS: u32 = 4;

/// A hub of another management namespace for the workload namespace of `world`.
async fn second(world: &World, name: &str, mode: &str, further: Value) -> World {
    let mut other = World::empty(world.workload, world.mgmt, name).await;
    world.mgmt.capi_cluster(name, "c", world.workload, CapiVersion::V1Beta2, true, &[]).await.unwrap();
    let mut spec = json!({"releases": [{"namespace": world.namespace}]});
    spec.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    other.policy(mode, spec).await;
    other.start_hub(&["--id", name]);
    other
}

#[tokio::test]
async fn two_hubs_that_want_the_same_do_not_fight() {
    let namespace = "lab-twins";
    let mut one = World::new(namespace).await;
    let marker = Marker::install(&one).await;
    for style in Style::BOTH {
        let word = style.word();
        Release::new(&one, word, style)
            .install(&[
                deployment(namespace, &format!("web-{word}"), 2),
                configmap(namespace, &format!("settings-{word}"), "color", "blue"),
            ])
            .await;
    }
    one.policy("Correct", json!({})).await;
    one.start_hub(&[]);
    let two = second(&one, "lab-twins-b", "Correct", json!({})).await;
    // Sees what the others do, and has its own opinion of one path.
    let ignoring = json!({"ignore": [{"target": {"kind": "ConfigMap"}, "paths": ["/data/color"]}]});
    let three = second(&one, "lab-twins-c", "Correct", ignoring).await;
    let four = second(&one, "lab-twins-d", "Warn", json!({})).await;
    for hub in [&one, &two, &three, &four] {
        for style in Style::BOTH {
            hub.wait_in_sync(style.word()).await;
        }
    }
    let kubectl = one.writer("kubectl-edit");
    let mark = one.workload.audit_mark().await.unwrap();
    for round in 0..ROUNDS {
        for style in Style::BOTH {
            let web = Target::deployment(namespace, &format!("web-{}", style.word()));
            let settings = Target::configmap(namespace, &format!("settings-{}", style.word()));
            // Another value each time: nobody insists on any.
            kubectl.merge_patch(&web, &json!({"spec": {"replicas": 10 + round}})).await.unwrap();
            kubectl.merge_patch(&settings, &json!({"data": {"color": format!("red {round}")}})).await.unwrap();
            wait_live(&one, &kubectl, &web, "/spec/replicas", &json!(2)).await;
            wait_live(&one, &kubectl, &settings, "/data/color", &json!("blue")).await;
        }
    }
    for hub in [&one, &two, &three, &four] {
        for style in Style::BOTH {
            hub.wait_in_sync(style.word()).await;
        }
    }
    // Every hub that may write has gone past it all.
    marker.pass(&one).await;
    for style in Style::BOTH {
        for target in [
            Target::deployment(namespace, &format!("web-{}", style.word())),
            Target::configmap(namespace, &format!("settings-{}", style.word())),
        ] {
            let writes = writes_to(one.workload, mark, &target).await;
            let passed = writes.filter(|call| call.code == Some(200));
            assert_eq!(passed.len(), ROUNDS as usize, "one write a correction: {:?}", lines(&writes));
            let lost = writes.filter(|call| call.code != Some(200));
            assert!(lost.iter().all(|call| call.code == Some(409)), "{:?}", lines(&lost));
            // At most one try of each of the other two that may write.
            assert!(lost.len() <= 2 * ROUNDS as usize, "{:?}", lines(&lost));
        }
    }
    let contested = |status: &Value| status["summary"]["contested"].as_u64();
    for hub in [&one, &two, &three, &four] {
        for style in Style::BOTH {
            let report = hub.report(Some(style.word())).await.unwrap();
            assert_eq!(contested(&report["status"]), Some(0), "{report:#}");
        }
    }
    // The one that ignores a path says so where it saw another value, and wrote none.
    three
        .wait("the hub that ignores the color never corrected it", async || {
            for style in Style::BOTH {
                let report = three.report(Some(style.word())).await.unwrap();
                let found = finding(&report["status"], "ConfigMap", &format!("settings-{}", style.word()));
                ensure!(found.is_none_or(|found| path_of(found, "/data/color").is_none()), "{found:?}");
            }
            Ok(())
        })
        .await;
}
