//! A cluster of which a part is out of order: an aggregated API without a server behind it, and a definition whose conversion webhook is
//! down (case D20, cluster F).

use anyhow::ensure;
use holdfast_testkit::{ControlPlane, Options, Target, eventually, management::CapiVersion};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    fixture::{Release, Style, cluster_report, configmap, hub_writes, lines},
    scene::AFTER_A_BACKOFF,
    support::{World, condition, planes, reason},
};

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

const GROUP: &str = "partly.example";

fn definition() -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("widgets.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [version("v1beta1", false), version("v1", true)],
        },
    })
}

/// An aggregated API whose service does not exist.
fn aggregated() -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.broken.example"},
        "spec": {
            "group": "broken.example", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "nobody"},
        },
    })
}

/// Nobody listens where the webhook is said to be.
fn conversion(down: bool) -> Value {
    let webhook = json!({"clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"]});
    let conversion = if down { json!({"strategy": "Webhook", "webhook": webhook}) } else { json!({"strategy": "None", "webhook": null}) };
    json!({"spec": {"conversion": conversion}})
}

#[tokio::test]
async fn a_part_that_is_out_of_order_is_told_and_the_rest_goes_on() {
    let namespace = "partly";
    let plane = PLANE.get_or_init(|| async { ControlPlane::start(Options::named("partly")).await.unwrap() }).await;
    let mut world = World::empty(plane, planes().await.1, namespace).await;
    world.mgmt.capi_cluster(namespace, "c", plane, CapiVersion::V1Beta2, true, &[]).await.unwrap();
    let setup = plane.writer("setup").unwrap();
    let crd = Target::crd(&format!("widgets.{GROUP}"));
    setup.create(&crd, &definition()).await.unwrap();
    setup.create(&Target::cluster_scoped("apiregistration.k8s.io", "v1", "apiservices", "v1.broken.example"), &aggregated()).await.unwrap();
    let widget = |version: &str| Target::custom(GROUP, version, "widgets", namespace, "w");
    let served = async || setup.find(&widget("v1beta1")).await;
    eventually("the definition is served", AFTER_A_BACKOFF, served).await.unwrap();

    let declared = json!({"apiVersion": format!("{GROUP}/v1beta1"), "kind": "Widget", "metadata": {"name": "w", "namespace": namespace}, "spec": {"size": 1}});
    Release::new(&world, "custom", Style::ClientSide).install(&[declared]).await;
    Release::new(&world, "web", Style::ClientSide).install(&[configmap(namespace, "settings", "color", "blue")]).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    world.wait_in_sync("custom").await;

    setup.merge_patch(&crd, &conversion(true)).await.unwrap();
    let mark = plane.audit_mark().await.unwrap();
    let edit = plane.writer("kubectl-edit").unwrap();
    edit.merge_patch(&widget("v1"), &json!({"spec": {"size": 2}})).await.unwrap();
    let settings = Target::configmap(namespace, "settings");
    let the_rest_is_corrected = async |color: &str| {
        edit.merge_patch(&settings, &json!({"data": {"color": color}})).await.unwrap();
        let corrected = eventually("the rest is corrected", AFTER_A_BACKOFF, async || {
            let object = edit.get(&settings).await?;
            ensure!(object["data"]["color"] == "blue", "{}", object["data"]);
            Ok(())
        });
        corrected.await.unwrap_or_else(|error| panic!("{error:#}\n{}", world.log()));
    };
    the_rest_is_corrected("red").await;
    let told = eventually("the part is told", AFTER_A_BACKOFF, async || {
        let status = world.report(Some("custom")).await.unwrap_or_default()["status"].take();
        ensure!(condition(&status, "InSync") == "Unknown", "{}", status["conditions"]);
        ensure!(status["summary"]["missing"].as_u64().unwrap_or_default() == 0, "{}", status["summary"]);
        Ok(reason(&status, "InSync").to_owned())
    });
    let why = told.await.unwrap_or_else(|error| panic!("{error:#}\n{}", world.log()));
    assert!(["Stale", "ServerError", "KindNotServed"].contains(&why.as_str()), "{why}");
    the_rest_is_corrected("green").await;
    let status = world.report(Some("web")).await.unwrap()["status"].take();
    assert_eq!(condition(&status, "InSync"), "True", "another release: {}", status["conditions"]);
    let cluster = cluster_report(&world, "c").await.unwrap();
    assert_eq!(condition(&cluster["status"], "Reachable"), "True");

    setup.merge_patch(&crd, &conversion(false)).await.unwrap();
    let corrected = eventually("the part is corrected", AFTER_A_BACKOFF, async || {
        let object = edit.get(&widget("v1")).await?;
        ensure!(object["spec"]["size"] == 1, "{}", object["spec"]);
        Ok(())
    });
    corrected.await.unwrap_or_else(|error| panic!("{error:#}\n{}", world.log()));
    world.wait_in_sync("custom").await;
    for (release, corrections) in [("custom", 1), ("web", 2)] {
        world
            .wait_report(Some(release), "each edit was put back once", |status| {
                status["corrections"].as_array().map_or(0, Vec::len) == corrections
            })
            .await;
    }
    let writes = hub_writes(plane, mark).await;
    assert!(writes.iter().all(|write| write.verb == "patch"), "{:?}", lines(&writes));
}
