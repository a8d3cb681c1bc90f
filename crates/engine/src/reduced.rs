//! Guesses the owned paths of an object where the server will not tell them: it refuses the typed dry-run (an unknown
//! field, a duplicate key, a wrong type), or the credentials do not allow it. What is found this way is only reported.
//!
//! The tables follow the schema that the API server itself merges by, as published for clients of Kubernetes 1.36 in
//! `k8s.io/client-go/applyconfigurations/internal/internal.go` (in the `OpenAPI` document: `x-kubernetes-list-type`,
//! `x-kubernetes-list-map-keys`, `x-kubernetes-map-type`). They go by field name; a name that means two things is told apart by kind or by its items.
//! Custom resources have schemas of their own: there every list counts as one value.

use serde_json::{Map, Value, json};

use crate::{
    normalise::is_custom_group,
    object::Gvk,
    owned::OwnedSet,
    path::{Path, Segment},
};

/// Lists whose items are merged by key fields.
const KEYED: [(&str, &[&str]); 20] = [
    ("claims", &["name"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("matchConditions", &["name"]),
    ("ownerReferences", &["uid"]),
    ("podGroupTemplates", &["name"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    ("secrets", &["name"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("variables", &["name"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
    ("webhooks", &["name"]),
    ("drivers", &["name"]),
];

/// Maps that are merged as one value wherever built-in kinds have them.
const ATOMIC: [&str; 31] = [
    "claimRef",
    "configMapKeyRef",
    "controllerExpandSecretRef",
    "controllerPublishSecretRef",
    "dataSource",
    "fieldRef",
    "fileKeyRef",
    "involvedObject",
    "labelSelector",
    "matchConstraints",
    "matchResources",
    "namespaceSelector",
    "nodeExpandSecretRef",
    "nodePublishSecretRef",
    "nodeSelector",
    "nodeStageSecretRef",
    "nodeTopology",
    "objectSelector",
    "paramKind",
    "paramRef",
    "podSelector",
    "preference",
    "regarding",
    "related",
    "required",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "resourceFieldRef",
    "roleRef",
    "scopeSelector",
    "secretKeyRef",
    "selector",
];

/// Fields of `metadata` that identify an object or belong to the server; nobody owns them.
const NEVER_OWNED: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
];

/// The paths that `desired` would claim, by declared leaves and the list keys of built-in kinds.
pub fn owned(gvk: &Gvk, desired: &Value) -> OwnedSet {
    let mut guess = Guess { gvk, is_custom: is_custom_group(&gvk.group), set: OwnedSet::default() };
    let mut path = Path::root();
    if let Value::Object(members) = desired {
        for (name, member) in members.iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "status")) {
            path.push(Segment::field(name));
            match (name.as_str(), member) {
                ("metadata", Value::Object(metadata)) => guess.metadata(metadata, &mut path),
                _ => guess.value(name, member, &mut path),
            }
            path.pop();
        }
    }
    guess.set
}

struct Guess<'a> {
    gvk: &'a Gvk,
    is_custom: bool,
    set: OwnedSet,
}

impl Guess<'_> {
    fn metadata(&mut self, metadata: &Map<String, Value>, path: &mut Path) {
        for (name, member) in metadata.iter().filter(|(name, _)| *name != "uid" && !NEVER_OWNED.contains(&name.as_str())) {
            path.push(Segment::field(name));
            match (name.as_str(), member) {
                ("finalizers", Value::Array(items)) => {
                    for item in items {
                        self.set.insert_path(&path.join(Segment::Item(item.clone())));
                    }
                }
                ("ownerReferences", Value::Array(items)) => self.list(&["uid"], items, path),
                // Labels and annotations have names of their own.
                (_, Value::Object(entries)) if !entries.is_empty() => {
                    entries.keys().for_each(|key| self.set.insert_path(&path.join(Segment::field(key))));
                }
                _ => self.set.insert_path(path),
            }
            path.pop();
        }
    }

    fn value(&mut self, name: &str, value: &Value, path: &mut Path) {
        match value {
            Value::Object(members) if !members.is_empty() && !self.is_atomic(name, members) => {
                let has_free_names = self.has_free_names(name);
                for (name, member) in members {
                    path.push(Segment::field(name));
                    if has_free_names {
                        self.set.insert_path(path);
                    } else {
                        self.value(name, member, path);
                    }
                    path.pop();
                }
            }
            Value::Array(items) => match self.keys(name, items) {
                Some(keys) => self.list(keys, items, path),
                None => self.set.insert_path(path),
            },
            _ => self.set.insert_path(path),
        }
    }

    /// An empty keyed list claims nothing. A list with an item that lacks its key cannot be told apart item by item.
    fn list(&mut self, keys: &[&str], items: &[Value], path: &mut Path) {
        let segments: Option<Vec<Segment>> = items.iter().map(|item| item_segment(keys, item)).collect();
        let Some(segments) = segments else { return self.set.insert_path(path) };
        let is_atomic_item = keys == ["uid"];
        for (segment, item) in segments.into_iter().zip(items) {
            path.push(segment);
            self.set.insert_path(path);
            if let Value::Object(members) = item
                && !is_atomic_item
            {
                for (name, member) in members {
                    path.push(Segment::field(name));
                    self.value(name, member, path);
                    path.pop();
                }
            }
            path.pop();
        }
    }

    fn keys(&self, name: &str, items: &[Value]) -> Option<&'static [&'static str]> {
        if self.is_custom {
            return None;
        }
        match name {
            "ports" if self.gvk.is("", "Service") => Some(&["port", "protocol"]),
            "ports" if !items.is_empty() && items.iter().all(|item| item.get("containerPort").is_some()) => {
                Some(&["containerPort", "protocol"])
            }
            // Keyed in a pod template, one value in a ServiceAccount.
            "imagePullSecrets" if self.gvk.is("", "ServiceAccount") => None,
            "variables" if !self.gvk.is("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => None,
            _ => KEYED.iter().find(|(known, _)| *known == name).map(|(_, keys)| *keys),
        }
    }

    fn is_atomic(&self, name: &str, members: &Map<String, Value>) -> bool {
        if self.is_custom {
            return false;
        }
        match name {
            "scaleTargetRef" => self.gvk.version == "v1",
            // `envFrom` lies in an atomic list, so this is a reference of a volume.
            "secretRef" => true,
            "parameters" => self.gvk.group == "resource.k8s.io",
            // A backend's port, and a backend that is no Service.
            "port" => members.contains_key("number") || members.contains_key("name"),
            "resource" => self.gvk.is("networking.k8s.io", "Ingress"),
            _ => ATOMIC.contains(&name),
        }
    }

    /// Maps whose keys are chosen by users: a key called `selector` means nothing there.
    fn has_free_names(&self, name: &str) -> bool {
        !self.is_custom
            && matches!(
                name,
                "data"
                    | "binaryData"
                    | "stringData"
                    | "labels"
                    | "annotations"
                    | "limits"
                    | "requests"
                    | "parameters"
                    | "hard"
                    | "capacity"
            )
    }
}

fn item_segment(keys: &[&str], item: &Value) -> Option<Segment> {
    let keys = keys.iter().map(|key| {
        let value = match item.get(*key) {
            Some(value) if !value.is_null() => value.clone(),
            // The only key field of a built-in kind that the server defaults.
            _ if *key == "protocol" => json!("TCP"),
            _ => return None,
        };
        Some((Box::from(*key), value))
    });
    Some(Segment::Key(keys.collect::<Option<Box<[_]>>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(object: &Value) -> Vec<String> {
        let gvk = Gvk::new(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        owned(&gvk, object).paths().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_deployment_as_the_server_would_say() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w", "namespace": "t", "labels": {"selector": "x"}, "finalizers": ["a/b"]},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "w"}}, "strategy": {"rollingUpdate": null}, "template": {
                "metadata": {"labels": {"app": "w"}, "creationTimestamp": null},
                "spec": {"imagePullSecrets": [{"name": "s"}], "nodeSelector": {"a": "b"}, "tolerations": [], "volumes": [],
                    "topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}],
                    "containers": [{"name": "c", "image": "i", "args": ["a"], "ports": [{"containerPort": 80}],
                        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}], "resources": {"limits": {"cpu": "1"}}}]}}},
            "status": {"replicas": 1}});
        assert_eq!(
            guessed(&object),
            [
                "/metadata/finalizers/[=a~1b]",
                "/metadata/labels/selector",
                "/spec/replicas",
                "/spec/selector",
                "/spec/strategy/rollingUpdate",
                "/spec/template/metadata/creationTimestamp",
                "/spec/template/metadata/labels/app",
                "/spec/template/spec/containers/[name=c]",
                "/spec/template/spec/containers/[name=c]/args",
                "/spec/template/spec/containers/[name=c]/env/[name=A]",
                "/spec/template/spec/containers/[name=c]/env/[name=A]/name",
                "/spec/template/spec/containers/[name=c]/env/[name=A]/valueFrom/fieldRef",
                "/spec/template/spec/containers/[name=c]/image",
                "/spec/template/spec/containers/[name=c]/name",
                "/spec/template/spec/containers/[name=c]/ports/[containerPort=80,protocol=TCP]",
                "/spec/template/spec/containers/[name=c]/ports/[containerPort=80,protocol=TCP]/containerPort",
                "/spec/template/spec/containers/[name=c]/resources/limits/cpu",
                "/spec/template/spec/imagePullSecrets/[name=s]",
                "/spec/template/spec/imagePullSecrets/[name=s]/name",
                "/spec/template/spec/nodeSelector",
                "/spec/template/spec/tolerations",
                "/spec/template/spec/topologySpreadConstraints/[topologyKey=zone,whenUnsatisfiable=DoNotSchedule]",
                "/spec/template/spec/topologySpreadConstraints/[topologyKey=zone,whenUnsatisfiable=DoNotSchedule]/maxSkew",
                "/spec/template/spec/topologySpreadConstraints/[topologyKey=zone,whenUnsatisfiable=DoNotSchedule]/topologyKey",
                "/spec/template/spec/topologySpreadConstraints/[topologyKey=zone,whenUnsatisfiable=DoNotSchedule]/whenUnsatisfiable",
            ]
        );
    }

    #[test]
    fn one_name_two_meanings() {
        let service = json!({"apiVersion": "v1", "kind": "Service", "spec": {"selector": {"app": "w"}, "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53}]}});
        assert_eq!(
            guessed(&service),
            [
                "/spec/ports/[port=53,protocol=TCP]",
                "/spec/ports/[port=53,protocol=TCP]/port",
                "/spec/ports/[port=53,protocol=UDP]",
                "/spec/ports/[port=53,protocol=UDP]/port",
                "/spec/ports/[port=53,protocol=UDP]/protocol",
                "/spec/selector"
            ]
        );
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": [{"name": "s"}], "secrets": [{"name": "t"}]});
        assert_eq!(guessed(&account), ["/imagePullSecrets", "/secrets/[name=t]", "/secrets/[name=t]/name"]);
        let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}});
        assert_eq!(guessed(&policy), ["/spec/ingress", "/spec/podSelector"]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "roleRef": {"name": "r"}, "subjects": [{"name": "s"}]});
        assert_eq!(guessed(&role), ["/roleRef", "/subjects"]);
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"ports": "x", "selector": "y"}});
        assert_eq!(guessed(&config), ["/data/ports", "/data/selector"]);
        let custom = json!({"apiVersion": "test.example/v1", "kind": "Widget", "spec": {"selector": {"a": "b"}, "containers": [{"name": "c"}], "empty": {}}});
        assert_eq!(guessed(&custom), ["/spec/containers", "/spec/empty", "/spec/selector/a"]);
    }

    #[test]
    fn what_made_the_server_refuse_is_no_stumbling_block() {
        let duplicate = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], "imagePullPolcy": "x"}]}});
        let paths = guessed(&duplicate);
        assert_eq!(paths.iter().filter(|path| path.ends_with("[name=A]")).count(), 1);
        assert!(paths.contains(&"/spec/containers/[name=c]/imagePullPolcy".to_owned()));
        for wrong in [json!("text"), json!([1]), json!([{"image": "no name"}]), json!(null), json!({"name": "c"})] {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": wrong}});
            assert_eq!(guessed(&pod).len(), 1, "{pod}");
        }
        assert!(guessed(&json!({"apiVersion": "v1", "kind": "Pod"})).is_empty());
        assert!(owned(&Gvk::new("v1", "Pod"), &json!(null)).is_empty());
    }
}
