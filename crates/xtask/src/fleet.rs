//! A management cluster and workload clusters on loopback, as the demo and the benchmarks use them.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_api::{
    cluster_policy::ClusterDriftPolicy,
    condition::Truth,
    policy::DriftPolicy,
    report::{DriftReport, DriftReportStatus, SourceKind},
};
use holdfast_testkit::{ControlPlane, Options, eventually, management::CapiVersion};
use kube::{Api, CustomResourceExt, api::ListParams};
use serde_json::{Value, json};

/// Namespace of the clusters, policies and reports on the management cluster.
pub const NAMESPACE: &str = "fleet";
/// Bound for whatever should happen at once.
const SOON: Duration = Duration::from_mins(1);

/// The clusters.
pub struct Fleet {
    /// Where the hub's resources are.
    pub management: ControlPlane,
    /// What the hub watches; each has the name it was started with.
    pub workloads: Vec<ControlPlane>,
}

impl Fleet {
    /// Starts a management cluster and one workload cluster for each name, and registers them with Cluster API.
    pub async fn start(names: &[&str]) -> Result<Self> {
        Self::start_with(names.iter().copied().map(Options::named).collect()).await
    }

    /// The same with workload clusters of any sort.
    pub async fn start_with(workloads: Vec<Options>) -> Result<Self> {
        let all = std::iter::once(Options::named("management")).chain(workloads).collect();
        let mut planes = ControlPlane::start_many(all).await?.into_iter();
        let management = planes.next().context("no management cluster")?;
        let fleet = Self { management, workloads: planes.collect() };
        fleet.management.install_cluster_api_crd().await?;
        for definition in [DriftPolicy::crd(), ClusterDriftPolicy::crd(), DriftReport::crd()] {
            fleet.management.apply_yaml("platform", &serde_json::to_string(&definition)?).await?;
        }
        fleet.management.namespace(NAMESPACE).await?;
        for workload in &fleet.workloads {
            fleet.management.capi_cluster(NAMESPACE, workload.name(), workload, CapiVersion::V1Beta2, true, &[]).await?;
        }
        Ok(fleet)
    }

    /// Applies a policy for every cluster and release, with these further fields of its spec.
    pub async fn policy(&self, mode: &str, further: &Value) -> Result<()> {
        let mut spec = json!({"clusterSelector": {}, "mode": mode});
        if let (Some(spec), Some(further)) = (spec.as_object_mut(), further.as_object()) {
            spec.extend(further.clone());
        }
        let policy = json!({
            "apiVersion": "holdfast.dev/v1alpha1",
            "kind": "DriftPolicy",
            "metadata": {"name": "everything", "namespace": NAMESPACE},
            "spec": spec,
        });
        self.management.apply_yaml("platform", &policy.to_string()).await?;
        Ok(())
    }

    /// Whether the hub accepts a policy as it stands; waits until the hub has looked at it.
    pub async fn is_accepted(&self, policy: &str) -> Result<bool> {
        eventually("a word on the policy", SOON, async || {
            let policy = self.management.kubectl(&["get", "driftpolicies", "-n", NAMESPACE, policy, "-o", "json"]).await?;
            let policy: Value = serde_json::from_str(&policy)?;
            let generation = policy.pointer("/metadata/generation");
            ensure!(generation.is_some() && policy.pointer("/status/observedGeneration") == generation, "it was not looked at");
            let conditions = policy.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
            let accepted = conditions.into_iter().find(|condition| condition.get("type").is_some_and(|name| name == "Accepted"));
            Ok(accepted.context("no word on the policy")?.get("status").is_some_and(|status| status == "True"))
        })
        .await
    }

    /// What the hub says about a release now.
    pub async fn report(&self, cluster: &str, release: &str) -> Result<DriftReportStatus> {
        let reports: Api<DriftReport> = Api::namespaced(self.management.admin()?, NAMESPACE);
        let list = reports.list(&ListParams::default()).await.context("listing reports")?;
        let of_release = |report: &DriftReport| {
            let source = report.status.as_ref().and_then(|status| status.source.as_ref());
            report.spec.cluster == cluster && source.is_some_and(|source| source.kind == SourceKind::HelmRelease && source.name == release)
        };
        list.items
            .into_iter()
            .find(of_release)
            .and_then(|report| report.status)
            .with_context(|| format!("no report of {cluster}/{release}"))
    }

    /// Waits until the report of a release satisfies `wanted`; answers what `wanted` finds.
    pub async fn report_when<T>(
        &self,
        what: &str,
        cluster: &str,
        release: &str,
        wanted: impl Fn(&DriftReportStatus) -> Option<T>,
    ) -> Result<T> {
        eventually(what, SOON, async || {
            let status = self.report(cluster, release).await?;
            wanted(&status).with_context(|| format!("the report of {cluster}/{release} says {}", conditions(&status)))
        })
        .await
    }

    /// Waits until every object of a release is as declared; answers how many there are.
    pub async fn in_sync(&self, cluster: &str, release: &str) -> Result<u64> {
        self.report_when("a release in sync", cluster, release, |status| {
            let holds = status.conditions.iter().any(|condition| condition.kind == "InSync" && condition.status == Truth::True);
            let summary = &status.summary;
            (holds && summary.objects > 0 && summary.in_sync == summary.objects).then_some(summary.objects)
        })
        .await
    }

    /// Writes kubeconfigs of administrators into `folder`, named after their clusters.
    pub fn write_kubeconfigs(&self, folder: &Path) -> Result<()> {
        for plane in self.workloads.iter().chain([&self.management]) {
            let file = folder.join(format!("{}.kubeconfig", plane.name()));
            std::fs::write(&file, plane.admin_kubeconfig()?).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    }

    /// Keeps the logs of the control planes, and prints where they are.
    pub fn keep_logs(&self) {
        // They share one folder.
        self.management.keep_logs();
    }

    /// The workload cluster of that name.
    pub fn workload(&self, name: &str) -> Result<&ControlPlane> {
        self.workloads.iter().find(|plane| plane.name() == name).with_context(|| format!("no cluster {name}"))
    }
}

fn conditions(status: &DriftReportStatus) -> String {
    let one = |condition: &holdfast_api::condition::Condition| format!("{}={:?} ({})", condition.kind, condition.status, condition.message);
    status.conditions.iter().map(one).collect::<Vec<_>>().join("; ")
}
