//! Releases whose records Helm keeps in ConfigMaps (`HELM_DRIVER=configmap`).

use anyhow::ensure;
use base64::{Engine, prelude::BASE64_STANDARD};
use holdfast_testkit::{Audit, ControlPlane, Helm, Mark, Options, Target, release};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    fixture::{Marker, Release, Style, configmap, deployment, hub_writes, lines, wait_live, writes_to},
    support::{World, condition, finding, live, reason},
};

static QUIET: OnceCell<ControlPlane> = OnceCell::const_new();

const CHART: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}"}
data: {color: "{{ .Values.color }}"}
"#;

/// The hub's calls about one object and for the records of one release, since `mark`.
async fn calls_for(world: &World, mark: Mark, target: &Target) -> Audit {
    let calls = world.of_hub(&world.workload.audit_since(mark).await.unwrap());
    let selector = format!("name%3D{}", target.name);
    calls.filter(|call| call.name == target.name || (call.verb == "list" && call.uri.contains(&selector)))
}

/// The record of a revision as a ConfigMap.
async fn record(world: &World, name: &str, revision: u32, status: &str, objects: &[Value]) {
    let manifest = objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n");
    let secret = release::secret(name, &world.namespace, revision, status, &manifest, &json!({})).unwrap();
    world.workload.put_release(&release::configmap_of(&secret).unwrap()).await.unwrap();
}

async fn forget(world: &World, name: &str, revision: u32) {
    let target = Target { plural: "configmaps".to_owned(), ..release::target(&world.namespace, name, revision) };
    world.writer("somebody").delete(&target).await.unwrap();
}

#[tokio::test]
async fn a_release_kept_in_configmaps_is_like_any_other() {
    let namespace = "configmaps";
    // Other tests write records: one that comes in the middle of a correction may claim the object, which is then decided on anew.
    let quiet = QUIET.get_or_init(|| async { ControlPlane::start(Options::named("quiet")).await.unwrap() }).await;
    let mut world = World::on(quiet, namespace).await;
    let marker = Marker::install(&world).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    let kubectl = world.writer("kubectl-edit");
    for (helm, name) in [(Helm::V3, "h3"), (Helm::V4, "h4")] {
        let chart = world.chart_of_text(name, CHART);
        let run = async |words: &[&str]| {
            let all = [words, &["--namespace", namespace]].concat();
            helm.run_on_configmaps(world.workload, &all).await.unwrap_or_else(|error| panic!("{error:#}"))
        };
        let target = Target::configmap(namespace, name);
        for (revision, (verb, color)) in (1..).zip([("install", "blue"), ("upgrade", "green")]) {
            run(&[verb, name, chart.to_str().unwrap(), "--set", &format!("color={color}")]).await;
            let judged = |status: &Value| status["source"]["revision"] == revision && condition(status, "InSync") == "True";
            world.wait_report(Some(name), "in sync", judged).await;
            let mark = world.workload.audit_mark().await.unwrap();
            kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
            wait_live(&world, &kubectl, &target, "/data/color", &json!(color)).await;
            // One more edit of another object: by then all calls about this one are over.
            marker.pass(&world).await;
            let calls = calls_for(&world, mark, &target).await;
            let found = (calls.len(), calls.lists().of_resource("configmaps").len());
            assert_eq!(found, (4, 1), "GET, oracle, record list, write: {:?}", lines(&calls));
        }
        run(&["rollback", name, "1"]).await;
        world
            .wait_report(Some(name), "rolled back", |status| status["source"]["revision"] == 3 && condition(status, "InSync") == "True")
            .await;

        // Pending for ever, by hand; given up again.
        let wanted = [configmap(namespace, name, "color", "gold")];
        record(&world, name, 4, "pending-upgrade", &wanted).await;
        world.wait_report(Some(name), "stuck", |status| reason(status, "InSync") == "ReleaseStuck").await;
        forget(&world, name, 4).await;
        world.wait_in_sync(name).await;

        run(&["uninstall", name]).await;
        world
            .wait("its report goes", async || {
                ensure!(world.report(Some(name)).await.is_none(), "it is there");
                Ok(())
            })
            .await;
        assert!(kubectl.find(&target).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn records_in_both_stores_or_forged_or_broken_ones_make_nobody_write() {
    let namespace = "stores";
    let mut world = World::new(namespace).await;
    let marker = Marker::install(&world).await;
    let object = |name: &str, color: &str| configmap(namespace, name, "color", color);
    // Which of the two stores Helm goes by, nobody can tell.
    let both = Release::new(&world, "both", Style::ClientSide);
    both.install(&[object("both", "blue")]).await;
    record(&world, "both", 1, "deployed", &[object("both", "green")]).await;
    // It gets there while the hub runs.
    let later = Release::new(&world, "later", Style::ServerSide);
    later.install(&[object("later", "blue")]).await;
    // A ConfigMap with Helm's labels that is no record, and one that is a broken one.
    let stranger = Release::new(&world, "stranger", Style::ClientSide);
    stranger.install(&[object("stranger", "blue")]).await;
    let mut no_record = configmap(namespace, "stranger-settings", "release", "nothing");
    no_record["metadata"]["labels"] = json!({"owner": "helm", "name": "stranger", "status": "x"});
    world.workload.create_yaml("somebody", &no_record.to_string()).await.unwrap();
    Release::new(&world, "broken", Style::ClientSide).write(&object("broken", "blue")).await;
    let twice = BASE64_STANDARD.encode(release::encode(&json!({"name": "broken"})).unwrap());
    let broken = release::secret_of_bytes("broken", namespace, 1, "deployed", twice.as_bytes());
    world.workload.put_release(&release::configmap_of(&broken).unwrap()).await.unwrap();
    // A ConfigMap claims an object of a release that is kept in Secrets.
    let claimed = Release::new(&world, "claimed", Style::ClientSide);
    claimed.install(&[object("claimed", "blue")]).await;
    record(&world, "claimant", 1, "deployed", &[object("claimed", "green")]).await;
    // Whoever may write ConfigMaps may not have a Deployment made.
    Release::new(&world, "forged", Style::ClientSide).write(&object("forged", "blue")).await;
    record(&world, "forged", 1, "deployed", &[object("forged", "blue"), object("forged-too", "blue"), deployment(namespace, "forged", 1)])
        .await;

    world.policy("Correct", json!({})).await;
    let mark = world.workload.audit_mark().await.unwrap();
    world.start_hub(&[]);
    world.wait_in_sync("later").await;
    record(&world, "later", 1, "pending-install", &[object("later", "green")]).await;
    let kubectl = world.writer("kubectl-edit");
    for (name, word) in [("both", "OwnerUnclear"), ("later", "OwnerUnclear"), ("broken", "RecordInvalid")] {
        world.wait_report(Some(name), word, |status| condition(status, "InSync") == "Unknown" && reason(status, "InSync") == word).await;
    }
    let is_conflict = |status: &Value| finding(status, "ConfigMap", "claimed").is_some_and(|finding| finding["reason"] == "SelfConflict");
    world.wait_report(Some("claimed"), "conflict", is_conflict).await;
    let is_refused = |status: &Value| finding(status, "Deployment", "forged").is_some_and(|finding| finding["reason"] == "NotOwned");
    world.wait_report(Some("forged"), "not owned", is_refused).await;
    wait_live(&world, &kubectl, &Target::configmap(namespace, "forged-too"), "/data/color", &json!("blue")).await;
    let held = ["both", "later", "broken", "claimed"];
    for name in held.into_iter().chain(["stranger"]) {
        kubectl.merge_patch(&Target::configmap(namespace, name), &json!({"data": {"color": "red"}})).await.unwrap();
    }
    wait_live(&world, &kubectl, &Target::configmap(namespace, "stranger"), "/data/color", &json!("blue")).await;
    marker.pass(&world).await;
    for name in held {
        let writes = writes_to(world.workload, mark, &Target::configmap(namespace, name)).await.filter(|call| call.name == name);
        assert!(writes.is_empty(), "{name}: {:?}", lines(&writes));
        assert_eq!(live(&kubectl, &Target::configmap(namespace, name), "/data/color").await, json!("red"), "{name}");
    }
    let deployments = hub_writes(world.workload, mark).await.in_namespace(namespace).of_resource("deployments");
    assert!(deployments.is_empty(), "{:?}", lines(&deployments));

    // Somebody takes away what made it unclear.
    for name in ["both", "later", "claimant"] {
        forget(&world, name, 1).await;
    }
    for name in ["both", "later", "claimed"] {
        wait_live(&world, &kubectl, &Target::configmap(namespace, name), "/data/color", &json!("blue")).await;
        world.wait_in_sync(name).await;
    }
}
