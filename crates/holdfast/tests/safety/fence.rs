//! Nothing is written while Helm is at work, and everything is judged by what Helm did last.

use holdfast_testkit::{Target, release};
use serde_json::json;

use crate::{
    fixture::{Marker, Release, Style, configmap, lines, wait_live, writes_to},
    support::{World, condition, live, reason},
};

#[tokio::test]
async fn a_running_operation_keeps_every_write_back_and_a_new_revision_counts() {
    for style in Style::BOTH {
        let namespace = &format!("upgrade-{}", style.word());
        let mut world = World::new(namespace).await;
        let release = Release::new(&world, "web", style);
        let (blue, green) = ([configmap(namespace, "settings", "color", "blue")], [configmap(namespace, "settings", "color", "green")]);
        release.install(&blue).await;
        let marker = Marker::install(&world).await;
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        let target = Target::configmap(namespace, "settings");
        let kubectl = world.writer("kubectl-edit");

        let mark = world.workload.audit_mark().await.unwrap();
        release.record(2, "pending-upgrade", &green).await;
        world
            .wait_report(Some("web"), "pending", |status| {
                condition(status, "InSync") == "Unknown" && reason(status, "InSync") == "ReleasePending"
            })
            .await;
        kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
        marker.pass(&world).await;
        let writes = writes_to(world.workload, mark, &target).await;
        assert!(writes.is_empty(), "{:?}", lines(&writes));
        assert_eq!(live(&kubectl, &target, "/data/color").await, json!("red"));

        // Helm goes on: its value, then its record. What is edited afterwards goes back to the new revision's value.
        if style == Style::ServerSide {
            release.write(&green[0]).await;
        } else {
            world.writer("helm").merge_patch(&target, &json!({"data": {"color": "green"}})).await.unwrap();
        }
        release.record(2, "deployed", &green).await;
        release.record(1, "superseded", &blue).await;
        world
            .wait_report(Some("web"), "revision 2", |status| status["source"]["revision"] == 2 && condition(status, "InSync") == "True")
            .await;
        kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
        wait_live(&world, &kubectl, &target, "/data/color", &json!("green")).await;
        let writes = writes_to(world.workload, mark, &target).await;
        assert_eq!(writes.len(), 1, "{:?}", lines(&writes));

        // The records go without an uninstallation: the report stays and says so.
        let mark = world.workload.audit_mark().await.unwrap();
        release.forget(1).await;
        release.forget(2).await;
        world
            .wait_report(Some("web"), "vanished", |status| {
                condition(status, "InSync") == "Unknown" && reason(status, "InSync") == "RecordsVanished"
            })
            .await;
        kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
        kubectl.delete(&target).await.unwrap();
        marker.pass(&world).await;
        let writes = writes_to(world.workload, mark, &target).await.filter(|call| call.name == "settings" || call.verb == "create");
        assert!(writes.is_empty(), "{:?}", lines(&writes));
        assert!(kubectl.find(&target).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_record_that_appears_together_with_the_drift_is_seen_in_time() {
    let namespace = "race";
    let mut world = World::new(namespace).await;
    let marker = Marker::install(&world).await;
    let mut releases = Vec::new();
    let names: Vec<String> = (0..12).map(|number| format!("web-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let style = if number % 2 == 0 { Style::ClientSide } else { Style::ServerSide };
        let objects = [configmap(namespace, name, "color", "blue")];
        Release::new(&world, name, style).install(&objects).await;
        releases.push((name, style, objects));
    }
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    for name in &names {
        world.wait_in_sync(name).await;
    }
    let mark = world.workload.audit_mark().await.unwrap();
    let kubectl = world.writer("kubectl-edit");
    for (name, style, objects) in &releases {
        // The hub hears of both at about the same time, in either order; the record was there first.
        Release::new(&world, name, *style).record(2, "pending-upgrade", objects).await;
        kubectl.merge_patch(&Target::configmap(namespace, name), &json!({"data": {"color": "red"}})).await.unwrap();
    }
    marker.pass(&world).await;
    for name in &names {
        world.wait_report(Some(name), "pending", |status| reason(status, "InSync") == "ReleasePending").await;
        let writes = writes_to(world.workload, mark, &Target::configmap(namespace, name)).await;
        assert!(writes.is_empty(), "{name}: {:?}", lines(&writes));
    }
    // It was given up: the old revision counts again, and what was held back is done.
    for (name, style, _) in &releases {
        Release::new(&world, name, *style).forget(2).await;
        wait_live(&world, &kubectl, &Target::configmap(namespace, name), "/data/color", &json!("blue")).await;
    }
}

#[tokio::test]
async fn every_state_but_deployed_keeps_the_hands_off() {
    let namespace = "states";
    let mut world = World::new(namespace).await;
    let marker = Marker::install(&world).await;
    let rows = [
        ("pending-upgrade", "ReleasePending"),
        ("pending-rollback", "ReleasePending"),
        ("pending-install", "ReleasePending"),
        ("uninstalling", "ReleaseUninstalling"),
        ("uninstalled", "ReleaseUninstalled"),
        ("failed", "ReleaseFailed"),
        ("nonsense", "RecordInvalid"),
    ];
    for (status, _) in rows {
        let objects = [configmap(namespace, status, "color", "blue")];
        Release::new(&world, status, Style::ClientSide).install(&objects).await;
    }
    // A record that cannot be decoded.
    let broken = Release::new(&world, "broken", Style::ClientSide);
    broken.write(&configmap(namespace, "broken", "color", "blue")).await;
    world.workload.put_release(&release::secret_of_bytes("broken", namespace, 1, "deployed", b"not a release")).await.unwrap();
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    for (status, _) in rows {
        world.wait_in_sync(status).await;
    }
    let mark = world.workload.audit_mark().await.unwrap();
    for (status, _) in rows {
        let objects = [configmap(namespace, status, "color", "blue")];
        Release::new(&world, status, Style::ClientSide).record(2, status, &objects).await;
    }
    let kubectl = world.writer("kubectl-edit");
    for (status, word) in rows.into_iter().chain([("broken", "RecordInvalid")]) {
        world.wait_report(Some(status), word, |report| condition(report, "InSync") == "Unknown" && reason(report, "InSync") == word).await;
        kubectl.merge_patch(&Target::configmap(namespace, status), &json!({"data": {"color": "red"}})).await.unwrap();
    }
    marker.pass(&world).await;
    for (status, _) in rows.into_iter().chain([("broken", "")]) {
        let writes = writes_to(world.workload, mark, &Target::configmap(namespace, status)).await;
        let writes = writes.filter(|call| call.name == status);
        assert!(writes.is_empty(), "{status}: {:?}", lines(&writes));
    }
    // Findings of the failed one are still reported, against what was deployed last.
    world
        .wait_report(Some("failed"), "drift below a failed upgrade", |status| {
            status["summary"]["drifted"] == 1 && reason(status, "InSync") == "ReleaseFailed"
        })
        .await;
    // Unless the policy says which revision counts.
    world.policy("Correct", json!({"onFailedRelease": "LastDeployed"})).await;
    wait_live(&world, &kubectl, &Target::configmap(namespace, "failed"), "/data/color", &json!("blue")).await;
}
