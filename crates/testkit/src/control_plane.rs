//! A control plane: etcd, kube-apiserver and, if asked, kube-controller-manager.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;

use crate::{
    access::Access,
    api_server::{self, ADMIN, ApiServer, MASTERS},
    audit::{Audit, Mark},
    controller_manager,
    etcd::Etcd,
    pki::{Authority, Identity},
    programs::Program,
    rest,
    server::Server,
    work_dir::WorkDir,
    writer::Writer,
};

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names the folder of data and logs below `target/testkit`, and the objects' prefix in a shared etcd.
    pub name: String,
    /// Start kube-controller-manager as well: without it Deployments never roll out, and nothing is garbage collected.
    pub controller_manager: bool,
}

impl Options {
    /// An API server alone.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), controller_manager: false }
    }

    /// With the controllers.
    #[must_use]
    pub fn with_controller_manager(self) -> Self {
        Self { controller_manager: true, ..self }
    }
}

/// A running control plane. Dropping it kills its programs and removes its data; so does the death of this process.
pub struct ControlPlane {
    name: String,
    // Dropped in this order: nobody writes any more when the folder goes.
    _controller_manager: Option<Server>,
    /// `None` while it is stopped.
    api_server: Mutex<Option<Server>>,
    api_server_args: Vec<OsString>,
    _etcd: Arc<Etcd>,
    work: Arc<WorkDir>,
    url: String,
    authority: Authority,
    audit_log: PathBuf,
    dir: PathBuf,
}

impl ControlPlane {
    /// Starts a control plane with an etcd of its own and waits until it is ready.
    pub async fn start(options: Options) -> Result<Self> {
        require_programs(std::slice::from_ref(&options))?;
        let work = Arc::new(WorkDir::create(&options.name)?);
        keeping_logs_on_failure(&work, async {
            let etcd = Arc::new(Etcd::start(&work).await?);
            Self::start_on(Arc::clone(&work), etcd, options).await
        })
        .await
    }

    /// Starts several control planes that share one etcd, side by side.
    pub async fn start_many(many: Vec<Options>) -> Result<Vec<Self>> {
        require_programs(&many)?;
        let name = many.first().context("no control plane asked for")?.name.clone();
        let work = Arc::new(WorkDir::create(&name)?);
        keeping_logs_on_failure(&work, async {
            let etcd = Arc::new(Etcd::start(&work).await?);
            try_join_all(many.into_iter().map(|options| Self::start_on(Arc::clone(&work), Arc::clone(&etcd), options))).await
        })
        .await
    }

    async fn start_on(work: Arc<WorkDir>, etcd: Arc<Etcd>, options: Options) -> Result<Self> {
        let dir = work.subdir(&options.name)?;
        let authority = Authority::new(&options.name)?;
        let api_server = ApiServer::start(&work, &dir, &etcd, &options.name, &authority).await?;
        let controller_manager = if options.controller_manager {
            let identity = authority.client(controller_manager::USER, &controller_manager::GROUPS)?;
            let access = Access::by_certificate(api_server.url.clone(), &authority, identity);
            Some(controller_manager::start(&work, &dir, &api_server, &access).await?)
        } else {
            None
        };
        Ok(Self {
            name: options.name,
            _controller_manager: controller_manager,
            url: api_server.url,
            audit_log: api_server.audit_log,
            api_server: Mutex::new(Some(api_server.server)),
            api_server_args: api_server.args,
            _etcd: etcd,
            work,
            authority,
            dir,
        })
    }

    /// The name it was started with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The API server's address, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The way in for `user` in `groups` (two at most), by client certificate. RBAC is on: without a binding or a group that has one
    /// a user may do nothing.
    pub fn access(&self, user: &str, groups: &[&str]) -> Result<Access> {
        Ok(Access::by_certificate(self.url.clone(), &self.authority, self.authority.client(user, groups)?))
    }

    /// The way in for a service account, by a token that lives for an hour. The account must exist.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Access> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
        let answer = rest::post(&self.admin()?, &path, &request).await?;
        let token = answer.pointer("/status/token").and_then(|token| token.as_str()).context("a TokenRequest without a token")?;
        Ok(Access::by_token(self.url.clone(), &self.authority, token.to_owned()))
    }

    /// A client for `user` who may do everything. The name tells callers apart in the [`Audit`].
    pub fn client(&self, user: &str) -> Result<Client> {
        self.access(user, &[MASTERS])?.client()
    }

    /// A client for whatever no test counts.
    pub fn admin(&self) -> Result<Client> {
        self.client(ADMIN)
    }

    /// A kubeconfig for `user` in `groups`, everything inline.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<String> {
        Ok(self.access(user, groups)?.kubeconfig())
    }

    /// A kubeconfig that may do everything.
    pub fn admin_kubeconfig(&self) -> Result<String> {
        self.kubeconfig(ADMIN, &[MASTERS])
    }

    /// Somebody who may do everything and whose user and field manager are both `manager`.
    pub fn writer(&self, manager: &str) -> Result<Writer> {
        Ok(Writer::new(self.client(manager)?, manager))
    }

    /// Every call so far.
    pub async fn audit(&self) -> Result<Audit> {
        Audit::read(&self.audit_log, Mark::START).await
    }

    /// Now, for [`ControlPlane::audit_since`].
    pub async fn audit_mark(&self) -> Result<Mark> {
        Mark::at_end(&self.audit_log).await
    }

    /// The calls that arrived after `mark`.
    pub async fn audit_since(&self, mark: Mark) -> Result<Audit> {
        Audit::read(&self.audit_log, mark).await
    }

    /// Suspends the API server: connections stay open and nothing answers, as when a machine hangs.
    pub fn freeze(&self) -> Result<()> {
        self.api_server.lock().as_mut().context("the API server is stopped")?.freeze()
    }

    /// Ends [`ControlPlane::freeze`].
    pub fn thaw(&self) -> Result<()> {
        self.api_server.lock().as_mut().context("the API server is stopped")?.thaw()
    }

    /// Kills the API server: connections break, and nobody listens any more. Objects stay in etcd.
    pub fn stop_api_server(&self) {
        let server = self.api_server.lock().take();
        drop(server);
    }

    /// Starts a stopped API server again at the same address with the same objects, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<()> {
        let (server, outcome) = api_server::launch(&self.work, &self.dir, self.api_server_args.clone(), &self.url, &self.authority).await?;
        *self.api_server.lock() = Some(server);
        outcome
    }

    /// Keeps the logs although no test panicked, and prints where they are.
    pub fn keep_logs(&self) {
        self.work.keep_logs();
    }

    /// The folder of logs, keys and scratch files; gone with the control plane.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder that goes with the last program.
    pub(crate) fn work_dir(&self) -> &Path {
        self.work.path()
    }

    /// A certificate for a server that the API server calls on loopback.
    pub(crate) fn serving_identity(&self) -> Result<Identity> {
        self.authority.loopback_server()
    }

    /// What such a server's certificate is verified with, PEM.
    pub(crate) fn authority_pem(&self) -> &str {
        self.authority.pem()
    }
}

/// Says what is missing before anything is started.
fn require_programs(many: &[Options]) -> Result<()> {
    Program::Etcd.path()?;
    Program::ApiServer.path()?;
    if many.iter().any(|options| options.controller_manager) {
        Program::ControllerManager.path()?;
    }
    Ok(())
}

async fn keeping_logs_on_failure<T>(work: &WorkDir, start: impl Future<Output = Result<T>>) -> Result<T> {
    let outcome = start.await;
    if outcome.is_err() {
        work.keep_logs();
    }
    outcome
}
