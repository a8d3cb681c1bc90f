//! A kubeconfig that could run, read or leak something in the hub is refused, and touches no other cluster.

use anyhow::ensure;
use holdfast_testkit::{
    Target,
    management::{CapiVersion, HUB_USER, KubeconfigSecret},
};
use serde_json::json;

use crate::{
    fixture::{Release, Style, cluster_report, configmap, events, metric, reports, wait_cluster, wait_live},
    support::{World, condition, reason},
};

/// Stands in every refused kubeconfig where a value stands, and must not come out of the hub again.
const CANARY: &str = "canary-of-the-kubeconfig";

/// A server that the hub is told to deny.
const DENIED: &str = "evil.example";

/// Name of a cluster, how its kubeconfig is spoilt, and the word for it.
fn spoilt(good: &str) -> Vec<(&'static str, String, &'static str)> {
    let user = |line: &str| good.replacen("  user:\n", &format!("  user:\n    {line}\n"), 1);
    let cluster = |line: &str| good.replacen("  cluster:\n", &format!("  cluster:\n    {line}\n"), 1);
    let (before, after) = good.split_once("server: ").unwrap();
    let rest = after.split_once('\n').unwrap().1;
    let server = |url: &str| format!("{before}server: {url}\n{rest}");
    vec![
        ("exec", user(&format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: {CANARY}}}")), "Exec"),
        ("auth-provider", user(&format!("auth-provider: {{name: {CANARY}}}")), "AuthProvider"),
        ("token-file", user(&format!("tokenFile: /tmp/{CANARY}")), "TokenFile"),
        ("certificate-file", user(&format!("client-certificate: /tmp/{CANARY}")), "FilePath"),
        ("key-file", user(&format!("client-key: /tmp/{CANARY}")), "FilePath"),
        ("authority-file", cluster(&format!("certificate-authority: /tmp/{CANARY}")), "FilePath"),
        ("insecure", cluster("insecure-skip-tls-verify: true"), "InsecureSkipTls"),
        ("proxy", cluster(&format!("proxy-url: http://{CANARY}.example")), "ProxyUrl"),
        ("as", user(&format!("as: {CANARY}")), "Impersonation"),
        ("password", user(&format!("username: {CANARY}\n    password: {CANARY}")), "BasicAuth"),
        ("http", server(&format!("http://{CANARY}.example")), "NotHttps"),
        ("loopback", server("https://[::1]:6443"), "ServerDenied"),
        ("denied-name", server(&format!("https://{DENIED}")), "ServerDenied"),
        ("link-local", server("https://169.254.169.254"), "ServerDenied"),
        ("garbage", format!("{{[ {CANARY}"), "NotYaml"),
        ("two-documents", format!("{good}---\n{good}"), "SeveralDocuments"),
        ("too-large", format!("{good}# {}\n", "x".repeat(256 * 1024)), "TooLarge"),
        ("no-context", good.replace("current-context: default\n", ""), "NoCurrentContext"),
        ("other-kind", good.replace("kind: Config\n", "kind: Secret\n"), "NotAKubeconfig"),
    ]
}

#[tokio::test]
async fn a_refused_kubeconfig_is_named_and_touches_no_other_cluster() {
    let namespace = "kubeconfigs";
    let mut world = World::new(namespace).await;
    Release::new(&world, "web", Style::ClientSide).install(&[configmap(namespace, "settings", "color", "blue")]).await;
    let good = world.workload.kubeconfig("holdfast-second", &["system:masters"]).unwrap();
    let rows = spoilt(&good);
    for (cluster, text, _) in &rows {
        world.mgmt.capi_cluster_object(namespace, cluster, world.workload.url(), CapiVersion::V1Beta2, true, &[]).await.unwrap();
        world.mgmt.capi_kubeconfig(namespace, cluster, text).await.unwrap();
    }
    // Nothing under the expected key, no Secret at all, and a server where nobody listens.
    for cluster in ["other-key", "no-secret", "nobody-listens"] {
        world.mgmt.capi_cluster_object(namespace, cluster, world.workload.url(), CapiVersion::V1Beta2, true, &[]).await.unwrap();
    }
    let other_key = KubeconfigSecret {
        namespace,
        name: "other-key-kubeconfig",
        secret_type: "cluster.x-k8s.io/secret",
        labels: &[("cluster.x-k8s.io/cluster-name", "other-key")],
        key: "admin.conf",
        text: &good,
    };
    world.mgmt.kubeconfig_secret(&other_key).await.unwrap();
    world.mgmt.capi_kubeconfig(namespace, "nobody-listens", &good.replace(world.workload.url(), "https://127.0.0.1:1")).await.unwrap();
    world.policy("Correct", json!({})).await;
    world.start_hub(&["--deny-server", DENIED]);

    let rejected: Vec<(&str, &str)> =
        rows.iter().map(|(cluster, _, word)| (*cluster, *word)).chain([("other-key", "MissingKey")]).collect();
    for (cluster, word) in rejected.iter().copied().chain([("no-secret", "KubeconfigMissing")]) {
        wait_cluster(&world, cluster, word, |status| {
            reason(status, "Ready") == word
                && condition(status, "Ready") == "False"
                && reason(status, "InSync") == "KubeconfigRejected"
                && condition(status, "InSync") == "Unknown"
                && condition(status, "Reachable") != "True"
        })
        .await;
    }
    wait_cluster(&world, "nobody-listens", "unreachable", |status| {
        condition(status, "Reachable") == "False" && reason(status, "InSync") == "ClusterUnreachable"
    })
    .await;
    let words: std::collections::BTreeSet<&str> = rejected.iter().map(|(_, word)| *word).collect();
    for word in words {
        let clusters = rejected.iter().filter(|(_, other)| *other == word).count() as u64;
        world
            .wait(&format!("{word} is counted"), async || {
                let count = metric(&world, &format!("holdfast_kubeconfig_rejected_total{{reason=\"{word}\"}}")).await?;
                ensure!(count == clusters, "{count} instead of {clusters}");
                Ok(())
            })
            .await;
    }
    world
        .wait("an Event about every cluster and every report", async || {
            let events = events(&world, "KubeconfigRejected").await?;
            for (cluster, word) in &rejected {
                for kind in ["Cluster", "DriftReport"] {
                    let found = events.iter().any(|event| {
                        event["regarding"]["kind"] == kind
                            && event["regarding"]["name"].as_str().is_some_and(|name| {
                                name == *cluster || name.starts_with(&format!("{cluster}.")) || name.starts_with(&format!("{cluster}-"))
                            })
                            && event["note"].as_str().is_some_and(|note| note.starts_with(word))
                    });
                    ensure!(
                        found,
                        "{cluster} {kind}: {:?}",
                        events.iter().map(|event| (&event["regarding"]["name"], &event["note"])).collect::<Vec<_>>()
                    );
                }
            }
            Ok(())
        })
        .await;

    // The good one does not notice.
    let kubectl = world.writer("kubectl-edit");
    let target = Target::configmap(namespace, "settings");
    kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
    wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;

    // A repaired Secret connects. It is another name of the same cluster, which looks and does not write.
    world.mgmt.capi_kubeconfig(namespace, "exec", &good).await.unwrap();
    wait_cluster(&world, "exec", "connected", |status| reason(status, "Ready") == "ClusterShared").await;
    // One that is spoilt while connected ends the connection: nothing is asked or written any more.
    world.mgmt.capi_kubeconfig(namespace, "c", &rows[0].1).await.unwrap();
    wait_cluster(&world, "c", "rejected", |status| reason(status, "Ready") == "Exec").await;
    let mark = world.workload.audit_mark().await.unwrap();
    kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
    wait_cluster(&world, "exec", "noticed", |status| status["summary"]["drifted"] == 1).await;
    // The hubs of other tests read the records of all releases, but no object of them.
    let calls = world.workload.audit_since(mark).await.unwrap().of_resource("configmaps");
    assert!(world.of_hub(&calls).is_empty() && !calls.by_user("holdfast-second").in_namespace(namespace).is_empty());
    let good_again = world.workload.kubeconfig(HUB_USER, &["system:masters"]).unwrap();
    world.mgmt.capi_kubeconfig(namespace, "c", &good_again).await.unwrap();
    wait_cluster(&world, "c", "connected again", |status| condition(status, "Reachable") == "True").await;
    wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;

    let everything = format!(
        "{:?}{:?}{}{}",
        reports(&world).await.unwrap(),
        events(&world, "KubeconfigRejected").await.unwrap(),
        world.log(),
        world.metrics().await
    );
    assert!(!everything.contains(CANARY), "a value of a kubeconfig came out");
    assert!(cluster_report(&world, "exec").await.is_ok());
}
