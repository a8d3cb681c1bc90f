//! Kubeconfigs that are broken, or that lead where none may lead, beside what `safety` has: spellings, encodings, shapes.

use base64::{Engine, prelude::BASE64_STANDARD};
use holdfast_testkit::{Target, management::CapiVersion};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, reports, wait_cluster, wait_live},
    search::{canary, find},
    support::{World, condition, reason},
};

/// A server that the hub is told to deny.
const DENIED: &str = "evil.example";

/// Spellings of hosts that nobody may connect to: the address that clouds answer on with credentials, this host, and a name.
const DENIED_HOSTS: [&str; 12] = [
    "169.254.169.254.",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[fe80::1]",
    "0.0.0.0",
    "EVIL.example",
    "evil.example.",
];

/// What is no address of a server.
const BAD_URLS: [&str; 9] = [
    "https://",
    "https://one.example:0",
    "https://one.example:70000",
    "https://one.example/path",
    "https://one.example?query",
    "https://one.example#fragment",
    "https://user@one.example",
    "https://[fe80::1%25eth0]",
    "https://1.2.3.4.5",
];

/// Spoils a good kubeconfig in many ways, with the reason each gets.
fn spoilt(good: &str) -> Vec<(String, Vec<u8>, &'static str)> {
    let (head, rest) = good.split_once("server: ").unwrap();
    let rest = rest.split_once('\n').unwrap().1;
    let server = |url: &str| format!("{head}server: \"{url}\"\n{rest}");
    let (before_user, credentials) = good.split_once("    client-certificate-data: ").unwrap();
    let after_user = &credentials[credentials.find("contexts:").unwrap()..];
    let user = |lines: &str| format!("{before_user}    {lines}\n{after_user}");
    let authority = good.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: ")).unwrap();
    let level = |n: usize| format!("a{n}: &a{n} [{}]\n", format!("*a{}, ", n - 1).repeat(10));
    let bomb = (1..12).map(level).collect::<Vec<_>>().concat();
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(good.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let secret = canary("kubeconfig");

    let mut rows: Vec<(String, Vec<u8>, &str)> = [
        ("zeros", "\0".repeat(100), "NotYaml"),
        ("tab", good.replacen("  cluster:\n", "\tcluster:\n", 1), "NotYaml"),
        ("text", secret.clone(), "NotYaml"),
        ("list", format!("- {secret}\n"), "NotYaml"),
        ("bomb", format!("a0: &a0 [x]\n{bomb}{good}"), "NotYaml"),
        ("deep", format!("{good}extensions: {}\n", "[".repeat(50_000)), "NotYaml"),
        ("key-twice", good.replace("kind: Config\n", "kind: Config\nkind: Config\n"), "NotYaml"),
        ("wrong-type", good.replace("current-context: default", "current-context: {a: b}"), "NotYaml"),
        ("other-version", good.replace("apiVersion: v1\n", "apiVersion: v2\n"), "NotAKubeconfig"),
        ("empty-context", good.replace("current-context: default", "current-context: ''"), "NoCurrentContext"),
        ("other-context", good.replace("current-context: default", &format!("current-context: {secret}")), "UnknownContext"),
        ("other-cluster", good.replace("    cluster: default\n", &format!("    cluster: {secret}\n")), "UnknownCluster"),
        ("other-user", good.replace("    user: default\n", &format!("    user: {secret}\n")), "UnknownUser"),
        ("user-twice", good.replace("users:\n", "users:\n- name: default\n  user: {}\n"), "DuplicateName"),
        ("unknown-field", user(&format!("token: {secret}\n    gcp: {secret}")), "UnknownField"),
        ("merged-exec", format!("a: &a {{exec: {{command: {secret}}}}}\n{}", user("<<: *a")), "Exec"),
        ("escaped-exec", user(&format!("\"\\x65xec\": {{command: {secret}}}")), "Exec"),
        ("as-groups", user(&format!("token: {secret}\n    as-groups: [{secret}]")), "Impersonation"),
        ("no-authority", good.replace(&format!("    certificate-authority-data: {authority}\n"), ""), "NoCa"),
        ("authority-base64", good.replace(authority, &format!("{secret}!")), "BadCa"),
        ("authority-pem", good.replace(authority, &BASE64_STANDARD.encode(&secret)), "BadCa"),
        ("no-credentials", user("token: ''"), "NoCredentials"),
        ("token-lines", user(&format!("token: \"{secret}\\n{secret}\"")), "BadToken"),
        ("no-key", user(&format!("client-certificate-data: {authority}")), "BadKey"),
        ("other-key", user(&format!("client-certificate-data: {authority}\n    client-key-data: {authority}")), "BadKey"),
        ("no-server", server(""), "NoServer"),
        ("no-scheme", server("one.example:6443"), "BadUrl"),
    ]
    .into_iter()
    .map(|(name, text, word)| (name.to_owned(), text.into_bytes(), word))
    .collect();
    rows.push(("utf-16".to_owned(), utf16, "NotYaml"));
    rows.push(("no-utf-8".to_owned(), [b"\xff\xfe\x80".as_slice(), good.as_bytes()].concat(), "NotYaml"));
    for (number, host) in DENIED_HOSTS.iter().enumerate() {
        rows.push((format!("denied-{number}"), server(&format!("https://{host}:6443")).into_bytes(), "ServerDenied"));
    }
    for (number, url) in BAD_URLS.iter().enumerate() {
        rows.push((format!("url-{number}"), server(url).into_bytes(), "BadUrl"));
    }
    rows
}

async fn put_cluster(world: &World, cluster: &str, kubeconfig: &[u8]) {
    let namespace = &world.namespace;
    world.mgmt.capi_cluster_object(namespace, cluster, world.workload.url(), CapiVersion::V1Beta2, true, &[]).await.unwrap();
    let name = format!("{cluster}-kubeconfig");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"cluster.x-k8s.io/cluster-name": cluster}},
        "data": {"value": BASE64_STANDARD.encode(kubeconfig)},
    });
    world.mgmt.writer("manager").unwrap().apply(&Target::secret(namespace, &name), &secret).await.unwrap();
}

#[tokio::test]
async fn each_broken_kubeconfig_is_named_on_its_own_cluster() {
    let namespace = "odd-kubeconfigs";
    let mut world = World::new(namespace).await;
    Release::new(&world, "web", Style::ClientSide).install(&[configmap(namespace, "settings", "color", "blue")]).await;
    let good = world.workload.kubeconfig("holdfast-second", &["system:masters"]).unwrap();
    let rows = spoilt(&good);
    for (cluster, kubeconfig, _) in &rows {
        put_cluster(&world, cluster, kubeconfig).await;
    }
    // As JSON, and with a name used twice that nobody selects, it is a good one.
    let tree: Value = serde_saphyr::from_str(&good).unwrap();
    put_cluster(&world, "json", tree.to_string().as_bytes()).await;
    put_cluster(&world, "twice", good.replace("users:\n", "users:\n- name: x\n  user: {exec: {}}\n- name: x\n  user: {}\n").as_bytes())
        .await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&["--deny-server", DENIED]);

    for (cluster, _, word) in &rows {
        wait_cluster(&world, cluster, word, |status| {
            reason(status, "Ready") == *word && condition(status, "Ready") == "False" && reason(status, "InSync") == "KubeconfigRejected"
        })
        .await;
    }
    for cluster in ["json", "twice"] {
        wait_cluster(&world, cluster, "connected", |status| condition(status, "Reachable") == "True").await;
    }
    let kubectl = world.writer("kubectl-edit");
    let settings = Target::configmap(namespace, "settings");
    kubectl.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
    wait_live(&world, &kubectl, &settings, "/data/color", &json!("blue")).await;
    let said = format!("{:?}{}{}", reports(&world).await.unwrap(), world.log(), world.metrics().await);
    assert_eq!(find(said.as_bytes()), None, "a value of a kubeconfig came out");
}
