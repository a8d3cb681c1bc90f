//! The fold by table, and the slim types on objects as Cluster API writes them.

use std::{collections::BTreeMap, sync::Arc};

use holdfast_api::policy::DriftPolicySpec;
use holdfast_fleet::kubeconfig::{Rejection, ServerPolicy};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::{
    wire::{ClusterObject, SecretObject},
    *,
};
use crate::policy::{DefaultMode, PolicyInput};

fn cluster_api(version: &str) -> ApiResource {
    ApiResource {
        group: "cluster.x-k8s.io".to_owned(),
        version: version.to_owned(),
        api_version: format!("cluster.x-k8s.io/{version}"),
        kind: "Cluster".to_owned(),
        plural: "clusters".to_owned(),
    }
}

fn cluster(version: &str, value: Value) -> ClusterInput {
    let mut object = json!({"metadata": {"name": "one", "namespace": "fleet", "uid": "uid-1", "labels": {"env": "prod"},
        "managedFields": [{"manager": "x", "fieldsV1": {"f:spec": {}}}]}});
    merge(&mut object, value);
    let object: ClusterObject = serde_json::from_value(object).unwrap();
    object.reduce(&cluster_api(version))
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn secret_object(name: &str, labels: &[(&str, &str)], data: &[(&str, &str)]) -> SecretObject {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let data: BTreeMap<_, _> = data.iter().map(|(key, text)| (*key, k8s_openapi::ByteString(text.as_bytes().to_vec()))).collect();
    serde_json::from_value(
        json!({"metadata": {"name": name, "namespace": "fleet", "uid": format!("uid-{name}"), "labels": labels}, "data": data}),
    )
    .unwrap()
}

fn secret(name: &str, labels: &[(&str, &str)], kubeconfig: &str) -> Option<SecretInput> {
    secret::reduce(secret_object(name, labels, &[("value", kubeconfig)]), None, &ServerPolicy::default())
}

const OF_ONE: (&str, &str) = ("cluster.x-k8s.io/cluster-name", "one");
const MARKED: (&str, &str) = ("holdfast.dev/kubeconfig", "true");

fn objects<T>(items: impl IntoIterator<Item = (&'static str, T)>) -> Arc<Objects<T>> {
    let name = |name: &str| ObjectName { namespace: Arc::from("fleet"), name: Arc::from(name) };
    Arc::new(items.into_iter().map(|(text, item)| (name(text), Arc::new(item))).collect())
}

fn inputs(clusters: Vec<ClusterInput>, secrets: Vec<SecretInput>) -> Inputs {
    let named = |secret: SecretInput| {
        let name: &'static str = Box::leak(secret.owner.name.to_string().into_boxed_str());
        (name, secret)
    };
    let (labelled, plain): (Vec<_>, Vec<_>) = secrets.into_iter().partition(|secret| secret.labelled);
    Inputs {
        clusters: Some(objects(clusters.into_iter().map(|cluster| ("one", cluster)))),
        capi_secrets: Some(objects(plain.into_iter().map(named))),
        labelled_secrets: Some(objects(labelled.into_iter().map(named))),
        policies: Some(objects([])),
        cluster_policies: Some(objects([])),
        namespaces: Some(objects([])),
    }
}

fn entry(view: &FleetView, name: &str) -> Arc<ClusterEntry> {
    Arc::clone(&view.clusters[&ClusterName::new("fleet", name)])
}

fn good(token: &str) -> String {
    static AUTHORITY: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        let pem = rcgen::generate_simple_self_signed(["fleet.test".to_owned()]).unwrap().cert.pem();
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem)
    });
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://one.example:6443", "certificate-authority-data": *AUTHORITY}}],
        "users": [{"name": "u", "user": {"token": token}}],
    })
    .to_string()
}

fn ready() -> SecretInput {
    let secret = secret("one-kubeconfig", &[OF_ONE], &good("t")).unwrap();
    assert!(matches!(secret.credential, Credential::Ready(_)), "{:?}", secret.credential);
    secret
}

fn open_cluster() -> ClusterInput {
    cluster("v1beta2", json!({"status": {"initialization": {"controlPlaneInitialized": true}}}))
}

#[test]
fn gates_of_both_versions() {
    let ready1 = json!({"status": {"controlPlaneReady": true}});
    let ready2 = json!({"status": {"initialization": {"controlPlaneInitialized": true}}});
    let condition = |status: &str| json!({"status": {"conditions": [{"type": "ControlPlaneInitialized", "status": status}]}});
    let with = |base: &Value, more: Value| {
        let mut value = base.clone();
        merge(&mut value, more);
        value
    };
    let paused = json!({"spec": {"paused": true}});
    let annotated = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-11-30T12:00:00Z"}});
    let table = [
        ("v1beta1", json!({}), Gate::NotInitialised),
        ("v1beta1", json!({"spec": null, "status": null}), Gate::NotInitialised),
        ("v1beta1", json!({"status": {"infrastructureReady": true}}), Gate::NotInitialised),
        ("v1beta1", ready1.clone(), Gate::Open),
        ("v1beta1", condition("True"), Gate::Open),
        ("v1beta1", condition("False"), Gate::NotInitialised),
        ("v1beta1", with(&ready1, paused.clone()), Gate::Paused),
        ("v1beta1", with(&ready1, json!({"spec": {"paused": false}})), Gate::Open),
        ("v1beta1", with(&ready1, annotated.clone()), Gate::Paused),
        ("v1beta2", json!({"status": {"initialization": {"infrastructureProvisioned": true}}}), Gate::NotInitialised),
        ("v1beta2", ready2.clone(), Gate::Open),
        ("v1beta2", condition("True"), Gate::Open),
        ("v1beta2", with(&ready2, paused.clone()), Gate::Paused),
        ("v1beta2", with(&ready2, annotated), Gate::Paused),
        ("v1beta2", paused, Gate::NotInitialised),
        ("v1beta2", with(&ready2, deleting.clone()), Gate::Deleting),
        ("v1beta2", deleting, Gate::Deleting),
    ];
    for (version, value, gate) in table {
        let view = fold(&inputs(vec![cluster(version, value.clone())], vec![]), DefaultMode::Off, &FleetView::default());
        let entry = entry(&view, "one");
        assert_eq!(entry.gate, gate, "{version} {value}");
        assert_eq!(*entry.owner.api_version, *format!("cluster.x-k8s.io/{version}"));
        assert_eq!(entry.labels["env"], "prod");
    }
}

#[test]
fn nothing_is_known_before_everything_was_read() {
    let full = inputs(vec![open_cluster()], vec![ready()]);
    assert!(fold(&full, DefaultMode::Off, &FleetView::default()).complete);
    for missing in 0..6 {
        let mut inputs = full.clone();
        match missing {
            0 => inputs.clusters = None,
            1 => inputs.capi_secrets = None,
            2 => inputs.labelled_secrets = None,
            3 => inputs.policies = None,
            4 => inputs.cluster_policies = None,
            _ => inputs.namespaces = None,
        }
        assert_eq!(fold(&inputs, DefaultMode::Off, &FleetView::default()), FleetView::default());
    }
}

/// Name and labels of a Secret, and the cluster it is for with whether it carries our label.
type Row = (&'static str, &'static [(&'static str, &'static str)], Option<(&'static str, bool)>);

#[test]
fn which_secret_is_for_which_cluster() {
    const OTHER: (&str, &str) = ("cluster.x-k8s.io/cluster-name", "two");
    let table: [Row; 10] = [
        ("one-kubeconfig", &[OF_ONE], Some(("one", false))),
        ("one-ca", &[OF_ONE], None),
        ("one-etcd", &[OF_ONE], None),
        ("one-user-kubeconfig", &[OF_ONE], None),
        ("one-kubeconfig", &[OTHER], None),
        ("one-kubeconfig", &[], None),
        ("edge", &[MARKED], Some(("edge", true))),
        ("edge-kubeconfig", &[MARKED], Some(("edge", true))),
        ("anything", &[MARKED, OF_ONE], Some(("one", true))),
        ("edge", &[("holdfast.dev/kubeconfig", "false")], None),
    ];
    for (name, labels, expected) in table {
        let found = secret(name, labels, "x").map(|secret| (secret.cluster.name.to_string(), secret.labelled));
        assert_eq!(found, expected.map(|(name, labelled)| (name.to_owned(), labelled)), "{name} {labels:?}");
    }
}

#[test]
fn a_secret_makes_a_cluster_only_with_our_label() {
    let marked = secret("edge", &[MARKED, ("env", "edge")], "x").unwrap();
    let view = fold(&inputs(vec![], vec![ready(), marked]), DefaultMode::Off, &FleetView::default());
    assert_eq!(view.clusters.len(), 1, "Cluster API's Secret outlives its Cluster for a moment and is none");
    let edge = entry(&view, "edge");
    assert_eq!((&*edge.owner.kind, &*edge.owner.name, edge.gate), ("Secret", "edge", Gate::Open));
    assert_eq!(edge.labels["env"], "edge");
}

#[test]
fn a_marked_secret_wins_over_cluster_apis_own() {
    let marked = secret("own", &[MARKED, OF_ONE], "not a kubeconfig").unwrap();
    let view = fold(&inputs(vec![open_cluster()], vec![ready(), marked]), DefaultMode::Off, &FleetView::default());
    let one = entry(&view, "one");
    assert!(matches!(one.credential, Credential::Rejected(_)));
    assert_eq!(&*one.owner.kind, "Cluster");
    assert_eq!(view.clusters.len(), 1);
}

#[test]
fn a_bad_secret_touches_its_own_cluster_only() {
    let bad = secret("bad", &[MARKED], "apiVersion: [").unwrap();
    let empty = secret::reduce(secret_object("empty", &[MARKED], &[]), None, &ServerPolicy::default()).unwrap();
    let view = fold(&inputs(vec![open_cluster()], vec![ready(), bad, empty]), DefaultMode::Off, &FleetView::default());
    assert_eq!(entry(&view, "bad").credential, Credential::Rejected(Rejection::NotYaml));
    assert_eq!(entry(&view, "empty").credential, Credential::Rejected(Rejection::MissingKey));
    assert!(matches!(entry(&view, "one").credential, Credential::Ready(_)));
}

#[test]
fn a_secret_that_is_gone_is_missing_and_a_cluster_that_is_gone_is_gone() {
    let with = fold(&inputs(vec![open_cluster()], vec![ready()]), DefaultMode::Off, &FleetView::default());
    let without = fold(&inputs(vec![open_cluster()], vec![]), DefaultMode::Off, &with);
    assert_eq!(entry(&without, "one").credential, Credential::Missing);
    let still = fold(&inputs(vec![open_cluster()], vec![]), DefaultMode::Off, &without);
    assert_eq!(still, without);
    let gone = fold(&inputs(vec![], vec![]), DefaultMode::Off, &without);
    assert!(gone.complete && gone.clusters.is_empty());
}

#[test]
fn a_secret_of_an_earlier_cluster_of_the_name_is_not_used() {
    let owned = |kind: &str, api_version: &str, uid: &str| {
        let mut object = secret_object("one-kubeconfig", &[OF_ONE], &[("value", &good("t"))]);
        let owner = json!([{"apiVersion": api_version, "kind": kind, "name": "one", "uid": uid}]);
        object.metadata.owner_references = serde_json::from_value(owner).unwrap();
        secret::reduce(object, None, &ServerPolicy::default()).unwrap()
    };
    let table = [
        (owned("Cluster", "cluster.x-k8s.io/v1beta1", "uid-1"), true),
        (owned("Cluster", "cluster.x-k8s.io/v1beta2", "uid-of-an-earlier-one"), false),
        (owned("Cluster", "another.example/v1", "uid-x"), true),
        (owned("KubeadmControlPlane", "controlplane.cluster.x-k8s.io/v1beta2", "uid-x"), true),
        (ready(), true),
    ];
    for (secret, is_used) in table {
        let made_for = secret.made_for.clone();
        let view = fold(&inputs(vec![open_cluster()], vec![secret]), DefaultMode::Off, &FleetView::default());
        assert_eq!(matches!(entry(&view, "one").credential, Credential::Ready(_)), is_used, "{made_for:?}");
        assert_eq!(entry(&view, "one").secret.is_some(), is_used);
    }
}

#[test]
fn what_means_the_same_is_the_same_view() {
    let kubeconfig = good("t");
    let secret = |text: &str| super::tests::secret("one-kubeconfig", &[OF_ONE], text).unwrap();
    let before = fold(&inputs(vec![open_cluster()], vec![secret(&kubeconfig)]), DefaultMode::Off, &FleetView::default());
    let spaced = kubeconfig.replace(',', ", ");
    assert_ne!(spaced, kubeconfig);
    let after = fold(&inputs(vec![open_cluster()], vec![secret(&spaced)]), DefaultMode::Off, &before);
    assert_eq!(before, after);
    assert!(Arc::ptr_eq(&entry(&before, "one"), &entry(&after, "one")), "and is shared");

    let rotated = fold(&inputs(vec![open_cluster()], vec![secret(&kubeconfig.replace("\"t\"", "\"t2\""))]), DefaultMode::Off, &before);
    assert_ne!(before, rotated);
}

#[test]
fn the_same_bytes_are_parsed_once() {
    let first = ready();
    let Credential::Ready(parsed) = &first.credential else { panic!() };
    let kubeconfig = good("t");
    let a = secret::reduce(secret_object("one-kubeconfig", &[OF_ONE], &[("value", &kubeconfig)]), None, &ServerPolicy::default()).unwrap();
    let b =
        secret::reduce(secret_object("one-kubeconfig", &[OF_ONE], &[("value", &kubeconfig)]), Some(&a), &ServerPolicy::default()).unwrap();
    let (Credential::Ready(a), Credential::Ready(b)) = (&a.credential, &b.credential) else { panic!() };
    assert!(Arc::ptr_eq(a, b));
    assert!(!Arc::ptr_eq(a, parsed));
}

#[test]
fn policies_take_part_in_the_view() {
    let spec: DriftPolicySpec = serde_json::from_value(json!({"clusterSelector": {"matchLabels": {"env": "prod"}}})).unwrap();
    let live = |spec| LivePolicy { input: PolicyInput { generation: 1, uid: String::new(), spec, namespaces: None }, status: None };
    let mut all = inputs(vec![open_cluster()], vec![]);
    all.policies = Some(objects([("prod", live(Some(spec)))]));
    let view = fold(&all, DefaultMode::Off, &FleetView::default());
    let one = ClusterName::new("fleet", "one");
    assert!(view.guards(&one));
    assert!(!view.guards(&ClusterName::new("fleet", "two")));
    all.policies = Some(objects([("prod", live(None))]));
    let broken = fold(&all, DefaultMode::Off, &view);
    assert!(broken.guards(&one), "an unreadable policy could select anything, so everything is reported");
    assert_eq!(broken.policies.acceptance().len(), 1);
}

#[test]
fn debug_output_has_no_secret() {
    let object = secret_object("one-kubeconfig", &[OF_ONE], &[("value", &good("CANARY"))]);
    assert!(!format!("{object:?}").contains("CANARY"));
    let input = secret::reduce(object, None, &ServerPolicy::default()).unwrap();
    let text = format!("{input:?}");
    assert!(!text.contains("CANARY"));
}
