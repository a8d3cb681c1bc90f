//! What a management cluster holds: Cluster API objects and kubeconfig Secrets.

use std::{fs, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};

use crate::{api_server::MASTERS, control_plane::ControlPlane, programs, rest, target::Target, wait::eventually};

pub use crate::api_server::STATIC_TOKEN_USER;

/// The user of the kubeconfigs made here, as the workload clusters' audit logs show it.
pub const HUB_USER: &str = "holdfast";

const GROUP: &str = "cluster.x-k8s.io";
const ESTABLISHED: Duration = Duration::from_secs(30);

/// The Cluster API versions in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CapiVersion {
    /// Until Cluster API 1.15.
    V1Beta1,
    /// Since Cluster API 1.11.
    V1Beta2,
}

impl CapiVersion {
    /// As in `apiVersion`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }

    /// A Cluster of this version.
    pub fn target(self, namespace: &str, name: &str) -> Target {
        Target::custom(GROUP, self.name(), "clusters", namespace, name)
    }
}

/// What the controllers report about a cluster whose control plane answers, or does not yet, in the fields of both versions: what a
/// reader of either would see behind the conversion webhook. A CRD that serves one version alone prunes the other's.
fn cluster_status(initialised: bool) -> Value {
    json!({
        "phase": if initialised { "Provisioned" } else { "Provisioning" },
        "infrastructureReady": initialised,
        "controlPlaneReady": initialised,
        "initialization": {"infrastructureProvisioned": initialised, "controlPlaneInitialized": initialised},
        "conditions": [{
            "type": "ControlPlaneInitialized",
            "status": if initialised { "True" } else { "False" },
            "reason": if initialised { "Initialized" } else { "NotInitialized" },
            "message": "as reported by the test kit",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    })
}

/// A kubeconfig Secret with any content.
#[derive(Clone, Debug)]
pub struct KubeconfigSecret<'a> {
    /// The Secret's namespace.
    pub namespace: &'a str,
    /// The Secret's name, `CLUSTER-kubeconfig` in Cluster API.
    pub name: &'a str,
    /// The Secret's type, `cluster.x-k8s.io/secret` in Cluster API.
    pub secret_type: &'a str,
    /// The Secret's labels.
    pub labels: &'a [(&'a str, &'a str)],
    /// The key that holds the text, `value` in Cluster API.
    pub key: &'a str,
    /// The kubeconfig, valid or not.
    pub text: &'a str,
}

impl ControlPlane {
    /// Installs the CRD of Cluster API's `Cluster`, serving both versions, and waits until it is served.
    ///
    /// There is no conversion webhook: both versions show every field that was written, whatever version it belongs to.
    pub async fn install_cluster_api_crd(&self) -> Result<()> {
        self.install_crd(None).await
    }

    /// The same CRD serving one version only, as an older or a later Cluster API would.
    pub async fn install_cluster_api_crd_only(&self, version: CapiVersion) -> Result<()> {
        self.install_crd(Some(version)).await
    }

    async fn install_crd(&self, only: Option<CapiVersion>) -> Result<()> {
        let text = fs::read_to_string(programs::asset("cluster-api-clusters.yaml")?).context("reading the Cluster API CRD")?;
        let mut crd: Value = serde_saphyr::from_str(&text).map_err(|error| anyhow!("the Cluster API CRD: {error}"))?;
        serve_versions(&mut crd, only)?;
        let writer = self.writer("testkit")?;
        let target = Target::crd("clusters.cluster.x-k8s.io");
        writer.create(&target, &crd).await?;

        let versions = only.map_or_else(|| vec![CapiVersion::V1Beta1, CapiVersion::V1Beta2], |version| vec![version]);
        for version in versions {
            let path = version.target("default", "").collection_path();
            eventually("the Cluster API CRD is served", ESTABLISHED, async || rest::get(writer.client(), &path).await).await?;
        }
        Ok(())
    }

    /// Adds `workload` as a Cluster API cluster: the `Cluster`, its status, and the Secret `NAME-kubeconfig`, whose user is
    /// [`HUB_USER`] and may do everything.
    pub async fn capi_cluster(
        &self,
        namespace: &str,
        name: &str,
        workload: &Self,
        version: CapiVersion,
        initialised: bool,
        labels: &[(&str, &str)],
    ) -> Result<Value> {
        let kubeconfig = workload.kubeconfig(HUB_USER, &[MASTERS])?;
        self.capi_kubeconfig(namespace, name, &kubeconfig).await?;
        self.capi_cluster_object(namespace, name, workload.url(), version, initialised, labels).await
    }

    /// Adds a `Cluster` with its status, without a Secret.
    pub async fn capi_cluster_object(
        &self,
        namespace: &str,
        name: &str,
        url: &str,
        version: CapiVersion,
        initialised: bool,
        labels: &[(&str, &str)],
    ) -> Result<Value> {
        let url: http::Uri = url.parse().context("the workload cluster's address")?;
        let target = version.target(namespace, name);
        let writer = self.writer("manager")?;
        let cluster = json!({
            "apiVersion": target.api_version(),
            "kind": "Cluster",
            "metadata": {"name": name, "namespace": namespace, "labels": map(labels)},
            "spec": {"controlPlaneEndpoint": {"host": url.host(), "port": url.port_u16()}},
        });
        writer.create(&target, &cluster).await?;
        self.set_capi_initialised(namespace, name, version, initialised).await
    }

    /// Reports a cluster's control plane as initialised or not.
    pub async fn set_capi_initialised(&self, namespace: &str, name: &str, version: CapiVersion, initialised: bool) -> Result<Value> {
        let patch = json!({"status": cluster_status(initialised)});
        self.writer("manager")?.merge_patch(&version.target(namespace, name).status(), &patch).await
    }

    /// Creates or replaces the Secret `CLUSTER-kubeconfig` as Cluster API would write it.
    pub async fn capi_kubeconfig(&self, namespace: &str, cluster: &str, text: &str) -> Result<Value> {
        self.kubeconfig_secret(&KubeconfigSecret {
            namespace,
            name: &format!("{cluster}-kubeconfig"),
            secret_type: "cluster.x-k8s.io/secret",
            labels: &[("cluster.x-k8s.io/cluster-name", cluster)],
            key: "value",
            text,
        })
        .await
    }

    /// Creates or replaces a kubeconfig Secret.
    pub async fn kubeconfig_secret(&self, secret: &KubeconfigSecret<'_>) -> Result<Value> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret.name, "namespace": secret.namespace, "labels": map(secret.labels)},
            "type": secret.secret_type,
            "data": {secret.key: BASE64_STANDARD.encode(secret.text)},
        });
        self.writer("manager")?.apply(&Target::secret(secret.namespace, secret.name), &object).await
    }
}

/// Removes the conversion webhook; with both versions served, lets each keep what it does not know.
fn serve_versions(crd: &mut Value, only: Option<CapiVersion>) -> Result<()> {
    let spec = crd.pointer_mut("/spec").and_then(Value::as_object_mut).context("a CRD without spec")?;
    spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut).context("a CRD without versions")?;
    if let Some(only) = only {
        versions.retain(|version| version.get("name").and_then(Value::as_str) == Some(only.name()));
        let [version] = versions.as_mut_slice() else { bail!("the CRD has no version {}", only.name()) };
        let version = version.as_object_mut().context("a CRD version that is no object")?;
        version.insert("storage".to_owned(), true.into());
        version.insert("served".to_owned(), true.into());
        return Ok(());
    }
    for version in versions {
        for part in ["spec", "status"] {
            let schema = version.pointer_mut(&format!("/schema/openAPIV3Schema/properties/{part}"));
            if let Some(schema) = schema.and_then(Value::as_object_mut) {
                schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
            }
        }
    }
    Ok(())
}

fn map(pairs: &[(&str, &str)]) -> Map<String, Value> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect()
}
