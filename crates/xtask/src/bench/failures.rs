//! What failing clusters cost a healthy one, and how soon drift is found that was made during an outage.

use anyhow::{Context, Result, ensure};
use holdfast_testkit::{
    ControlPlane, Fault, FaultProxy, FaultRule, Link, Match, Reply, Target, Writer, eventually,
    management::{CapiVersion, HUB_USER},
};
use serde_json::json;
use tokio::time::{Duration, Instant};

use super::{
    BY_HAND, GUARDED,
    edits::{Edited, restored},
    table::Table,
};
use crate::{
    fleet::{Fleet, NAMESPACE},
    hub::Hub,
    lookout::Lookout,
};

/// Namespace of the failing clusters on the management cluster.
const FAILING: &str = "failing";
/// Edits of the healthy cluster, alone and beside failing ones.
const EDITS: u32 = 100;
/// The first object not edited before: a path that keeps changing would be held as contested.
const UNTOUCHED: u32 = 100;
/// Edits during the outage.
const MISSED: u32 = 10;
/// Bound for the hub to notice that a cluster fails: pings, a question, and the time an outage stays untold.
const NOTICED: Duration = Duration::from_mins(2);
const MASTERS: [&str; 1] = ["system:masters"];

/// Adds a cluster that is watched and not written to: to the hub, `plane` behind a proxy is a cluster of its own while the rule holds.
async fn add(fleet: &Fleet, plane: &ControlPlane, name: &str) -> Result<(FaultProxy, FaultRule)> {
    let proxy = FaultProxy::start(plane)?;
    let poses = proxy.pose_as(name);
    fleet.management.capi_kubeconfig(FAILING, name, &proxy.kubeconfig(plane, HUB_USER, &MASTERS)?).await?;
    fleet.management.capi_cluster_object(FAILING, name, proxy.url(), CapiVersion::V1Beta2, true, &[]).await?;
    Ok((proxy, poses))
}

async fn is_watched(proxy: &FaultProxy) -> Result<()> {
    eventually("the cluster is watched", NOTICED, async || {
        let watches = proxy.open(&Match::any());
        ensure!(watches > 3, "{watches} watches are open");
        Ok(())
    })
    .await
}

/// Measures a healthy cluster alone and beside four that hang, reset, drip and throttle.
pub async fn beside_failing_clusters(fleet: &Fleet, hub: &Hub, table: &mut Table) -> Result<()> {
    let plane = fleet.workload("helm3")?;
    let editor = plane.writer("kubectl-edit")?;
    let alone = edits(&editor, UNTOUCHED).await?;

    fleet.management.namespace(FAILING).await?;
    let policy = json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": "watched", "namespace": FAILING},
        "spec": {"clusterSelector": {}, "mode": "Warn", "releases": [{"namespace": BY_HAND}]},
    });
    fleet.management.apply_yaml("platform", &policy.to_string()).await?;
    let mut failing = Vec::new();
    for name in ["hangs", "resets", "drips", "throttles"] {
        failing.push(add(fleet, plane, name).await?);
    }
    for (proxy, _) in &failing {
        is_watched(proxy).await?;
    }
    eventually("every object is judged", NOTICED, async || {
        let waiting = hub.metric("holdfast_queue_depth").await?;
        ensure!(waiting == 0.0, "{waiting} wait");
        Ok(())
    })
    .await?;
    let links = [Link::Silent, Link::Reset, Link::Drip { bytes_per_second: 1 }];
    for ((proxy, _), link) in failing.iter().zip(links) {
        proxy.set_link(link);
    }
    // The first rule is the one that strikes, so the pose has to go.
    let (last, poses) = failing.pop().context("no cluster to throttle")?;
    drop(poses);
    let reply = Reply::text(429, "Too many requests, please try again later.").retry_after(1);
    let throttled = last.rule(Match::any(), Fault::Answer(reply));
    last.reset();
    let beside = edits(&editor, UNTOUCHED + EDITS).await?;
    let unreachable = hub.metric_of("holdfast_clusters", "state=\"Unreachable\"").await?;
    table.beside("healthy cluster: edit → corrected", &alone, &beside);
    table.number("   clusters told to be unreachable at the end of it", unreachable, None);
    drop(throttled);
    fleet.management.kubectl(&["delete", "clusters,secrets", "--all", "-n", FAILING]).await?;
    Ok(())
}

async fn edits(editor: &Writer, first: u32) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    for index in first..first + EDITS {
        took.push(restored(editor, Edited::ConfigMap, &format!("bulk-{index}"), None).await?);
    }
    Ok(took)
}

/// Measures how soon drift is found that was made while a cluster of many objects could not be reached.
pub async fn after_an_outage(fleet: &Fleet, hub: &Hub, objects: u32, table: &mut Table) -> Result<()> {
    let plane = fleet.workload("helm4")?;
    let proxy = FaultProxy::start(plane)?;
    fleet.management.capi_kubeconfig(NAMESPACE, plane.name(), &proxy.kubeconfig(plane, HUB_USER, &MASTERS)?).await?;
    is_watched(&proxy).await?;
    let before = hub.metric_of("holdfast_clusters", "state=\"Unreachable\"").await?;
    proxy.set_link(Link::Refused);
    eventually("the outage is told", NOTICED, async || {
        ensure!(hub.metric_of("holdfast_clusters", "state=\"Unreachable\"").await? > before);
        Ok(())
    })
    .await?;

    let editor = plane.writer("kubectl-edit")?;
    let mut lookouts = Vec::new();
    for index in UNTOUCHED..UNTOUCHED + MISSED {
        let target = Target::configmap(GUARDED, &format!("bulk-{index}"));
        let pointer = Edited::ConfigMap.pointer();
        let wanted = editor.get(&target).await?.pointer(pointer).cloned().context("nothing to edit")?;
        editor.json_patch(&target, &json!([{"op": "replace", "path": pointer, "value": "missed"}])).await?;
        lookouts.push((Lookout::open(&editor, &target).await?, wanted));
    }
    let asked = proxy.count(&Match::any());
    proxy.set_link(Link::Open);
    let mut last = Instant::now();
    for (lookout, wanted) in &mut lookouts {
        let restored = lookout.until(|object| object.and_then(|object| object.pointer(Edited::ConfigMap.pointer())) == Some(wanted));
        last = last.max(restored.await?);
    }
    let back = proxy.times(&Match::any()).get(asked).copied().context("the hub never came back")?;
    let what = format!("drift of an outage: reconnect → corrected, {MISSED} of {objects} objects");
    table.seconds(&what, last.saturating_duration_since(back), Some(2.0));
    Ok(())
}
