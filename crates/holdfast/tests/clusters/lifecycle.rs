//! Clusters come, wait, pause and go; and which are looked after at all.

use std::process::Command;

use anyhow::ensure;
use holdfast_testkit::management::{CapiVersion, HUB_USER, KubeconfigSecret};
use serde_json::json;

use crate::{
    fixture::{cluster_report, metric, reports},
    relay::Relay,
    site::{Site, add_cluster, assert_none, cluster_target, more_planes, wait_no_reports, wait_web, wait_web_in_sync},
    state::wait_state,
    support::{World, condition, finding, grant_rights, planes},
    traces::Traces,
};

const FAR_USER: &str = "hub-far-away";

#[tokio::test]
async fn a_cluster_that_goes_leaves_nothing_behind() {
    let namespace = "comes-and-goes";
    let (other, _) = more_planes().await;
    let mut world = World::new(namespace).await;
    let near = Site::install(&world, world.workload, 4).await;
    let far = Site::install(&world, other, 8).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    wait_web_in_sync(&world, "c").await;
    near.is_corrected(&world).await;
    let before = Traces::of(&world).await;
    let kubeconfig = other.kubeconfig(FAR_USER, &["system:masters"]).unwrap();
    let capi = world.mgmt.writer("capi").unwrap();
    for round in 0..2 {
        // Its Secret comes first, then the Cluster, then its control plane.
        world.mgmt.capi_kubeconfig(namespace, "far", &kubeconfig).await.unwrap();
        world.mgmt.capi_cluster_object(namespace, "far", other.url(), CapiVersion::V1Beta2, false, &[]).await.unwrap();
        let mark = other.audit_mark().await.unwrap();
        wait_state(&world, "far", "not initialised").await;
        let early = far.drift().await;
        near.is_corrected(&world).await;
        assert_none(&far.calls(mark, FAR_USER).await, "calls before the control plane is there");
        world.mgmt.set_capi_initialised(namespace, "far", CapiVersion::V1Beta2, true).await.unwrap();
        far.wait_says(&world, &early, "blue").await;
        wait_web_in_sync(&world, "far").await;
        wait_state(&world, "far", "connected").await;
        let during = Traces::of(&world).await;
        assert!(during.tasks > before.tasks && during.watches > before.watches && during.files > before.files, "{during:?} {before:?}");

        // A controller still holds it; the hub is out already, whatever is going on there.
        let target = cluster_target(&world, "far");
        capi.merge_patch(&target, &json!({"metadata": {"finalizers": ["cluster.cluster.x-k8s.io"]}})).await.unwrap();
        far.drift().await;
        capi.delete(&target).await.unwrap();
        wait_state(&world, "far", "deleting").await;
        let mark = other.audit_mark().await.unwrap();
        far.drift().await;
        assert_eq!(metric(&world, "holdfast_clusters{state=\"Waiting\"}").await.unwrap(), 1);
        if round == 0 {
            near.is_corrected(&world).await;
        }
        assert_none(&far.calls(mark, FAR_USER).await, "calls to a cluster that is being deleted");
        assert_eq!(Traces::tasks_of(&world, "far").await.len(), 1, "the one that waits");

        capi.merge_patch(&target, &json!({"metadata": {"finalizers": []}})).await.unwrap();
        wait_no_reports(&world, "far").await;
        assert!(Traces::tasks_of(&world, "far").await.is_empty());
        before.wait_back(&world).await;
        assert_none(&far.calls(mark, FAR_USER).await, "calls to a cluster that is gone");
        assert_eq!(metric(&world, "holdfast_clusters{state=\"Waiting\"}").await.unwrap(), 0);
        assert_eq!(metric(&world, "holdfast_hub_clusters_unowned").await.unwrap(), 0);
        assert!(!world.metrics().await.contains("cluster=\"far\""));
        far.kubectl.merge_patch(&early, &json!({"data": {"color": "blue"}})).await.unwrap();
    }
    assert!(cluster_report(&world, "c").await.is_ok());
}

#[tokio::test]
async fn what_changes_while_a_cluster_is_paused_is_told_at_once_and_mended_afterwards() {
    let namespace = "pauses";
    let mut world = World::new(namespace).await;
    let site = Site::install(&world, world.workload, 3).await;
    let capi = world.mgmt.writer("capi").unwrap();
    let target = cluster_target(&world, "c");
    // Paused before it was ever seen.
    capi.merge_patch(&target, &json!({"spec": {"paused": true}})).await.unwrap();
    let mark = world.workload.audit_mark().await.unwrap();
    let old = site.drift().await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    let is_reported = |name: String| {
        move |status: &serde_json::Value| {
            finding(status, "ConfigMap", &name).is_some_and(|found| found["action"] == "Reported" && found["reason"] == "Suspended")
        }
    };
    wait_web(&world, "c", "found", is_reported(old.name.clone())).await;
    let new = site.drift().await;
    wait_web(&world, "c", "found", is_reported(new.name.clone())).await;
    assert_none(&site.calls(mark, HUB_USER).await.in_namespace(namespace).writes(), "writes to a paused cluster");
    // Put back by hand, it is paused and well.
    for target in [&old, &new] {
        site.kubectl.merge_patch(target, &json!({"data": {"color": "blue"}})).await.unwrap();
    }
    wait_state(&world, "c", "paused").await;
    let during = site.drift().await;
    wait_web(&world, "c", "found", is_reported(during.name.clone())).await;
    capi.merge_patch(&target, &json!({"spec": {"paused": false}})).await.unwrap();
    site.wait_says(&world, &during, "blue").await;
    wait_state(&world, "c", "connected").await;
}

#[tokio::test]
async fn only_the_hubs_namespace_counts_and_without_policies_its_default_mode() {
    let namespace = "default-mode";
    // By a user of its own: it reads the releases of all tests.
    let user = "hub-default-mode";
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    add_cluster(&world, "c", workload, &workload.kubeconfig(user, &["system:masters"]).unwrap()).await;
    let site = Site::install(&world, world.workload, 2).await;
    // A neighbour in another namespace with a policy of its own, for another hub.
    let elsewhere = World::empty(world.workload, world.mgmt, "default-mode-elsewhere").await;
    add_cluster(&elsewhere, "n", world.workload, &world.workload.kubeconfig("hub-elsewhere", &["system:masters"]).unwrap()).await;
    elsewhere.policy("Correct", json!({})).await;

    let mark = world.workload.audit_mark().await.unwrap();
    world.start_hub(&[]);
    world.wait("the hub listens", async || world.try_metrics().await.map(drop)).await;
    world
        .wait("the fleet was read", async || {
            ensure!(world.log().contains("watching Cluster API clusters"), "not yet");
            Ok(())
        })
        .await;
    world.stop_hub();
    assert_none(&site.calls(mark, user).await, "calls although no policy selects the cluster");
    assert!(reports(&world).await.unwrap().is_empty());

    world.start_hub(&["--default-mode", "Warn"]);
    wait_web_in_sync(&world, "c").await;
    let target = site.drift().await;
    wait_web(&world, "c", "found", |status| {
        finding(status, "ConfigMap", &target.name).is_some_and(|found| found["verdict"] == "Drifted" && found["action"] == "Reported")
    })
    .await;
    wait_state(&world, "c", "drifted").await;
    let calls = site.calls(mark, user).await;
    assert_none(&calls.writes(), "writes in mode Warn");
    assert_none(&site.calls(mark, "hub-elsewhere").await, "calls for a cluster of another namespace");
    assert!(reports(&elsewhere).await.unwrap().is_empty());
    // A policy that comes later goes before the default.
    world.policy("Correct", json!({})).await;
    site.wait_says(&world, &target, "blue").await;
}

#[tokio::test]
async fn a_cluster_that_was_never_reached_says_why() {
    let namespace = "never-reached";
    let mut world = World::new(namespace).await;
    let site = Site::install(&world, world.workload, 1).await;
    let (other, _) = more_planes().await;
    let (silent, closed) = (Relay::to(other).await, Relay::to(other).await);
    silent.fall_silent();
    closed.close();
    let at = |relay: &Relay| other.static_token().at(&relay.url()).kubeconfig();
    add_cluster(&world, "silent", other, &at(&silent)).await;
    add_cluster(&world, "closed", other, &at(&closed)).await;
    add_cluster(&world, "nobody", other, &other.static_token().at("https://127.0.0.1:1").kubeconfig()).await;
    add_cluster(&world, "garbled", other, "{[").await;
    world.mgmt.capi_cluster_object(namespace, "no-secret", other.url(), CapiVersion::V1Beta2, true, &[]).await.unwrap();
    // Where most are out of reach, the hub waits before it says so.
    for number in 1..=3 {
        let well = world.workload.kubeconfig(&format!("hub-well-{number}"), &["system:masters"]).unwrap();
        add_cluster(&world, &format!("well-{number}"), world.workload, &well).await;
    }
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    wait_state(&world, "silent", "connecting").await;
    wait_state(&world, "garbled", "bad Secret").await;
    wait_state(&world, "no-secret", "no Secret yet").await;
    wait_state(&world, "c", "older name").await;
    // The silent one is younger and holds up nobody.
    site.is_corrected(&world).await;
    wait_state(&world, "nobody", "unreachable").await;
    wait_state(&world, "closed", "closed at once").await;
    wait_state(&world, "silent", "silent").await;
    for relay in [&silent, &closed] {
        relay.lead_to(other);
    }
    for cluster in ["silent", "closed"] {
        world
            .wait(&format!("{cluster} is there"), async || {
                let report = cluster_report(&world, cluster).await?;
                ensure!(condition(&report["status"], "Reachable") == "True", "{}", report["status"]["conditions"]);
                Ok(())
            })
            .await;
    }
}

#[tokio::test]
async fn clusters_that_nobody_looks_after_are_counted() {
    let namespace = "unowned";
    let (workload, _) = planes().await;
    let (mgmt, _) = more_planes().await;
    grant_rights(mgmt).await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    for name in ["one", "two"] {
        let text = workload.kubeconfig(&format!("hub-unowned-{name}"), &["system:masters"]).unwrap();
        let labels = [("holdfast.dev/kubeconfig", "true")];
        let secret = KubeconfigSecret { namespace, name, secret_type: "Opaque", labels: &labels, key: "value", text: &text };
        mgmt.kubeconfig_secret(&secret).await.unwrap();
    }
    // The policies are there, the reports are not: without what was corrected before nobody begins.
    let crds = Command::new(env!("CARGO_BIN_EXE_holdfast")).arg("crds").output().unwrap();
    let crds = String::from_utf8(crds.stdout).unwrap();
    let (policies, reports): (Vec<&str>, Vec<&str>) = crds.split("---\n").partition(|text| text.contains("kind: DriftPolicy\n"));
    mgmt.apply_yaml("testkit", &policies.join("---\n")).await.unwrap();
    world.start_hub(&["--default-mode", "Warn"]);
    let unowned = async |wanted: u64| {
        let count = metric(&world, "holdfast_hub_clusters_unowned").await?;
        ensure!(count == wanted, "{count} unowned");
        Ok(())
    };
    world.wait("the hub listens", async || world.try_metrics().await.map(drop)).await;
    world.wait("nobody looks after two clusters", async || unowned(2).await).await;
    assert_none(&workload.audit().await.unwrap().filter(|call| call.user.starts_with("hub-unowned")), "calls");
    mgmt.apply_yaml("testkit", &reports.join("---\n")).await.unwrap();
    world.wait("somebody looks after all", async || unowned(0).await).await;
    wait_state(&world, "one", "older name").await;
    wait_state(&world, "two", "younger name").await;
}
