//! The state Secrets themselves: sealed, small, gone with their cluster; a broken or foreign one is none.

use anyhow::{Context, ensure};
use holdfast_testkit::{Target, management::CapiVersion};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, hub_writes, lines, wait_live},
    support::World,
};

/// State Secrets of the world's management namespace.
pub async fn state_secrets(world: &World) -> anyhow::Result<Vec<Value>> {
    let list = world.mgmt.kubectl(&["get", "secrets", "-n", &world.namespace, "-l", "holdfast.dev/state-of", "-o", "json"]).await?;
    let list: Value = serde_json::from_str(&list)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// Waits until the hub has kept what it knows: a change is kept two seconds after it, at most five after the last time.
pub async fn wait_kept(world: &World) {
    let versions = async || -> anyhow::Result<Vec<Value>> {
        Ok(state_secrets(world).await?.iter().map(|secret| secret["metadata"]["resourceVersion"].clone()).collect())
    };
    // Three equal looks in a row, as far apart as two changes can be.
    let (mut before, mut same) = (Vec::new(), 0);
    while same < 13 {
        let now = versions().await.unwrap();
        same = if now == before && !now.is_empty() { same + 1 } else { 0 };
        before = now;
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
}

fn part(secret: &Value) -> &str {
    secret["metadata"]["annotations"]["holdfast.dev/state-part"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn state_secrets_are_sealed_and_go_with_their_cluster() {
    let name = "sealed";
    let mut world = World::new(name).await;
    world.mgmt.capi_cluster(name, "other", world.workload, CapiVersion::V1Beta2, true, &[]).await.unwrap();
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": name}, "data": {"password": "Q0FOQVJZ"}});
    Release::new(&world, "web", Style::ServerSide).install(&[configmap(name, "settings", "color", "blue"), secret]).await;
    world.policy("Warn", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    wait_kept(&world).await;
    let kept = state_secrets(&world).await.unwrap();
    let mut parts: Vec<&str> = kept.iter().map(part).collect();
    parts.sort_unstable();
    assert_eq!(parts, ["contests", "contests", "objects-0", "objects-0"]);
    for secret in &kept {
        assert_eq!(secret["metadata"]["ownerReferences"][0]["kind"], "Cluster", "{secret}");
        assert_eq!(secret["type"], "holdfast.dev/state");
        let sealed = secret["data"]["state"].as_str().unwrap();
        assert!(sealed.len() < 4096, "{} bytes for two objects", sealed.len());
    }
    let all = serde_json::to_string(&kept).unwrap();
    for readable in ["settings", "login", "color", "Q0FOQVJZ", "CANARY"] {
        assert!(!all.contains(readable), "{readable} can be read");
    }
    let manager = world.mgmt.writer("manager").unwrap();
    let key = manager.get(&Target::secret(name, "holdfast-state-key")).await.unwrap();
    assert_eq!(key["immutable"], true, "the hub's key is in the namespace that the hub is restricted to");

    // A cluster that leaves takes its state along, also while no hub is running.
    manager.delete(&CapiVersion::V1Beta2.target(name, "other")).await.unwrap();
    world
        .wait("the state of one cluster is gone", async || {
            let kept = state_secrets(&world).await?;
            ensure!(kept.len() == 2, "{} state Secrets", kept.len());
            Ok(())
        })
        .await;
    world.stop_hub();
    manager.delete(&CapiVersion::V1Beta2.target(name, "c")).await.unwrap();
    world.start_hub(&[]);
    world
        .wait("all state is gone", async || {
            let kept = state_secrets(&world).await?;
            ensure!(kept.is_empty(), "{} state Secrets", kept.len());
            Ok(())
        })
        .await;
}

/// How somebody spoils the state.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spoilt {
    /// Other bytes.
    Garbage,
    /// Deleted.
    Gone,
    /// The content of another cluster's.
    Copied,
    /// The hub's key is another one.
    OtherKey,
}

#[tokio::test]
async fn state_that_is_garbage_counts_for_nothing() {
    counts_for_nothing(Spoilt::Garbage).await;
}

#[tokio::test]
async fn state_that_is_gone_is_found_out_again() {
    counts_for_nothing(Spoilt::Gone).await;
}

#[tokio::test]
async fn state_sealed_for_another_place_counts_for_nothing() {
    counts_for_nothing(Spoilt::Copied).await;
}

#[tokio::test]
async fn state_sealed_with_another_key_counts_for_nothing() {
    counts_for_nothing(Spoilt::OtherKey).await;
}

async fn counts_for_nothing(spoilt: Spoilt) {
    let name = &format!("spoilt-{spoilt:?}").to_lowercase();
    let mut world = World::new(name).await;
    world.mgmt.capi_cluster(name, "other", world.workload, CapiVersion::V1Beta2, true, &[]).await.unwrap();
    Release::new(&world, "web", Style::ClientSide)
        .install(&[configmap(name, "settings", "color", "blue"), configmap(name, "stripped", "color", "blue")])
        .await;
    world.policy("Correct", json!({"clusterSelector": {"matchLabels": {"tier": "test"}}})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    wait_kept(&world).await;
    world.stop_hub();
    let manager = world.mgmt.writer("somebody").unwrap();
    let kept = state_secrets(&world).await.unwrap();
    let own = kept.iter().find(|secret| part(secret) == "objects-0").context("no state").unwrap();
    let own = Target::secret(name, own["metadata"]["name"].as_str().unwrap());
    match spoilt {
        Spoilt::Garbage => _ = manager.merge_patch(&own, &json!({"data": {"state": "AAAA"}})).await.unwrap(),
        Spoilt::Gone => _ = manager.delete(&own).await.unwrap(),
        // Sealed for another place: here, for the same cluster under another kube-system UID or owner, or another part.
        Spoilt::Copied => {
            let sealed = manager.get(&own).await.unwrap()["data"]["state"].clone();
            manager.delete(&own).await.unwrap();
            let copy = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": own.name.replace("objects-0", "objects-1"), "namespace": name, "labels": {"holdfast.dev/state-of": kept[0]["metadata"]["labels"]["holdfast.dev/state-of"]}, "annotations": {"holdfast.dev/cluster": "c", "holdfast.dev/state-part": "objects-1"}}, "type": "holdfast.dev/state", "data": {"state": sealed}});
            manager.create(&Target::secret(name, copy["metadata"]["name"].as_str().unwrap()), &copy).await.unwrap();
        }
        Spoilt::OtherKey => _ = manager.delete(&Target::secret(name, "holdfast-state-key")).await.unwrap(),
    }
    // Only who saw it knows whose it is; a forged bit would make the hub write.
    let editor = world.writer("kubectl-edit");
    let stripped = Target::configmap(name, "stripped");
    let strip = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": null, "meta.helm.sh/release-namespace": null}}, "data": {"color": "red"}});
    editor.merge_patch(&stripped, &strip).await.unwrap();
    let settings = Target::configmap(name, "settings");
    editor.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
    let mark = world.workload.audit_mark().await.unwrap();
    world.start_hub(&[]);
    wait_live(&world, &editor, &settings, "/data/color", &json!("blue")).await;
    let not_owned =
        |status: &Value| crate::support::finding(status, "ConfigMap", "stripped").is_some_and(|finding| finding["reason"] == "NotOwned");
    world.wait_report(Some("web"), "nobody knows whose it is", not_owned).await;
    let writes = hub_writes(world.workload, mark).await.in_namespace(name);
    assert_eq!(writes.len(), 1, "{spoilt:?}: {:?}", lines(&writes));
    if spoilt != Spoilt::Gone {
        assert!(world.log().contains("were not sealed for this cluster by this hub"), "{spoilt:?}");
    }
    // What is known now is kept again.
    wait_kept(&world).await;
    world.kill_hub();
    let mark = world.workload.audit_mark().await.unwrap();
    world.start_hub(&[]);
    editor.merge_patch(&settings, &json!({"data": {"color": "green"}})).await.unwrap();
    wait_live(&world, &editor, &settings, "/data/color", &json!("blue")).await;
    let asked = world.of_hub(&world.workload.audit_since(mark).await.unwrap()).dry_runs().filter(|call| call.name != "settings");
    assert!(asked.is_empty(), "{spoilt:?}: {asked}");
}
