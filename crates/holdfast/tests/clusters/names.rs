//! Two names of one workload cluster: both say so, only the older one writes.

use anyhow::ensure;
use holdfast_fleet::clock::{Clock, SystemClock};
use holdfast_testkit::Audit;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    fixture::lines,
    site::{Site, add_cluster, assert_none, cluster_target, wait_web, wait_web_in_sync, web_report},
    state::wait_state,
    support::{World, condition, finding, planes, reason},
};

const OLDER: &str = "hub-of-the-older";
const YOUNGER: &str = "hub-of-the-younger";

/// Adds the same cluster under two names, in this order. Which is older is a matter of age, not of the alphabet.
async fn two_names(world: &World) {
    let kubeconfig = |user| world.workload.kubeconfig(user, &["system:masters"]).unwrap();
    add_cluster(world, "zulu", world.workload, &kubeconfig(OLDER)).await;
    let capi = world.mgmt.writer("capi").unwrap();
    let created = capi.get(&cluster_target(world, "zulu")).await.unwrap();
    let created: Timestamp = created["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    world
        .wait("the next second", async || {
            ensure!(SystemClock.now().as_second() > created.as_second(), "not yet");
            Ok(())
        })
        .await;
    add_cluster(world, "alpha", world.workload, &kubeconfig(YOUNGER)).await;
}

fn writes(calls: &Audit, namespace: &str) -> Audit {
    calls.writes().in_namespace(namespace)
}

/// The first object is drifted, and nobody may write.
fn is_only_reported(status: &Value, name: &str) -> bool {
    finding(status, "ConfigMap", name).is_some_and(|found| found["verdict"] == "Drifted" && found["action"] == "Reported")
}

#[tokio::test]
async fn only_the_older_name_writes_through_outage_and_restart_until_it_leaves() {
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, "names").await;
    let site = Site::install(&world, workload, 6).await;
    two_names(&world).await;
    world.policy("Correct", json!({})).await;
    let start = workload.audit_mark().await.unwrap();
    // Drift that is there from the start: whoever comes first must not take what it is not known to own.
    let first = site.drift().await;
    world.start_hub(&[]);
    site.wait_says(&world, &first, "blue").await;
    for (cluster, state) in [("zulu", "older name"), ("alpha", "younger name")] {
        let other = if cluster == "zulu" { "names/alpha" } else { "names/zulu" };
        let truth = if cluster == "zulu" { "True" } else { "False" };
        let says_so = |status: &Value| {
            let ready = status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == "Ready");
            ready.is_some_and(|ready| {
                ready["status"] == truth && ready["reason"] == "ClusterShared" && ready["message"].as_str().unwrap().contains(other)
            })
        };
        let report = wait_state(&world, cluster, state).await;
        assert!(says_so(&report["status"]), "{report}");
        let report = wait_web(&world, cluster, "says so", says_so).await;
        assert_eq!(report["status"]["clusterUID"].as_str().map(str::is_empty), Some(false));
    }
    site.is_corrected(&world).await;
    let calls = site.calls(start, "hub-of").await;
    assert_none(&writes(&calls.by_user(YOUNGER), "names"), "the younger name writes");
    assert_eq!(writes(&calls.by_user(OLDER), "names").len(), 2, "{:?}", lines(&calls.writes()));

    // Paused under its older name, it is paused.
    let capi = mgmt.writer("capi").unwrap();
    let mark = workload.audit_mark().await.unwrap();
    capi.merge_patch(&cluster_target(&world, "zulu"), &json!({"spec": {"paused": true}})).await.unwrap();
    wait_state(&world, "zulu", "older name").await;
    wait_web(&world, "zulu", "still in sync", |status| condition(status, "InSync") == "True").await;
    world
        .wait("paused", async || {
            let paused = crate::fixture::metric(&world, "holdfast_clusters{state=\"Paused\"}").await?;
            ensure!(paused == 1, "{paused} paused");
            Ok(())
        })
        .await;
    let target = site.drift().await;
    for cluster in ["zulu", "alpha"] {
        wait_web(&world, cluster, "found", |status| is_only_reported(status, &target.name)).await;
    }
    assert_none(&writes(&site.calls(mark, "hub-of").await, "names"), "writes to a paused cluster");
    capi.merge_patch(&cluster_target(&world, "zulu"), &json!({"spec": {"paused": false}})).await.unwrap();
    site.wait_says(&world, &target, "blue").await;
    assert_none(&writes(&site.calls(mark, YOUNGER).await, "names"), "the younger name writes");

    // Out of reach, it stays the owner; after a restart as well.
    mgmt.capi_kubeconfig("names", "zulu", "{[").await.unwrap();
    wait_state(&world, "zulu", "bad Secret").await;
    let mark = workload.audit_mark().await.unwrap();
    let target = site.drift().await;
    wait_web(&world, "alpha", "found", |status| is_only_reported(status, &target.name)).await;
    world.stop_hub();
    world.start_hub(&[]);
    wait_state(&world, "zulu", "bad Secret").await;
    let other = site.drift().await;
    wait_web(&world, "alpha", "found", |status| is_only_reported(status, &target.name) && is_only_reported(status, &other.name)).await;
    wait_state(&world, "alpha", "younger name").await;
    assert_none(&writes(&site.calls(mark, "hub-of").await, "names"), "writes while the owner is out of reach");
    let zulu = web_report(&world, "zulu").await.unwrap();
    assert_eq!(reason(&zulu["status"], "InSync"), "KubeconfigRejected");

    // It leaves.
    capi.delete(&cluster_target(&world, "zulu")).await.unwrap();
    for target in [&target, &other] {
        site.wait_says(&world, target, "blue").await;
    }
    wait_state(&world, "alpha", "connected").await;
    let report = wait_web_in_sync(&world, "alpha").await;
    assert_eq!(reason(&report["status"], "Ready"), "Guarded");
}
