//! Credentials that do not, or no longer, open the door: said clearly, tried sparingly, and what was missed is found afterwards.

use std::time::{Duration, SystemTime};

use anyhow::{bail, ensure};
use holdfast_fleet::clock::{Clock, SystemClock};
use holdfast_testkit::{Authority, Target, status_code};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    fixture::{Release, Style, cluster_report, configmap, wait_live},
    relay::Relay,
    rotation::service_accounts,
    site::{Site, add_cluster, assert_none, more_planes, wait_web, wait_web_in_sync},
    state::wait_state,
    support::{World, condition, finding, planes, reason},
};

/// Calls of the hub that were answered with 401. The server's audit log does not list them.
async fn refused(world: &World) -> u64 {
    let page = world.metrics().await;
    let counts = page.lines().filter(|line| line.starts_with("holdfast_workload_requests_total{") && line.contains("code=\"401\""));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Waits until the server refuses a client: it remembers for a while whom it let in.
async fn wait_refused(world: &World, client: &Client) {
    world
        .wait("the server refuses the credentials", async || match client.apiserver_version().await.map_err(anyhow::Error::from) {
            Ok(_) => bail!("not yet"),
            Err(error) => {
                ensure!(status_code(&error) == Some(401), "{error}");
                Ok(())
            }
        })
        .await;
}

#[tokio::test]
async fn a_revoked_token_is_looked_up_once_and_then_tried_less_and_less() {
    let namespace = "revoked";
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    let site = Site::install(&world, workload, 4).await;
    service_accounts(workload, namespace, ["one", "two"].into_iter().map(str::to_owned)).await;
    let relay = Relay::to(workload).await;
    let access = workload.service_account(namespace, "one").await.unwrap();
    let client = access.client().unwrap();
    add_cluster(&world, "c", workload, &access.at(&relay.url()).kubeconfig()).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    site.is_corrected(&world).await;

    let looked_up = mgmt.audit_mark().await.unwrap();
    workload.writer("admin").unwrap().delete(&Target::service_account(namespace, "one")).await.unwrap();
    wait_refused(&world, &client).await;
    let started = Instant::now();
    let target = site.drift().await;
    wait_state(&world, "c", "credentials refused").await;
    wait_web(&world, "c", "unknown", |status| reason(status, "InSync") == "ClusterUnreachable").await;
    // Its watches, which were let in before, must come back as well.
    relay.lead_to(workload);
    world
        .wait("it is tried again and again", async || {
            let refused = refused(&world).await;
            ensure!(refused >= 5, "{refused} times");
            Ok(())
        })
        .await;
    let tried = refused(&world).await;
    let at_most = 20 + 8 * started.elapsed().as_secs();
    assert!(tried <= at_most, "{tried} calls in {:?}", started.elapsed());
    let lookups = mgmt.audit_since(looked_up).await.unwrap().by_user("hub").in_namespace(namespace).of_resource("secrets").gets();
    assert_eq!(lookups.len(), 1, "{lookups}");

    let other = site.drift().await;
    let renewed = workload.service_account(namespace, "two").await.unwrap().at(&relay.url()).kubeconfig();
    mgmt.capi_kubeconfig(namespace, "c", &renewed).await.unwrap();
    for target in [&target, &other] {
        site.wait_says(&world, target, "blue").await;
    }
    wait_state(&world, "c", "connected").await;
}

#[tokio::test]
async fn an_expired_client_certificate_is_called_by_its_name() {
    let namespace = "expired";
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    let site = Site::install(&world, workload, 3).await;
    let until = |ends: SystemTime| workload.access_until("hub-expired", &["system:masters"], ends).unwrap();
    // One that had ended before anybody looked, and one that ends while it is in use.
    let now = || SystemTime::from(SystemClock.now());
    add_cluster(&world, "late", workload, &until(now() - Duration::from_hours(1)).kubeconfig()).await;
    world.policy("Correct", json!({})).await;
    let access = until(now() + Duration::from_secs(15));
    let client = access.client().unwrap();
    add_cluster(&world, "c", workload, &access.kubeconfig()).await;
    world.start_hub(&[]);
    wait_web_in_sync(&world, "c").await;
    wait_state(&world, "late", "client certificate expired").await;
    wait_refused(&world, &client).await;
    let target = site.drift().await;
    wait_state(&world, "c", "client certificate expired").await;
    let renewed = workload.access("hub-renewed", &["system:masters"]).unwrap().kubeconfig();
    mgmt.capi_kubeconfig(namespace, "c", &renewed).await.unwrap();
    site.wait_says(&world, &target, "blue").await;
    wait_web_in_sync(&world, "c").await;
}

#[tokio::test]
async fn a_server_that_is_not_trusted_any_more_is_not_talked_to() {
    let namespace = "untrusted";
    let (_, mgmt) = planes().await;
    let (_, tls) = more_planes().await;
    let mut world = World::empty(tls, mgmt, namespace).await;
    let site = Site::install(&world, tls, 6).await;
    let relay = Relay::to(tls).await;
    let authority = Authority::new("another authority").unwrap();
    let trusting = |authorities: &[&str]| tls.static_token().trusting(authorities).at(&relay.url()).kubeconfig();
    let (own, new) = (tls.authority_pem(), authority.pem());
    add_cluster(&world, "c", tls, &trusting(&[own])).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    site.is_corrected(&world).await;

    // The authority is changed as it should be: the new one is trusted before it is used.
    mgmt.capi_kubeconfig(namespace, "c", &trusting(&[own, new])).await.unwrap();
    site.is_corrected(&world).await;
    tls.serve_by(Some(&authority)).await.unwrap();
    relay.lead_to(tls);
    site.is_corrected(&world).await;
    mgmt.capi_kubeconfig(namespace, "c", &trusting(&[new])).await.unwrap();
    site.is_corrected(&world).await;
    wait_state(&world, "c", "connected").await;

    // And as it should not.
    tls.serve_by(None).await.unwrap();
    relay.lead_to(tls);
    wait_state(&world, "c", "server not trusted").await;
    let target = site.drift().await;
    mgmt.capi_kubeconfig(namespace, "c", &trusting(&[own])).await.unwrap();
    site.wait_says(&world, &target, "blue").await;
    wait_state(&world, "c", "connected").await;
}

/// Lets a user do everything with these resources of the core group, and read what every hub reads.
async fn allow(world: &World, user: &str, resources: &[&str]) {
    let namespace = &world.namespace;
    let rule = |group: &str, resources: Value, verbs: Value| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let read = json!(["get", "list", "watch"]);
    let rules = json!([
        rule("", json!(resources), json!(["*"])),
        rule("", json!(["namespaces"]), json!(["get"])),
        rule("autoscaling", json!(["horizontalpodautoscalers"]), read.clone()),
        rule("apiextensions.k8s.io", json!(["customresourcedefinitions"]), read),
    ]);
    let kind = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": format!("{namespace}-{user}")}});
    let (mut granted, mut binding) = (kind("ClusterRole"), kind("ClusterRoleBinding"));
    granted["rules"] = rules;
    binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": granted["metadata"]["name"]});
    binding["subjects"] = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]);
    world.workload.apply_yaml("testkit", &format!("{granted}\n---\n{binding}")).await.unwrap();
}

#[tokio::test]
async fn what_is_forbidden_is_unknown_and_the_rest_is_looked_after() {
    let namespace = "rights";
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": namespace},
        "spec": {"selector": {"app": "s"}, "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 80}]},
    });
    Release::new(&world, "web", Style::ServerSide).install(&[configmap(namespace, "settings", "color", "blue"), service]).await;
    let user = "hub-limited";
    allow(&world, user, &["configmaps", "secrets"]).await;
    add_cluster(&world, "c", workload, &workload.kubeconfig(user, &[]).unwrap()).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    let (settings, s) = (Target::configmap(namespace, "settings"), Target::service(namespace, "s"));
    let kubectl = world.writer("kubectl-edit");
    let is_unknown = |status: &Value| {
        finding(status, "Service", "s").is_some_and(|found| found["verdict"] == "Unknown" && found["reason"] == "Forbidden")
            && condition(status, "InSync") == "Unknown"
            && reason(status, "InSync") == "Forbidden"
            && condition(status, "Reachable") == "True"
    };
    wait_web(&world, "c", "the Service is unknown", is_unknown).await;
    let mark = workload.audit_mark().await.unwrap();
    kubectl.merge_patch(&s, &json!({"spec": {"selector": {"app": "evil"}}})).await.unwrap();
    kubectl.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
    wait_live(&world, &kubectl, &settings, "/data/color", &json!("blue")).await;
    wait_web(&world, "c", "the Service is unknown still", is_unknown).await;
    let of_service = workload.audit_since(mark).await.unwrap().by_user(user).of_resource("services");
    assert_none(&of_service.writes(), "writes to what may not even be read");
    assert!(of_service.len() < 20, "{of_service}");
    // Granted later, everything is found.
    allow(&world, user, &["configmaps", "secrets", "services"]).await;
    wait_live(&world, &kubectl, &s, "/spec/selector/app", &json!("s")).await;
    wait_web_in_sync(&world, "c").await;
}

#[tokio::test]
async fn without_the_right_to_see_releases_or_the_clusters_identity_it_says_so() {
    let namespace = "blind";
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    let site = Site::install(&world, workload, 2).await;
    allow(&world, "hub-blind", &["configmaps"]).await;
    add_cluster(&world, "c", workload, &workload.kubeconfig("hub-blind", &[]).unwrap()).await;
    let (other, _) = more_planes().await;
    add_cluster(&world, "stranger", other, &other.kubeconfig("hub-stranger", &[]).unwrap()).await;
    world.policy("Correct", json!({})).await;
    let mark = workload.audit_mark().await.unwrap();
    world.start_hub(&[]);
    wait_state(&world, "c", "records forbidden").await;
    world
        .wait("the stranger is told", async || {
            let report = cluster_report(&world, "stranger").await?;
            let status = &report["status"];
            ensure!(condition(status, "Reachable") == "False" && reason(status, "Reachable") == "Forbidden", "{}", status["conditions"]);
            Ok(())
        })
        .await;
    let target = site.drift().await;
    assert_none(&site.calls(mark, "hub-").await.in_namespace(namespace).writes(), "writes without knowing any release");
    allow(&world, "hub-blind", &["configmaps", "secrets"]).await;
    site.wait_says(&world, &target, "blue").await;
    wait_state(&world, "c", "connected").await;
}
