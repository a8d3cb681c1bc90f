//! Several hubs on one management cluster: one writes, and none writes after its term, whatever happened to it meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "clippy allows it in test functions, not in their helpers"
)]

mod replica;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use anyhow::{Context, ensure};
use holdfast_testkit::{ControlPlane, Mark, Options, Target, Writer, eventually, management::CapiVersion};
use serde_json::{Value, json};

use replica::Replica;
use support::World;
use support::fixture::{Release, Style, configmap, hub_writes, lines};

/// A Lease is taken over after 25 seconds; the rest is for a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// Shorter than a Lease lasts: whatever happens within it did not wait for that.
const AT_ONCE: Duration = Duration::from_secs(15);

const ELECT: [&str; 1] = ["--leader-elect"];

/// A world with one release that two hubs guard, and somebody who edits its only object.
struct Scene {
    world: World,
    mgmt: &'static ControlPlane,
    edits: Writer,
    object: Target,
}

impl Scene {
    async fn new(namespace: &str) -> Self {
        let world = World::new(namespace).await;
        let mgmt = world.mgmt;
        Self::with(world, mgmt).await
    }

    async fn with(world: World, mgmt: &'static ControlPlane) -> Self {
        let namespace = world.namespace.clone();
        Release::new(&world, "web", Style::ClientSide).install(&[configmap(&namespace, "settings", "color", "blue")]).await;
        world.policy("Correct", json!({})).await;
        Self { mgmt, edits: world.writer("kubectl-edit"), object: Target::configmap(&namespace, "settings"), world }
    }

    fn hub(&self, name: &str) -> Replica {
        Replica::start(self.mgmt, &self.world.namespace, name, &ELECT)
    }

    /// Two hubs, the first of which leads and has judged the release.
    async fn pair(&self) -> (Replica, Replica) {
        let first = self.hub("a");
        first.wait_ready("ok").await;
        first.wait_metric("holdfast_objects{verdict=\"InSync\"}", 1).await;
        let second = self.hub("b");
        second.wait_ready("standby").await;
        (first, second)
    }

    async fn edit(&self, color: &str) {
        self.edits.merge_patch(&self.object, &json!({"data": {"color": color}})).await.unwrap();
    }

    async fn color(&self) -> Value {
        self.edits.get(&self.object).await.unwrap()["data"]["color"].clone()
    }

    async fn wait_healed(&self, by: &Replica) {
        by.wait("the drift is put back", async || {
            let color = self.color().await;
            ensure!(color == "blue", "{color}");
            Ok(())
        })
        .await;
    }

    /// Writes of any hub to the workload cluster since `mark`.
    async fn workload_writes(&self, mark: Mark) -> Vec<String> {
        lines(&hub_writes(self.world.workload, mark).await.in_namespace(&self.world.namespace))
    }

    async fn lease(&self) -> Value {
        let lease = Target::lease(&self.world.namespace, "holdfast");
        self.mgmt.writer("reader").unwrap().get(&lease).await.unwrap()["spec"].clone()
    }

    /// The name of who holds the Lease, without what makes it unique.
    async fn holder(&self) -> String {
        let lease = self.lease().await;
        let holder = lease["holderIdentity"].as_str().unwrap_or_default();
        holder.split('_').next().unwrap_or_default().to_owned()
    }
}

#[tokio::test]
async fn one_hub_writes_and_another_follows_at_once_when_it_ends() {
    let scene = Scene::new("leaders-stop").await;
    let (first, second) = scene.pair().await;
    assert_eq!(scene.holder().await, "a");
    first.wait_metric("holdfast_leading", 1).await;
    second.wait_metric("holdfast_leading", 0).await;
    let workload = scene.world.workload.audit_mark().await.unwrap();
    let started = scene.mgmt.audit_mark().await.unwrap();
    scene.edit("red").await;
    scene.wait_healed(&first).await;
    scene.world.wait_report(Some("web"), "said", |status| status["corrections"].as_array().is_some_and(|all| all.len() == 1)).await;
    assert_eq!(scene.workload_writes(workload).await.len(), 1);
    assert_eq!((first.corrections(), second.corrections()), (1, 0));
    let writes = second.management_writes(scene.mgmt, started).await;
    assert!(writes.is_empty(), "a standby writes nothing: {:?}", lines(&writes));
    assert!(second.page("/healthz").await.unwrap().starts_with("HTTP/1.1 200"));

    first.stop();
    scene.edit("green").await;
    eventually("the other hub leads", AT_ONCE, async || {
        let color = scene.color().await;
        ensure!(color == "blue", "{color}");
        Ok(())
    })
    .await
    .unwrap();
    second.wait_ready("ok").await;
    let lease = scene.lease().await;
    assert!(lease["holderIdentity"].as_str().unwrap().starts_with("b_") && lease["leaseTransitions"] == 1, "{lease}");
    scene
        .world
        .wait_report(Some("web"), "the history goes on", |status| status["corrections"].as_array().is_some_and(|all| all.len() == 2))
        .await;

    second.stop();
    let lease = scene.lease().await;
    assert!(lease["holderIdentity"].is_null() && lease["renewTime"].is_string(), "given back: {lease}");
}

#[tokio::test]
async fn a_hub_that_died_is_followed_and_one_that_was_paused_writes_nothing_when_it_wakes() {
    let scene = Scene::new("leaders-pause").await;
    let (first, second) = scene.pair().await;
    let workload = scene.world.workload.audit_mark().await.unwrap();
    // It will find this in its watch when it wakes.
    first.pause();
    scene.edit("red").await;
    scene.wait_healed(&second).await;
    second.wait_ready("ok").await;
    assert_eq!(scene.holder().await, "b");
    assert_eq!((scene.workload_writes(workload).await.len(), second.corrections()), (1, 1));

    // And this, which nobody else is there to put back.
    second.pause();
    scene.edit("green").await;
    let (workload, mgmt) = (scene.world.workload.audit_mark().await.unwrap(), scene.mgmt.audit_mark().await.unwrap());
    first.resume();
    first.wait_logged("another hub leads; standing by").await;
    first.wait_ready("standby").await;
    // Everything of its term has ended, so nothing of it can come later.
    first
        .wait("nothing of its term is left", async || {
            let tasks = first.page("/debug/tasks").await?;
            ensure!(!tasks.contains("hub/leading"), "{tasks}");
            Ok(())
        })
        .await;
    assert_eq!(scene.workload_writes(workload).await, [""; 0]);
    let writes = first.management_writes(scene.mgmt, mgmt).await;
    assert!(writes.is_empty(), "{:?}", lines(&writes));
    assert_eq!((first.corrections(), scene.color().await), (0, json!("green")));

    // The one that leads goes on where it was, or, if that took too long, the other one leads again: once it is put back.
    second.resume();
    scene.wait_healed(&second).await;
    assert_eq!(scene.workload_writes(workload).await.len(), 1);

    // Killed: nobody gives the Lease back.
    let (leader, standby) = if scene.holder().await == "b" { (second, first) } else { (first, second) };
    standby.wait_ready("standby").await;
    let name = standby.name.clone();
    leader.kill();
    scene.edit("yellow").await;
    scene.wait_healed(&standby).await;
    assert_eq!(scene.holder().await, name);
    assert_eq!(scene.workload_writes(workload).await.len(), 2);
}

#[tokio::test]
async fn nothing_is_written_while_nobody_knows_who_leads() {
    // Frozen below, so no other test may use it.
    let mgmt: &'static ControlPlane = Box::leak(Box::new(ControlPlane::start(Options::named("frozen")).await.unwrap()));
    let crds = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast")).arg("crds").output().unwrap();
    mgmt.install_cluster_api_crd().await.unwrap();
    mgmt.apply_yaml("testkit", &String::from_utf8(crds.stdout).unwrap()).await.unwrap();
    let listed = async || mgmt.kubectl(&["get", "driftreports,driftpolicies", "-A"]).await;
    eventually("the new kinds can be listed", PATIENCE, listed).await.unwrap();
    let (workload, _) = support::planes().await;
    let world = World::empty(workload, mgmt, "leaders-frozen").await;
    mgmt.capi_cluster("leaders-frozen", "c", workload, CapiVersion::V1Beta2, true, &[]).await.unwrap();
    let scene = Scene::with(world, mgmt).await;
    let (first, second) = scene.pair().await;
    let before = scene.lease().await;

    mgmt.freeze().unwrap();
    first.wait_logged("nothing is written until it is").await;
    first.wait_metric("holdfast_leading", 0).await;
    let mark = workload.audit_mark().await.unwrap();
    scene.edit("red").await;
    first.wait_metric("holdfast_objects{verdict=\"Drifted\"}", 1).await;
    // Longer than the Lease lasts, and long enough for every retry of an idle hub.
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(scene.workload_writes(mark).await, [""; 0]);
    assert_eq!((first.corrections(), second.corrections(), scene.color().await), (0, 0, json!("red")));

    mgmt.thaw().unwrap();
    scene.wait_healed(&first).await;
    assert_eq!(scene.workload_writes(mark).await.len(), 1);
    // Nobody could renew, so nobody was late.
    let after = scene.lease().await;
    assert_eq!((&after["holderIdentity"], &after["leaseTransitions"]), (&before["holderIdentity"], &before["leaseTransitions"]));
    first.wait_ready("ok").await;
    second.wait_ready("standby").await;
}

/// Rights on the management cluster, without those to the Lease; the latter are given to each user by a binding of its own.
fn rights(namespace: &str, names: &[&str]) -> Vec<Value> {
    let rbac = |kind: &str, name: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let binding = |name: &str, role: &str, subject: Value| {
        let mut object = rbac("RoleBinding", name);
        object["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role});
        object["subjects"] = json!([subject]);
        object
    };
    let role = |name: &str, groups: &[&str]| {
        let mut object = rbac("Role", name);
        object["rules"] = json!([{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}]);
        object
    };
    let subject = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let mut all = vec![
        role("hub", &["", "cluster.x-k8s.io", "events.k8s.io", "holdfast.dev"]),
        role("lease", &["coordination.k8s.io"]),
        binding("hub", "hub", subject("Group", namespace)),
    ];
    all.extend(names.iter().map(|name| binding(name, "lease", subject("User", &Replica::user(namespace, name)))));
    all
}

#[tokio::test]
async fn a_hub_that_is_cut_off_from_the_lease_alone_stops_writing_before_it_is_followed() {
    let namespace = "leaders-cut";
    let scene = Scene::new(namespace).await;
    for object in rights(namespace, &["a", "b"]) {
        scene.mgmt.apply_yaml("platform", &object.to_string()).await.unwrap();
    }
    let start = |name| Replica::start_in_group(scene.mgmt, namespace, name, namespace, &ELECT);
    let first = start("a");
    first.wait_metric("holdfast_objects{verdict=\"InSync\"}", 1).await;
    let second = start("b");
    second.wait_ready("standby").await;
    let platform = scene.mgmt.writer("platform").unwrap();
    platform.delete(&Target::role_binding(namespace, "a")).await.unwrap();
    first.wait_metric("holdfast_leading", 0).await;
    let (workload, mgmt) = (scene.world.workload.audit_mark().await.unwrap(), scene.mgmt.audit_mark().await.unwrap());
    assert_eq!(scene.holder().await, "a", "nobody follows before it has stopped");
    scene.edit("red").await;
    scene.wait_healed(&second).await;
    assert_eq!((scene.holder().await.as_str(), first.corrections(), second.corrections()), ("b", 0, 1));
    scene.world.wait_report(Some("web"), "said", |status| status["corrections"].as_array().is_some_and(|all| all.len() == 1)).await;
    assert_eq!(scene.workload_writes(workload).await.len(), 1);
    let writes = first.management_writes(scene.mgmt, mgmt).await;
    assert!(writes.iter().all(|call| call.code == Some(403)), "{:?}", lines(&writes));

    // It learns what happened as soon as it may look.
    let back = rights(namespace, &["a"]).pop().unwrap();
    scene.mgmt.apply_yaml("platform", &back.to_string()).await.unwrap();
    first.wait_logged("another hub leads; standing by").await;
    // Somebody removes the Lease of the one that leads: it is left to it until it knows, and then one of them makes it anew.
    let mark = scene.world.workload.audit_mark().await.unwrap();
    platform.delete(&Target::lease(namespace, "holdfast")).await.unwrap();
    scene.edit("green").await;
    second
        .wait("put back by whoever leads", async || {
            let color = scene.color().await;
            ensure!(color == "blue", "{color}");
            Ok(())
        })
        .await;
    assert_eq!(scene.workload_writes(mark).await.len(), 1);
}

#[tokio::test]
async fn a_hub_without_rivals_says_that_it_is_alive_and_needs_no_lease_to_work() {
    let scene = Scene::new("leaders-alone").await;
    let hub = Replica::start(scene.mgmt, &scene.world.namespace, "alone", &[]);
    hub.wait_ready("ok").await;
    scene.edit("red").await;
    scene.wait_healed(&hub).await;
    let first = scene.lease().await;
    assert_eq!(scene.holder().await, "alone");
    hub.wait("it is renewed", async || {
        let lease = scene.lease().await;
        ensure!(lease["renewTime"] != first["renewTime"] && lease["holderIdentity"] == first["holderIdentity"], "{lease}");
        Ok(())
    })
    .await;
    hub.stop();

    // A Lease that cannot be kept is no reason to stop.
    let hub = Replica::start(scene.mgmt, &scene.world.namespace, "elsewhere", &["--lease-namespace", "no-such-namespace"]);
    hub.wait_logged("the Lease cannot be kept").await;
    scene.edit("green").await;
    scene.wait_healed(&hub).await;
    let missing = hub.page("/readyz").await.context("alive").unwrap();
    assert!(missing.ends_with("ok\n"), "{missing}");
}
