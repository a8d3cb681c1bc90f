//! Another cluster under a known name: nothing that is known of the old one is used for the new one.

use anyhow::ensure;
use holdfast_testkit::{Target, management::STATIC_TOKEN_USER};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, cluster_report, configmap},
    relay::Relay,
    site::{Site, add_cluster, assert_none, cluster_target, more_planes, wait_web, wait_web_in_sync},
    state::wait_state,
    support::{World, condition, planes},
};

/// UID of the cluster that a report is about.
fn uid(report: &Value) -> &str {
    report["status"]["clusterUID"].as_str().unwrap_or_default()
}

async fn kube_system(site: &Site) -> String {
    let namespace = site.kubectl.get(&Target::namespace("kube-system")).await.unwrap();
    namespace["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A release that exists on one cluster alone.
async fn lonely(world: &World, plane: &'static holdfast_testkit::ControlPlane) {
    let release = Release { plane, ..Release::new(world, "lonely", Style::ServerSide) };
    release.install(&[configmap(&world.namespace, "lonely", "color", "blue")]).await;
}

async fn wait_lonely_gone(world: &World) {
    world
        .wait("the report of a release of the old cluster goes", async || {
            let report = world.report(Some("lonely")).await;
            ensure!(report.is_none(), "{:?}", report.map(|report| report["status"]["conditions"].clone()));
            Ok(())
        })
        .await;
}

/// The `ClusterRole` of the release `roles`, which a hub creates only where it saw it.
fn role(world: &World) -> Value {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": world.namespace}, "rules": rules})
}

#[tokio::test]
async fn a_kubeconfig_that_leads_elsewhere_starts_anew() {
    let namespace = "led-elsewhere";
    let (other, _) = more_planes().await;
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    add_cluster(&world, "c", workload, &workload.kubeconfig("hub-led-elsewhere", &["system:masters"]).unwrap()).await;
    let old = Site::install(&world, world.workload, 3).await;
    lonely(&world, world.workload).await;
    // The same names elsewhere, declared otherwise.
    let new = Site::install_saying(&world, other, 3, "green").await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    old.is_corrected(&world).await;
    let report = wait_web(&world, "c", "corrected", |status| status["corrections"].as_array().is_some_and(|all| all.len() == 1)).await;
    assert_eq!(uid(&report), kube_system(&old).await);
    world.wait_in_sync("lonely").await;

    let mark = other.audit_mark().await.unwrap();
    world.mgmt.capi_kubeconfig(namespace, "c", &other.static_token().kubeconfig()).await.unwrap();
    let uid_of_new = kube_system(&new).await;
    let about_new = |status: &Value| status["clusterUID"] == *uid_of_new && condition(status, "InSync") == "True";
    let report = wait_web(&world, "c", "about the new one", about_new).await;
    assert_eq!(report["status"]["corrections"].as_array().map_or(0, Vec::len), 0, "the history is the old one's: {report}");
    assert_eq!(report["status"].get("lastCorrectionAt"), None);
    wait_lonely_gone(&world).await;
    assert_eq!(uid(&wait_state(&world, "c", "connected").await), uid_of_new);
    let writes = new.calls(mark, STATIC_TOKEN_USER).await.in_namespace(namespace).writes();
    assert_none(&writes, "writes by what was known of the old cluster");
    // The old one is nobody's business any more.
    let mark = world.workload.audit_mark().await.unwrap();
    old.drift().await;
    let target = new.drift().await;
    new.wait_says(&world, &target, "green").await;
    assert_none(&old.calls(mark, "hub-led-elsewhere").await, "calls to the old cluster");
}

#[tokio::test]
async fn another_cluster_behind_the_same_address_is_noticed_before_anything_is_written() {
    let namespace = "same-address";
    let (workload, mgmt) = planes().await;
    let (other, _) = more_planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    let old = Site::install(&world, workload, 3).await;
    let new = Site::install_saying(&world, other, 3, "green").await;
    // Seen on the old cluster, missing on the new one: who mistakes one for the other creates it.
    let roles = Release::new(&world, "roles", Style::ClientSide);
    roles.install(&[role(&world)]).await;
    Release { plane: other, ..Release::new(&world, "roles", Style::ClientSide) }.record(1, "deployed", &[role(&world)]).await;
    let relay = Relay::to(workload).await;
    let kubeconfig = workload.static_token().trusting(&[workload.authority_pem(), other.authority_pem()]).at(&relay.url()).kubeconfig();
    add_cluster(&world, "c", workload, &kubeconfig).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    old.is_corrected(&world).await;
    world.wait_in_sync("roles").await;

    let mark = other.audit_mark().await.unwrap();
    relay.lead_to(other);
    let uid_of_new = kube_system(&new).await;
    wait_web(&world, "c", "about the new one", |status| status["clusterUID"] == *uid_of_new && condition(status, "InSync") == "True").await;
    let report = world.wait_report(Some("roles"), "about the new one", |status| status["clusterUID"] == *uid_of_new).await;
    assert_ne!(condition(&report["status"], "InSync"), "True");
    let target = new.drift().await;
    new.wait_says(&world, &target, "green").await;
    let writes = new.calls(mark, STATIC_TOKEN_USER).await.writes().filter(|call| call.uri.contains(namespace));
    assert_eq!(writes.len(), 1, "only what drifted on the new one: {writes}");

    // And an outage of the same one costs nothing but the time.
    relay.close();
    world
        .wait("it is out of reach", async || {
            let report = cluster_report(&world, "c").await?;
            ensure!(condition(&report["status"], "Reachable") == "False", "{}", report["status"]["conditions"]);
            Ok(())
        })
        .await;
    let target = new.drift().await;
    relay.lead_to(other);
    new.wait_says(&world, &target, "green").await;
}

#[tokio::test]
async fn a_cluster_object_that_is_made_anew_starts_anew() {
    let namespace = "made-anew";
    let (other, _) = more_planes().await;
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    add_cluster(&world, "c", workload, &workload.kubeconfig("hub-made-anew", &["system:masters"]).unwrap()).await;
    let old = Site::install(&world, world.workload, 4).await;
    lonely(&world, world.workload).await;
    let new = Site::install_saying(&world, other, 2, "green").await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    old.is_corrected(&world).await;
    world.wait_in_sync("lonely").await;
    let before = wait_web(&world, "c", "corrected", |status| status["corrections"].as_array().is_some_and(|all| all.len() == 1)).await;

    // The same cluster, under an object that is another one.
    let capi = world.mgmt.writer("capi").unwrap();
    let anew = async |plane: &holdfast_testkit::ControlPlane| {
        capi.delete(&cluster_target(&world, "c")).await.unwrap();
        let version = holdfast_testkit::management::CapiVersion::V1Beta2;
        let cluster = world.mgmt.capi_cluster_object(namespace, "c", plane.url(), version, true, &[]).await.unwrap();
        cluster["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let owner = anew(world.workload).await;
    let belongs_to = |report: &Value, owner: &str| report["metadata"]["ownerReferences"][0]["uid"] == *owner;
    let is_new = async |owner: &str| {
        world
            .wait("reports of the new object", async || {
                let web = crate::site::web_report(&world, "c").await?;
                let cluster = cluster_report(&world, "c").await?;
                ensure!(belongs_to(&web, owner) && belongs_to(&cluster, owner), "{} {}", web["metadata"], cluster["metadata"]);
                Ok(())
            })
            .await;
    };
    is_new(&owner).await;
    let after = wait_web_in_sync(&world, "c").await;
    assert_eq!(after["status"]["corrections"].as_array().map_or(0, Vec::len), 0, "before {before}\nafter {after}");
    old.is_corrected(&world).await;

    // Another cluster under another object, with a Secret that still belongs to the earlier object.
    let secret = Target::secret(namespace, "c-kubeconfig");
    let left_over = json!({"metadata": {"ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c", "uid": owner}]}});
    world.mgmt.writer("capi").unwrap().merge_patch(&secret, &left_over).await.unwrap();
    let owner = anew(other).await;
    wait_state(&world, "c", "no Secret yet").await;
    let mark = world.workload.audit_mark().await.unwrap();
    old.drift().await;
    world.mgmt.writer("capi").unwrap().delete(&secret).await.unwrap();
    world.mgmt.capi_kubeconfig(namespace, "c", &other.static_token().kubeconfig()).await.unwrap();
    is_new(&owner).await;
    wait_web(&world, "c", "in sync", |status| condition(status, "InSync") == "True").await;
    wait_lonely_gone(&world).await;
    let target = new.drift().await;
    new.wait_says(&world, &target, "green").await;
    assert_none(&old.calls(mark, "hub-made-anew").await, "calls to the old cluster");
}
