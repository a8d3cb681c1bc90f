//! What a real API server answers, and what the calls make of it. One control plane serves all tests of this file.

#![allow(clippy::unwrap_used, reason = "clippy allows it in test functions, not in their helpers")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use holdfast_fleet::{
    call::{ApiClient, CallError, Deadlines, Effect, Endpoint, Fetched, FieldManager, ListQuery, Shape},
    kubeconfig::{self, ServerPolicy},
    transport::{Connection, Options, Unobserved},
};
use holdfast_testkit::ControlPlane;
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::timeout};

const CANARY: &str = "CANARY-91bd";

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

async fn plane() -> &'static ControlPlane {
    PLANE.get_or_init(|| async { ControlPlane::start(holdfast_testkit::Options::named("calls")).await.unwrap() }).await
}

fn connect(text: &str) -> ApiClient {
    let policy = ServerPolicy::new(vec!["127.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()], Vec::new());
    let kubeconfig = kubeconfig::parse(text.as_bytes(), &policy).unwrap();
    let connection = Connection::new(&kubeconfig, &policy, Options::default(), Arc::new(Unobserved)).unwrap();
    ApiClient::new(connection, Deadlines::default())
}

async fn admin(namespace: &str) -> ApiClient {
    let plane = plane().await;
    plane.namespace(namespace).await.unwrap();
    connect(&plane.admin_kubeconfig().unwrap())
}

fn helm() -> FieldManager {
    FieldManager::new("helm").unwrap()
}

fn bytes(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

fn collection(group: &str, plural: &str, namespace: &str) -> Endpoint {
    Endpoint::new(group, "v1", plural).unwrap().in_namespace(namespace).unwrap()
}

fn config_map(namespace: &str, name: &str) -> Endpoint {
    collection("", "configmaps", namespace).named(name).unwrap()
}

fn deployment(namespace: &str, extra: &Value) -> Value {
    let mut container = json!({"name": "c", "image": "img:1", "env": [{"name": "A", "value": CANARY}]});
    container.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": namespace},
           "spec": {"selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}}})
}

/// The error of a call, which must not give away what the request or the object holds.
fn silent<T: std::fmt::Debug>(result: Result<T, CallError>) -> CallError {
    let error = result.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(CANARY));
    error
}

#[tokio::test]
async fn reads() {
    let client = admin("reads").await;
    assert_eq!(client.get(&config_map("reads", "none"), Shape::Full).await, Err(CallError::NotFound));
    assert_eq!(client.get(&config_map("no-such-namespace", "none"), Shape::Full).await, Err(CallError::NotFound));
    let unknown_group = collection("nope.example.com", "things", "reads").named("x").unwrap();
    assert_eq!(client.get(&unknown_group, Shape::Full).await, Err(CallError::KindNotServed));
    let unknown_kind = collection("apps", "things", "reads").named("x").unwrap();
    assert_eq!(client.get(&unknown_kind, Shape::Full).await, Err(CallError::KindNotServed));
    let removed_version = Endpoint::new("apps", "v1beta1", "deployments").unwrap();
    assert_eq!(client.list(&removed_version, Shape::Metadata, &ListQuery::default()).await, Err(CallError::KindNotServed));
    let namespace = Endpoint::new("", "v1", "namespaces").unwrap().named("no-such-namespace").unwrap();
    assert_eq!(client.get(&namespace, Shape::Metadata).await, Err(CallError::NotFound));

    let system = Endpoint::new("", "v1", "namespaces").unwrap().named("kube-system").unwrap();
    let metadata: Value = client.get(&system, Shape::Metadata).await.unwrap().json().unwrap();
    assert_eq!(metadata["kind"], "PartialObjectMetadata");
    let page = ListQuery { limit: 1, consistent: true, ..ListQuery::default() };
    let namespaces = Endpoint::new("", "v1", "namespaces").unwrap();
    let first: Value = client.list(&namespaces, Shape::Metadata, &page).await.unwrap().json().unwrap();
    assert_eq!((first["kind"].as_str(), first["items"].as_array().map(Vec::len)), (Some("PartialObjectMetadataList"), Some(1)));
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let second: Value =
        client.list(&namespaces, Shape::Metadata, &ListQuery { continue_token: token, ..page }).await.unwrap().json().unwrap();
    assert_ne!(first["items"][0]["metadata"]["name"], second["items"][0]["metadata"]["name"]);

    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let Fetched::Fresh { etag: Some(etag), .. } = client.get_raw("/apis", accept, None).await.unwrap() else { panic!("no tag") };
    assert_eq!(client.get_raw("/apis", accept, Some(&etag)).await.unwrap(), Fetched::Unchanged);
}

#[tokio::test]
async fn creates_and_patches() {
    let client = admin("writes").await;
    let endpoint = config_map("writes", "c");
    let configs = collection("", "configmaps", "writes");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": CANARY}});

    let dry = client.apply(&endpoint, bytes(&object), &helm(), true, Effect::DryRun).await.unwrap();
    assert!(dry.created());
    assert_eq!(client.get(&endpoint, Shape::Full).await, Err(CallError::NotFound));
    let created: Value = client.create(&configs, bytes(&object), &helm(), Effect::Persist).await.unwrap().json().unwrap();
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "helm");
    assert_eq!(silent(client.create(&configs, bytes(&object), &helm(), Effect::Persist).await), CallError::AlreadyExists);
    assert_eq!(
        silent(client.create(&collection("", "configmaps", "nope"), bytes(&object), &helm(), Effect::DryRun).await),
        CallError::NamespaceMissing
    );

    let version = created["metadata"]["resourceVersion"].clone();
    let guard = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version});
    let change = |value: &str| bytes(&json!([guard, {"op": "replace", "path": "/data/k", "value": value}]));
    client.json_patch(&endpoint, change("v2"), &helm(), Effect::DryRun).await.unwrap();
    client.json_patch(&endpoint, change("v2"), &helm(), Effect::Persist).await.unwrap();
    assert_eq!(client.json_patch(&endpoint, change("v3"), &helm(), Effect::Persist).await, Err(CallError::Conflict));
    let test = bytes(&json!([{"op": "test", "path": "/data/k", "value": "other"}]));
    assert_eq!(client.json_patch(&endpoint, test, &helm(), Effect::Persist).await, Err(CallError::PatchMismatch));
    let gone = bytes(&json!([{"op": "remove", "path": "/data/none"}]));
    assert_eq!(client.json_patch(&endpoint, gone, &helm(), Effect::Persist).await, Err(CallError::PatchMismatch));
    client.merge_patch(&endpoint, bytes(&json!({"data": {"k": "v4"}})), &helm(), Effect::Persist).await.unwrap();

    let uid = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "00000000-0000-0000-0000-000000000000"}});
    assert_eq!(silent(client.apply(&endpoint, bytes(&uid), &helm(), true, Effect::Persist).await), CallError::Conflict);
    assert_eq!(
        silent(
            client
                .apply(
                    &config_map("writes", "absent"),
                    bytes(&json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "absent", "uid": "00000000-0000-0000-0000-000000000000"}})),
                    &helm(),
                    true,
                    Effect::Persist
                )
                .await
        ),
        CallError::Conflict
    );
}

#[tokio::test]
async fn refusals() {
    let client = admin("refusals").await;
    let deployments = collection("apps", "deployments", "refusals");
    let web = deployments.clone().named("web").unwrap();
    client.create(&deployments, bytes(&deployment("refusals", &json!({}))), &helm(), Effect::Persist).await.unwrap();

    let oracle = FieldManager::new("holdfast").unwrap();
    let unknown = deployment("refusals", &json!({"imagePullPolcy": CANARY}));
    assert_eq!(
        silent(client.apply(&web, bytes(&unknown), &oracle, true, Effect::DryRun).await),
        CallError::TypedPatch { path: Some(r#".spec.template.spec.containers[name="c"].imagePullPolcy"#.into()) }
    );
    let wrong_type = deployment("refusals", &json!({"workingDir": {"a": CANARY}}));
    assert_eq!(
        silent(client.apply(&web, bytes(&wrong_type), &oracle, true, Effect::DryRun).await),
        CallError::TypedPatch { path: Some(r#".spec.template.spec.containers[name="c"].workingDir"#.into()) }
    );
    let twice = deployment("refusals", &json!({"env": [{"name": "A", "value": CANARY}, {"name": "A", "value": "x"}]}));
    assert_eq!(
        silent(client.apply(&web, bytes(&twice), &oracle, true, Effect::DryRun).await),
        CallError::TypedPatch { path: Some(r#".spec.template.spec.containers[name="c"].env"#.into()) }
    );

    let selector = json!({"spec": {"selector": {"matchLabels": {"app": CANARY}}, "template": {"metadata": {"labels": {"app": CANARY}}}}});
    let refused = silent(client.merge_patch(&web, bytes(&selector), &helm(), Effect::DryRun).await);
    assert_eq!(refused, CallError::Immutable { fields: vec!["spec.selector".into()] });
    let replicas = silent(client.merge_patch(&web, bytes(&json!({"spec": {"replicas": -1}})), &helm(), Effect::DryRun).await);
    assert_eq!(replicas, CallError::Invalid { fields: vec!["spec.replicas".into()] });
    let malformed = silent(client.merge_patch(&web, bytes(&json!({"spec": {"replicas": CANARY}})), &helm(), Effect::DryRun).await);
    assert!(matches!(malformed, CallError::Rejected { code: 400 } | CallError::Invalid { .. }), "{malformed:?}");
    let unforced = client.apply(&web, bytes(&deployment("refusals", &json!({"image": "img:2"}))), &oracle, false, Effect::DryRun).await;
    assert_eq!(silent(unforced), CallError::Conflict);

    let secrets = collection("", "secrets", "refusals");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "immutable": true, "stringData": {"pw": CANARY}});
    client.create(&secrets, bytes(&secret), &helm(), Effect::Persist).await.unwrap();
    let change = json!({"stringData": {"pw": "other"}});
    let refused = silent(client.merge_patch(&secrets.named("s").unwrap(), bytes(&change), &helm(), Effect::Persist).await);
    assert_eq!(refused, CallError::Immutable { fields: vec!["data".into()] });

    let jobs = collection("batch", "jobs", "refusals");
    let job = |image: &str| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": image, "env": [{"name": "A", "value": CANARY}]}]}}}})
    };
    client.create(&jobs, bytes(&job("img:1")), &helm(), Effect::Persist).await.unwrap();
    let refused = silent(client.apply(&jobs.named("j").unwrap(), bytes(&job("img:2")), &helm(), true, Effect::DryRun).await);
    assert_eq!(refused, CallError::Immutable { fields: vec!["spec.template".into()] });
}

#[tokio::test]
async fn credentials() {
    let plane = plane().await;
    let jane = connect(&plane.kubeconfig("jane", &[]).unwrap());
    assert_eq!(jane.get(&config_map("default", "c"), Shape::Full).await, Err(CallError::Forbidden));
    assert!(matches!(jane.open_watch("/api/v1/secrets?watch=1", Shape::Metadata.accept_one()).await, Err(CallError::Forbidden)));
    let own = plane.admin_kubeconfig().unwrap();
    let (head, rest) = own.split_once("  user:\n").unwrap();
    let (_, tail) = rest.split_once("contexts:").unwrap();
    let bad_token = format!("{head}  user:\n    token: {CANARY}\ncontexts:{tail}");
    assert_eq!(silent(connect(&bad_token).get(&config_map("default", "c"), Shape::Full).await), CallError::Unauthorized);
}

#[tokio::test]
async fn watches() {
    let client = admin("watches").await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}});
    client.create(&collection("", "configmaps", "watches"), bytes(&object), &helm(), Effect::Persist).await.unwrap();
    let path = "/api/v1/namespaces/watches/configmaps?watch=1&allowWatchBookmarks=true";
    let streaming = format!("{path}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let mut lines = client.open_watch(&streaming, Shape::Metadata.accept_one()).await.unwrap();
    let mut next = async || -> Value {
        let line = timeout(Duration::from_secs(20), lines.next()).await.unwrap().unwrap().unwrap();
        serde_json::from_slice(&line).unwrap()
    };
    let added = next().await;
    assert_eq!((added["type"].as_str(), added["object"]["metadata"]["name"].as_str()), (Some("ADDED"), Some("c")));
    assert!(added["object"].get("data").is_none());
    assert_eq!(next().await["type"], "BOOKMARK");

    // An error after the watch began comes as an event.
    let ahead = format!("{streaming}&resourceVersion=99999999");
    let mut ahead = client.open_watch(&ahead, Shape::Metadata.accept_one()).await.unwrap();
    let line = timeout(Duration::from_secs(20), ahead.next()).await.unwrap().unwrap().unwrap();
    let event: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["code"], 504);

    let refused = client.open_watch(&format!("{path}&sendInitialEvents=true"), Shape::Metadata.accept_one()).await;
    assert_eq!(refused.err().map(|error| error.fields().to_vec()), Some(vec!["resourceVersionMatch".to_owned()]));
}

#[tokio::test]
async fn more_streams_than_one_connection_carries() {
    let client = admin("many").await;
    let path = "/api/v1/namespaces/many/configmaps?watch=1";
    let watches = futures::future::join_all((0..150).map(|_| client.open_watch(path, Shape::Metadata.accept_one()))).await;
    let mut watches: Vec<_> = watches.into_iter().map(Result::unwrap).collect();
    let endpoints: Vec<_> = (0..300).map(|n| config_map("many", &format!("c{n}"))).collect();
    let reads = endpoints.iter().map(|endpoint| client.get(endpoint, Shape::Full));
    for read in futures::future::join_all(reads).await {
        assert_eq!(read, Err(CallError::NotFound));
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    client.create(&collection("", "configmaps", "many"), bytes(&object), &helm(), Effect::Persist).await.unwrap();
    for watch in &mut watches {
        // The namespace's own ConfigMap may come first.
        let line = timeout(Duration::from_secs(20), watch.next()).await.unwrap().unwrap().unwrap();
        assert!(line.starts_with(br#"{"type":"ADDED""#));
    }
}
