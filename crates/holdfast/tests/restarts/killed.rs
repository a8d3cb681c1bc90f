//! A hub that is killed in the middle of a correction: the next one finishes it, and Helm never notices.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::ensure;
use holdfast_testkit::{
    Fault, FaultProxy, Helm, Match, Target, Writer, eventually, managed_fields_without_times,
    management::{CapiVersion, HUB_USER},
    programs,
};
use serde_json::{Value, json};

use crate::{
    secrets::{state_secrets, wait_kept},
    support::{SOON, World},
};

/// A world whose cluster is reached through a proxy.
async fn behind_proxy(name: &str) -> (World, FaultProxy) {
    let (workload, mgmt) = crate::support::planes().await;
    let world = World::empty(workload, mgmt, name).await;
    let proxy = FaultProxy::start(workload).unwrap();
    let kubeconfig = proxy.kubeconfig(workload, HUB_USER, &["system:masters"]).unwrap();
    mgmt.capi_kubeconfig(name, "c", &kubeconfig).await.unwrap();
    mgmt.capi_cluster_object(name, "c", proxy.url(), CapiVersion::V1Beta2, true, &[("tier", "test")]).await.unwrap();
    (world, proxy)
}

/// Where the hub is killed during a repair of two writes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// The first write was not sent.
    BeforeFirst,
    /// The first write was carried out, and the hub never heard of it.
    FirstUnheard,
    /// The second write was not sent.
    BeforeSecond,
    /// The second write was carried out, and the hub never heard of it.
    SecondUnheard,
}

fn is_intent(secret: &Value) -> bool {
    secret["metadata"]["name"].as_str().is_some_and(|name| name.contains("-intent-"))
}

fn writes_of(target: &Target) -> Match {
    Match::path(&target.path()).when(|asked| asked.method == "PATCH" && asked.query("dryRun").is_none())
}

#[tokio::test]
async fn a_repair_is_finished_by_the_next_hub_killed_before_its_first_write() {
    is_finished(When::BeforeFirst).await;
}

#[tokio::test]
async fn a_repair_is_finished_by_the_next_hub_killed_after_its_first_write_unheard() {
    is_finished(When::FirstUnheard).await;
}

#[tokio::test]
async fn a_repair_is_finished_by_the_next_hub_killed_before_its_second_write() {
    is_finished(When::BeforeSecond).await;
}

#[tokio::test]
async fn a_repair_is_finished_by_the_next_hub_killed_after_its_second_write_unheard() {
    is_finished(When::SecondUnheard).await;
}

async fn is_finished(when: When) {
    let mut scene = Scene::start(&format!("killed-{when:?}").to_lowercase()).await;
    wait_kept(&scene.world).await;
    let (fault, earlier) = match when {
        When::BeforeFirst => (Fault::Hang, 0),
        When::FirstUnheard => (Fault::Swallow, 0),
        When::BeforeSecond => (Fault::Hang, 1),
        When::SecondUnheard => (Fault::Swallow, 1),
    };
    let seen = AtomicU32::new(0);
    let rule = scene.proxy.rule(writes_of(&scene.target).when(move |_| seen.fetch_add(1, Ordering::AcqRel) >= earlier), fault);
    scene.rename().await;
    eventually("the hub is in the middle of it", SOON, async || {
        ensure!(rule.hits() > 0, "not yet");
        Ok(())
    })
    .await
    .unwrap_or_else(|error| panic!("{when:?}: {error:#}\n{}", scene.world.log()));
    let begun = state_secrets(&scene.world).await.unwrap();
    assert!(begun.iter().any(is_intent), "{when:?}: it was declared before its first write");
    scene.world.kill_hub();
    rule.end();
    scene.world.start_hub(&[]);
    scene.is_finished().await;
}

/// The first write was carried out and its answer lost; the hub lives on.
#[tokio::test]
async fn a_repair_whose_first_write_was_unheard_is_finished_by_the_same_hub() {
    let scene = Scene::start("unheard").await;
    let unheard = scene.proxy.rule(writes_of(&scene.target).first(1), Fault::Swallow);
    scene.rename().await;
    eventually("it was unheard", SOON, async || {
        ensure!(unheard.hits() == 1, "not written yet");
        Ok(())
    })
    .await
    .unwrap();
    scene.is_finished().await;
}

/// A server-side release behind a proxy, guarded and in sync.
struct Scene {
    world: World,
    proxy: FaultProxy,
    editor: Writer,
    target: Target,
    before: Value,
}

impl Scene {
    async fn start(name: &str) -> Self {
        let (mut world, proxy) = behind_proxy(name).await;
        world.install(Helm::V4, "web", "mini10", &[]).await;
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        let (editor, target) = (world.writer("kubectl-edit"), Target::deployment(name, "web-web"));
        let before = editor.get(&target).await.unwrap();
        Self { world, proxy, editor, target, before }
    }

    /// Drift whose repair takes two writes.
    async fn rename(&self) {
        self.editor.json_patch(&self.target, &rename("web2")).await.unwrap();
    }

    /// The repair is finished, nothing says that it was, and Helm notices nothing.
    async fn is_finished(&self) {
        wait_as_before(&self.world, &self.editor, &self.target, &self.before).await;
        self.world.wait_in_sync("web").await;
        self.world
            .wait("nothing is declared any more", async || {
                let declared = state_secrets(&self.world).await?.into_iter().filter(is_intent).count();
                ensure!(declared == 0, "{declared} repairs");
                Ok(())
            })
            .await;
        upgrade(&self.world, Helm::V4).await;
    }
}

fn rename(name: &str) -> Value {
    json!([{"op": "replace", "path": "/spec/template/spec/containers/0/name", "value": name}])
}

async fn wait_as_before(world: &World, editor: &Writer, target: &Target, before: &Value) {
    world
        .wait("the object is as before, to the last managed field", async || {
            let now = editor.get(target).await?;
            ensure!(now["spec"] == before["spec"], "{}: {}", target.name, now["spec"]);
            let (fields, expected) = (managed_fields_without_times(&now), managed_fields_without_times(before));
            ensure!(fields == expected, "{}:\n{fields:?}\n{expected:?}", target.name);
            Ok(())
        })
        .await;
}

async fn upgrade(world: &World, helm: Helm) {
    let chart = programs::chart("mini10").unwrap();
    helm.upgrade(world.workload, "web", &world.namespace, &chart, &["--set", "replicas=3"]).await.unwrap();
    world.wait_in_sync("web").await;
}

#[tokio::test]
async fn whenever_it_is_killed_the_end_is_the_same_for_helm_3() {
    end_is_the_same(Helm::V3).await;
}

#[tokio::test]
async fn whenever_it_is_killed_the_end_is_the_same_for_helm_4() {
    end_is_the_same(Helm::V4).await;
}

/// Killed again and again at any moment, with drift of every kind in between: the end is as if nobody had drifted or died.
async fn end_is_the_same(helm: Helm) {
    let name = &format!("killed-any-{helm:?}").to_lowercase();
    let mut world = World::new(name).await;
    world.install(helm, "web", "mini10", &[]).await;
    world.policy("Correct", json!({})).await;
    let editor = world.writer("kubectl-edit");
    let (web, service, settings) =
        (Target::deployment(name, "web-web"), Target::service(name, "web-web"), Target::configmap(name, "web-settings"));
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let mut before = Vec::new();
    for target in [&web, &service, &settings] {
        before.push(editor.get(target).await.unwrap());
    }
    // Fewer than make a contest of any path.
    for (round, delay) in [4_u64, 12, 25, 60].into_iter().enumerate() {
        editor.json_patch(&web, &rename(&format!("web{round}"))).await.unwrap();
        let port = json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 81 + round}]);
        editor.json_patch(&service, &port).await.unwrap();
        editor.delete(&settings).await.unwrap();
        tokio::time::sleep(Duration::from_millis(delay)).await;
        world.kill_hub();
        world.start_hub(&[]);
        for (target, before) in [&web, &service].into_iter().zip(&before) {
            wait_as_before(&world, &editor, target, before).await;
        }
        world
            .wait("created again", async || {
                let now = editor.get(&settings).await?;
                ensure!(now["data"] == before[2]["data"], "{}", now["data"]);
                Ok(())
            })
            .await;
    }
    world.wait_in_sync("web").await;
    upgrade(&world, helm).await;
}
