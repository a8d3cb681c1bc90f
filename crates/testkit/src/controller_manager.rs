//! kube-controller-manager: rollouts, garbage collection, quotas, service accounts, in short a cluster that lives.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::{
    access::Access,
    api_server::{ApiServer, MASTERS},
    programs::Program,
    rest,
    server::{Server, flags},
    work_dir::WorkDir,
};

/// The user that controllers appear as in the audit log.
pub(crate) const USER: &str = "system:kube-controller-manager";

/// The group its certificate needs beside its name.
pub(crate) const GROUPS: [&str; 1] = [MASTERS];

/// Starts the controllers and waits until they work.
pub(crate) async fn start(work: &WorkDir, dir: &Path, api_server: &ApiServer, access: &Access) -> Result<Server> {
    let kubeconfig = dir.join("controller-manager.kubeconfig");
    fs::write(&kubeconfig, access.kubeconfig()).with_context(|| format!("writing {}", kubeconfig.display()))?;
    let args = flags([
        ("kubeconfig", &kubeconfig),
        ("leader-elect", &"false"),
        ("secure-port", &"0"),
        ("controllers", &"*"),
        ("root-ca-file", &api_server.authority_file),
        ("service-account-private-key-file", &api_server.service_account_key),
        ("profiling", &"false"),
    ]);
    let mut server = Server::start(Program::ControllerManager, work, dir, args)?;
    let client = access.client()?;
    let first_results = ["/api/v1/namespaces/default/serviceaccounts/default", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"];
    server
        .wait_until(async || {
            for path in first_results {
                if rest::get_text(&client, path).await.is_err() {
                    return false;
                }
            }
            true
        })
        .await?;
    Ok(server)
}
