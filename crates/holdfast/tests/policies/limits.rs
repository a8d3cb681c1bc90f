//! Brakes on corrections: so many a minute, and none at all where too much drifts at once.

use anyhow::ensure;
use futures::future::join_all;
use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::{
    fixture::{Marker, Release, Style, configmap, hub_writes, lines, wait_event, wait_live},
    support::{World, condition, live, message, reason},
};

/// ConfigMaps `web-0`, `web-1`, …
fn many(namespace: &str, release: &str, count: usize) -> Vec<Value> {
    (0..count).map(|number| configmap(namespace, &format!("{release}-{number}"), "color", "blue")).collect()
}

/// Somebody paints all of them.
async fn paint(world: &World, release: &str, count: usize, color: &str) {
    let painter = world.writer("kubectl-edit");
    let edits = (0..count).map(async |number| {
        let target = Target::configmap(&world.namespace, &format!("{release}-{number}"));
        painter.merge_patch(&target, &json!({"data": {"color": color}})).await.unwrap();
    });
    join_all(edits).await;
}

/// How many of them have a colour.
async fn colored(world: &World, release: &str, count: usize, color: &str) -> usize {
    let reader = world.writer("reader");
    let colors = (0..count)
        .map(async |number| live(&reader, &Target::configmap(&world.namespace, &format!("{release}-{number}")), "/data/color").await);
    join_all(colors).await.iter().filter(|found| **found == json!(color)).count()
}

fn findings<'a>(status: &'a Value, reason: &str, action: &str) -> Vec<&'a Value> {
    let all = status["findings"].as_array().into_iter().flatten();
    all.filter(|finding| finding["reason"] == reason && finding["action"] == action).collect()
}

const MANY: usize = 64;
/// Those that a hub can have put back before it knew of more than twenty: twenty, and as many as it judges side by side.
const FEW: usize = 20 + 16;

#[tokio::test]
async fn too_much_at_once_stops_writing_until_it_is_approved_or_declared_otherwise() {
    let namespace = "blast";
    let mut world = World::new(namespace).await;
    let marker = Marker::install(&world).await;
    let (approved, upgraded) = (Release::new(&world, "approved", Style::ClientSide), Release::new(&world, "upgraded", Style::ServerSide));
    for release in [&approved, &upgraded] {
        release.install(&many(namespace, &release.name, MANY)).await;
    }
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    for release in ["approved", "upgraded", "marker"] {
        world.wait_in_sync(release).await;
    }
    for release in ["approved", "upgraded"] {
        paint(&world, release, MANY, "red").await;
    }
    let stopped = |status: &Value| {
        reason(status, "InSync") == "BlastRadius"
            && condition(status, "InSync") == "Unknown"
            && status["summary"]["drifted"].as_u64() >= Some((MANY - FEW) as u64)
            && findings(status, "BlastRadius", "Reported").len() as u64 == status["summary"]["drifted"].as_u64().unwrap_or_default().min(50)
    };
    let report = world.wait_report(Some("approved"), "stopped", stopped).await;
    let hash = report["status"]["source"]["desiredHash"].as_str().unwrap().to_owned();
    assert!(message(&report["status"], "InSync").contains(&hash), "{}", report["status"]["conditions"]);
    world.wait_report(Some("upgraded"), "stopped", stopped).await;
    wait_event(&world, "BlastRadiusExceeded", "approves").await;

    // Neither the audit nor a restart lets a write through, and other releases go on.
    world.kill_hub();
    let mark = world.workload.audit_mark().await.unwrap();
    let left = [colored(&world, "approved", MANY, "red").await, colored(&world, "upgraded", MANY, "red").await];
    assert!(left.iter().all(|left| *left >= MANY - FEW), "{left:?}");
    world.start_hub(&[]);
    world.wait_report(Some("approved"), "still stopped", stopped).await;
    marker.pass(&world).await;
    let writes = hub_writes(world.workload, mark).await.in_namespace(namespace);
    assert!(writes.iter().all(|call| call.name == "marker"), "{:?}", lines(&writes));

    // Another hash approves nothing; its own approves this one release.
    world.policy("Correct", json!({"approve": ["0123456789abcdef0123456789abcdef"]})).await;
    marker.pass(&world).await;
    assert_eq!(colored(&world, "approved", MANY, "red").await, left[0]);
    world.policy("Correct", json!({"approve": [hash], "limit": {"correctionsPerMinute": 6000}})).await;
    world.wait_in_sync("approved").await;
    assert_eq!(colored(&world, "approved", MANY, "blue").await, MANY);
    assert_eq!(colored(&world, "upgraded", MANY, "red").await, left[1]);
    // What was approved is not stopped again.
    paint(&world, "approved", MANY, "green").await;
    world
        .wait("all are put back", async || {
            let blue = colored(&world, "approved", MANY, "blue").await;
            ensure!(blue == MANY, "{blue}");
            Ok(())
        })
        .await;

    // Something else is declared.
    let mut objects = many(namespace, "upgraded", MANY);
    objects.push(configmap(namespace, "one-more", "color", "blue"));
    upgraded.write(&objects[MANY]).await;
    upgraded.record(2, "deployed", &objects).await;
    world.wait_in_sync("upgraded").await;
    assert_eq!(colored(&world, "upgraded", MANY, "blue").await, MANY);
}

#[tokio::test]
async fn corrections_wait_for_their_turn_and_other_releases_do_not() {
    const FEW: usize = 8;
    let namespace = "pace";
    let mut world = World::new(namespace).await;
    for release in ["web", "other"] {
        Release::new(&world, release, Style::ClientSide).install(&many(namespace, release, FEW)).await;
    }
    world.policy("Correct", json!({"limit": {"correctionsPerMinute": 1}})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    world.wait_in_sync("other").await;
    paint(&world, "web", FEW, "red").await;
    let waiting =
        |status: &Value| findings(status, "RateLimited", "Deferred").len() >= FEW - 2 && status["summary"]["corrected"].as_u64() >= Some(1);
    world.wait_report(Some("web"), "most of them wait", waiting).await;
    let writer = world.writer("kubectl-edit");
    let one = Target::configmap(namespace, "other-3");
    writer.merge_patch(&one, &json!({"data": {"color": "red"}})).await.unwrap();
    wait_live(&world, &writer, &one, "/data/color", &json!("blue")).await;
    world.wait_report(Some("web"), "they still wait", waiting).await;

    // Whose turn it was is not remembered, that they differ is.
    world.kill_hub();
    world.start_hub(&[]);
    world.wait_report(Some("web"), "all but one wait", |status| findings(status, "RateLimited", "Deferred").len() >= FEW - 4).await;
    world.policy("Correct", json!({"limit": {"correctionsPerMinute": 600}})).await;
    world.wait_in_sync("web").await;
    assert_eq!(colored(&world, "web", FEW, "blue").await, FEW);
}
