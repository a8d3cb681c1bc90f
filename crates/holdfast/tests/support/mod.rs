//! Shared planes, a hub as a process, and waiting for what it reports.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod alike;
pub mod drifts;
pub mod edit;
pub mod fixture;
pub mod twin;

use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use holdfast_testkit::{
    Audit, ControlPlane, Helm, Options, Target, Writer, eventually,
    management::{CapiVersion, HUB_USER},
    programs,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// The bound for everything that should happen at once. Generous: the machine is shared with other tests.
pub const SOON: Duration = Duration::from_secs(30);

static PLANES: OnceCell<Vec<ControlPlane>> = OnceCell::const_new();
static PORTS: AtomicU16 = AtomicU16::new(0);

/// The workload and the management cluster.
pub async fn planes() -> (&'static ControlPlane, &'static ControlPlane) {
    let planes = PLANES
        .get_or_init(|| async {
            let planes = ControlPlane::start_many(vec![Options::named("workload"), Options::named("mgmt")]).await.unwrap();
            let mgmt = planes.last().unwrap();
            mgmt.install_cluster_api_crd().await.unwrap();
            let crds = Command::new(env!("CARGO_BIN_EXE_holdfast")).arg("crds").output().unwrap();
            mgmt.apply_yaml("testkit", &String::from_utf8(crds.stdout).unwrap()).await.unwrap();
            grant_rights(mgmt).await;
            // The storage of a new kind answers 429 for a moment.
            let listed = async || mgmt.kubectl(&["get", "driftreports,driftpolicies,clusterdriftpolicies", "-A"]).await;
            eventually("the new kinds can be listed", SOON, listed).await.unwrap();
            planes
        })
        .await;
    (planes.first().unwrap(), planes.last().unwrap())
}

/// What `manifests/rbac` gives the hub on the management cluster, given to the user `hub`, and no other right. A hub that is restricted to
/// a namespace keeps its Lease there, so that right holds everywhere here.
pub async fn grant_rights(mgmt: &ControlPlane) {
    mgmt.namespace("holdfast-system").await.unwrap();
    let manifest = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/rbac/management.yaml");
    mgmt.apply_yaml("testkit", &std::fs::read_to_string(manifest).unwrap()).await.unwrap();
    let leases = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "test-leases"},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]}],
    });
    mgmt.apply_yaml("testkit", &leases.to_string()).await.unwrap();
    for role in ["holdfast-hub", "test-leases"] {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": format!("test-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "hub"}],
        });
        mgmt.apply_yaml("testkit", &binding.to_string()).await.unwrap();
    }
}

/// One test's world: a cluster `c` in a management namespace of its own, and releases in a workload namespace of the same name.
pub struct World {
    /// Workload cluster.
    pub workload: &'static ControlPlane,
    /// Management cluster.
    pub mgmt: &'static ControlPlane,
    /// The namespace on both.
    pub namespace: String,
    hub: Option<Hub>,
}

struct Hub {
    process: Child,
    log: PathBuf,
    metrics: String,
}

impl World {
    /// An empty world; `name` must be unique among all tests.
    pub async fn new(name: &str) -> Self {
        Self::on(planes().await.0, name).await
    }

    /// The same on another workload cluster.
    pub async fn on(workload: &'static ControlPlane, name: &str) -> Self {
        let (_, mgmt) = planes().await;
        let world = Self::empty(workload, mgmt, name).await;
        mgmt.capi_cluster(name, "c", workload, CapiVersion::V1Beta2, true, &[("tier", "test")]).await.unwrap();
        world
    }

    /// A world without a cluster, on any planes.
    pub async fn empty(workload: &'static ControlPlane, mgmt: &'static ControlPlane, name: &str) -> Self {
        workload.namespace(name).await.unwrap();
        mgmt.namespace(name).await.unwrap();
        Self { workload, mgmt, namespace: name.to_owned(), hub: None }
    }

    /// Installs a chart of `e2e/charts` as a release of the world's namespace.
    pub async fn install(&self, helm: Helm, release: &str, chart: &str, args: &[&str]) {
        helm.install(self.workload, release, &self.namespace, &programs::chart(chart).unwrap(), args).await.unwrap();
    }

    /// Installs a chart that holds one template, `text`, and nothing else.
    pub async fn install_text(&self, helm: Helm, release: &str, text: &str, args: &[&str]) {
        let chart = self.chart_of_text(release, text);
        helm.install(self.workload, release, &self.namespace, &chart, args).await.unwrap();
    }

    /// Writes such a chart for [`Helm::install`] and [`Helm::upgrade`]; goes with the control plane.
    pub fn chart_of_text(&self, release: &str, text: &str) -> PathBuf {
        let chart = self.workload.dir().join("charts").join(format!("{}-{release}", self.namespace));
        std::fs::create_dir_all(chart.join("templates")).unwrap();
        std::fs::write(chart.join("Chart.yaml"), format!("apiVersion: v2\nname: {release}\nversion: 0.1.0\n")).unwrap();
        std::fs::write(chart.join("templates/all.yaml"), text).unwrap();
        chart
    }

    /// Applies a policy for the world's releases with this mode and further fields of the spec.
    pub async fn policy(&self, mode: &str, further: Value) {
        let mut spec = json!({"clusterSelector": {}, "releases": [{"namespace": self.namespace}], "mode": mode, "interval": "30s"});
        spec.as_object_mut().unwrap().extend(further.as_object().cloned().unwrap_or_default());
        let policy = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": "p", "namespace": self.namespace}, "spec": spec});
        self.mgmt.apply_yaml("platform", &policy.to_string()).await.unwrap();
    }

    /// Starts the hub for the world's management namespace.
    pub fn start_hub(&mut self, args: &[&str]) {
        let port = 20_000 + (std::process::id() % 10_000) as u16 + PORTS.fetch_add(1, Ordering::Relaxed);
        let metrics = format!("127.0.0.1:{port}");
        let folder = self.mgmt.dir().join("hubs");
        std::fs::create_dir_all(&folder).unwrap();
        let kubeconfig = folder.join(format!("{}.kubeconfig", self.namespace));
        std::fs::write(&kubeconfig, self.mgmt.kubeconfig("hub", &[]).unwrap()).unwrap();
        let log = folder.join(format!("{}.log", self.namespace));
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(["hub", "--kubeconfig"])
            .arg(kubeconfig)
            .args(["--listen", &metrics, "--api-listen", &metrics, "--allow-server", "127.0.0.0/8", "--namespace", &self.namespace])
            .args(if args.contains(&"--log") { &[][..] } else { &["--log", "info,holdfast_hub=debug"] })
            .args(if args.contains(&"--log-format") { &[][..] } else { &["--log-format", "json"] })
            .args(args)
            .env("TMPDIR", self.hub_tmp())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .unwrap();
        self.hub = Some(Hub { process, log, metrics });
    }

    /// The folder for temporary files that the hub is given.
    pub fn hub_tmp(&self) -> PathBuf {
        let folder = self.mgmt.dir().join("hubs").join(format!("{}.tmp", self.namespace));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The process id of the hub.
    pub fn hub_id(&self) -> u32 {
        self.hub.as_ref().unwrap().process.id()
    }

    /// Ends the hub as Kubernetes does; answers how long it took.
    pub fn stop_hub(&mut self) -> Duration {
        let mut hub = self.hub.take().unwrap();
        let started = tokio::time::Instant::now();
        Command::new("kill").arg(hub.process.id().to_string()).status().unwrap();
        assert!(hub.process.wait().unwrap().success(), "{}", self.log_tail());
        started.elapsed()
    }

    /// Ends the hub as a crash does: nothing is finished.
    pub fn kill_hub(&mut self) {
        let mut hub = self.hub.take().unwrap();
        hub.process.kill().unwrap();
        hub.process.wait().unwrap();
    }

    /// The hub's process.
    pub fn hub_pid(&self) -> u32 {
        self.hub.as_ref().unwrap().process.id()
    }

    /// The most memory the hub has held so far, in MiB.
    pub fn hub_peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.hub_pid())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    /// What the hub has logged so far.
    pub fn log(&self) -> String {
        let path = self.mgmt.dir().join("hubs").join(format!("{}.log", self.namespace));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// The page of `/metrics`.
    pub async fn metrics(&self) -> String {
        self.http("/metrics").await
    }

    /// The same while the hub may not be listening yet.
    pub async fn try_metrics(&self) -> anyhow::Result<String> {
        let address = &self.hub.as_ref().unwrap().metrics;
        tokio::net::TcpStream::connect(address).await?;
        Ok(self.metrics().await)
    }

    /// One answer of the hub's HTTP listener: status line and body.
    pub async fn http(&self, path: &str) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(&self.hub.as_ref().unwrap().metrics).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    /// A second client of the workload cluster that writes as `manager`.
    pub fn writer(&self, manager: &str) -> Writer {
        self.workload.writer(manager).unwrap()
    }

    /// The report of a release, or of the cluster for `None`, as stored now.
    pub async fn report(&self, release: Option<&str>) -> Option<Value> {
        let kind = GroupVersionKind::gvk("holdfast.dev", "v1alpha1", "DriftReport");
        let resource = ApiResource::from_gvk_with_plural(&kind, "driftreports");
        let reports: Api<DynamicObject> = Api::namespaced_with(self.mgmt.admin().unwrap(), &self.namespace, &resource);
        let list = match reports.list(&ListParams::default()).await {
            // The kind was defined a moment ago.
            Err(kube::Error::Api(status)) if status.code == 429 => return None,
            list => list.unwrap(),
        };
        list.items.iter().map(|report| serde_json::to_value(report).unwrap()).find(|report| {
            let source = &report["status"]["source"];
            match release {
                Some(release) => source["kind"] == "HelmRelease" && source["name"] == release,
                None => source["kind"] == "Cluster",
            }
        })
    }

    /// Waits until the report of a release satisfies `wanted`; panics with the report and the hub's log otherwise.
    pub async fn wait_report(&self, release: Option<&str>, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let found = eventually(what, SOON, async || {
            let report = self.report(release).await.ok_or_else(|| anyhow::anyhow!("no report"))?;
            if wanted(&report["status"]) {
                Ok(report)
            } else {
                Err(anyhow::anyhow!("{}", serde_json::to_string_pretty(&report["status"])?))
            }
        })
        .await;
        found.unwrap_or_else(|error| panic!("{error:#}\n--- hub ---\n{}", self.log_tail()))
    }

    /// Waits until a release is reported as in sync.
    pub async fn wait_in_sync(&self, release: &str) -> Value {
        self.wait_report(Some(release), "in sync", |status| condition(status, "InSync") == "True").await
    }

    /// Waits until `check` holds; panics with its last error and the hub's log otherwise.
    pub async fn wait(&self, what: &str, check: impl AsyncFn() -> anyhow::Result<()>) {
        if let Err(error) = eventually(what, SOON, check).await {
            panic!("{error:#}\n--- hub ---\n{}", self.log_tail());
        }
    }

    /// Calls of the hub to the workload cluster about the world's namespace.
    pub fn of_hub(&self, audit: &Audit) -> Audit {
        audit.by_user(HUB_USER).in_namespace(&self.namespace)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(hub) = &mut self.hub {
            _ = hub.process.kill();
            _ = hub.process.wait();
            if std::thread::panicking() {
                eprintln!("hub log: {}", hub.log.display());
            }
        }
    }
}

/// The status of a condition.
pub fn condition<'a>(status: &'a Value, kind: &str) -> &'a str {
    status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind)
        .and_then(|condition| condition["status"].as_str())
        .unwrap_or_default()
}

/// The reason of a condition.
pub fn reason<'a>(status: &'a Value, kind: &str) -> &'a str {
    status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind)
        .and_then(|condition| condition["reason"].as_str())
        .unwrap_or_default()
}

/// The message of a condition.
pub fn message<'a>(status: &'a Value, kind: &str) -> &'a str {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.filter(|condition| condition["type"] == kind).find_map(|condition| condition["message"].as_str()).unwrap_or_default()
}

/// The finding about an object.
pub fn finding<'a>(status: &'a Value, kind: &str, name: &str) -> Option<&'a Value> {
    status["findings"].as_array()?.iter().find(|finding| finding["object"]["kind"] == kind && finding["object"]["name"] == name)
}

/// The finding's entry for a path.
pub fn path_of<'a>(finding: &'a Value, path: &str) -> Option<&'a Value> {
    finding["paths"].as_array()?.iter().find(|entry| entry["path"] == path)
}

/// The value at a pointer of a live object.
pub async fn live(writer: &Writer, target: &Target, pointer: &str) -> Value {
    writer.get(target).await.unwrap().pointer(pointer).cloned().unwrap_or_default()
}
