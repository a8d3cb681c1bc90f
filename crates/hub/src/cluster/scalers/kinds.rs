//! The kinds of autoscalers, and how their specs read. Defaults are those of each kind's own documentation: they are not in the stored
//! object where its definition does not fill them in.

use std::collections::BTreeMap;

use holdfast_engine::{
    object::Gvk,
    yields::{ContainerRule, Replicas, Resources, Scaler},
};
use holdfast_fleet::{
    call::Endpoint,
    discovery::{Catalog, Lookup},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    super::state::{ClusterId, StateId},
    ScalerId, ScalerSight,
};

/// While it has this annotation, KEDA holds the replicas at its value.
const PAUSED_AT: &str = "autoscaling.keda.sh/paused-replicas";

/// A kind of autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScalerKind {
    /// `HorizontalPodAutoscaler` (`autoscaling`; v1 and v2 agree in what is read here).
    Hpa,
    /// `ScaledObject` of KEDA.
    ScaledObject,
    /// `VerticalPodAutoscaler`.
    Vpa,
}

impl ScalerKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Hpa, Self::ScaledObject, Self::Vpa];

    /// Kind, plural, group, and the versions it may be read at, best first.
    const fn names(self) -> (&'static str, &'static str, &'static str, &'static [&'static str]) {
        match self {
            Self::Hpa => ("HorizontalPodAutoscaler", "horizontalpodautoscalers", "autoscaling", &["v2", "v1"]),
            Self::ScaledObject => ("ScaledObject", "scaledobjects", "keda.sh", &["v1alpha1"]),
            Self::Vpa => ("VerticalPodAutoscaler", "verticalpodautoscalers", "autoscaling.k8s.io", &["v1", "v1beta2"]),
        }
    }

    /// Where a cluster serves it; `None` where it does not. While nobody can tell, a watch will.
    pub fn place(self, catalog: &Catalog) -> Option<Endpoint> {
        let (kind, plural, group, versions) = self.names();
        let lookup = |version: &&&str| {
            let gvk = Gvk { group: group.to_owned(), version: (**version).to_owned(), kind: kind.to_owned() };
            catalog.lookup(&gvk)
        };
        let served = versions.iter().find(|version| matches!(lookup(version), Lookup::Served(_)));
        let version = served.or_else(|| versions.iter().find(|version| lookup(version) == Lookup::Unknown))?;
        Endpoint::new(group, version, plural).ok()
    }

    /// Its plural.
    pub const fn plural(self) -> &'static str {
        self.names().1
    }

    /// The name of its definition; `None` where the API server serves it by itself.
    pub fn definition(self) -> Option<String> {
        let (_, plural, group, _) = self.names();
        (self != Self::Hpa).then(|| format!("{plural}.{group}"))
    }
}

impl ScalerSight {
    /// Reads an autoscaler; `None` for what has no name.
    pub fn read(kind: ScalerKind, cluster: ClusterId, text: &str) -> Option<Self> {
        let Named { metadata } = serde_json::from_str(text).ok()?;
        let by = format!("{} {}", kind.names().0, metadata.name);
        let rule = match kind {
            ScalerKind::Hpa => spec::<Hpa>(text).map(|spec| Some(spec.rule(by.clone()))),
            ScalerKind::ScaledObject => {
                spec::<ScaledObject>(text).map(|spec| Some(spec.rule(by.clone(), metadata.annotations.get(PAUSED_AT))))
            }
            ScalerKind::Vpa => spec::<Vpa>(text).map(|spec| spec.rule(by.clone())),
        };
        let rule = rule.unwrap_or_else(|| spec::<Unread>(text).map(|spec| spec.rule(kind, by)));
        let target = |target: &TargetRef| {
            let group = Gvk::new(&target.api_version, &target.kind).group;
            StateId::new(cluster, &group, &target.kind, Some(&metadata.namespace), &target.name)
        };
        let rule = rule.map(|(reference, scaler)| (target(&reference), scaler));
        Some(Self { id: ScalerId { kind, namespace: metadata.namespace.into(), name: metadata.name.into() }, rule })
    }
}

fn spec<T: DeserializeOwned>(text: &str) -> Option<T> {
    #[derive(Deserialize)]
    struct Object<T> {
        spec: T,
    }
    serde_json::from_str::<Object<T>>(text).ok().map(|object| object.spec)
}

#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetRef {
    #[serde(default)]
    api_version: String,
    kind: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hpa {
    scale_target_ref: TargetRef,
    #[serde(default)]
    min_replicas: Option<i64>,
    max_replicas: i64,
}

impl Hpa {
    fn rule(self, by: String) -> (TargetRef, Scaler) {
        (self.scale_target_ref, Scaler::Replicas(Replicas::between(by, self.min_replicas.unwrap_or(1), self.max_replicas)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObject {
    scale_target_ref: ScaleTarget,
    #[serde(default)]
    min_replica_count: Option<i64>,
    #[serde(default)]
    max_replica_count: Option<i64>,
    #[serde(default)]
    idle_replica_count: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScaleTarget {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    name: String,
}

impl ScaleTarget {
    fn filled_in(self) -> TargetRef {
        let or = |given: Option<String>, default: &str| given.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned());
        TargetRef { api_version: or(self.api_version, "apps/v1"), kind: or(self.kind, "Deployment"), name: self.name }
    }
}

impl ScaledObject {
    fn rule(self, by: String, paused_at: Option<&String>) -> (TargetRef, Scaler) {
        let target = self.scale_target_ref.filled_in();
        let mut ranges = vec![self.min_replica_count.unwrap_or(0)..=self.max_replica_count.unwrap_or(100)];
        let further = self.idle_replica_count.into_iter().chain(paused_at.and_then(|count| count.parse().ok()));
        ranges.extend(further.map(|count| count..=count));
        (target, Scaler::Replicas(Replicas { by, ranges }))
    }
}

/// An autoscaler of which only this much can be read: within which bounds it works is not known, so everything it could set is left alone.
#[derive(Deserialize)]
struct Unread {
    #[serde(alias = "scaleTargetRef", alias = "targetRef")]
    target: ScaleTarget,
}

impl Unread {
    fn rule(self, kind: ScalerKind, by: String) -> (TargetRef, Scaler) {
        let scaler = match kind {
            ScalerKind::Hpa | ScalerKind::ScaledObject => Scaler::Replicas(Replicas::between(by, 0, i64::MAX)),
            ScalerKind::Vpa => Scaler::Resources(Resources { by, rules: Vec::new() }),
        };
        (self.target.filled_in(), scaler)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vpa {
    target_ref: TargetRef,
    #[serde(default)]
    update_policy: Option<UpdatePolicy>,
    #[serde(default)]
    resource_policy: Option<ResourcePolicy>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdatePolicy {
    #[serde(default)]
    update_mode: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourcePolicy {
    #[serde(default)]
    container_policies: Vec<ContainerPolicy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPolicy {
    #[serde(default)]
    container_name: String,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    controlled_resources: Option<Vec<String>>,
    #[serde(default)]
    controlled_values: Option<String>,
    #[serde(default)]
    min_allowed: BTreeMap<String, Value>,
    #[serde(default)]
    max_allowed: BTreeMap<String, Value>,
}

impl Vpa {
    /// Nothing for one that only recommends.
    fn rule(self, by: String) -> Option<(TargetRef, Scaler)> {
        if self.update_policy.and_then(|policy| policy.update_mode).as_deref() == Some("Off") {
            return None;
        }
        let policies = self.resource_policy.unwrap_or_default().container_policies;
        let rules = policies.into_iter().map(ContainerPolicy::rule).collect();
        Some((self.target_ref, Scaler::Resources(Resources { by, rules })))
    }
}

impl ContainerPolicy {
    fn rule(self) -> ContainerRule {
        let quantities = |bounds: BTreeMap<String, Value>| {
            let text = |bound: Value| bound.as_str().map_or_else(|| bound.to_string(), ToOwned::to_owned);
            bounds.into_iter().map(|(resource, bound)| (resource, text(bound))).collect()
        };
        let mut rule = ContainerRule::free(&self.container_name);
        if let Some(resources) = self.controlled_resources {
            rule.resources = resources;
        }
        if self.mode.as_deref() == Some("Off") {
            rule.resources.clear();
        }
        rule.limits = self.controlled_values.as_deref() != Some("RequestsOnly");
        (rule.min, rule.max) = (quantities(self.min_allowed), quantities(self.max_allowed));
        rule
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdfast_fleet::{
        discovery::{Discovery, Fetch, Fetched},
        watch::SourceError,
    };
    use serde_json::json;

    use super::*;

    const CLUSTER: ClusterId = ClusterId(1);

    fn read(kind: ScalerKind, annotations: &Value, spec: &Value) -> Option<(StateId, Scaler)> {
        let object = json!({"metadata": {"name": "x", "namespace": "t", "annotations": annotations}, "spec": spec});
        ScalerSight::read(kind, CLUSTER, &object.to_string()).unwrap().rule
    }

    /// A server that serves these kinds, each at one version.
    struct Serves(Vec<(&'static str, &'static str, &'static str)>);

    impl Fetch for Serves {
        async fn fetch(&self, path: &str, _: &str, _: Option<&str>) -> Result<Fetched, SourceError> {
            let group = |(group, version, kind): &(&str, &str, &str)| {
                let resource = json!({"resource": kind.to_lowercase(), "responseKind": {"kind": kind}, "scope": "Namespaced"});
                json!({"metadata": {"name": group}, "versions": [{"version": version, "freshness": "Current", "resources": [resource]}]})
            };
            let groups: Vec<Value> = if path == "/apis" { self.0.iter().map(group).collect() } else { Vec::new() };
            let document = json!({"kind": "APIGroupDiscoveryList", "items": groups});
            Ok(Fetched::Document { body: Bytes::from(document.to_string()), etag: None })
        }
    }

    #[tokio::test]
    async fn each_kind_is_read_where_it_is_served() {
        for (served, hpa, keda) in [
            (vec![("autoscaling", "v2", "HorizontalPodAutoscaler"), ("keda.sh", "v1alpha1", "ScaledObject")], Some("v2"), true),
            (vec![("autoscaling", "v1", "HorizontalPodAutoscaler"), ("keda.sh", "v1alpha1", "ScaledJob")], Some("v1"), false),
            (vec![("autoscaling.example", "v2", "HorizontalPodAutoscaler"), ("keda.example", "v1alpha1", "ScaledObject")], None, false),
        ] {
            let mut discovery = Discovery::default();
            discovery.refresh(&Serves(served.clone())).await.unwrap();
            let catalog = discovery.catalog();
            let place = |version| Endpoint::new("autoscaling", version, "horizontalpodautoscalers").ok();
            assert_eq!(ScalerKind::Hpa.place(&catalog), hpa.and_then(place), "{served:?}");
            assert_eq!(ScalerKind::ScaledObject.place(&catalog).is_some(), keda, "{served:?}");
        }
        assert!(ScalerKind::ScaledObject.place(&Catalog::unknown()).is_some(), "nobody can tell, so a watch will");
    }

    #[test]
    fn scaled_objects_with_their_defaults() {
        let web = |group: &str, kind: &str| StateId::new(CLUSTER, group, kind, Some("t"), "web");
        let none = json!({});
        for (annotations, spec, target, ranges) in [
            (&none, json!({"scaleTargetRef": {"name": "web"}}), web("apps", "Deployment"), vec![0..=100]),
            (
                &none,
                json!({"scaleTargetRef": {"name": "web", "kind": "StatefulSet"}, "minReplicaCount": 2, "maxReplicaCount": 5}),
                web("apps", "StatefulSet"),
                vec![2..=5],
            ),
            (
                &none,
                json!({"scaleTargetRef": {"name": "web", "apiVersion": "x.example/v1", "kind": "Widget"}, "minReplicaCount": 2, "idleReplicaCount": 0}),
                web("x.example", "Widget"),
                vec![2..=100, 0..=0],
            ),
            (
                &json!({"autoscaling.keda.sh/paused-replicas": "7"}),
                json!({"scaleTargetRef": {"name": "web"}, "maxReplicaCount": 5}),
                web("apps", "Deployment"),
                vec![0..=5, 7..=7],
            ),
            (
                &json!({"autoscaling.keda.sh/paused-replicas": "many", "autoscaling.keda.sh/paused": "true"}),
                json!({"scaleTargetRef": {"name": "web"}, "maxReplicaCount": 5}),
                web("apps", "Deployment"),
                vec![0..=5],
            ),
        ] {
            let by = "ScaledObject x".to_owned();
            assert_eq!(
                read(ScalerKind::ScaledObject, annotations, &spec),
                Some((target, Scaler::Replicas(Replicas { by, ranges }))),
                "{spec}"
            );
        }
        assert_eq!(read(ScalerKind::ScaledObject, &none, &json!({"triggers": []})), None, "it scales nothing");
    }

    #[test]
    fn one_that_cannot_be_read_may_set_anything() {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let web = StateId::new(CLUSTER, "apps", "Deployment", Some("t"), "web");
        let any = Scaler::Replicas(Replicas::between("ScaledObject x".to_owned(), 0, i64::MAX));
        let spec = json!({"scaleTargetRef": {"name": "web"}, "maxReplicaCount": "many"});
        assert_eq!(read(ScalerKind::ScaledObject, &json!({}), &spec), Some((web, any)));
        let any = Scaler::Resources(Resources { by: "VerticalPodAutoscaler x".to_owned(), rules: Vec::new() });
        let spec = json!({"targetRef": target, "resourcePolicy": {"containerPolicies": [{"containerName": "c", "minAllowed": null}]}});
        assert_eq!(read(ScalerKind::Vpa, &json!({}), &spec), Some((web, any)));
        assert_eq!(read(ScalerKind::Hpa, &json!({}), &json!({"maxReplicas": 3})), None, "nothing says what it scales");
    }

    #[test]
    fn vertical_autoscalers_with_their_policies() {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let vpa = |mode: Option<&str>, policies: Value| {
            let mut spec = json!({"targetRef": target, "resourcePolicy": {"containerPolicies": policies}});
            if let Some(mode) = mode {
                spec["updatePolicy"] = json!({"updateMode": mode});
            }
            read(ScalerKind::Vpa, &json!({}), &spec)
        };
        for (mode, writes) in [
            (None, true),
            (Some("Auto"), true),
            (Some("Recreate"), true),
            (Some("Initial"), true),
            (Some("InPlaceOrRecreate"), true),
            (Some("Off"), false),
        ] {
            assert_eq!(vpa(mode, json!([])).is_some(), writes, "{mode:?}");
        }
        let rules = |policies: Value| match vpa(None, policies) {
            Some((_, Scaler::Resources(resources))) => resources.rules,
            other => panic!("{other:?}"),
        };
        assert_eq!(rules(json!([])), []);
        let own = &rules(json!([{"containerName": "c", "controlledResources": ["cpu"], "controlledValues": "RequestsOnly",
            "minAllowed": {"cpu": 1}, "maxAllowed": {"cpu": "2"}}]))[0];
        assert_eq!((own.container.as_str(), own.resources.join(","), own.limits), ("c", "cpu".to_owned(), false));
        assert_eq!((own.min["cpu"].as_str(), own.max["cpu"].as_str()), ("1", "2"));
        let off = &rules(json!([{"containerName": "*", "mode": "Off", "controlledResources": ["cpu"]}]))[0];
        assert!(off.resources.is_empty());
    }
}
