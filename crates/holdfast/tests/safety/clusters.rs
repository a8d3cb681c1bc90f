//! Where clusters come from, when they may be written to, and what an unreachable one costs the others.

use std::{process::Command, time::Duration};

use anyhow::{bail, ensure};
use holdfast_testkit::{
    ControlPlane, Options, Target, eventually,
    management::{CapiVersion, HUB_USER, KubeconfigSecret},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    fixture::{Release, Style, cluster_report, configmap, hub_writes, lines, reports, wait_cluster, wait_live},
    support::{World, condition, finding, grant_rights, live, planes, reason},
};

/// Reports of a removed cluster are gone within this time.
const GONE_WITHIN: Duration = Duration::from_mins(1);
/// A connection that went silent is noticed by its pings.
const SILENCE_WITHIN: Duration = Duration::from_secs(90);

async fn wait_gone(world: &World, cluster: &str) {
    eventually("the reports of a removed cluster go", GONE_WITHIN, async || {
        let left: Vec<Value> = reports(world)
            .await?
            .into_iter()
            .filter(|report| report["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == cluster)
            .collect();
        ensure!(left.is_empty(), "{} left", left.len());
        Ok(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", world.log()));
}

#[tokio::test]
async fn a_paused_cluster_is_looked_at_and_not_written_to() {
    let namespace = "paused";
    let mut world = World::new(namespace).await;
    Release::new(&world, "web", Style::ClientSide)
        .install(&[configmap(namespace, "settings", "color", "blue"), configmap(namespace, "gone", "color", "blue")])
        .await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let capi = world.mgmt.writer("capi").unwrap();
    let cluster = CapiVersion::V1Beta2.target(namespace, "c");
    let kubectl = world.writer("kubectl-edit");
    let (target, gone) = (Target::configmap(namespace, "settings"), Target::configmap(namespace, "gone"));
    let pauses = [
        (json!({"spec": {"paused": true}}), json!({"spec": {"paused": false}})),
        (
            json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": "true"}}}),
            json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}}),
        ),
    ];
    for (pause, resume) in &pauses {
        let mark = world.workload.audit_mark().await.unwrap();
        capi.merge_patch(&cluster, pause).await.unwrap();
        wait_cluster(&world, "c", "paused", |status| reason(status, "InSync") == "ClusterPaused").await;
        kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
        kubectl.delete(&gone).await.unwrap();
        let report = world
            .wait_report(Some("web"), "both found", |status| status["summary"]["drifted"] == 1 && status["summary"]["missing"] == 1)
            .await;
        for (name, verdict) in [("settings", "Drifted"), ("gone", "Missing")] {
            let found = finding(&report["status"], "ConfigMap", name).unwrap();
            assert_eq!((&found["verdict"], &found["action"]), (&json!(verdict), &json!("Reported")), "{found}");
        }
        let writes = hub_writes(world.workload, mark).await.in_namespace(namespace);
        assert!(writes.is_empty(), "{:?}", lines(&writes));
        capi.merge_patch(&cluster, resume).await.unwrap();
        wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;
        wait_live(&world, &kubectl, &gone, "/data/color", &json!("blue")).await;
        world.wait_in_sync("web").await;
    }
}

#[tokio::test]
async fn a_cluster_is_left_alone_before_it_is_ready_and_once_it_goes() {
    let namespace = "lifecycle";
    let mut world = World::new(namespace).await;
    Release::new(&world, "web", Style::ClientSide).install(&[configmap(namespace, "settings", "color", "blue")]).await;
    let user = "holdfast-young";
    let url = world.workload.url();
    world.mgmt.capi_cluster_object(namespace, "young", url, CapiVersion::V1Beta2, false, &[]).await.unwrap();
    world.mgmt.capi_kubeconfig(namespace, "young", &world.workload.kubeconfig(user, &["system:masters"]).unwrap()).await.unwrap();
    world.policy("Warn", json!({})).await;
    world.start_hub(&[]);
    wait_cluster(&world, "young", "waiting", |status| {
        reason(status, "Ready") == "ClusterNotInitialised" && condition(status, "InSync") == "Unknown"
    })
    .await;
    world.wait_in_sync("web").await;
    let calls = world.workload.audit().await.unwrap().by_user(user);
    assert!(calls.is_empty(), "{:?}", lines(&calls));

    world.mgmt.set_capi_initialised(namespace, "young", CapiVersion::V1Beta2, true).await.unwrap();
    wait_cluster(&world, "young", "connected", |status| condition(status, "Reachable") == "True" && condition(status, "InSync") == "True")
        .await;
    assert!(!world.workload.audit().await.unwrap().by_user(user).is_empty());

    // Deleting: a controller still holds it, and the hub is out already.
    let capi = world.mgmt.writer("capi").unwrap();
    let cluster = CapiVersion::V1Beta2.target(namespace, "young");
    capi.merge_patch(&cluster, &json!({"metadata": {"finalizers": ["cluster.cluster.x-k8s.io"]}})).await.unwrap();
    capi.delete(&cluster).await.unwrap();
    wait_cluster(&world, "young", "deleting", |status| reason(status, "Ready") == "ClusterDeleting").await;
    let mark = world.workload.audit_mark().await.unwrap();
    // The other name of the same cluster proves that the edit was noticed.
    world.writer("kubectl-edit").merge_patch(&Target::configmap(namespace, "settings"), &json!({"data": {"color": "red"}})).await.unwrap();
    world
        .wait("the other one reports", async || {
            let report = cluster_report(&world, "c").await?;
            ensure!(report["status"]["summary"]["drifted"] == 1, "{}", report["status"]["summary"]);
            Ok(())
        })
        .await;
    let calls = world.workload.audit_since(mark).await.unwrap().by_user(user);
    assert!(calls.is_empty(), "{:?}", lines(&calls));
    let releases = async || {
        Ok::<_, anyhow::Error>(
            reports(&world).await?.iter().filter(|report| report["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "young").count(),
        )
    };
    assert!(releases().await.unwrap() > 0, "the reports stay while the cluster does");

    capi.merge_patch(&cluster, &json!({"metadata": {"finalizers": []}})).await.unwrap();
    wait_gone(&world, "young").await;
    assert!(cluster_report(&world, "c").await.is_ok(), "the other cluster keeps its report");
}

#[tokio::test]
async fn a_labelled_secret_is_a_cluster() {
    let namespace = "labelled";
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    Release::new(&world, "web", Style::ClientSide).install(&[configmap(namespace, "settings", "color", "blue")]).await;
    let text = workload.kubeconfig(HUB_USER, &["system:masters"]).unwrap();
    for key in ["value", "kubeconfig", "config"] {
        let name = if key == "kubeconfig" { "far-kubeconfig".to_owned() } else { format!("edge-{key}") };
        let labels = [("holdfast.dev/kubeconfig", "true"), ("tier", key)];
        mgmt.kubeconfig_secret(&KubeconfigSecret { namespace, name: &name, secret_type: "Opaque", labels: &labels, key, text: &text })
            .await
            .unwrap();
    }
    // Without the label, or with another value, a Secret is nobody's business.
    for (name, label) in [("edge-plain", ("tier", "value")), ("edge-off", ("holdfast.dev/kubeconfig", "false"))] {
        mgmt.kubeconfig_secret(&KubeconfigSecret { namespace, name, secret_type: "Opaque", labels: &[label], key: "value", text: &text })
            .await
            .unwrap();
    }
    // The labels of the Secret are what policies select by.
    world
        .policy("Correct", json!({"clusterSelector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["config"]}]}}))
        .await;
    world.start_hub(&[]);
    // The suffix that Cluster API gives such Secrets is no part of the cluster's name.
    for (cluster, secret) in [("edge-value", "edge-value"), ("far", "far-kubeconfig")] {
        wait_cluster(&world, cluster, "connected", |status| condition(status, "Reachable") == "True").await;
        let report = cluster_report(&world, cluster).await.unwrap();
        let owner = &report["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["name"]), (&json!("Secret"), &json!(secret)));
    }
    world.wait_in_sync("web").await;
    let kubectl = world.writer("kubectl-edit");
    let target = Target::configmap(namespace, "settings");
    kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
    wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;
    // What pauses a Cluster pauses a Secret without one.
    let platform = mgmt.writer("platform").unwrap();
    for (mark, word) in [(json!("true"), "ClusterPaused"), (Value::Null, "AsDeclared")] {
        let annotated = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": mark}}});
        platform.merge_patch(&Target::secret(namespace, "far-kubeconfig"), &annotated).await.unwrap();
        wait_cluster(&world, "far", word, |status| reason(status, "InSync") == word).await;
    }
    for cluster in ["edge-config", "edge-plain", "edge-off"] {
        assert!(cluster_report(&world, cluster).await.is_err(), "{cluster}");
    }
    platform.delete(&Target::secret(namespace, "edge-value")).await.unwrap();
    wait_gone(&world, "edge-value").await;
    assert!(cluster_report(&world, "far").await.is_ok());
}

static OLD: OnceCell<ControlPlane> = OnceCell::const_new();

#[tokio::test]
async fn an_older_cluster_api_that_comes_later_will_do() {
    let namespace = "older-capi";
    let (workload, _) = planes().await;
    let mgmt = OLD
        .get_or_init(|| async {
            let plane = ControlPlane::start(Options::named("old-mgmt")).await.unwrap();
            let crds = Command::new(env!("CARGO_BIN_EXE_holdfast")).arg("crds").output().unwrap();
            plane.apply_yaml("testkit", &String::from_utf8(crds.stdout).unwrap()).await.unwrap();
            grant_rights(&plane).await;
            plane
        })
        .await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    Release::new(&world, "web", Style::ServerSide).install(&[configmap(namespace, "settings", "color", "blue")]).await;
    let text = workload.kubeconfig("holdfast-labelled", &["system:masters"]).unwrap();
    let secret = KubeconfigSecret {
        namespace,
        name: "edge",
        secret_type: "Opaque",
        labels: &[("holdfast.dev/kubeconfig", "true")],
        key: "value",
        text: &text,
    };
    mgmt.kubeconfig_secret(&secret).await.unwrap();
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    // Without Cluster API at all.
    wait_cluster(&world, "edge", "connected", |status| condition(status, "Reachable") == "True").await;
    mgmt.writer("platform").unwrap().delete(&Target::secret(namespace, "edge")).await.unwrap();
    wait_gone(&world, "edge").await;
    // It is installed while the hub runs, and knows v1beta1 alone.
    mgmt.install_cluster_api_crd_only(CapiVersion::V1Beta1).await.unwrap();
    mgmt.capi_cluster(namespace, "c", workload, CapiVersion::V1Beta1, false, &[]).await.unwrap();
    eventually("the cluster is seen", GONE_WITHIN, async || {
        let report = cluster_report(&world, "c").await?;
        ensure!(reason(&report["status"], "Ready") == "ClusterNotInitialised", "{}", report["status"]["conditions"]);
        Ok(())
    })
    .await
    .unwrap();
    mgmt.set_capi_initialised(namespace, "c", CapiVersion::V1Beta1, true).await.unwrap();
    world.wait_in_sync("web").await;
    let capi = mgmt.writer("capi").unwrap();
    let kubectl = world.writer("kubectl-edit");
    let (cluster, target) = (CapiVersion::V1Beta1.target(namespace, "c"), Target::configmap(namespace, "settings"));
    capi.merge_patch(&cluster, &json!({"spec": {"paused": true}})).await.unwrap();
    wait_cluster(&world, "c", "paused", |status| reason(status, "InSync") == "ClusterPaused").await;
    kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
    world.wait_report(Some("web"), "found", |status| status["summary"]["drifted"] == 1).await;
    assert_eq!(live(&kubectl, &target, "/data/color").await, json!("red"));
    capi.merge_patch(&cluster, &json!({"spec": {"paused": false}})).await.unwrap();
    wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;
    capi.delete(&cluster).await.unwrap();
    wait_gone(&world, "c").await;
}

static FROZEN: OnceCell<ControlPlane> = OnceCell::const_new();

#[tokio::test]
async fn a_cluster_that_hangs_is_named_and_costs_the_others_nothing() {
    let namespace = "frozen";
    let plane = FROZEN.get_or_init(|| async { ControlPlane::start(Options::named("frozen")).await.unwrap() }).await;
    let mut world = World::new(namespace).await;
    plane.namespace(namespace).await.unwrap();
    world.mgmt.capi_cluster(namespace, "hangs", plane, CapiVersion::V1Beta2, true, &[]).await.unwrap();
    let near = Release::new(&world, "web", Style::ClientSide);
    near.install(&[configmap(namespace, "settings", "color", "blue")]).await;
    let far = Release { plane, ..Release::new(&world, "far", Style::ServerSide) };
    far.install(&[configmap(namespace, "settings", "color", "blue")]).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    world.wait_in_sync("far").await;
    plane.freeze().unwrap();
    let kubectl = world.writer("kubectl-edit");
    let target = Target::configmap(namespace, "settings");
    let frozen = eventually("the silence is noticed", SILENCE_WITHIN, async || {
        let report = cluster_report(&world, "hangs").await?;
        let status = &report["status"];
        if condition(status, "Reachable") != "False"
            || reason(status, "InSync") != "ClusterUnreachable"
            || condition(status, "Fresh") != "False"
        {
            bail!("{}", status["conditions"]);
        }
        let release = world.report(Some("far")).await.unwrap_or_default();
        ensure!(condition(&release["status"], "InSync") == "Unknown", "{}", release["status"]["conditions"]);
        Ok(())
    })
    .await;
    // The neighbour is looked after meanwhile.
    kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
    wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;
    let neighbour = cluster_report(&world, "c").await.unwrap();
    plane.thaw().unwrap();
    frozen.unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(condition(&neighbour["status"], "Reachable"), "True");

    eventually("it answers again", SILENCE_WITHIN, async || {
        let report = cluster_report(&world, "hangs").await?;
        ensure!(condition(&report["status"], "Reachable") == "True", "{}", report["status"]["conditions"]);
        Ok(())
    })
    .await
    .unwrap();
    world.wait_in_sync("far").await;
    let far_writer = plane.writer("kubectl-edit").unwrap();
    far_writer.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
    wait_live(&world, &far_writer, &target, "/data/color", &json!("blue")).await;

    // Stopping waits for nobody who hangs, with calls and watches open.
    plane.freeze().unwrap();
    let took = world.stop_hub();
    plane.thaw().unwrap();
    assert!(took < Duration::from_secs(5), "{took:?}");
}
