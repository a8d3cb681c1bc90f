//! The custom resource definitions, from the types of `holdfast-api`.

use anyhow::{Context, Result};
use holdfast_api::{cluster_policy::ClusterDriftPolicy, policy::DriftPolicy, report::DriftReport};
use kube::CustomResourceExt;

/// The definitions, and the kustomization that lists them.
pub fn files() -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let mut resources = Vec::new();
    for definition in [DriftPolicy::crd(), ClusterDriftPolicy::crd(), DriftReport::crd()] {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let file = format!("{name}.yaml");
        resources.push(format!("- {file}\n"));
        files.push((format!("crds/{file}"), serde_saphyr::to_string(&definition).with_context(|| format!("cannot write {name} as YAML"))?));
    }
    let list = resources.concat();
    let kustomization = format!("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{list}");
    files.push(("crds/kustomization.yaml".to_owned(), kustomization));
    Ok(files)
}
