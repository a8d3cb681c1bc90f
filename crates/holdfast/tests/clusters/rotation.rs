//! Credentials that change while the cluster is watched.

use anyhow::ensure;
use holdfast_testkit::{ControlPlane, Target};
use serde_json::{Value, json};

use crate::{
    fixture::{cluster_report, lines},
    relay::Relay,
    site::{Site, add_cluster, assert_none, lists_of_watches, more_planes, wait_web, wait_web_in_sync},
    state::wait_state,
    support::{World, finding, planes},
    traces::Traces,
};

/// Long enough that no periodic audit falls into a test.
fn no_audits() -> Value {
    json!({"interval": "1h"})
}

/// Makes service accounts that may do everything.
pub async fn service_accounts(plane: &ControlPlane, namespace: &str, names: impl Iterator<Item = String>) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": format!("system:serviceaccounts:{namespace}")}],
    });
    let account = |name| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}});
    let objects: Vec<String> = names.map(account).chain([binding]).map(|object| object.to_string()).collect();
    plane.apply_yaml("testkit", &objects.join("\n---\n")).await.unwrap();
}

/// Waits until the hub's log says something for the nth time.
async fn wait_said(world: &World, what: &str, times: usize) {
    world
        .wait(what, async || {
            let said = world.log().matches(what).count();
            ensure!(said >= times, "{said} times, not {times}");
            Ok(())
        })
        .await;
}

#[tokio::test]
async fn twenty_new_tokens_cost_not_one_list() {
    const ROTATIONS: u32 = 20;
    let namespace = "tokens";
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    let site = Site::install(&world, workload, ROTATIONS + 1).await;
    service_accounts(workload, namespace, (0..=ROTATIONS).map(|number| format!("hub-{number}"))).await;
    let token = async |number: u32| workload.service_account(namespace, &format!("hub-{number}")).await.unwrap().kubeconfig();
    add_cluster(&world, "c", workload, &token(0).await).await;
    world.policy("Correct", no_audits()).await;
    world.start_hub(&[]);
    wait_web_in_sync(&world, "c").await;
    site.is_corrected(&world).await;
    let start = workload.audit_mark().await.unwrap();
    let before = Traces::of(&world).await;
    for number in 1..=ROTATIONS {
        mgmt.capi_kubeconfig(namespace, "c", &token(number).await).await.unwrap();
        wait_said(&world, "going on with a new token", number as usize).await;
        let mark = workload.audit_mark().await.unwrap();
        site.is_corrected(&world).await;
        let writes = site.calls(mark, "system:serviceaccount:tokens:").await.writes();
        let by_new = writes.by_user(&format!("system:serviceaccount:tokens:hub-{number}"));
        assert_eq!((writes.len(), by_new.len()), (1, 1), "{:?}", lines(&writes));
    }
    let calls = site.calls(start, "system:serviceaccount:tokens:").await;
    assert_none(&lists_of_watches(&calls), "lists");
    assert_none(&calls.watches(), "watches that were opened again");
    before.wait_back(&world).await;
    wait_state(&world, "c", "connected").await;
}

#[tokio::test]
async fn a_new_certificate_server_or_authority_is_moved_to_without_a_gap() {
    let namespace = "moves";
    let (workload, mgmt) = planes().await;
    let (other, _) = more_planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    let site = Site::install(&world, workload, 11).await;
    let user = |number: usize| format!("hub-moves-{number}");
    let access = |number: usize| workload.access(&user(number), &["system:masters"]).unwrap();
    add_cluster(&world, "c", workload, &access(0).kubeconfig()).await;
    world.policy("Correct", no_audits()).await;
    world.start_hub(&[]);
    site.is_corrected(&world).await;
    service_accounts(workload, namespace, std::iter::once("hub".to_owned())).await;
    let by_token = workload.service_account(namespace, "hub").await.unwrap();
    let before = Traces::of(&world).await;
    let start = workload.audit_mark().await.unwrap();
    let relay = Relay::to(workload).await;
    let moves = [
        ("another client certificate", access(1).kubeconfig()),
        ("another server", access(2).at(&relay.url()).kubeconfig()),
        ("more authorities", access(3).trusting(&[other.authority_pem(), workload.authority_pem()]).kubeconfig()),
        ("a token instead of a certificate", by_token.kubeconfig()),
        ("back to what it was", access(5).kubeconfig()),
    ];
    for (number, (what, kubeconfig)) in moves.into_iter().enumerate() {
        // Right before and right after the Secret changes.
        let first = site.drift().await;
        mgmt.capi_kubeconfig(namespace, "c", &kubeconfig).await.unwrap();
        let second = site.drift().await;
        for target in [&first, &second] {
            site.wait_says(&world, target, "blue").await;
        }
        wait_said(&world, "going on over a new connection", number + 1).await;
        let new = if what.starts_with("a token") { "system:serviceaccount:moves:hub".to_owned() } else { user(number + 1) };
        world
            .wait(&format!("{what}: the watches have moved"), async || {
                let watches = site.calls(start, &new).await.watches();
                ensure!(watches.len() == usize::try_from(before.watches)?, "{:?}", lines(&watches));
                Ok(())
            })
            .await;
    }
    let calls = workload.audit_since(start).await.unwrap().filter(|call| call.user.contains("moves"));
    assert_none(&lists_of_watches(&calls), "lists");
    before.wait_back(&world).await;
    wait_state(&world, "c", "connected").await;
}

#[tokio::test]
async fn a_new_kubeconfig_that_does_not_work_replaces_nothing_and_lets_nobody_write() {
    let namespace = "unproven";
    let (workload, mgmt) = planes().await;
    let (other, _) = more_planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    let site = Site::install(&world, workload, 5).await;
    let relay = Relay::to(workload).await;
    relay.close();
    let user = "hub-unproven";
    let good = workload.access(user, &["system:masters"]).unwrap().kubeconfig();
    add_cluster(&world, "c", workload, &good).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    site.is_corrected(&world).await;
    let bad = [
        ("Handshake", workload.static_token().at(&relay.url()).kubeconfig()),
        ("UnknownAuthority", workload.static_token().trusting(&[other.authority_pem()]).kubeconfig()),
        ("Unauthorized", workload.static_token().kubeconfig().replace("token: ", "token: not-the-")),
    ];
    for (word, kubeconfig) in bad {
        mgmt.capi_kubeconfig(namespace, "c", &kubeconfig).await.unwrap();
        world
            .wait(&format!("{word} is told"), async || {
                let report = cluster_report(&world, "c").await?;
                ensure!(report["status"]["conditions"].to_string().contains(&format!("({word})")), "{}", report["status"]["conditions"]);
                Ok(())
            })
            .await;
        wait_state(&world, "c", "new Secret leads nowhere").await;
        let mark = workload.audit_mark().await.unwrap();
        let target = site.drift().await;
        let found = |status: &Value| finding(status, "ConfigMap", &target.name).is_some_and(|found| found["action"] == "Reported");
        wait_web(&world, "c", "found", found).await;
        assert_none(&site.calls(mark, user).await.writes(), "writes by credentials that were replaced");
        // What was there before is as good as ever, unless the relay opens meanwhile.
        mgmt.capi_kubeconfig(namespace, "c", &good).await.unwrap();
        site.wait_says(&world, &target, "blue").await;
    }
    mgmt.capi_kubeconfig(namespace, "c", &workload.static_token().at(&relay.url()).kubeconfig()).await.unwrap();
    wait_state(&world, "c", "new Secret leads nowhere").await;
    let target = site.drift().await;
    relay.lead_to(workload);
    site.wait_says(&world, &target, "blue").await;
    wait_state(&world, "c", "connected").await;
}

#[tokio::test]
async fn a_connection_outlives_its_secret() {
    let namespace = "secret-gone";
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, namespace).await;
    let site = Site::install(&world, workload, 5).await;
    let relay = Relay::to(workload).await;
    let kubeconfig = workload.static_token().at(&relay.url()).kubeconfig();
    add_cluster(&world, "c", workload, &kubeconfig).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    site.is_corrected(&world).await;
    let secret = Target::secret(namespace, "c-kubeconfig");
    let capi = mgmt.writer("capi").unwrap();
    capi.delete(&secret).await.unwrap();
    wait_state(&world, "c", "Secret gone").await;
    site.is_corrected(&world).await;
    // Also over an outage: the server has not refused anything.
    relay.close();
    world
        .wait("it is out of reach", async || {
            let report = cluster_report(&world, "c").await?;
            ensure!(crate::support::condition(&report["status"], "Reachable") == "False", "{}", report["status"]["conditions"]);
            Ok(())
        })
        .await;
    let target = site.drift().await;
    relay.lead_to(workload);
    site.wait_says(&world, &target, "blue").await;
    wait_state(&world, "c", "Secret gone").await;
    mgmt.capi_kubeconfig(namespace, "c", &kubeconfig).await.unwrap();
    wait_state(&world, "c", "connected").await;
    site.is_corrected(&world).await;
    // A start without the Secret has nothing to connect with.
    capi.delete(&secret).await.unwrap();
    world.stop_hub();
    world.start_hub(&[]);
    wait_state(&world, "c", "no Secret yet").await;
    let target = site.drift().await;
    mgmt.capi_kubeconfig(namespace, "c", &kubeconfig).await.unwrap();
    site.wait_says(&world, &target, "blue").await;
}
