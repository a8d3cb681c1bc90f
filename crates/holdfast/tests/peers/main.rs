//! Measured side by side with other tools (facts: 29 drifts, each on an object of its own, and the traps they fell into).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy allows it in test functions, not in their helpers"
)]

mod foreign;
mod matrix;
#[path = "../support/mod.rs"]
mod support;
mod traps;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use holdfast_testkit::Helm;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use matrix::{ADDED_CHART, CHART, DEFINITION, Drift, EDITOR, Seen, additions, measured};
use support::{
    World,
    alike::{comparable, same},
    condition, finding,
    fixture::no_brakes,
    path_of,
};

const KINDS: &str = "configmaps,cronjobs,deployments,poddisruptionbudgets,rolebindings,roles,secrets,services,gadgets.peers.example";

static DEFINED: OnceCell<()> = OnceCell::const_new();

#[tokio::test]
async fn every_drift_of_the_matrix_on_a_helm_3_release() {
    assert_eq!(measured().len(), 29);
    matrix("matrix3", Helm::V3, CHART, measured()).await;
}

#[tokio::test]
async fn every_drift_of_the_matrix_on_a_helm_4_release() {
    matrix("matrix4", Helm::V4, CHART, measured()).await;
}

#[tokio::test]
async fn everything_added_to_a_helm_3_release() {
    matrix("added3", Helm::V3, ADDED_CHART, additions()).await;
}

#[tokio::test]
async fn everything_added_to_a_helm_4_release() {
    matrix("added4", Helm::V4, ADDED_CHART, additions()).await;
}

/// The definition of the custom resource of the charts.
async fn define(world: &World) {
    DEFINED.get_or_init(async || drop(world.workload.apply_yaml("testkit", DEFINITION).await.unwrap())).await;
}

/// All drifts are reported, by path and writer, and survive a restart as they are; then all are put back, and Helm goes on as on a twin.
async fn matrix(name: &str, helm: Helm, chart: &str, drifts: Vec<Drift>) {
    let mut world = World::new(name).await;
    define(&world).await;
    let twin = format!("{name}-twin");
    let chart = world.chart_of_text("web", chart);
    for namespace in [name, &twin] {
        helm.install(world.workload, "web", namespace, &chart, &[]).await.unwrap();
    }
    world.policy("Warn", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;

    let mark = world.workload.audit_mark().await.unwrap();
    let editor = world.writer(EDITOR);
    for drift in &drifts {
        drift.make(&editor, name).await;
    }
    let report = world.wait_report(Some("web"), "every drift is seen", |status| drifts.iter().all(|drift| is_seen(status, drift))).await;
    let status = &report["status"];
    for drift in &drifts {
        assert_named(drift, finding(status, drift.kind, drift.name).unwrap());
    }
    let added = drifts.iter().filter(|drift| drift.seen == Seen::Added);
    let swapped = drifts.iter().filter(|drift| drift.seen == Seen::Swapped).count();
    let fields = added.clone().map(|drift| drift.paths.len()).sum::<usize>() + swapped;
    assert_eq!(status["summary"]["foreign"], fields, "{status:#}");
    let count = |word: &str| status["summary"][word].as_u64().unwrap();
    assert_eq!(count("drifted") + count("missing"), (drifts.len() - added.count()) as u64);
    let before = objects(&world, name, helm).await;

    // The report is written after it was decided to keep what it says.
    world.wait_report(Some("web"), "the same findings", |now| now["findings"] == status["findings"]).await;
    world.stop_hub();
    let restarted = world.workload.audit_mark().await.unwrap();
    world.start_hub(&[]);
    world
        .wait("every object is judged again", async || {
            let page = world.try_metrics().await?;
            let counts = page.lines().filter(|line| line.starts_with("holdfast_objects{"));
            let judged: usize = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum();
            ensure!(judged >= drifts.len(), "{judged}");
            Ok(())
        })
        .await;
    world.wait_report(Some("web"), "as before the restart", |now| now["findings"] == status["findings"]).await;
    let calls = world.of_hub(&world.workload.audit_since(restarted).await.unwrap());
    assert!(calls.dry_runs().is_empty(), "a restart asks nothing:\n{}", calls.dry_runs());
    let calls = world.of_hub(&world.workload.audit_since(mark).await.unwrap());
    assert!(calls.writes().is_empty(), "Warn writes nothing:\n{}", calls.writes());
    assert_eq!(objects(&world, name, helm).await, before);

    world.policy("Correct", json!({"foreign": "Remove", "limit": no_brakes()})).await;
    let twins = objects(&world, &twin, helm).await;
    world
        .wait("everything is put back", async || {
            let ours = objects(&world, name, helm).await;
            ensure!(ours.keys().eq(twins.keys()), "{:?}", ours.keys());
            for (object, ours) in &ours {
                same(object, ours, &twins[object])?;
            }
            Ok(())
        })
        .await;
    world
        .wait_report(Some("web"), "nothing is left", |status| condition(status, "InSync") == "True" && status["summary"]["foreign"] == 0)
        .await;
    print_matrix(helm, &drifts);

    for namespace in [name, &twin] {
        helm.upgrade(world.workload, "web", namespace, &chart, &["--set-string", "tag=2"]).await.unwrap();
    }
    let twins = objects(&world, &twin, helm).await;
    for (object, ours) in &objects(&world, name, helm).await {
        same(object, ours, &twins[object]).unwrap();
    }
    world
        .wait_report(Some("web"), "in sync after the upgrade", |status| {
            status["source"]["revision"] == 2 && condition(status, "InSync") == "True" && status["summary"]["foreign"] == 0
        })
        .await;
    let history = helm.history(world.workload, "web", name).await.unwrap();
    assert_eq!(history.as_array().map(Vec::len), Some(2), "{history}");
}

async fn objects(world: &World, namespace: &str, helm: Helm) -> BTreeMap<String, Value> {
    let args = ["get", KINDS, "--namespace", namespace, "--output", "json", "--show-managed-fields"];
    let list: Value = serde_json::from_str(&world.workload.kubectl(&args).await.unwrap()).unwrap();
    let objects = list["items"].as_array().unwrap().iter().filter(|object| object["type"] != "helm.sh/release.v1");
    objects
        .filter(|object| object["metadata"]["name"] != "kube-root-ca.crt")
        .map(|object| {
            let name = format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
            (name, comparable(object.clone(), namespace, helm))
        })
        .collect()
}

fn is_seen(status: &Value, drift: &Drift) -> bool {
    let Some(found) = finding(status, drift.kind, drift.name) else { return false };
    match drift.seen {
        Seen::Missing => found["verdict"] == "Missing",
        _ => drift.paths.iter().all(|path| path_of(found, path).is_some()),
    }
}

fn assert_named(drift: &Drift, found: &Value) {
    let name = drift.name;
    let (verdict, reason, change) = match drift.seen {
        Seen::Missing => return assert_eq!(found["verdict"], "Missing", "{name}"),
        Seen::Changed => ("Drifted", "FieldChanged", "Changed"),
        Seen::Removed => ("Drifted", "FieldRemoved", "Removed"),
        Seen::Added => ("InSync", "ForeignField", "Added"),
        Seen::Swapped => ("Drifted", "FieldRemoved", ""),
    };
    assert_eq!((&found["verdict"], &found["reason"]), (&json!(verdict), &json!(reason)), "{name}: {found:#}");
    let paths: BTreeSet<&str> = found["paths"].as_array().unwrap().iter().filter_map(|entry| entry["path"].as_str()).collect();
    assert_eq!(paths, drift.paths.iter().copied().collect(), "{name}: nothing more, nothing less");
    for path in drift.paths {
        let entry = path_of(found, path).unwrap();
        let change = match drift.seen {
            Seen::Swapped if *path == drift.paths[0] => "Removed",
            Seen::Swapped => "Added",
            _ => change,
        };
        let actor = if change == "Removed" { "unattributed" } else { EDITOR };
        assert_eq!((&entry["change"], &entry["actor"]["manager"]), (&json!(change), &json!(actor)), "{name}: {entry:#}");
        if drift.kind == "Secret" {
            assert_eq!((&entry["live"], &entry["desired"]), (&Value::Null, &Value::Null), "{name}");
        }
    }
}

/// The table, for people who run the test with its output.
fn print_matrix(helm: Helm, drifts: &[Drift]) {
    let best = drifts.iter().filter(|drift| drift.best_default).count();
    println!("{helm:?}: seen {0} of {0}, put back {0} of {0}; the best peer's default: {best}", drifts.len());
    for drift in drifts {
        println!("  {:<16} {:<12} {:?} {}", drift.name, drift.kind, drift.seen, drift.paths.join(" "));
    }
}
