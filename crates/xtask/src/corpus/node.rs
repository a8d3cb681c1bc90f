//! Plays the node: control planes of tests have none, yet Helm waits for the Jobs of hooks.

use anyhow::Result;
use holdfast_testkit::{ControlPlane, Target, Writer};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Duration, sleep},
};

/// How often it looks for pods.
const PERIOD: Duration = Duration::from_millis(250);

/// Lets the pods of Jobs, and those that Helm waits for, succeed. Stops when dropped.
pub struct Node {
    _task: JoinSet<()>,
}

impl Node {
    /// Starts it.
    pub fn start(plane: &ControlPlane) -> Result<Self> {
        let (pods, kubelet) = (Api::<Pod>::all(plane.client("kubelet")?), plane.writer("kubelet")?);
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                // A namespace may be on its way out; the next round looks again.
                succeed(&pods, &kubelet).await.ok();
                sleep(PERIOD).await;
            }
        });
        Ok(Self { _task: task })
    }
}

async fn succeed(pods: &Api<Pod>, kubelet: &Writer) -> Result<()> {
    for pod in pods.list(&ListParams::default().fields("status.phase=Pending")).await?.items {
        let of_job = pod.owner_references().iter().any(|owner| owner.kind == "Job");
        if of_job || pod.annotations().contains_key("helm.sh/hook") {
            let target = Target::pod(&pod.namespace().unwrap_or_default(), &pod.name_any()).status();
            kubelet.merge_patch(&target, &json!({"status": {"phase": "Succeeded"}})).await?;
        }
    }
    Ok(())
}
