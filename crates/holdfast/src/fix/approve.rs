//! `holdfast fix --approve`: says that what a release declares is right although many objects drifted from it at once.
//!
//! The approval is a word on the policy that decides, of exactly the desired state that was reported: another revision is asked about
//! again.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::{Context as _, bail};
use holdfast_api::{
    CLUSTER_NAME_LABEL, GROUP, VERSION,
    report::{DriftReport, DriftReportStatus, PolicyRef, SourceKind},
};
use holdfast_hub::management::{self, Failure};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{FixArguments, agreed_to};
use crate::kubeconfig;

/// Field manager of an approval.
const MANAGER: &str = "holdfast-fix";
/// Approvals one policy can hold; the oldest makes room.
const APPROVALS: usize = 64;
/// How often an approval is written anew that met somebody else's change of the policy.
const ATTEMPTS: usize = 5;

/// A desired state that waits for a word.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting {
    release: String,
    revision: Option<i64>,
    message: String,
    policy: PolicyRef,
    hash: String,
}

/// Approves what waits for it on a cluster: all releases, or one.
pub async fn approve(arguments: &FixArguments) -> anyhow::Result<ExitCode> {
    let (cluster, only) = match arguments.approve.as_slice() {
        [cluster] => (cluster, None),
        [cluster, release] => (cluster, Some(release.as_str())),
        _ => bail!("--approve takes CLUSTER and perhaps RELEASE"),
    };
    let target = &arguments.selection.target;
    let config = kubeconfig::load(target.kubeconfig.as_deref(), target.context.clone()).await?;
    let client = management::client(config).context("cannot use the kubeconfig of the management cluster")?;
    let waiting = waiting(&client, cluster, only).await?;
    if waiting.is_empty() {
        bail!("nothing waits for an approval on cluster {cluster}");
    }
    let mut text = String::new();
    for Waiting { release, revision, message, policy, .. } in &waiting {
        let revision = revision.map(|revision| format!(", revision {revision}")).unwrap_or_default();
        // Writing to a String cannot fail.
        _ = writeln!(text, "{release}{revision}: {message}\n  approves it on {} {}", policy.kind, name(policy));
    }
    if arguments.dry_run {
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.yes && !agreed_to(&text, "Let the hub correct this?")? {
        eprintln!("holdfast: nothing was approved");
        return Ok(ExitCode::from(1));
    }
    for waiting in &waiting {
        put(&client, waiting).await.with_context(|| format!("cannot approve {}", waiting.release))?;
        println!("{}: approved on {} {}", waiting.release, waiting.policy.kind, name(&waiting.policy));
    }
    Ok(ExitCode::SUCCESS)
}

fn name(policy: &PolicyRef) -> String {
    if policy.namespace.is_empty() { policy.name.clone() } else { format!("{}/{}", policy.namespace, policy.name) }
}

/// What the hub reports as held back.
async fn waiting(client: &Client, cluster: &str, only: Option<&str>) -> anyhow::Result<Vec<Waiting>> {
    let (namespace, cluster) = cluster.split_once('/').map_or((None, cluster), |(namespace, cluster)| (Some(namespace), cluster));
    let reports: Api<DriftReport> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let params = ListParams::default().labels(&format!("{CLUSTER_NAME_LABEL}={cluster}"));
    let list = management::call(reports.list(&params)).await.context("cannot list DriftReports")?;
    let mut places: Vec<&str> = list.items.iter().filter_map(|report| report.metadata.namespace.as_deref()).collect();
    places.dedup();
    if let [first, second, ..] = places.as_slice() {
        bail!("several clusters are called {cluster}: {first}/{cluster}, {second}/{cluster}");
    }
    let statuses = list.items.iter().filter_map(|report| report.status.as_ref());
    statuses.filter(|status| only.is_none_or(|only| is_release(status, only))).filter_map(|status| waits(status).transpose()).collect()
}

/// Whether a report is about the release `NAME` or `NAMESPACE/NAME`.
fn is_release(status: &DriftReportStatus, wanted: &str) -> bool {
    status.source.as_ref().is_some_and(|source| {
        source.kind == SourceKind::HelmRelease && (source.name == wanted || format!("{}/{}", source.namespace, source.name) == wanted)
    })
}

/// What a report says that waits for a word, if anything.
fn waits(status: &DriftReportStatus) -> anyhow::Result<Option<Waiting>> {
    let tripped = status.conditions.iter().find(|condition| condition.kind == "InSync" && condition.reason == "BlastRadius");
    let (Some(tripped), Some(source)) = (tripped, &status.source) else { return Ok(None) };
    let release = format!("{}/{}", source.namespace, source.name);
    let Some(policy) = status.policy.clone() else { bail!("the report of {release} names no policy; is the hub older than this command?") };
    let Some(hash) = source.desired_hash.clone().filter(|hash| !hash.is_empty()) else {
        bail!("the report of {release} does not tell which desired state it is about");
    };
    Ok(Some(Waiting { release, revision: source.revision, message: tripped.message.clone(), policy, hash }))
}

/// Writes one approval. The version of the policy guards against approvals of others getting lost.
async fn put(client: &Client, waiting: &Waiting) -> anyhow::Result<()> {
    let policy = &waiting.policy;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, &policy.kind));
    let policies: Api<DynamicObject> = if policy.namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &policy.namespace, &resource)
    };
    for _ in 0..ATTEMPTS {
        let found = management::call(policies.get(&policy.name)).await.context("cannot read the policy")?;
        let Some(approve) = with(found.data.pointer("/spec/approve"), &waiting.hash) else { return Ok(()) };
        let patch = json!({"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": {"approve": approve}});
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match management::call(policies.patch(&policy.name, &params, &Patch::Merge(&patch))).await {
            Err(Failure::Conflict) => {}
            Err(failure) => return Err(failure).context("cannot write the policy"),
            Ok(written) if with(written.data.pointer("/spec/approve"), &waiting.hash).is_none() => return Ok(()),
            Ok(_) => bail!("the definition of {} does not know approvals; install the CRDs of this version", policy.kind),
        }
    }
    bail!("the policy changes faster than the approval could be written")
}

/// The approvals with this one; `None` where it is among them.
fn with(approved: Option<&Value>, hash: &str) -> Option<Vec<String>> {
    let approved = approved.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let mut approved: Vec<String> = approved.map(str::to_owned).collect();
    if approved.iter().any(|known| known == hash) {
        return None;
    }
    approved.push(hash.to_owned());
    let oldest = approved.len().saturating_sub(APPROVALS);
    Some(approved.split_off(oldest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_is_added_once_and_the_oldest_makes_room() {
        assert_eq!(with(None, "a"), Some(vec!["a".to_owned()]));
        assert_eq!(with(Some(&json!(["a"])), "b"), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(with(Some(&json!(["a", "b"])), "b"), None);
        let full: Vec<String> = (0..APPROVALS).map(|index| index.to_string()).collect();
        let next = with(Some(&json!(full)), "new").unwrap();
        assert_eq!((next.len(), next.first().map(String::as_str), next.last().map(String::as_str)), (APPROVALS, Some("1"), Some("new")));
    }
}
