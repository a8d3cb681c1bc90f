//! Autoscalers of one cluster: what of which object is theirs, and within which bounds. Pure: fed by their watches.

mod kinds;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use holdfast_engine::yields::Scaler;
pub use kinds::ScalerKind;

use super::{guarded::Guarded, state::StateId};

/// One autoscaler of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScalerId {
    kind: ScalerKind,
    namespace: Box<str>,
    name: Box<str>,
}

/// One autoscaler as its watch shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalerSight {
    id: ScalerId,
    /// What it scales, and how far; `None` for one that scales nothing now, or that cannot be read.
    rule: Option<(StateId, Scaler)>,
}

/// Kinds without a scale that a vertical autoscaler may point at.
const RUNS_CONTAINERS: [(&str, &str); 4] = [("apps", "DaemonSet"), ("batch", "CronJob"), ("batch", "Job"), ("", "Pod")];

/// All autoscalers of a cluster.
#[derive(Debug, Default)]
pub struct Scalers {
    kinds: BTreeMap<ScalerKind, Listing>,
    rules: HashMap<ScalerId, (StateId, Scaler)>,
    by_target: HashMap<StateId, BTreeSet<ScalerId>>,
}

/// How far one kind was listed.
#[derive(Debug, Default)]
struct Listing {
    /// A list was complete: before, nothing that can be scaled is written, since anything could be.
    is_complete: bool,
    /// What the list under way has shown.
    listed: Option<HashSet<ScalerId>>,
}

impl Scalers {
    /// Autoscalers of a kind are going to be told of, from the start.
    pub fn expect(&mut self, kind: ScalerKind) {
        self.kinds.insert(kind, Listing::default());
    }

    /// Whether autoscalers of a kind are told of.
    pub fn expects(&self, kind: ScalerKind) -> bool {
        self.kinds.contains_key(&kind)
    }

    /// A kind is served no more, so there are none of it. Answers with what they scaled.
    pub fn forget(&mut self, kind: ScalerKind) -> Vec<StateId> {
        self.kinds.remove(&kind);
        let gone: Vec<ScalerId> = self.rules.keys().filter(|id| id.kind == kind).cloned().collect();
        gone.iter().filter_map(|id| self.take_out(id)).collect()
    }

    /// Whether every kind that the cluster serves was listed completely.
    pub fn are_complete(&self) -> bool {
        self.kinds.values().all(|listing| listing.is_complete)
    }

    /// Whether an object is one that autoscalers may rule: where they are not known completely, it is not written.
    pub fn may_rule(&self, guarded: &Guarded) -> bool {
        guarded.resource.has_subresource("scale")
            || (self.expects(ScalerKind::Vpa) && RUNS_CONTAINERS.iter().any(|(group, kind)| guarded.key.gvk.is(group, kind)))
    }

    /// A list begins.
    pub fn reset(&mut self, kind: ScalerKind) {
        if let Some(listing) = self.kinds.get_mut(&kind) {
            listing.listed = Some(HashSet::new());
        }
    }

    /// An autoscaler was listed or changed. Answers with what is scaled otherwise now; nothing for a mere change of its status.
    pub fn put(&mut self, sight: ScalerSight) -> Vec<StateId> {
        let ScalerSight { id, rule } = sight;
        if let Some(listed) = self.kinds.get_mut(&id.kind).and_then(|listing| listing.listed.as_mut()) {
            listed.insert(id.clone());
        }
        if self.rules.get(&id) == rule.as_ref() {
            return Vec::new();
        }
        let mut otherwise: Vec<StateId> = self.take_out(&id).into_iter().collect();
        if let Some((target, scaler)) = rule {
            otherwise.push(target);
            self.by_target.entry(target).or_default().insert(id.clone());
            self.rules.insert(id, (target, scaler));
        }
        otherwise
    }

    /// An autoscaler is gone. Answers with what it scaled: it may have pointed elsewhere when last seen.
    pub fn remove(&mut self, sight: &ScalerSight) -> Option<StateId> {
        self.take_out(&sight.id)
    }

    /// The list of a kind is complete: what it does not hold is gone. Answers with what those scaled.
    pub fn list_complete(&mut self, kind: ScalerKind) -> Vec<StateId> {
        let Some(listing) = self.kinds.get_mut(&kind) else { return Vec::new() };
        listing.is_complete = true;
        let Some(listed) = listing.listed.take() else { return Vec::new() };
        let gone: Vec<ScalerId> = self.rules.keys().filter(|id| id.kind == kind && !listed.contains(*id)).cloned().collect();
        gone.iter().filter_map(|id| self.take_out(id)).collect()
    }

    /// The autoscalers of an object: same namespace, group, kind and name.
    pub fn of(&self, object: StateId) -> Vec<Scaler> {
        let ids = self.by_target.get(&object).into_iter().flatten();
        ids.filter_map(|id| self.rules.get(id)).map(|(_, scaler)| scaler.clone()).collect()
    }

    fn take_out(&mut self, id: &ScalerId) -> Option<StateId> {
        let (target, _) = self.rules.remove(id)?;
        if let Some(ids) = self.by_target.get_mut(&target) {
            ids.remove(id);
            if ids.is_empty() {
                self.by_target.remove(&target);
            }
        }
        Some(target)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_engine::{
        object::{Gvk, ObjectKey},
        yields::Replicas,
    };
    use serde_json::json;

    use super::{super::state::ClusterId, *};

    const CLUSTER: ClusterId = ClusterId(1);

    fn hpa(namespace: &str, api_version: &str, kind: &str, name: &str, min: Option<i64>) -> ScalerSight {
        let mut hpa = json!({"metadata": {"name": "web", "namespace": namespace},
            "spec": {"maxReplicas": 6, "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": name}}});
        if let Some(min) = min {
            hpa["spec"]["minReplicas"] = json!(min);
        }
        ScalerSight::read(ScalerKind::Hpa, CLUSTER, &hpa.to_string()).unwrap()
    }

    fn deployment(name: &str) -> StateId {
        StateId::of(CLUSTER, &ObjectKey::new(Arc::new(Gvk::new("apps/v1", "Deployment")), Some("t"), name))
    }

    fn between(min: i64, max: i64) -> Vec<Scaler> {
        vec![Scaler::Replicas(Replicas::between("HorizontalPodAutoscaler web".into(), min, max))]
    }

    #[test]
    fn only_the_very_object_is_scaled() {
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
            assert_eq!(!scalers.of(deployment("web")).is_empty(), fits, "{sight:?}");
        }
    }

    #[test]
    fn no_minimum_means_one_and_lists_forget() {
        let web = deployment("web");
        let mut scalers = Scalers::default();
        assert!(scalers.are_complete(), "none is served");
        scalers.expect(ScalerKind::Hpa);
        assert!(!scalers.are_complete());
        scalers.reset(ScalerKind::Hpa);
        scalers.put(hpa("t", "apps/v1", "Deployment", "web", None));
        assert!(scalers.list_complete(ScalerKind::Hpa).is_empty());
        assert_eq!(scalers.of(web), between(1, 6));
        scalers.reset(ScalerKind::Hpa);
        assert!(!scalers.of(web).is_empty() && scalers.are_complete(), "an incomplete list proves nothing");
        assert_eq!(scalers.list_complete(ScalerKind::Hpa), [web]);
        assert!(scalers.of(web).is_empty());
    }

    #[test]
    fn one_kind_says_nothing_about_another() {
        let web = deployment("web");
        let keda = json!({"metadata": {"name": "web", "namespace": "t"}, "spec": {"scaleTargetRef": {"name": "web"}}});
        let keda = ScalerSight::read(ScalerKind::ScaledObject, CLUSTER, &keda.to_string()).unwrap();
        let mut scalers = Scalers::default();
        for kind in [ScalerKind::Hpa, ScalerKind::ScaledObject] {
            scalers.expect(kind);
            scalers.reset(kind);
        }
        assert_eq!(scalers.put(hpa("t", "apps/v1", "Deployment", "web", None)), [web]);
        assert_eq!(scalers.put(keda), [web]);
        assert!(scalers.list_complete(ScalerKind::Hpa).is_empty() && !scalers.are_complete());
        assert!(scalers.list_complete(ScalerKind::ScaledObject).is_empty() && scalers.are_complete());
        assert_eq!(scalers.of(web).len(), 2);
        assert_eq!(scalers.forget(ScalerKind::ScaledObject), [web]);
        assert_eq!((scalers.of(web), scalers.expects(ScalerKind::ScaledObject)), (between(1, 6), false));
    }

    #[test]
    fn whatever_is_scaled_otherwise_now_is_named() {
        let mut scalers = Scalers::default();
        let (web, wider, api) = (
            hpa("t", "apps/v1", "Deployment", "web", None),
            hpa("t", "apps/v1", "Deployment", "web", Some(2)),
            hpa("t", "apps/v1", "Deployment", "api", Some(2)),
        );
        assert_eq!(scalers.put(web.clone()), [deployment("web")]);
        assert!(scalers.put(web).is_empty(), "its status changed");
        assert_eq!(scalers.put(wider.clone()), [deployment("web"); 2]);
        assert_eq!(scalers.put(api), [deployment("web"), deployment("api")], "the one it left, too");
        assert_eq!(scalers.remove(&wider), Some(deployment("api")));
    }
}
