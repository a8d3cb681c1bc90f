use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use holdfast_engine::object::{Gvk, Scope};
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::watch::SourceError;

/// A server with documents by path. A document's version is its text's length and the server's edition.
#[derive(Default)]
struct Server {
    documents: Mutex<HashMap<String, Result<String, SourceError>>>,
    edition: AtomicUsize,
    bodies: AtomicUsize,
    requests: AtomicUsize,
}

impl Server {
    fn set(&self, path: &str, document: &serde_json::Value) {
        self.edition.fetch_add(1, Ordering::SeqCst);
        self.documents.lock().insert(path.to_owned(), Ok(document.to_string()));
    }

    fn break_at(&self, path: &str, error: SourceError) {
        self.documents.lock().insert(path.to_owned(), Err(error));
    }
}

impl Fetch for Server {
    async fn fetch(&self, path: &str, _accept: &str, etag: Option<&str>) -> Result<Fetched, SourceError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let document = self.documents.lock().get(path).cloned().unwrap_or(Err(SourceError::NotServed))?;
        let current = format!("\"{}-{}\"", document.len(), self.edition.load(Ordering::SeqCst));
        if etag == Some(current.as_str()) {
            return Ok(Fetched::NotModified);
        }
        self.bodies.fetch_add(1, Ordering::SeqCst);
        Ok(Fetched::Document { body: Bytes::from(document), etag: Some(current) })
    }
}

fn core() -> serde_json::Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [{
        "metadata": {"creationTimestamp": null},
        "versions": [{"version": "v1", "freshness": "Current", "resources": [
            {"resource": "namespaces", "responseKind": {"group": "", "version": "", "kind": "Namespace"}, "scope": "Cluster",
             "singularResource": "namespace", "verbs": ["create", "get", "list", "watch"]},
            {"resource": "bindings", "responseKind": {"kind": "Binding"}, "scope": "Namespaced", "verbs": ["create"]},
        ]}]
    }]})
}

fn groups() -> serde_json::Value {
    json!({"kind": "APIGroupDiscoveryList", "items": [
        {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
            {"resource": "deployments", "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "scope": "Namespaced",
             "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
             "subresources": [
                {"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "verbs": ["get"]},
                {"subresource": "status", "responseKind": {"kind": "Deployment"}, "verbs": ["get"]}]},
            {"resource": "only-subresources", "scope": "Namespaced", "subresources": [{"subresource": "x"}]},
        ]}]},
        {"metadata": {"name": "autoscaling"}, "versions": [
            {"version": "v2", "freshness": "Current", "resources": [
                {"resource": "horizontalpodautoscalers", "responseKind": {"kind": "HorizontalPodAutoscaler"}, "scope": "Namespaced", "verbs": ["get"]}]},
            {"version": "v1", "freshness": "Current", "resources": [
                {"resource": "horizontalpodautoscalers", "responseKind": {"kind": "HorizontalPodAutoscaler"}, "scope": "Namespaced", "verbs": ["get"]}]},
        ]},
        {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale"}]},
    ]})
}

async fn discovered() -> (Server, Discovery) {
    let server = Server::default();
    server.set("/api", &core());
    server.set("/apis", &groups());
    let mut discovery = Discovery::default();
    assert!(matches!(discovery.refresh(&server).await, Ok(Refreshed::Changed(_))));
    (server, discovery)
}

fn served(catalog: &Catalog, api_version: &str, kind: &str) -> std::sync::Arc<Resource> {
    catalog.lookup(&Gvk::new(api_version, kind)).served().unwrap()
}

#[tokio::test]
async fn aggregated_documents_become_a_catalog() {
    let (server, discovery) = discovered().await;
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
    let catalog = discovery.catalog();

    let deployment = served(&catalog, "apps/v1", "Deployment");
    assert_eq!((deployment.plural.as_str(), deployment.scope), ("deployments", Scope::Namespaced));
    assert!(deployment.watchable() && deployment.verbs.has(Verb::Patch) && deployment.verbs.has(Verb::Delete));
    assert!(deployment.has_subresource("scale") && !deployment.has_subresource("ephemeralcontainers"));

    let namespace = served(&catalog, "v1", "Namespace");
    assert_eq!((&namespace.gvk, namespace.scope), (&Gvk::new("v1", "Namespace"), Scope::Cluster));
    assert!(!namespace.verbs.has(Verb::Patch));
    assert!(!served(&catalog, "v1", "Binding").watchable());

    assert_eq!(served(&catalog, "autoscaling/v2", "HorizontalPodAutoscaler").gvk.version, "v2");
    assert_eq!(served(&catalog, "autoscaling/v1", "HorizontalPodAutoscaler").gvk.version, "v1");
    // Kinds of subresources are nothing one could find objects of.
    assert_eq!(catalog.lookup(&Gvk::new("autoscaling/v1", "Scale")), Lookup::NotServed);
    assert_eq!(catalog.resources().count(), 5);
}

#[tokio::test]
async fn absent_is_told_apart_from_unknown() {
    let gvk = Gvk::new("metrics.k8s.io/v1beta1", "PodMetrics");
    assert_eq!(Catalog::unknown().lookup(&gvk), Lookup::Unknown);
    assert_eq!(Discovery::default().catalog().lookup(&Gvk::new("apps/v1", "Deployment")), Lookup::Unknown);

    let (server, mut discovery) = discovered().await;
    let catalog = discovery.catalog();
    assert_eq!(catalog.lookup(&gvk), Lookup::Unknown, "the backend is down");
    assert_eq!(catalog.lookup(&Gvk::new("metrics.k8s.io/v1", "PodMetrics")), Lookup::Unknown, "nor any other version of the group");
    for (api_version, kind) in [("apps/v1", "Widget"), ("apps/v1beta1", "Deployment"), ("example.com/v1", "Widget"), ("v1", "Deployment")] {
        assert_eq!(catalog.lookup(&Gvk::new(api_version, kind)), Lookup::NotServed, "{api_version} {kind}");
    }

    // A failed or garbled discovery changes nothing.
    server.break_at("/apis", SourceError::Timeout);
    let error = discovery.refresh(&server).await.unwrap_err();
    assert_eq!((error.category(), error.to_string().as_str()), ("Timeout", "discovery document /apis could not be read"));
    server.set("/apis", &json!({"kind": "Status", "code": 503}));
    assert_eq!(discovery.refresh(&server).await.unwrap_err(), DiscoveryError::Malformed { path: "/apis" });
    served(&discovery.catalog(), "apps/v1", "Deployment");
}

#[tokio::test]
async fn a_new_kind_is_seen_and_an_unchanged_document_has_no_body() {
    let (server, mut discovery) = discovered().await;
    assert!(matches!(discovery.refresh(&server).await, Ok(Refreshed::Unchanged)));
    assert_eq!((server.requests.load(Ordering::SeqCst), server.bodies.load(Ordering::SeqCst)), (4, 2));

    let mut more = groups();
    more["items"].as_array_mut().unwrap().push(json!({"metadata": {"name": "example.com"}, "versions": [
        {"version": "v1", "freshness": "Current", "resources": [
            {"resource": "widgets", "responseKind": {"kind": "Widget"}, "scope": "Namespaced", "verbs": ["list", "watch"]}]}]}));
    server.set("/apis", &more);
    let Ok(Refreshed::Changed(catalog)) = discovery.refresh(&server).await else { panic!("changed") };
    assert!(served(&catalog, "example.com/v1", "Widget").watchable());

    // New ETags with the same kinds are no change, and are remembered.
    server.set("/apis", &more);
    assert!(matches!(discovery.refresh(&server).await, Ok(Refreshed::Unchanged)));
    let bodies = server.bodies.load(Ordering::SeqCst);
    assert!(matches!(discovery.refresh(&server).await, Ok(Refreshed::Unchanged)));
    assert_eq!(server.bodies.load(Ordering::SeqCst), bodies);

    server.set("/apis", &groups());
    let Ok(Refreshed::Changed(catalog)) = discovery.refresh(&server).await else { panic!("changed") };
    assert_eq!(catalog.lookup(&Gvk::new("example.com/v1", "Widget")), Lookup::NotServed);
}

#[tokio::test]
async fn a_group_that_does_not_answer_any_more_lists_what_it_did() {
    let (server, mut discovery) = discovered().await;
    let mut stale = groups();
    stale["items"][0]["versions"] = json!([{"version": "v1", "freshness": "Stale"}]);
    for _ in 0..2 {
        server.set("/apis", &stale);
        discovery.refresh(&server).await.unwrap();
        served(&discovery.catalog(), "apps/v1", "Deployment");
        assert_eq!(discovery.catalog().lookup(&Gvk::new("apps/v1", "Widget")), Lookup::Unknown);
    }
    // It answers again, and has another kind.
    stale["items"][0]["versions"] = json!([{"version": "v1", "freshness": "Current", "resources": [
        {"resource": "widgets", "responseKind": {"kind": "Widget"}, "scope": "Namespaced"}]}]);
    server.set("/apis", &stale);
    discovery.refresh(&server).await.unwrap();
    served(&discovery.catalog(), "apps/v1", "Widget");
    assert_eq!(discovery.catalog().lookup(&Gvk::new("apps/v1", "Deployment")), Lookup::NotServed);
}

#[tokio::test]
async fn servers_without_aggregated_documents_are_asked_group_by_group() {
    let server = Server::default();
    server.set("/api", &json!({"kind": "APIVersions", "versions": ["v1"]}));
    server.set(
        "/api/v1",
        &json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
        {"name": "pods", "namespaced": true, "kind": "Pod", "verbs": ["get", "list", "watch"]},
        {"name": "pods/status", "namespaced": true, "kind": "Pod", "verbs": ["get"]},
        {"name": "pods/eviction", "namespaced": true, "kind": "Eviction", "group": "policy", "version": "v1", "verbs": ["create"]}]}),
    );
    server.set("/apis", &json!({"kind": "APIGroupList", "groups": [
        {"name": "batch", "versions": [{"groupVersion": "batch/v1beta1", "version": "v1beta1"}, {"groupVersion": "batch/v1", "version": "v1"}],
         "preferredVersion": {"groupVersion": "batch/v1", "version": "v1"}},
        {"name": "metrics.k8s.io", "versions": [{"groupVersion": "metrics.k8s.io/v1", "version": "v1"}]}]}));
    let cron = json!({"name": "cronjobs", "namespaced": true, "kind": "CronJob", "verbs": ["get"]});
    server.set("/apis/batch/v1", &json!({"resources": [cron]}));
    server.set("/apis/batch/v1beta1", &json!({"resources": [cron]}));
    server.break_at("/apis/metrics.k8s.io/v1", SourceError::Server);

    let mut discovery = Discovery::default();
    let Ok(Refreshed::Changed(catalog)) = discovery.refresh(&server).await else { panic!("changed") };
    let pod = served(&catalog, "v1", "Pod");
    assert_eq!(pod.subresources, ["status", "eviction"]);
    assert_eq!(catalog.lookup(&Gvk::new("v1", "Eviction")), Lookup::NotServed);
    served(&catalog, "batch/v1", "CronJob");
    assert_eq!(catalog.lookup(&Gvk::new("metrics.k8s.io/v1", "PodMetrics")), Lookup::Unknown, "a group that does not answer is not gone");

    // A change below the group list is found although the list's ETag is the same.
    server.documents.lock().insert("/apis/batch/v1".to_owned(), Ok(json!({"resources": []}).to_string()));
    let Ok(Refreshed::Changed(catalog)) = discovery.refresh(&server).await else { panic!("changed") };
    assert_eq!(catalog.lookup(&Gvk::new("batch/v1", "CronJob")), Lookup::NotServed);
    served(&catalog, "batch/v1beta1", "CronJob");
    assert!(matches!(discovery.refresh(&server).await, Ok(Refreshed::Unchanged)));
}

#[tokio::test]
async fn the_identity_is_read() {
    let server = Server::default();
    let path = "/api/v1/namespaces/kube-system";
    assert_eq!(cluster_uid(&server).await, Err(SourceError::NotServed));
    server.set(path, &json!({"kind": "PartialObjectMetadata", "metadata": {"name": "kube-system", "uid": "abc"}}));
    assert_eq!(&*cluster_uid(&server).await.unwrap(), "abc");
    server.set(path, &json!({"metadata": {"name": "kube-system"}}));
    assert_eq!(cluster_uid(&server).await, Err(SourceError::BadAnswer), "no identity is not an empty identity");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_server_ends_in_a_timeout() {
    struct Hang;
    impl Fetch for Hang {
        async fn fetch(&self, _: &str, _: &str, _: Option<&str>) -> Result<Fetched, SourceError> {
            std::future::pending().await
        }
    }
    let started = tokio::time::Instant::now();
    assert_eq!(Discovery::default().refresh(&Hang).await.unwrap_err().category(), "Timeout");
    assert_eq!(cluster_uid(&Hang).await, Err(SourceError::Timeout));
    assert!(started.elapsed() <= Duration::from_secs(40));
}
