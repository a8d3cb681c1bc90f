//! The two Helms, as programs.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{control_plane::ControlPlane, programs::Program};

/// Which Helm. Their field manager is `helm`, their users in the audit log are `helm3` and `helm4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Helm {
    /// Client-side three-way merges.
    V3,
    /// Server-side apply on new releases.
    V4,
}

impl Helm {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V3, Self::V4];

    /// Runs any helm command; answers standard output, or standard error as the error.
    pub async fn run(self, plane: &ControlPlane, args: &[&str]) -> Result<String> {
        plane.run(self.program(), &[], args).await
    }

    /// The same with its records in ConfigMaps (`HELM_DRIVER`).
    pub async fn run_on_configmaps(self, plane: &ControlPlane, args: &[&str]) -> Result<String> {
        plane.run(self.program(), &[("HELM_DRIVER", "configmap")], args).await
    }

    /// `helm install`, making the namespace if need be.
    pub async fn install(self, plane: &ControlPlane, release: &str, namespace: &str, chart: &Path, args: &[&str]) -> Result<String> {
        let chart = text(chart)?;
        self.run(plane, &[&["install", release, chart, "--namespace", namespace, "--create-namespace"], args].concat()).await
    }

    /// `helm upgrade`.
    pub async fn upgrade(self, plane: &ControlPlane, release: &str, namespace: &str, chart: &Path, args: &[&str]) -> Result<String> {
        let chart = text(chart)?;
        self.run(plane, &[&["upgrade", release, chart, "--namespace", namespace], args].concat()).await
    }

    /// `helm rollback` to a revision.
    pub async fn rollback(self, plane: &ControlPlane, release: &str, namespace: &str, revision: u32) -> Result<String> {
        self.run(plane, &["rollback", release, &revision.to_string(), "--namespace", namespace]).await
    }

    /// `helm uninstall`.
    pub async fn uninstall(self, plane: &ControlPlane, release: &str, namespace: &str, args: &[&str]) -> Result<String> {
        self.run(plane, &[&["uninstall", release, "--namespace", namespace], args].concat()).await
    }

    /// `helm history`, oldest revision first: an array of objects with `revision`, `status`, `description`, ….
    pub async fn history(self, plane: &ControlPlane, release: &str, namespace: &str) -> Result<Value> {
        let json = self.run(plane, &["history", release, "--namespace", namespace, "--output", "json"]).await?;
        serde_json::from_str(&json).context("helm history")
    }

    /// `helm get manifest` of the newest revision.
    pub async fn manifest(self, plane: &ControlPlane, release: &str, namespace: &str) -> Result<String> {
        self.run(plane, &["get", "manifest", release, "--namespace", namespace]).await
    }

    fn program(self) -> Program {
        match self {
            Self::V3 => Program::Helm3,
            Self::V4 => Program::Helm4,
        }
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a chart's path that is not text")
}
