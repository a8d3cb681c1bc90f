//! More drift than a report can hold.

use anyhow::ensure;
use holdfast_api::report::MAX_LISTED;
use holdfast_testkit::Target;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::{
    fixture::{Release, Style, events, wait_live},
    support::{World, condition},
};

const OBJECTS: usize = 30;
const KEYS: usize = 120;

fn data(word: &str) -> Value {
    // Long enough that all of them together are many times what a server stores in one object.
    (0..KEYS).map(|key| (format!("{key}-{}", "k".repeat(180)), json!(format!("{word} {}", "v".repeat(200))))).collect::<Map<_, _>>().into()
}

#[tokio::test]
async fn drift_of_everything_still_makes_a_report() {
    let namespace = "bounds";
    let mut world = World::new(namespace).await;
    let name = |number: usize| format!("large-{number:02}");
    let map = |number| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(number), "namespace": namespace}, "data": data("declared")});
    let objects: Vec<Value> = (0..OBJECTS).map(map).collect();
    Release::new(&world, "large", Style::ClientSide).install(&objects).await;
    world.policy("Warn", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("large").await;

    let mut edits = JoinSet::new();
    for number in 0..OBJECTS {
        let kubectl = world.writer("kubectl-edit");
        edits.spawn(async move {
            kubectl.merge_patch(&Target::configmap(namespace, &name(number)), &json!({"data": data("drifted")})).await.unwrap();
        });
    }
    while let Some(edit) = edits.join_next().await {
        edit.unwrap();
    }
    let report = world.wait_report(Some("large"), "all drifted", |status| status["summary"]["drifted"] == OBJECTS).await;
    let status = &report["status"];
    assert!(report.to_string().len() < 1 << 20, "{}", report.to_string().len());
    let findings = status["findings"].as_array().unwrap();
    assert!(!findings.is_empty() && findings.len() <= MAX_LISTED, "{}", findings.len());
    assert_eq!(findings.len() as u64 + status["truncated"].as_u64().unwrap(), OBJECTS as u64, "every object is listed or counted");
    for finding in findings {
        let paths = finding["paths"].as_array().unwrap();
        assert_eq!(paths.len() as u64 + finding["pathsTruncated"].as_u64().unwrap(), KEYS as u64, "every path is listed or counted");
    }
    world
        .wait("an Event", async || {
            let found = events(&world, "DriftDetected").await?;
            ensure!(!found.is_empty(), "none");
            ensure!(found.iter().all(|event| event["note"].as_str().is_some_and(|note| note.len() <= 1024)), "too long");
            Ok(())
        })
        .await;

    // Nothing of it is too large to be put back, and to be said.
    world.policy("Correct", json!({})).await;
    let admin = world.writer("reader");
    for number in [0, OBJECTS - 1] {
        let key = format!("/data/0-{}", "k".repeat(180));
        wait_live(&world, &admin, &Target::configmap(namespace, &name(number)), &key, &data("declared")[&key[6..]]).await;
    }
    let report = world.wait_report(Some("large"), "in sync again", |status| condition(status, "InSync") == "True").await;
    assert!(report.to_string().len() < 1 << 20, "{}", report.to_string().len());
    let corrections = report["status"]["corrections"].as_array().unwrap();
    assert!(
        corrections.iter().all(|record| record["paths"].as_array().unwrap().len() == 50 && record["pathsTruncated"] == KEYS - 50),
        "{corrections:?}"
    );
    let longest = world.log().lines().map(str::len).max();
    assert!(longest.is_some_and(|longest| longest < 16 * 1024), "{longest:?}");
}
