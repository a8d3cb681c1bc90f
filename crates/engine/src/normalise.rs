//! Makes a declared object comparable with what the server returns for it.
//!
//! Only spellings that the server never gives back are changed here (design §3.1); everything that the server itself
//! rewrites is learnt from its answers instead.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use crate::{
    object::{Gvk, ObjectKey},
    yields::is_placeholder,
};

/// Label that Helm puts on every object of a release.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`] that Helm writes.
pub const MANAGED_BY_HELM: &str = "Helm";
/// Annotation that names the release of an object.
pub const RELEASE_NAME: &str = "meta.helm.sh/release-name";
/// Annotation that names the namespace of the release of an object.
pub const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// The release an object belongs to. Helm adds this to objects on the wire; stored manifests lack it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Release {
    /// Namespace of the release record.
    pub namespace: String,
    /// Name of the release.
    pub name: String,
}

impl Release {
    /// Whether `object` carries another release's annotations: somebody let that release adopt it (`--take-ownership`), so it is no
    /// longer ours whatever it was before.
    pub fn is_owned_by_another(&self, object: &Value) -> bool {
        let names_another = |annotation: &str, ours: &str| {
            let found = object.pointer("/metadata/annotations").and_then(|annotations| annotations.get(annotation)).and_then(Value::as_str);
            found.is_some_and(|found| found != ours)
        };
        names_another(RELEASE_NAME, &self.name) || names_another(RELEASE_NAMESPACE, &self.namespace)
    }

    /// Whether `object` carries the annotations that Helm checks before it adopts an object (`pkg/action/validate.go`).
    pub fn owns(&self, object: &Value) -> bool {
        let annotation =
            |name: &str| object.pointer("/metadata/annotations").and_then(|annotations| annotations.get(name)).and_then(Value::as_str);
        annotation(RELEASE_NAME) == Some(&self.name) && annotation(RELEASE_NAMESPACE) == Some(&self.namespace)
    }
}

/// The declared object as it is compared and written.
pub fn normalise(object: Value, key: &ObjectKey, release: Option<&Release>) -> Value {
    let mut object = as_written(object, key, release);
    if let Some(members) = object.as_object_mut() {
        normalise_kind(members, &key.gvk);
    }
    object
}

/// Whether a server-side apply owns other fields of the object as it stands in the manifest than of the normalised one.
pub fn is_owned_otherwise(object: &Value, key: &ObjectKey) -> bool {
    key.gvk.is("", "Secret") && object.get("stringData").is_some_and(Value::is_object)
}

/// The declared object as its release sends it: what the server never stores is left out, ownership metadata is added.
pub fn as_written(mut object: Value, key: &ObjectKey, release: Option<&Release>) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
        let metadata = metadata_of(members);
        for never_returned in ["creationTimestamp", "selfLink", "managedFields", "resourceVersion", "uid", "generation"] {
            metadata.remove(never_returned);
        }
        match &key.namespace {
            Some(namespace) => metadata.insert("namespace".to_owned(), Value::String(namespace.to_string())),
            None => metadata.remove("namespace"),
        };
        if let Some(release) = release {
            set(metadata, "labels", MANAGED_BY_LABEL, MANAGED_BY_HELM);
            set(metadata, "annotations", RELEASE_NAME, &release.name);
            set(metadata, "annotations", RELEASE_NAMESPACE, &release.namespace);
        }
    }
    object
}

fn normalise_kind(members: &mut Map<String, Value>, gvk: &Gvk) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Secret") => fold_string_data(members),
        // A controller fills the rules of an aggregated role; an empty list in the manifest must not empty them.
        ("rbac.authorization.k8s.io", "ClusterRole") if members.get("aggregationRule").is_some_and(|rule| !rule.is_null()) => {
            members.remove("rules");
        }
        // Charts leave a line break for an injector to replace. What was created before servers refused that is there; now every question
        // about the manifest would be refused.
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let config = members.get_mut("spec").and_then(|spec| spec.pointer_mut("/conversion/webhook/clientConfig"));
            if let Some(config) = config.and_then(Value::as_object_mut)
                && config.get("caBundle").and_then(Value::as_str).is_some_and(is_placeholder)
            {
                config.remove("caBundle");
            }
        }
        // Charts made of what was read from a cluster declare what controllers count there.
        ("apps", _) => {
            let annotations = members.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
            if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
                annotations.retain(|name, _| !COUNTED.contains(&name.as_str()));
            }
        }
        _ if is_custom_group(&gvk.group) => {
            // On a create the server drops nulls of custom resources, on an apply it calls them invalid.
            for (name, member) in members.iter_mut() {
                if name != "metadata" {
                    drop_nulls(member);
                }
            }
        }
        _ => {}
    }
}

/// Annotations in which the controllers of workloads count; another number there is written over at once.
const COUNTED: [&str; 2] = ["deployment.kubernetes.io/revision", "deprecated.daemonset.template.generation"];

/// Groups with a dot that the API server itself serves; every other group with a dot holds custom resources.
const BUILT_IN_GROUPS: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Whether a group holds custom resources or aggregated kinds rather than built-in ones.
pub fn is_custom_group(group: &str) -> bool {
    group.contains('.') && !BUILT_IN_GROUPS.contains(&group)
}

fn metadata_of(members: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let metadata = members.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    as_map(metadata)
}

fn set(metadata: &mut Map<String, Value>, field: &str, name: &str, value: &str) {
    let map = metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if !map.is_object() {
        *map = Value::Object(Map::new());
    }
    as_map(map).insert(name.to_owned(), Value::String(value.to_owned()));
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    #[expect(clippy::unreachable, reason = "both callers replace anything that is no object first")]
    value.as_object_mut().unwrap_or_else(|| unreachable!("made an object just before"))
}

/// `stringData` is write-only: the server moves it into `data` and never returns it. A value that is no text stays, so
/// that the server can name it as a manifest error.
fn fold_string_data(members: &mut Map<String, Value>) {
    let Some(Value::Object(texts)) = members.get("stringData") else { return };
    if texts.values().any(|text| !text.is_string() && !text.is_null()) {
        return;
    }
    let folded: Vec<(String, Value)> =
        texts.iter().map(|(name, text)| (name.clone(), Value::String(STANDARD.encode(text.as_str().unwrap_or_default())))).collect();
    members.remove("stringData");
    let data = members.entry("data").or_insert_with(|| Value::Object(Map::new()));
    if !data.is_object() {
        *data = Value::Object(Map::new());
    }
    as_map(data).extend(folded);
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn normal(object: Value, namespace: Option<&str>) -> Value {
        let gvk = Gvk::new(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let key = ObjectKey::new(Arc::new(gvk), namespace, "x");
        normalise(object, &key, Some(&Release { namespace: "r".into(), name: "rel".into() }))
    }

    #[test]
    fn ownership_metadata_as_helm_writes_it() {
        let object = normal(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": null, "creationTimestamp": null}}),
            Some("t"),
        );
        assert_eq!(
            object["metadata"],
            json!({"name": "x", "namespace": "t", "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"meta.helm.sh/release-name": "rel", "meta.helm.sh/release-namespace": "r"}})
        );
        assert!(Release { namespace: "r".into(), name: "rel".into() }.owns(&object));
        assert!(!Release { namespace: "other".into(), name: "rel".into() }.owns(&object));
    }

    #[test]
    fn string_data_wins_over_data_as_the_server_says() {
        let secret = normal(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"p": "b2xk", "q": "cQ=="}, "stringData": {"p": "one"}}),
            Some("t"),
        );
        assert_eq!(secret["data"], json!({"p": "b25l", "q": "cQ=="}));
        assert!(secret.get("stringData").is_none());
        let wrong = normal(json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"n": 5}}), Some("t"));
        assert_eq!(wrong["stringData"], json!({"n": 5}), "a manifest error is left for the server to name");
    }

    #[test]
    fn cluster_scope_aggregation_placeholders_and_nulls() {
        let role = normal(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"namespace": "t"}, "aggregationRule": {}, "rules": []}),
            None,
        );
        assert!(role.get("rules").is_none() && role["metadata"].get("namespace").is_none());
        let plain = normal(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []}), None);
        assert_eq!(plain["rules"], json!([]));
        let definition = |bundle: &str| {
            let config = json!({"clientConfig": {"caBundle": bundle, "url": "https://x"}});
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {"conversion": {"strategy": "Webhook", "webhook": config}}})
        };
        for (bundle, stays) in [("Cg==", false), ("", false), ("Q0E=", true)] {
            let found = normal(definition(bundle), None);
            assert_eq!(found.pointer("/spec/conversion/webhook/clientConfig/caBundle").is_some(), stays, "{bundle}");
            assert_eq!(found["spec"]["conversion"]["webhook"]["clientConfig"]["url"], "https://x");
        }
        let counted = json!({"deployment.kubernetes.io/revision": "7", "mine": "1"});
        for (version, kind, annotations) in [("apps/v1", "Deployment", 1), ("apps/v1", "ReplicaSet", 1), ("v1", "ConfigMap", 2)] {
            let object = normal(json!({"apiVersion": version, "kind": kind, "metadata": {"annotations": counted}}), Some("t"));
            let found = object["metadata"]["annotations"].as_object().unwrap().keys().filter(|name| !name.starts_with("meta.")).count();
            assert_eq!(found, annotations, "{kind}");
        }
        let custom = normal(
            json!({"apiVersion": "test.example/v1", "kind": "Widget", "spec": {"a": null, "b": [{"c": null}]}, "status": {}}),
            Some("t"),
        );
        assert_eq!(custom["spec"], json!({"b": [{}]}));
        assert!(custom.get("status").is_none());
        let built_in =
            normal(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"strategy": {"rollingUpdate": null}}}), Some("t"));
        assert_eq!(built_in["spec"]["strategy"], json!({"rollingUpdate": null}), "the server decides about nulls of its own kinds");
    }
}
