//! API servers that go away and come back, seen without anything in between.

use holdfast_testkit::{ControlPlane, Options, Target, eventually, management::CapiVersion};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    fixture::{Release, Style, configmap, hub_writes, lines, metric, wait_cluster},
    scene::AFTER_A_BACKOFF,
    support::{World, condition, planes, reason},
};

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

#[tokio::test]
async fn drift_made_right_after_a_servers_return_is_found() {
    let namespace = "restart";
    let plane = PLANE.get_or_init(|| async { ControlPlane::start(Options::named("restarted")).await.unwrap() }).await;
    let mut world = World::empty(plane, planes().await.1, namespace).await;
    world.mgmt.capi_cluster(namespace, "c", plane, CapiVersion::V1Beta2, true, &[]).await.unwrap();
    Release::new(&world, "web", Style::ServerSide).install(&[configmap(namespace, "settings", "color", "blue")]).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let watches = metric(&world, "holdfast_watches").await.unwrap();
    let mark = plane.audit_mark().await.unwrap();

    let edit = plane.writer("kubectl-edit").unwrap();
    let settings = Target::configmap(namespace, "settings");
    plane.stop_api_server();
    wait_cluster(&world, "c", "unreachable", |status| {
        condition(status, "Reachable") == "False" && reason(status, "InSync") == "ClusterUnreachable"
    })
    .await;
    let report = world.report(Some("web")).await.unwrap();
    assert_eq!(condition(&report["status"], "InSync"), "Unknown", "an old green: {}", report["status"]["conditions"]);
    plane.start_api_server().await.unwrap();
    edit.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
    let corrected = eventually("it is found after the return", AFTER_A_BACKOFF, async || {
        let object = edit.get(&settings).await?;
        anyhow::ensure!(object["data"]["color"] == "blue", "{}", object["data"]);
        Ok(())
    });
    corrected.await.unwrap_or_else(|error| panic!("{error:#}\n{}", world.log()));
    world.wait_in_sync("web").await;
    wait_cluster(&world, "c", "reachable", |status| condition(status, "Reachable") == "True").await;
    let writes = hub_writes(plane, mark).await;
    assert_eq!(writes.len(), 1, "{:?}", lines(&writes));
    assert_eq!(metric(&world, "holdfast_watches").await.unwrap(), watches);
}
