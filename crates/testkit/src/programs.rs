//! Where the programs of a control plane are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A program that `make controlplane` builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controllers of Deployments, Jobs, garbage collection and so on.
    ControllerManager,
    /// The command-line client.
    Kubectl,
    /// Helm 3.
    Helm3,
    /// Helm 4.
    Helm4,
}

impl Program {
    /// The file's name.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
            Self::Helm3 => "helm3",
            Self::Helm4 => "helm4",
        }
    }

    /// What `KUBEBUILDER_ASSETS` folders hold; the others always come from `target/controlplane`.
    fn in_kubebuilder_assets(self) -> bool {
        matches!(self, Self::Etcd | Self::ApiServer | Self::Kubectl)
    }

    /// The program's path; an error says how to build it.
    pub fn path(self) -> Result<PathBuf> {
        if let (true, Some(assets)) = (self.in_kubebuilder_assets(), std::env::var_os("KUBEBUILDER_ASSETS")) {
            return existing(&PathBuf::from(assets).join(self.file_name())).context("KUBEBUILDER_ASSETS is set");
        }
        asset(self.file_name())
    }
}

/// A file that `make controlplane` puts into `target/controlplane`.
pub fn asset(file_name: &str) -> Result<PathBuf> {
    existing(&workspace()?.join("target/controlplane").join(file_name))
}

/// A chart of `e2e/charts`.
pub fn chart(name: &str) -> Result<PathBuf> {
    let chart = workspace()?.join("e2e/charts").join(name);
    if !chart.join("Chart.yaml").is_file() {
        bail!("no chart `{name}` in e2e/charts");
    }
    Ok(chart)
}

/// The root of the source tree.
pub fn workspace() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the crate is not two folders below the workspace")
}

fn existing(path: &Path) -> Result<PathBuf> {
    if !path.is_file() {
        bail!("{} is missing: run `make controlplane`", path.display());
    }
    Ok(path.to_path_buf())
}
