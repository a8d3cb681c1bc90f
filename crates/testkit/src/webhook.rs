//! A mutating admission webhook served by the test.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::{control_plane::ControlPlane, json_diff, pki::Identity, rest, target::Target, wait::eventually, writer::Writer};

/// How long the API server may take to notice a new or removed webhook.
const NOTICE: Duration = Duration::from_secs(30);
/// How long the API server waits for an answer, in seconds.
const TIMEOUT_SECONDS: u32 = 10;
/// Marks the objects of the second webhook, which only tells that the configuration is in force.
const PROBE_LABEL: &str = "testkit.holdfast.dev/webhook-probe";

/// What is asked of the webhook, besides the object.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// What happens to the object.
    pub operation: Operation,
    /// Whether nothing will be stored.
    #[serde(default)]
    pub dry_run: bool,
    /// The object's namespace, empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// The object's name, empty for a generated one.
    #[serde(default)]
    pub name: String,
    uid: String,
}

/// An admission operation.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// A deletion.
    Delete,
    /// A call through a connection, such as exec.
    Connect,
}

/// Which calls a webhook sees: creations and updates of some resources.
#[derive(Clone, Debug)]
pub struct Rule {
    /// API groups; the core group is empty.
    pub groups: Vec<String>,
    /// Plurals, `plural/subresource` or `*`.
    pub resources: Vec<String>,
}

impl Rule {
    /// One resource.
    pub fn of(group: &str, plural: &str) -> Self {
        Self { groups: vec![group.to_owned()], resources: vec![plural.to_owned()] }
    }

    /// Deployments.
    pub fn deployments() -> Self {
        Self::of("apps", "deployments")
    }
}

/// What a webhook is registered with.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// The configuration's name.
    pub name: String,
    /// The namespaces it acts in, all if there is none: tests that share a control plane must not see each other's webhooks.
    pub namespaces: Vec<String>,
    /// Labels that objects must carry.
    pub object_labels: Vec<(String, String)>,
    /// The calls it sees.
    pub rules: Vec<Rule>,
    /// Call it a second time when a later webhook changed the object.
    pub reinvoke: bool,
    /// Writes go through unchanged while it is down; else they are refused.
    pub fails_open: bool,
}

impl WebhookOptions {
    /// A webhook for creations and updates of some resources in one namespace.
    pub fn new(name: &str, namespace: &str, rules: Vec<Rule>) -> Self {
        Self {
            name: name.to_owned(),
            namespaces: vec![namespace.to_owned()],
            object_labels: Vec::new(),
            rules,
            reinvoke: false,
            fails_open: false,
        }
    }

    /// A webhook for creations and updates of some resources wherever they are.
    pub fn everywhere(name: &str, rules: Vec<Rule>) -> Self {
        Self { namespaces: Vec::new(), ..Self::new(name, "", rules) }
    }
}

type Mutation = dyn Fn(&mut Value, &Admission) + Send + Sync;

struct Shared {
    mutate: Box<Mutation>,
    calls: AtomicU64,
    dry_run_calls: AtomicU64,
    probes: AtomicU64,
    is_down: AtomicBool,
}

/// A registered webhook and its server, which stops with it.
pub struct MutatingWebhook {
    target: Target,
    admin: Writer,
    shared: Arc<Shared>,
    /// Aborted when dropped.
    _server: JoinSet<()>,
}

impl MutatingWebhook {
    /// Serves and registers a webhook; returns when the API server calls it.
    pub async fn start(
        plane: &ControlPlane,
        options: WebhookOptions,
        mutate: impl Fn(&mut Value, &Admission) + Send + Sync + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            mutate: Box::new(mutate),
            calls: AtomicU64::new(0),
            dry_run_calls: AtomicU64::new(0),
            probes: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listening for a webhook")?;
        let address = listener.local_addr().context("listening for a webhook")?;
        let acceptor = acceptor(&plane.serving_identity()?)?;
        let mut server = JoinSet::new();
        server.spawn(serve(listener, acceptor, Arc::clone(&shared)));
        let target = Target::cluster_scoped("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", &options.name);
        let webhook = Self { target, admin: plane.writer("testkit")?, shared, _server: server };
        let configuration = configuration(&options, address, plane.authority_pem());
        webhook.admin.create(&webhook.target, &configuration).await?;
        webhook.wait_until_called(true).await?;
        Ok(webhook)
    }

    /// Calls for the mutation so far, dry-runs too.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Calls for the mutation of objects that were not to be stored.
    pub fn dry_run_calls(&self) -> u64 {
        self.shared.dry_run_calls.load(Ordering::Relaxed)
    }

    /// Lets every call fail from now on, or answers again.
    pub fn set_down(&self, is_down: bool) {
        self.shared.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Removes the webhook; returns when the API server no longer calls it.
    pub async fn stop(self) -> Result<()> {
        self.admin.delete(&self.target).await?;
        self.wait_until_called(false).await
    }

    /// Tries out objects that only the probe is for, until it is called, or no longer.
    async fn wait_until_called(&self, wanted: bool) -> Result<()> {
        let probe = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"generateName": "webhook-probe-", "labels": {PROBE_LABEL: self.target.name}},
        });
        eventually("the API server notices a webhook's change", NOTICE, async || {
            let before = self.shared.probes.load(Ordering::Relaxed);
            rest::post(self.admin.client(), "/api/v1/namespaces/default/configmaps?dryRun=All", &probe).await?;
            let called = self.shared.probes.load(Ordering::Relaxed) > before;
            ensure!(called == wanted, "called: {called}");
            Ok(())
        })
        .await
    }
}

fn configuration(options: &WebhookOptions, address: SocketAddr, authority_pem: &str) -> Value {
    let client = |path: &str| json!({"url": format!("https://{address}{path}"), "caBundle": BASE64_STANDARD.encode(authority_pem)});
    let object_labels: serde_json::Map<String, Value> =
        options.object_labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
    let rules: Vec<Value> = options
        .rules
        .iter()
        .map(
            |rule| json!({"apiGroups": rule.groups, "apiVersions": ["*"], "resources": rule.resources, "operations": ["CREATE", "UPDATE"]}),
        )
        .collect();
    let namespaces = match options.namespaces.as_slice() {
        [] => json!({}),
        names => json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}]}),
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": options.name},
        "webhooks": [
            {
                "name": "mutate.testkit.holdfast.dev",
                "clientConfig": client("/mutate"),
                "rules": rules,
                "namespaceSelector": namespaces,
                "objectSelector": {"matchLabels": object_labels},
                "failurePolicy": if options.fails_open { "Ignore" } else { "Fail" },
                "reinvocationPolicy": if options.reinvoke { "IfNeeded" } else { "Never" },
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": TIMEOUT_SECONDS,
            },
            {
                "name": "probe.testkit.holdfast.dev",
                "clientConfig": client("/probe"),
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
                "objectSelector": {"matchLabels": {PROBE_LABEL: options.name}},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": TIMEOUT_SECONDS,
            },
        ],
    })
}

fn acceptor(identity: &Identity) -> Result<TlsAcceptor> {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).context("the webhook's certificate")?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).context("the webhook's key")?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).context("the webhook's TLS")?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts until aborted; its connections go with it.
async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    // Only a lack of file descriptors fails here; the test then sees its writes refused.
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve_connection(stream, acceptor.clone(), Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve_connection(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(request, &shared).await) }
    });
    // A connection that breaks concerns the API server, which asks again.
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

async fn answer(request: Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    match review(request, shared).await {
        Ok(body) => {
            let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
            response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            let mut response = Response::new(Full::new(Bytes::from(error.to_string())));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    }
}

async fn review(request: Request<Incoming>, shared: &Shared) -> Result<Value> {
    let is_probe = request.uri().path() == "/probe";
    let body = request.into_body().collect().await.context("reading the review")?.to_bytes();
    let mut review: Value = serde_json::from_slice(&body).context("parsing the review")?;
    let admission: Admission = Admission::deserialize(review.get("request").context("a review without a request")?)?;
    if is_probe {
        shared.probes.fetch_add(1, Ordering::Relaxed);
        return Ok(allowed(&admission, &[]));
    }
    ensure!(!shared.is_down.load(Ordering::Relaxed), "down");
    shared.calls.fetch_add(1, Ordering::Relaxed);
    if admission.dry_run {
        shared.dry_run_calls.fetch_add(1, Ordering::Relaxed);
    }
    let before = review.pointer_mut("/request/object").map(Value::take).context("a review without an object")?;
    let mut after = before.clone();
    (shared.mutate)(&mut after, &admission);
    Ok(allowed(&admission, &json_diff::operations(&before, &after)))
}

fn allowed(admission: &Admission, operations: &[Value]) -> Value {
    let mut response = json!({"uid": admission.uid, "allowed": true});
    if let (Some(response), false) = (response.as_object_mut(), operations.is_empty()) {
        response.insert("patchType".to_owned(), "JSONPatch".into());
        response.insert("patch".to_owned(), BASE64_STANDARD.encode(Value::from(operations).to_string()).into());
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}
