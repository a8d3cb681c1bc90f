//! Discovery and watches against a real API server: what the scripted tests assume is what it does.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use holdfast_engine::object::{Gvk, Scope};
use holdfast_fleet::{
    call::{ApiClient, Deadlines, Endpoint},
    discovery::{Catalog, Discovery, Lookup, Refreshed, cluster_uid},
    kubeconfig::{self, ServerPolicy},
    meta::{MetaDigest, Operation, meta_digest, parse_event, parse_list},
    supervisor::{Stopped, Supervisor},
    transport::{Connection, Options, Unobserved},
    watch::{
        Delivery, Lease, Reason, Source, Update, Versioned, WatchKey, WatchStats, Watches,
        decode::metadata,
        step::{Open, PageRequest, StartAt},
    },
};
use holdfast_testkit::{ControlPlane, Target, Writer, eventually, install_crypto_provider};
use serde_json::{Value, json, value::RawValue};
use tokio::{
    sync::{OnceCell, mpsc},
    time::timeout,
};

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

const PATIENCE: Duration = Duration::from_secs(20);

async fn plane() -> &'static ControlPlane {
    install_crypto_provider();
    PLANE.get_or_init(|| async { ControlPlane::start(holdfast_testkit::Options::named("fleet")).await.unwrap() }).await
}

fn client(plane: &ControlPlane) -> ApiClient {
    let policy = ServerPolicy::new(vec!["127.0.0.1".parse().unwrap()], Vec::new());
    let kubeconfig = kubeconfig::parse(plane.admin_kubeconfig().unwrap().as_bytes(), &policy).unwrap();
    let connection = Connection::new(&kubeconfig, &policy, Options::default(), Arc::new(Unobserved)).unwrap();
    ApiClient::new(connection, Deadlines::default())
}

async fn namespace(writer: &Writer, name: &str) {
    let target = Target::cluster_scoped("", "v1", "namespaces", name);
    writer.create(&target, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await.unwrap();
}

fn configmap(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace, "labels": labels}, "data": {"k": "1"}})
}

/// What the tests keep of an object.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    name: String,
    uid: String,
    digest: MetaDigest,
    managers: Vec<(String, Operation)>,
}

type Decoder = fn(&WatchKey, &RawValue) -> Result<Versioned<Seen>, holdfast_fleet::meta::MetaError>;

fn decode(_: &WatchKey, object: &RawValue) -> Result<Versioned<Seen>, holdfast_fleet::meta::MetaError> {
    metadata(object, |meta| Seen {
        name: meta.name.to_string(),
        uid: meta.uid.to_string(),
        digest: meta_digest(meta),
        managers: meta.managed_fields.iter().map(|entry| (entry.manager.to_string(), entry.operation)).collect(),
    })
}

struct Watching {
    root: Supervisor,
    watches: Watches<ApiClient, Decoder>,
    deliveries: mpsc::Receiver<Delivery<Seen>>,
    stats: Arc<WatchStats>,
}

impl Watching {
    fn new(plane: &ControlPlane) -> Self {
        let (send, deliveries) = mpsc::channel(64);
        let root = Supervisor::root("test");
        let stats = Arc::new(WatchStats::default());
        let watches = Watches::new(Arc::new(client(plane)), decode as Decoder, send, root.child("cluster"), Arc::clone(&stats));
        Self { root, watches, deliveries, stats }
    }

    fn start(&self, key: WatchKey) -> Lease {
        self.watches.acquire(key)
    }

    async fn next(&mut self) -> Update<Seen> {
        timeout(PATIENCE, self.deliveries.recv()).await.expect("an update in time").expect("a running watch").update
    }

    async fn until_live(&mut self) -> Vec<Update<Seen>> {
        let mut seen = Vec::new();
        loop {
            let update = self.next().await;
            let live = update == Update::Live;
            seen.push(update);
            if live {
                return seen;
            }
        }
    }
}

fn labelled(namespace: &str) -> WatchKey {
    let collection = Endpoint::new("", "v1", "configmaps").unwrap().in_namespace(namespace).unwrap();
    WatchKey::new(collection).labelled("app.kubernetes.io/managed-by=Helm")
}

#[tokio::test]
async fn a_watch_tells_the_whole_life_of_an_object() {
    let plane = plane().await;
    let writer = plane.writer("somebody").unwrap();
    namespace(&writer, "life").await;
    let managed = json!({"app.kubernetes.io/managed-by": "Helm"});
    let target = Target::configmap("life", "here");
    writer.create(&target, &configmap("life", "here", &managed)).await.unwrap();
    writer.create(&Target::configmap("life", "other"), &configmap("life", "other", &json!({}))).await.unwrap();

    let mut watching = Watching::new(plane);
    let lease = watching.start(labelled("life"));
    let updates = watching.until_live().await;
    let [Update::Reset, Update::Listed(first), Update::ListComplete, Update::Live] = &updates[..] else { panic!("{updates:?}") };
    assert_eq!((first.name.as_str(), &first.managers[..]), ("here", &[("somebody".to_owned(), Operation::Update)][..]));
    assert_eq!(watching.watches.running(), 1);
    let refused = watching.stats.restarts().find(|(reason, _)| *reason == Reason::StreamingUnsupported).unwrap().1;
    assert_eq!(refused, 0, "the list was a streaming one");

    // Data changes leave the digest alone, annotations do not.
    writer.merge_patch(&target, &json!({"data": {"k": "2"}})).await.unwrap();
    let Update::Changed(changed) = watching.next().await else { panic!("changed") };
    assert_eq!((changed.digest, &changed.uid), (first.digest, &first.uid));
    writer.merge_patch(&target, &json!({"metadata": {"annotations": {"a": "<&>\"é"}}})).await.unwrap();
    let Update::Changed(changed) = watching.next().await else { panic!("changed") };
    assert_ne!(changed.digest, first.digest);

    // Without the label the object is out of sight, not gone; with it again it is the same one.
    writer.merge_patch(&target, &json!({"metadata": {"labels": null}})).await.unwrap();
    assert!(matches!(watching.next().await, Update::Deleted(seen) if seen.uid == first.uid));
    writer.merge_patch(&target, &json!({"metadata": {"labels": managed}})).await.unwrap();
    assert!(matches!(watching.next().await, Update::Changed(seen) if seen.uid == first.uid));

    writer.delete(&target).await.unwrap();
    assert!(matches!(watching.next().await, Update::Deleted(seen) if seen.uid == first.uid));
    writer.create(&target, &configmap("life", "here", &managed)).await.unwrap();
    assert!(matches!(watching.next().await, Update::Changed(seen) if seen.uid != first.uid));

    drop(lease);
    assert_eq!(watching.root.stop(Duration::from_secs(5)).await, Stopped::Clean);
    assert_eq!(watching.stats.running(), 0);
}

#[tokio::test]
async fn a_list_in_pages_and_a_streamed_one_show_the_same_objects() {
    let plane = plane().await;
    let writer = plane.writer("somebody").unwrap();
    namespace(&writer, "pages").await;
    let managed = json!({"app.kubernetes.io/managed-by": "Helm", "quote": ""});
    for name in ["a", "b", "c"] {
        writer.create(&Target::configmap("pages", name), &configmap("pages", name, &managed)).await.unwrap();
    }
    let client = client(plane);
    let key = labelled("pages");
    let page = Source::list(&client, &key, &PageRequest { continue_token: None }).await.unwrap();
    let list = parse_list(&page).unwrap();
    let listed: Vec<_> = list.metas().map(|meta| meta.unwrap()).map(|meta| (meta.name.to_string(), meta_digest(&meta))).collect();
    assert_eq!((listed.len(), list.continue_token), (3, None));

    let mut watching = Watching::new(plane);
    let _lease = watching.start(key);
    let mut streamed = Vec::new();
    for update in watching.until_live().await {
        if let Update::Listed(seen) = update {
            streamed.push((seen.name, seen.digest));
        }
    }
    streamed.sort();
    assert_eq!(streamed, listed);
    watching.root.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_expired_version_arrives_as_an_error_event() {
    let plane = plane().await;
    let client = client(plane);
    // The server's memory of a kind's changes begins when the kind does, so any earlier version is too old.
    plane.writer("somebody").unwrap().create(&crd("olds", "expired.test"), &crd_object("olds", "Old", "expired.test")).await.unwrap();
    let key = WatchKey::new(Endpoint::new("expired.test", "v1", "olds").unwrap());
    let open = Open { at: StartAt::After("1".to_owned()), timeout_seconds: 240 };
    let event = eventually("the new kind to be watched", PATIENCE, async || {
        let mut lines = Source::watch(&client, &key, &open).await?;
        let line = timeout(PATIENCE, lines.next()).await?.ok_or_else(|| anyhow::anyhow!("ended"))??;
        Ok(format!("{:?}", parse_event(&line)?))
    })
    .await
    .unwrap();
    assert_eq!(event, r#"Error(StatusError { code: 410, reason: "Expired", retry_after: None })"#);
}

fn crd(plural: &str, group: &str) -> Target {
    Target::cluster_scoped("apiextensions.k8s.io", "v1", "customresourcedefinitions", &format!("{plural}.{group}"))
}

fn crd_object(plural: &str, kind: &str, group: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

#[tokio::test]
async fn discovery_knows_the_server_and_follows_its_kinds() {
    let plane = plane().await;
    let client = client(plane);
    let mut discovery = Discovery::default();
    let Ok(Refreshed::Changed(catalog)) = discovery.refresh(&client).await else { panic!("a first catalog") };
    let deployment = catalog.lookup(&Gvk::new("apps/v1", "Deployment")).served().unwrap();
    assert_eq!((deployment.plural.as_str(), deployment.scope), ("deployments", Scope::Namespaced));
    assert!(deployment.watchable() && deployment.has_subresource("scale"));
    let namespace = catalog.lookup(&Gvk::new("v1", "Namespace")).served().unwrap();
    assert_eq!((namespace.scope, namespace.endpoint().unwrap().path().as_str()), (Scope::Cluster, "/api/v1/namespaces"));
    assert_eq!(catalog.lookup(&Gvk::new("v1", "Deployment")), Lookup::NotServed);
    // The other tests add kinds too, so it may take a few times.
    eventually("an unchanged document", PATIENCE, async || {
        anyhow::ensure!(matches!(discovery.refresh(&client).await?, Refreshed::Unchanged), "changed again");
        Ok(())
    })
    .await
    .unwrap();

    let uid = cluster_uid(&client).await.unwrap();
    assert_eq!(uid.len(), 36);

    let widget = Gvk::new("discovery.test/v1", "Widget");
    assert_eq!(catalog.lookup(&widget), Lookup::NotServed);
    let writer = plane.writer("somebody").unwrap();
    let widgets = crd("widgets", "discovery.test");
    writer.create(&widgets, &crd_object("widgets", "Widget", "discovery.test")).await.unwrap();
    let found = settles(&mut discovery, &client, |catalog| matches!(catalog.lookup(&widget), Lookup::Served(_))).await;
    assert!(found.lookup(&widget).served().unwrap().watchable());
    writer.delete(&widgets).await.unwrap();
    settles(&mut discovery, &client, |catalog| catalog.lookup(&widget) == Lookup::NotServed).await;

    // An aggregated API whose backend does not exist: nothing is known of it, so nothing of it is gone.
    let service = Target::cluster_scoped("apiregistration.k8s.io", "v1", "apiservices", "v1.nobody.test");
    let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.nobody.test"},
        "spec": {"group": "nobody.test", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "nobody"}}});
    writer.create(&service, &object).await.unwrap();
    let nobody = Gvk::new("nobody.test/v1", "Ghost");
    let catalog = settles(&mut discovery, &client, |catalog| catalog.lookup(&nobody) == Lookup::Unknown).await;
    assert_eq!(catalog.lookup(&widget), Lookup::NotServed, "other groups are not doubted");
    writer.delete(&service).await.unwrap();
}

/// Refreshes until the catalog is as wanted.
async fn settles(discovery: &mut Discovery, client: &ApiClient, wanted: impl Fn(&Catalog) -> bool) -> Arc<Catalog> {
    eventually("the catalog to follow", PATIENCE, async || {
        discovery.refresh(client).await?;
        let catalog = discovery.catalog();
        anyhow::ensure!(wanted(&catalog), "not yet");
        Ok(catalog)
    })
    .await
    .unwrap()
}
