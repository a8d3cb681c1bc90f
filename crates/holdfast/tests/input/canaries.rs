//! D19 and everything like it: words planted in Secrets, environments, annotations, what servers say, records and kubeconfigs. The
//! hub has to do with all of them, fails at some, logs at level trace, and none of them is found anywhere it writes to.

use anyhow::{Context, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use holdfast_testkit::{Target, management::CapiVersion, management::HUB_USER, release};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, deployment, events, reports, wait_cluster, wait_event, wait_live},
    search::{CANARY, canary, find, find_in_blob, find_in_files, find_in_process},
    support::{World, condition, finding, path_of, reason},
};

/// Where a whole earlier Secret often stands.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn secret(namespace: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": {"password": canary(value)}})
}

/// A Secret of a kind of its own, with a password for a registry inside JSON inside base64.
fn pull_secret(namespace: &str) -> Value {
    let config = json!({"auths": {"registry.example": {"username": "u", "password": canary("pull"), "auth": BASE64_STANDARD.encode(canary("pull-auth"))}}});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull", "namespace": namespace}, "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": BASE64_STANDARD.encode(config.to_string())}})
}

fn with_environment(namespace: &str, value: &str) -> Value {
    let mut object = deployment(namespace, "web", 1);
    object["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "DB_PASSWORD", "value": canary(value)}]);
    object
}

/// A Job, whose template is immutable: the server refuses a change and quotes all of it.
fn job(namespace: &str, image: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": namespace}, "spec": {"template": {"spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": image, "env": [{"name": "TOKEN", "value": canary("job")}]}]}}}})
}

/// A release of a Job that is not the one that was deployed: somebody made it anew, with another image.
async fn install_other_job(world: &World, style: Style) {
    let namespace = &world.namespace;
    let release = Release::new(world, "job", style);
    let target = Target::job(namespace, "job");
    world.writer("kubectl-edit").create(&target, &job(namespace, "img:2")).await.unwrap();
    let ownership = json!({"metadata": release.owned(&json!({"metadata": {}}))["metadata"]});
    world.writer("helm").merge_patch(&target, &ownership).await.unwrap();
    release.record(1, "deployed", &[job(namespace, "img:1")]).await;
}

/// A kind whose own rule quotes the object.
async fn install_vault(world: &World) {
    let group = format!("{}.example", world.namespace);
    let rule = json!({"rule": "self.size < 10", "messageExpression": "'no room for ' + self.text"});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [rule],
        "properties": {"text": {"type": "string"}, "size": {"type": "integer"}}}}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("vaults.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Vault", "plural": "vaults", "singular": "vault", "listKind": "VaultList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    world.workload.apply_yaml("testkit", &crd.to_string()).await.unwrap();
    let list = format!("vaults.{group}");
    world.wait("vaults are served", async || Ok(_ = world.workload.kubectl(&["get", &list, "-A"]).await?)).await;
}

fn vault(namespace: &str, size: u32) -> Value {
    json!({"apiVersion": format!("{namespace}.example/v1"), "kind": "Vault", "metadata": {"name": "vault", "namespace": namespace},
        "spec": {"text": canary("vault"), "size": size}})
}

/// Denies what the hub writes to Secrets named `denied`, and tells it what is in them; warns about all it writes.
async fn install_denial(world: &World) {
    let namespace = &world.namespace;
    let policy = |name: &str, of_hub: &str, message: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": format!("{namespace}-{name}")}, "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["secrets"]}]},
            "matchConditions": [{"name": "hub", "expression": format!("request.userInfo.username == '{HUB_USER}' && {of_hub}")}],
            "validations": [{"expression": "false", "messageExpression": message}]}})
    };
    let binding = |name: &str, action: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": format!("{namespace}-{name}")}, "spec": {
            "policyName": format!("{namespace}-{name}"), "validationActions": [action],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}}})
    };
    let is_write = "!(has(request.dryRun) && request.dryRun) && request.name == 'denied'";
    let quote = format!("'{} ' + string(object.data['password'])", canary("policy"));
    for object in [
        policy("deny", is_write, &quote),
        binding("deny", "Deny"),
        policy("warn", "true", &format!("'{}'", canary("warning"))),
        binding("warn", "Warn"),
    ] {
        world.workload.apply_yaml("testkit", &object.to_string()).await.unwrap();
    }
    let as_hub = world.workload.writer(HUB_USER).unwrap();
    let (target, probe) = (Target::secret(namespace, "denied"), secret(namespace, "denied", "probe"));
    world
        .wait("the policy is in force", async || {
            let denied = as_hub.create(&target, &probe).await.err();
            if denied.is_none() {
                as_hub.delete(&target).await?;
            }
            ensure!(denied.is_some_and(|error| format!("{error:#}").contains(&canary("policy"))), "not denied yet");
            Ok(())
        })
        .await;
}

/// Releases that the server refuses something of, each with words in what it says: name, kind of the object, its name, what it was
/// deployed as and what the record declares.
fn refused(namespace: &str) -> [(&'static str, &'static str, &'static str, Value, Value); 4] {
    let numbered = |value: Value| {
        let mut object = secret(namespace, "number", "number");
        object["stringData"]["n"] = value;
        object
    };
    let not_base64 = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bytes", "namespace": namespace}, "data": {"password": canary("bytes")}});
    let mut wrong_env = deployment(namespace, "wrong", 1);
    wrong_env["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "TOKEN", "value": {canary("key"): canary("type")}}]);
    [
        ("d19", "Secret", "number", numbered(json!("5")), numbered(json!(5))),
        ("d19-bytes", "Secret", "bytes", secret(namespace, "bytes", "bytes-live"), not_base64),
        ("d19-type", "Deployment", "wrong", deployment(namespace, "wrong", 1), wrong_env),
        ("d19-rule", "Vault", "vault", vault(namespace, 1), vault(namespace, 100)),
    ]
}

/// Records that cannot be read, and one that can with words in all it does not need.
async fn put_records(world: &World, style: Style) {
    let namespace = &world.namespace;
    let extra = json!({
        "config": {"password": canary("values")},
        "info": {"notes": canary("notes"), "description": canary("description")},
        "chart": {"values": {"password": canary("defaults")}, "templates": [{"name": "t", "data": BASE64_STANDARD.encode(canary("template"))}]},
        "hooks": [{"manifest": canary("hook")}],
        "apply_method": if style == Style::ServerSide { "ssa" } else { "csa" },
    });
    let talkative = Release::new(world, "talkative", style);
    talkative.write(&configmap(namespace, "talkative", "color", "blue")).await;
    let manifest = configmap(namespace, "talkative", "color", "blue").to_string();
    world.workload.put_release(&release::secret("talkative", namespace, 1, "deployed", &manifest, &extra).unwrap()).await.unwrap();
    let broken = format!("{{\"name\": \"broken\", \"manifest\": {}", canary("record"));
    let stored = BASE64_STANDARD.encode(broken).into_bytes();
    world.workload.put_release(&release::secret_of_bytes("broken", namespace, 1, "deployed", &stored)).await.unwrap();
    let sloppy = format!("kind: Secret\nstringData:\n  password: {}\n bad: [indent\n", canary("yaml"));
    world.workload.put_release(&release::secret("sloppy", namespace, 1, "deployed", &sloppy, &json!({})).unwrap()).await.unwrap();
}

/// Clusters that cannot be used, with words where a kubeconfig has values. Answers with the name of each and the reason it gets.
async fn put_kubeconfigs(world: &World) -> Vec<(&'static str, &'static str)> {
    let good = world.workload.kubeconfig("nobody", &[]).unwrap();
    let (before, credentials) = good.split_once("    client-certificate-data: ").unwrap();
    let after = &credentials[credentials.find("contexts:").unwrap()..];
    let with_user = |lines: &str| format!("{before}    {lines}\n{after}");
    let rows = [
        ("token", with_user(&format!("token: {}", canary("token"))), "Unauthorized"),
        (
            "certificate",
            with_user(&format!("client-certificate-data: {0}\n    client-key-data: {0}", BASE64_STANDARD.encode(canary("pem")))),
            "BadCertificate",
        ),
        (
            "exec",
            with_user(&format!("exec: {{command: {}, env: [{{name: A, value: {}}}]}}", canary("command"), canary("exec-env"))),
            "Exec",
        ),
        ("user-info", good.replace("https://", &format!("https://user:{}@", canary("url"))), "BadUrl"),
        ("basic", with_user(&format!("username: {}\n    password: {}", canary("user"), canary("basic"))), "BasicAuth"),
        ("names", good.replace("name: default", &format!("name: {}", canary("name"))), "UnknownContext"),
        ("yaml", good.replace("users:", &format!("users: [{}", canary("broken-yaml"))), "NotYaml"),
    ];
    for (cluster, text, _) in &rows {
        world.mgmt.capi_cluster_object(&world.namespace, cluster, world.workload.url(), CapiVersion::V1Beta2, true, &[]).await.unwrap();
        world.mgmt.capi_kubeconfig(&world.namespace, cluster, text).await.unwrap();
    }
    rows.map(|(cluster, _, word)| (cluster, word)).to_vec()
}

async fn wait_finding(world: &World, release: &str, kind: &str, name: &str, verdict: &str, why: &str) {
    world
        .wait_report(Some(release), &format!("{verdict} {why}"), |status| {
            finding(status, kind, name).is_some_and(|finding| finding["verdict"] == verdict && finding["reason"] == why)
        })
        .await;
}

/// Edits, deletions and fights, as they are every day.
async fn trouble(world: &World) {
    let namespace = &world.namespace;
    let kubectl = world.writer("kubectl-edit");
    let target = |name: &str| Target::secret(namespace, name);
    let encoded = |value: &str| json!(BASE64_STANDARD.encode(canary(value)));
    let quoted = json!({"data": {"password": canary("annotation")}}).to_string();
    for (name, annotations) in
        [("auth", json!({LAST_APPLIED: quoted, "token": canary("hidden")})), ("gone", json!({LAST_APPLIED: canary("no-json")}))]
    {
        kubectl.merge_patch(&target(name), &json!({"metadata": {"annotations": annotations}})).await.unwrap();
    }
    // The name of a key is shown, as that of every field: without it nobody could be told what was added.
    kubectl.merge_patch(&target("auth"), &json!({"stringData": {"password": canary("edited"), "added": canary("foreign")}})).await.unwrap();
    wait_live(world, &kubectl, &target("auth"), "/data/password", &encoded("declared")).await;
    kubectl
        .merge_patch(
            &target("pull"),
            &json!({"data": {".dockerconfigjson": BASE64_STANDARD.encode(json!({"auths": {canary("host"): {}}}).to_string())}}),
        )
        .await
        .unwrap();
    kubectl.delete(&target("gone")).await.unwrap();
    wait_live(world, &kubectl, &target("gone"), "/data/password", &encoded("gone")).await;
    let web = Target::deployment(namespace, "web");
    let edited = json!([{"name": "DB_PASSWORD", "value": canary("env-edited")}, {"name": "API_KEY", "value": canary("env-foreign")}]);
    kubectl
        .strategic_patch(&web, &json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "env": edited}]}}}}))
        .await
        .unwrap();
    wait_live(world, &kubectl, &web, "/spec/template/spec/containers/0/env/0/value", &json!(canary("env"))).await;
    // A fight about a value of a Secret.
    for round in 0..6 {
        let live = kubectl.get(&target("fought")).await.unwrap();
        if live["data"]["password"] == encoded("fought") {
            kubectl.merge_patch(&target("fought"), &json!({"stringData": {"password": canary("fighter")}})).await.unwrap();
        }
        let contested = world.report(Some("fight")).await.is_some_and(|report| report["status"]["summary"]["contested"] == 1);
        if contested {
            break;
        }
        ensure_round(world, &kubectl, &target("fought"), &encoded("fought"), round).await;
    }
    world.wait_report(Some("fight"), "contested", |status| status["summary"]["contested"] == 1).await;

    kubectl
        .merge_patch(&target("immutable"), &json!({"immutable": true, "stringData": {"password": canary("immutable-edited")}}))
        .await
        .unwrap();
    wait_finding(world, "immutable", "Secret", "immutable", "Refused", "Immutable").await;
    kubectl.merge_patch(&target("denied"), &json!({"stringData": {"password": canary("denied-edited")}})).await.unwrap();
    wait_finding(world, "denied", "Secret", "denied", "Refused", "AdmissionDenied").await;
}

/// Waits until the hub has put a value back, or calls it contested.
async fn ensure_round(world: &World, writer: &holdfast_testkit::Writer, target: &Target, wanted: &Value, round: u32) {
    world
        .wait(&format!("round {round} of the fight"), async || {
            let live = writer.get(target).await?;
            let report = world.report(Some("fight")).await.context("no report")?;
            ensure!(live["data"]["password"] == *wanted || report["status"]["summary"]["contested"] == 1, "not put back");
            Ok(())
        })
        .await;
}

/// Everything the hub shows, keeps or is made of, with where it was found.
async fn places(world: &World) -> Vec<(String, Vec<u8>)> {
    let namespace = &world.namespace;
    let mut places = Vec::new();
    for path in
        ["/metrics", "/healthz", "/readyz", "/debug/tasks", "/", &format!("/api/v1/clusters/{namespace}/c"), "/api/v1/fleet", "/ui/"]
    {
        places.push((format!("the answer to {path}"), world.http(path).await.into_bytes()));
    }
    let kinds = "driftreports,driftpolicies,events,events.events.k8s.io,leases,configmaps,clusters.cluster.x-k8s.io";
    places.push((
        "the management cluster".to_owned(),
        world.mgmt.kubectl(&["get", kinds, "-n", namespace, "-o", "json"]).await.unwrap().into_bytes(),
    ));
    let asked = world.workload.audit().await.unwrap().by_user(HUB_USER).in_namespace(namespace);
    places.push(("a URL".to_owned(), asked.iter().map(|call| call.uri.as_str()).collect::<Vec<_>>().join("\n").into_bytes()));
    places
}

/// The hub's state in Secrets, decoded.
async fn state(world: &World) -> Vec<(String, Vec<u8>)> {
    let list = world.mgmt.kubectl(&["get", "secrets", "-n", &world.namespace, "-o", "json"]).await.unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    let of_hub = |item: &&Value| item["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("holdfast-"));
    let mut state = Vec::new();
    for item in list["items"].as_array().unwrap().iter().filter(of_hub) {
        state.push(("the metadata of a state Secret".to_owned(), item["metadata"].to_string().into_bytes()));
        for (key, value) in item["data"].as_object().into_iter().flatten() {
            state.push((format!("state {key}"), BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap()));
        }
    }
    state
}

async fn scan(world: &World) -> Vec<(String, Vec<u8>)> {
    let kubeconfig = world.workload.dir().join(format!("{}.scan", world.namespace));
    std::fs::write(&kubeconfig, world.workload.admin_kubeconfig().unwrap()).unwrap();
    let broken = world.workload.dir().join(format!("{}.broken", world.namespace));
    std::fs::write(&broken, format!("users: [{{name: x, user: {{token: {}}}\n bad", canary("scan-kubeconfig"))).unwrap();
    let manifest = world.workload.dir().join(format!("{}.yaml", world.namespace));
    let bad = refused(&world.namespace).map(|(_, _, _, _, declared)| declared.to_string()).join("\n---\n");
    std::fs::write(&manifest, format!("---\n{bad}\n---\nkind: Secret\n bad: {}\n", canary("scan-yaml"))).unwrap();
    let mut outputs = Vec::new();
    for (config, further) in [(&kubeconfig, vec![]), (&kubeconfig, vec!["--manifest", manifest.to_str().unwrap()]), (&broken, vec![])] {
        for format in ["table", "json", "yaml"] {
            let args = [&["scan", "-n", &world.namespace, "-o", format, "--log", "trace"][..], &further].concat();
            let mut program = tokio::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
            let output =
                program.args(&args).env("KUBECONFIG", config).env("TMPDIR", world.hub_tmp()).kill_on_drop(true).output().await.unwrap();
            assert!(output.status.code().is_some_and(|code| code > 0), "{args:?}: there is drift");
            assert!(!output.stderr.is_empty() || !output.stdout.is_empty(), "{args:?}");
            outputs.push((format!("what {args:?} prints"), [output.stdout, output.stderr].concat()));
        }
    }
    outputs
}

async fn nothing_comes_out(namespace: &str, log_format: &str, style: Style) {
    let mut world = World::new(namespace).await;
    install_vault(&world).await;
    install_denial(&world).await;
    let release = |name: &str| Release::new(&world, name, style);
    release("web")
        .install(&[
            secret(namespace, "auth", "declared"),
            secret(namespace, "gone", "gone"),
            pull_secret(namespace),
            with_environment(namespace, "env"),
        ])
        .await;
    for (name, object) in [
        ("fight", secret(namespace, "fought", "fought")),
        ("immutable", secret(namespace, "immutable", "immutable")),
        ("denied", secret(namespace, "denied", "denied")),
    ] {
        release(name).install(&[object]).await;
    }
    for (name, _, _, deployed, declared) in refused(namespace) {
        release(name).write(&deployed).await;
        release(name).record(1, "deployed", &[declared]).await;
    }
    install_other_job(&world, style).await;
    let number = Target::secret(namespace, "number");
    let annotations = json!({"metadata": {"annotations": {LAST_APPLIED: canary("d19"), "token": canary("d19-hidden")}}});
    world.writer("kubectl-edit").merge_patch(&number, &annotations).await.unwrap();
    put_records(&world, style).await;
    let clusters = put_kubeconfigs(&world).await;
    world.policy("Correct", json!({"contest": {"rounds": 2, "window": "30m"}})).await;
    // Libraries that log whole answers and headers stay quiet even when they are asked for by name.
    let levels = "trace,kube_client=trace,hyper=trace,hyper_util=trace,h2=trace,rustls=trace,tower=trace";
    world.start_hub(&["--log", levels, "--log-format", log_format]);

    for name in ["web", "fight", "immutable", "denied", "talkative"] {
        world.wait_in_sync(name).await;
    }
    for (name, kind, object, _, _) in refused(namespace) {
        let (verdict, why) = match object {
            "vault" => ("Unknown", "Invalid"),
            // Not told apart from a server that fails.
            "bytes" => ("Unknown", "ServerError"),
            _ => ("Unknown", "ManifestInvalid"),
        };
        wait_finding(&world, name, kind, object, verdict, why).await;
    }
    wait_finding(&world, "job", "Job", "job", "Refused", "Immutable").await;
    world.wait_report(Some("broken"), "unreadable", |status| reason(status, "InSync") == "RecordInvalid").await;
    world.wait_report(Some("sloppy"), "unreadable", |status| condition(status, "InSync") == "Unknown").await;
    for (cluster, word) in &clusters {
        wait_cluster(&world, cluster, word, |status| reason(status, "Ready") == *word || reason(status, "Reachable") == *word).await;
    }
    trouble(&world).await;
    let report = world.wait_report(Some("web"), "corrected", |status| status["summary"]["corrected"].as_u64() >= Some(3)).await;
    assert!(path_of(finding(&report["status"], "Secret", "auth").unwrap(), "/data/password").is_some());
    wait_event(&world, "CorrectionRefused", "denied").await;

    let planted = world.workload.kubectl(&["get", "secret", "auth", "-n", namespace, "-o", "json"]).await.unwrap();
    assert!(find(planted.as_bytes()).is_some(), "where they were planted they are found");
    let id = world.hub_id();
    let mut all = places(&world).await;
    all.extend(scan(&world).await);
    assert_eq!(find_in_process(id), None, "in the process's arguments or environment");
    world.stop_hub();
    // What is written at the end counts, too.
    all.push(("a report".to_owned(), json!(reports(&world).await.unwrap()).to_string().into_bytes()));
    all.push(("an Event".to_owned(), json!(events(&world, "DriftCorrected").await.unwrap()).to_string().into_bytes()));
    all.push(("the log".to_owned(), world.log().into_bytes()));
    assert!(world.log().contains("correction") && world.log().contains("Refused"), "the log tells of all this");
    for (place, text) in all {
        assert!(!text.is_empty(), "{place} was looked at");
        assert_eq!(find(&text), None, "{namespace}: {CANARY} is in {place}");
    }
    for (place, blob) in state(&world).await {
        assert_eq!(find_in_blob(&blob), None, "{namespace}: {CANARY} is in {place}");
    }
    assert_eq!(find_in_files(&world.hub_tmp()).1, None, "in a temporary file");
}

#[tokio::test]
async fn d19_nothing_secret_comes_out_of_a_hub_that_logs_text() {
    Box::pin(nothing_comes_out("planted-csa", "text", Style::ClientSide)).await;
}

#[tokio::test]
async fn d19_nothing_secret_comes_out_of_a_hub_that_logs_json() {
    Box::pin(nothing_comes_out("planted-ssa", "json", Style::ServerSide)).await;
}
