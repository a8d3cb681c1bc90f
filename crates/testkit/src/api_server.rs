//! kube-apiserver: flags, files and readiness.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use kube::Client;
use rcgen::KeyPair;

use crate::{
    access::Access,
    etcd::Etcd,
    pki::Authority,
    programs::Program,
    rest,
    server::{Server, flags, on_free_port},
    work_dir::WorkDir,
};

/// Who does everything here that no test asked for.
pub(crate) const ADMIN: &str = "testkit-admin";
/// The group that may do everything.
pub(crate) const MASTERS: &str = "system:masters";

/// Every request twice, on arrival and at its end, so that a reader can tell when nothing is under way. The server's own requests
/// and probes would only be noise.
const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
  "omitStages": ["ResponseStarted"],
  "rules": [
    {"level": "None", "users": ["system:apiserver"]},
    {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
    {"level": "Metadata"}
  ]
}"#;

/// A running API server and the files it was given.
pub(crate) struct ApiServer {
    pub server: Server,
    /// What it was started with, for a second start.
    pub args: Vec<OsString>,
    pub url: String,
    pub audit_log: PathBuf,
    pub service_account_key: PathBuf,
    pub authority_file: PathBuf,
}

impl ApiServer {
    /// Starts an API server that keeps its objects below `prefix` and waits until it is ready and has its first namespaces.
    pub(crate) async fn start(work: &WorkDir, dir: &Path, etcd: &Etcd, prefix: &str, authority: &Authority) -> Result<Self> {
        let serving = authority.loopback_server()?;
        let authority_file = write(dir, "ca.crt", authority.pem())?;
        let certificate = write(dir, "server.crt", &serving.certificate)?;
        let key = write(dir, "server.key", &serving.key)?;
        let key_pair = KeyPair::generate().context("making a key")?;
        let service_account_key = write(dir, "service-accounts.key", &key_pair.serialize_pem())?;
        let service_account_public_key = write(dir, "service-accounts.pub", &key_pair.public_key_pem())?;
        let policy = write(dir, "audit-policy.json", AUDIT_POLICY)?;
        let audit_log = dir.join("audit.log");

        let ((url, args), server) = on_free_port(async |port| {
            let url = format!("https://127.0.0.1:{port}");
            let args = flags([
                ("etcd-servers", &etcd.url()),
                ("etcd-prefix", &format!("/{prefix}")),
                ("bind-address", &"127.0.0.1"),
                ("advertise-address", &"127.0.0.1"),
                // No Endpoints to keep alive: at rest nothing is written.
                ("endpoint-reconciler-type", &"none"),
                ("secure-port", &port.to_string()),
                ("cert-dir", &dir.to_path_buf()),
                ("tls-cert-file", &certificate),
                ("tls-private-key-file", &key),
                ("client-ca-file", &authority_file),
                ("service-account-issuer", &"https://kubernetes.default.svc"),
                ("service-account-key-file", &service_account_public_key),
                ("service-account-signing-key-file", &service_account_key),
                ("service-cluster-ip-range", &"10.0.0.0/16"),
                ("authorization-mode", &"RBAC"),
                ("allow-privileged", &"true"),
                // Without controllers nobody makes the accounts that it wants to find.
                ("disable-admission-plugins", &"ServiceAccount"),
                ("audit-policy-file", &policy),
                ("audit-log-path", &audit_log),
                // A response that a client has seen is in the log.
                ("audit-log-mode", &"blocking"),
                // Marks are offsets into one file.
                ("audit-log-maxsize", &"0"),
                ("profiling", &"false"),
            ]);
            let (server, outcome) = launch(work, dir, args.clone(), &url, authority).await?;
            Ok(((url, args), server, outcome))
        })
        .await?;
        Ok(Self { server, args, url, audit_log, service_account_key, authority_file })
    }
}

/// Starts the program and tells whether it became ready.
pub(crate) async fn launch(
    work: &WorkDir,
    dir: &Path,
    args: Vec<OsString>,
    url: &str,
    authority: &Authority,
) -> Result<(Server, Result<()>)> {
    let mut server = Server::start(Program::ApiServer, work, dir, args)?;
    let identity = authority.client(ADMIN, &[MASTERS])?;
    let client = Access::by_certificate(url.to_owned(), authority, identity).client()?;
    let outcome = server.wait_until(async || is_ready(&client).await).await;
    Ok((server, outcome))
}

/// Ready means also that `default`, where things go, and `kube-system`, whose UID is the cluster's identity, are there.
async fn is_ready(client: &Client) -> bool {
    for path in ["/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"] {
        if rest::get_text(client, path).await.is_err() {
            return false;
        }
    }
    true
}

fn write(dir: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}
