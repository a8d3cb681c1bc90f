//! Autoscalers of one cluster: which object's replicas are theirs, and within which bounds.

use std::collections::HashMap;

use holdfast_engine::{
    case::Scaler,
    object::{Gvk, ObjectKey},
};
use serde::Deserialize;

use super::state::{ClusterId, StateId};

/// One autoscaler as its watch shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalerSight {
    /// Namespace and name.
    pub id: (String, String),
    /// Group, kind and name of what it scales.
    target: (String, String, String),
    scaler: Scaler,
}

#[derive(Deserialize)]
struct Hpa {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    scale_target_ref: TargetRef,
    #[serde(default)]
    min_replicas: Option<i64>,
    max_replicas: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetRef {
    #[serde(default)]
    api_version: String,
    kind: String,
    name: String,
}

impl ScalerSight {
    /// Reads a `HorizontalPodAutoscaler` (v1 and v2 agree in these fields).
    pub fn of_hpa(text: &str) -> Option<Self> {
        let hpa: Hpa = serde_json::from_str(text).ok()?;
        let target = hpa.spec.scale_target_ref;
        let gvk = Gvk::new(&target.api_version, &target.kind);
        Some(Self {
            scaler: Scaler {
                by: format!("HorizontalPodAutoscaler {}", hpa.metadata.name),
                min: hpa.spec.min_replicas.unwrap_or(1),
                max: hpa.spec.max_replicas,
            },
            target: (gvk.group, target.kind, target.name),
            id: (hpa.metadata.namespace, hpa.metadata.name),
        })
    }
}

impl ScalerSight {
    /// Id of the object it scales.
    pub fn target_id(&self, cluster: ClusterId) -> StateId {
        let (group, kind, name) = &self.target;
        StateId::new(cluster, group, kind, Some(&self.id.0), name)
    }
}

/// All autoscalers of a cluster.
#[derive(Debug, Default)]
pub struct Scalers {
    known: HashMap<(String, String), ScalerSight>,
    listed: Option<Vec<(String, String)>>,
    /// The first list is complete: before, nothing that can be scaled is written, since anything could be.
    pub complete: bool,
}

impl Scalers {
    /// Those of a cluster that does not serve any.
    pub fn none() -> Self {
        Self { complete: true, ..Self::default() }
    }

    /// A list begins.
    pub fn reset(&mut self) {
        self.listed = Some(Vec::new());
    }

    /// An autoscaler was listed or changed. Answers with the sights whose targets are scaled otherwise now, none for a mere change of
    /// its status.
    pub fn put(&mut self, sight: ScalerSight) -> Vec<ScalerSight> {
        if let Some(listed) = &mut self.listed {
            listed.push(sight.id.clone());
        }
        match self.known.insert(sight.id.clone(), sight.clone()) {
            Some(before) if before == sight => Vec::new(),
            before => before.into_iter().chain([sight]).collect(),
        }
    }

    /// An autoscaler is gone. Answers with what was known of it: it may have pointed elsewhere when last seen.
    pub fn remove(&mut self, sight: &ScalerSight) -> Option<ScalerSight> {
        self.known.remove(&sight.id)
    }

    /// The list is complete: what it does not hold is gone. Answers with that.
    pub fn list_complete(&mut self) -> Vec<ScalerSight> {
        self.complete = true;
        let Some(listed) = self.listed.take() else { return Vec::new() };
        let gone: Vec<(String, String)> = self.known.keys().filter(|id| !listed.contains(*id)).cloned().collect();
        gone.iter().filter_map(|id| self.known.remove(id)).collect()
    }

    /// The autoscaler of an object: same namespace, group, kind and name.
    pub fn of(&self, key: &ObjectKey) -> Option<&Scaler> {
        let namespace = key.namespace.as_deref()?;
        self.known
            .values()
            .find(|sight| {
                let (group, kind, name) = &sight.target;
                sight.id.0 == namespace && *group == key.gvk.group && *kind == key.gvk.kind && **name == *key.name
            })
            .map(|sight| &sight.scaler)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn hpa(namespace: &str, api_version: &str, kind: &str, name: &str, min: Option<i64>) -> ScalerSight {
        let mut hpa = json!({"metadata": {"name": "web", "namespace": namespace},
            "spec": {"maxReplicas": 6, "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": name}}});
        if let Some(min) = min {
            hpa["spec"]["minReplicas"] = json!(min);
        }
        ScalerSight::of_hpa(&hpa.to_string()).unwrap()
    }

    #[test]
    fn only_the_very_object_is_scaled() {
        let web = ObjectKey::new(Arc::new(Gvk::new("apps/v1", "Deployment")), Some("t"), "web");
        for (sight, fits) in [
            (hpa("t", "apps/v1", "Deployment", "web", Some(2)), true),
            (hpa("t", "apps/v1beta1", "Deployment", "web", Some(2)), true),
            (hpa("other", "apps/v1", "Deployment", "web", Some(2)), false),
            (hpa("t", "apps/v1", "StatefulSet", "web", Some(2)), false),
            (hpa("t", "example.com/v1", "Deployment", "web", Some(2)), false),
            (hpa("t", "apps/v1", "Deployment", "other", Some(2)), false),
        ] {
            let mut scalers = Scalers::default();
            _ = scalers.put(sight.clone());
            assert_eq!(scalers.of(&web).is_some(), fits, "{sight:?}");
        }
    }

    #[test]
    fn no_minimum_means_one_and_lists_forget() {
        let web = ObjectKey::new(Arc::new(Gvk::new("apps/v1", "Deployment")), Some("t"), "web");
        let mut scalers = Scalers::default();
        scalers.reset();
        scalers.put(hpa("t", "apps/v1", "Deployment", "web", None));
        assert!(scalers.list_complete().is_empty());
        assert_eq!(scalers.of(&web).unwrap().min, 1);
        scalers.reset();
        assert!(scalers.of(&web).is_some(), "an incomplete list proves nothing");
        assert_eq!(scalers.list_complete().len(), 1);
        assert!(scalers.of(&web).is_none() && scalers.complete);
    }

    #[test]
    fn whatever_is_scaled_otherwise_now_is_named() {
        let mut scalers = Scalers::default();
        let (web, wider, api) = (
            hpa("t", "apps/v1", "Deployment", "web", None),
            hpa("t", "apps/v1", "Deployment", "web", Some(2)),
            hpa("t", "apps/v1", "Deployment", "api", Some(2)),
        );
        assert_eq!(scalers.put(web.clone()), std::slice::from_ref(&web));
        assert!(scalers.put(web.clone()).is_empty(), "its status changed");
        assert_eq!(scalers.put(wider.clone()), [web, wider.clone()]);
        assert_eq!(scalers.put(api.clone()), [wider.clone(), api.clone()], "the one it left, too");
        assert_eq!(scalers.remove(&wider), Some(api));
    }
}
