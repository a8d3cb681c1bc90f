use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::*;
use crate::{
    manager,
    normalise::Release,
    object::{Gvk, ObjectKey},
    project,
};

/// What a row must come to.
#[derive(Debug)]
enum Becomes {
    /// It is the release's: drift.
    Ours,
    /// It is somebody else's.
    Theirs,
    /// It goes to this value.
    Goes(Value),
}
use Becomes::{Goes, Ours, Theirs};

fn path(text: &str) -> Path {
    text.split(' ').map(|step| Segment::from_fields_v1(step).unwrap_or_else(|| Segment::field(step))).collect()
}

/// Asks about one path of a declared and a live object.
fn ask(desired: &Value, live: &Value, at: &str, scalers: &[Scaler]) -> Option<Yield> {
    let gvk = Gvk::new(desired["apiVersion"].as_str().unwrap(), desired["kind"].as_str().unwrap());
    let key = ObjectKey::new(Arc::new(gvk), Some("t"), desired["metadata"]["name"].as_str().unwrap());
    let release = Some(Release { namespace: "t".into(), name: "rel".into() });
    let desired = Desired { key, value: desired.clone(), written: None, release };
    let entries = manager::entries(live);
    let writer = Writer { manager: "helm".into(), operation: manager::Operation::Update };
    let path = path(at);
    answer(&Question {
        desired: &desired,
        scalers,
        entries: &entries,
        writer: Some(&writer),
        path: &path,
        live: project::lookup(live, &path),
        declared: project::lookup(&desired.value, &path),
    })
}

#[track_caller]
fn check(what: &str, found: Option<&Yield>, wanted: &Becomes) {
    let fits = match (found, wanted) {
        (None, Ours) | (Some(Yield::Theirs(_)), Theirs) => true,
        (Some(Yield::Beyond(value)), Goes(wanted)) => value == wanted,
        _ => false,
    };
    assert!(fits, "{what}: {found:?}, not {wanted:?}");
}

fn object(api_version: &str, kind: &str, metadata: &Value, fields: &Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
    for (place, from) in [("metadata", metadata), ("", fields)] {
        let into = if place.is_empty() { &mut object } else { &mut object[place] };
        into.as_object_mut().unwrap().extend(from.as_object().unwrap().clone());
    }
    object
}

#[test]
fn replicas_go_to_the_nearest_number_that_any_scaler_allows() {
    let hpa = || Scaler::Replicas(Replicas::between("hpa".into(), 2, 6));
    let idle = || Scaler::Replicas(Replicas { by: "keda".into(), ranges: vec![0..=0, 4..=8] });
    let broken = || Scaler::Replicas(Replicas::between("broken".into(), 6, 2));
    for (scalers, live, wanted) in [
        (vec![hpa()], json!(2), Theirs),
        (vec![hpa()], json!(6), Theirs),
        (vec![hpa()], json!(7), Goes(json!(6))),
        (vec![hpa()], json!(0), Goes(json!(2))),
        (vec![hpa(), idle()], json!(0), Theirs),
        (vec![hpa(), idle()], json!(8), Theirs),
        (vec![hpa(), idle()], json!(9), Goes(json!(8))),
        (vec![idle()], json!(2), Goes(json!(4))),
        (vec![idle()], json!(1), Goes(json!(0))),
        (vec![broken()], json!(4), Goes(json!(6))),
        (vec![hpa()], json!("many"), Goes(json!(3))),
        (vec![], json!(5), Ours),
    ] {
        let declared = object("apps/v1", "Deployment", &json!({}), &json!({"spec": {"replicas": 3}}));
        let mut found = declared.clone();
        found["spec"]["replicas"] = live.clone();
        check(&format!("{live} under {scalers:?}"), ask(&declared, &found, "spec replicas", &scalers).as_ref(), &wanted);
    }
    let other = object("apps/v1", "Deployment", &json!({}), &json!({"spec": {"x": 3}}));
    check("another field", ask(&other, &json!({"spec": {"x": 4}}), "spec x", &[hpa()]).as_ref(), &Ours);
}

#[test]
fn a_node_group_is_scaled_within_what_its_annotations_declare() {
    let annotations = json!({"annotations": {
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1", "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "5"}});
    for (api_version, metadata, live, wanted) in [
        ("cluster.x-k8s.io/v1beta2", &annotations, 4, Theirs),
        ("cluster.x-k8s.io/v1beta2", &annotations, 9, Goes(json!(5))),
        ("cluster.x-k8s.io/v1beta2", &json!({}), 4, Ours),
        ("other.example/v1", &annotations, 4, Ours),
    ] {
        let declared = object(api_version, "MachineDeployment", metadata, &json!({"spec": {"replicas": 2}}));
        let mut found = declared.clone();
        found["spec"]["replicas"] = json!(live);
        check(&format!("{api_version} {live}"), ask(&declared, &found, "spec replicas", &[]).as_ref(), &wanted);
    }
}

#[test]
fn requests_stay_within_the_bounds_of_a_vertical_autoscaler() {
    let bounds = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, bound)| ((*name).to_owned(), (*bound).to_owned())).collect()
    };
    let rules = vec![
        ContainerRule { min: bounds(&[("cpu", "100m")]), max: bounds(&[("cpu", "2"), ("memory", "1Gi")]), ..ContainerRule::free("*") },
        ContainerRule { resources: Vec::new(), ..ContainerRule::free("off") },
        ContainerRule { limits: false, resources: vec!["cpu".into()], ..ContainerRule::free("own") },
    ];
    let vpa = [Scaler::Resources(Resources { by: "vpa".into(), rules })];
    for (container, side, resource, live, wanted) in [
        ("web", "requests", "cpu", "1500m", Theirs),
        ("web", "requests", "cpu", "2", Theirs),
        ("web", "requests", "cpu", "2001m", Goes(json!("2"))),
        ("web", "requests", "cpu", "50m", Goes(json!("100m"))),
        ("web", "requests", "memory", "1024Mi", Theirs),
        ("web", "requests", "memory", "2Gi", Goes(json!("1Gi"))),
        ("web", "limits", "memory", "4Gi", Theirs),
        ("web", "requests", "ephemeral-storage", "4Gi", Ours),
        ("off", "requests", "cpu", "1500m", Ours),
        ("own", "requests", "cpu", "9", Theirs),
        ("own", "requests", "memory", "1Mi", Ours),
        ("own", "limits", "cpu", "9", Ours),
        ("web", "requests", "cpu", "lots", Ours),
    ] {
        let with = |value: &str| {
            let container = json!({"name": container, "resources": {side: {resource: value}}});
            object(
                "apps/v1",
                "Deployment",
                &json!({}),
                &json!({"spec": {"template": {"spec": {"containers": [container], "initContainers": [container]}}}}),
            )
        };
        let what = format!("{container} {side} {resource} {live}");
        let at = |list: &str| format!("spec template spec {list} k:{{\"name\":\"{container}\"}} resources {side} {resource}");
        check(&what, ask(&with("7"), &with(live), &at("containers"), &vpa).as_ref(), &wanted);
        check(&what, ask(&with("7"), &with(live), &at("initContainers"), &vpa).as_ref(), &Ours);
        check(&what, ask(&with("7"), &with(live), &at("containers"), &[]).as_ref(), &Ours);
    }
}

const HOOK: &str = "webhooks k:{\"name\":\"a.b.c\"} clientConfig caBundle";

fn hook(bundle: &str) -> Value {
    json!({"webhooks": [{"name": "a.b.c", "clientConfig": {"caBundle": bundle}}]})
}

#[test]
fn bundles_are_their_injectors() {
    let with = |name: &str, value: &str| json!({"annotations": {name: value}});
    let from = with("cert-manager.io/inject-ca-from", "ns/cert");
    let none = json!({});
    let (mutating, validating) = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration");
    for (kind, metadata, declared, live, wanted) in [
        (mutating, &from, "T0xE", "TkVX", Theirs),
        (validating, &with("cert-manager.io/inject-ca-from-secret", "ns/s"), "T0xE", "TkVX", Theirs),
        (validating, &with("cert-manager.io/inject-apiserver-ca", "true"), "T0xE", "TkVX", Theirs),
        (validating, &with("cert-manager.io/inject-apiserver-ca", "false"), "T0xE", "TkVX", Ours),
        (validating, &with("service.beta.openshift.io/inject-cabundle", "true"), "T0xE", "TkVX", Theirs),
        (validating, &with("service.beta.openshift.io/inject-cabundle", "false"), "T0xE", "TkVX", Ours),
        (validating, &with("cert-manager.io/inject-ca", "ns/cert"), "T0xE", "TkVX", Ours),
        // Nobody who injects takes away.
        (mutating, &from, "T0xE", "", Ours),
        (mutating, &from, "T0xE", "Cg==", Ours),
        // Placeholders, and what is none.
        (mutating, &none, "Cg==", "TkVX", Theirs),
        (mutating, &none, "", "TkVX", Theirs),
        (mutating, &none, "T0xE", "TkVX", Ours),
        ("ValidatingAdmissionPolicy", &from, "T0xE", "TkVX", Ours),
    ] {
        let what = format!("{kind} {metadata} {declared:?} {live:?}");
        let declared = object("admissionregistration.k8s.io/v1", kind, metadata, &hook(declared));
        let mut found = hook(live);
        check(&what, ask(&declared, &found, HOOK, &[]).as_ref(), &wanted);
        // An annotation that stands on the live object alone proves nothing.
        let bare = object("admissionregistration.k8s.io/v1", kind, &json!({}), &hook("T0xE"));
        found["metadata"] = metadata.clone();
        check(&format!("{what}, annotated live"), ask(&bare, &found, HOOK, &[]).as_ref(), &Ours);
    }
}

#[test]
fn bundles_of_other_kinds() {
    let annotated = json!({"annotations": {"service.beta.openshift.io/inject-cabundle": "true"}});
    let conversion = |bundle: &str| json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}});
    let service = |bundle: &str| json!({"spec": {"caBundle": bundle}});
    let definition = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "spec conversion webhook clientConfig caBundle");
    let api_service = ("apiregistration.k8s.io/v1", "APIService", "spec caBundle");
    for ((api_version, kind, at), fields, wanted) in [
        (definition, &conversion as &dyn Fn(&str) -> Value, Theirs),
        (api_service, &service, Theirs),
        (("x.example/v1", "APIService", "spec caBundle"), &service, Ours),
        (("apiregistration.k8s.io/v1", "APIService", "spec conversion webhook clientConfig caBundle"), &conversion, Ours),
    ] {
        let declared = object(api_version, kind, &annotated, &fields("T0xE"));
        check(&format!("{api_version} {kind} {at}"), ask(&declared, &fields("TkVX"), at, &[]).as_ref(), &wanted);
    }
}

#[test]
fn bundles_in_config_maps() {
    let trusted = json!({"labels": {"config.openshift.io/inject-trusted-cabundle": "true"}});
    let service = json!({"annotations": {"service.beta.openshift.io/inject-cabundle": "true"}});
    for (metadata, key, wanted) in [
        (&service, "service-ca.crt", Theirs),
        (&service, "ca-bundle.crt", Ours),
        (&service, "settings", Ours),
        (&trusted, "ca-bundle.crt", Theirs),
        (&trusted, "service-ca.crt", Ours),
        (&json!({}), "service-ca.crt", Ours),
    ] {
        let declared = object("v1", "ConfigMap", metadata, &json!({"data": {key: ""}}));
        check(key, ask(&declared, &json!({"data": {key: "PEM"}}), &format!("data {key}"), &[]).as_ref(), &wanted);
    }
}

#[test]
fn a_webhook_that_its_own_process_closes_stays_closed() {
    let hook = |policy: &str, bundle: &str| json!({"webhooks": [{"name": "a.b.c", "failurePolicy": policy, "clientConfig": {"caBundle": bundle}}]});
    let held = |manager: &str, bundle: bool| {
        let mut fields = json!({"f:webhooks": {"k:{\"name\":\"a.b.c\"}": {"f:failurePolicy": {}}}});
        if bundle {
            fields["f:webhooks"]["k:{\"name\":\"a.b.c\"}"]["f:clientConfig"] = json!({"f:caBundle": {}});
        }
        json!([{"manager": manager, "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}])
    };
    for (what, declared, live, holders, wanted) in [
        ("closed by who fills in the bundle", ("Ignore", ""), "Fail", held("pilot-discovery", true), Theirs),
        ("closed by somebody", ("Ignore", ""), "Fail", held("kubectl-edit", false), Ours),
        ("closed by the release", ("Ignore", ""), "Fail", held("helm", true), Ours),
        ("opened", ("Fail", ""), "Ignore", held("pilot-discovery", true), Ours),
        ("with a bundle of its own", ("Ignore", "T0xE"), "Fail", held("pilot-discovery", true), Ours),
    ] {
        let declared =
            object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", &json!({}), &hook(declared.0, declared.1));
        let mut found = hook(live, "TkVX");
        found["metadata"] = json!({"managedFields": holders});
        check(what, ask(&declared, &found, "webhooks k:{\"name\":\"a.b.c\"} failurePolicy", &[]).as_ref(), &wanted);
    }
}

#[test]
fn selectors_that_a_cloud_narrows() {
    let own = json!({"key": "env", "operator": "In", "values": ["a", "b"]});
    let turned = json!({"key": "env", "operator": "In", "values": ["b", "a"]});
    let plane = json!({"key": "control-plane", "operator": "NotIn", "values": ["true"]});
    let older = json!({"key": "control-plane", "operator": "DoesNotExist"});
    let managed = json!({"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]});
    let strange = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["prod"]});
    let opened = json!({"key": "control-plane", "operator": "NotIn", "values": ["prod"]});
    let disabled = json!({"annotations": {"admissions.enforcer/disabled": "true"}});
    let none = json!({});
    let selector = |expressions: &[&Value]| json!({"matchLabels": {"x": "y"}, "matchExpressions": expressions});
    for (what, metadata, declared, live, wanted) in [
        ("added", &none, vec![&own], vec![&own, &plane, &managed], Theirs),
        ("in any order", &none, vec![&own], vec![&managed, &turned, &plane], Theirs),
        ("the older form", &none, vec![], vec![&older], Theirs),
        ("declared as well", &none, vec![&plane], vec![&managed, &plane], Theirs),
        ("turned", &none, vec![&own, &plane], vec![&plane, &own], Theirs),
        ("somebody's", &none, vec![&own], vec![&own, &strange], Ours),
        ("a look-alike", &none, vec![&own], vec![&own, &opened], Ours),
        ("one is gone", &none, vec![&own], vec![&plane], Goes(selector(&[&own, &plane]))),
        ("one is somebody's", &none, vec![&own], vec![&plane, &own, &strange], Goes(selector(&[&own, &plane]))),
        ("switched off", &disabled, vec![&own], vec![&own, &plane], Ours),
    ] {
        for field in ["namespaceSelector", "objectSelector"] {
            let hooks = |expressions: &[&Value]| json!({"webhooks": [{"name": "a.b.c", field: selector(expressions)}]});
            let declared = object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", metadata, &hooks(&declared));
            let at = format!("webhooks k:{{\"name\":\"a.b.c\"}} {field}");
            check(&format!("{what} {field}"), ask(&declared, &hooks(&live), &at, &[]).as_ref(), &wanted);
        }
    }
    let labels = |label: &str| json!({"webhooks": [{"name": "a.b.c", "namespaceSelector": {"matchLabels": {"x": label}, "matchExpressions": [older]}}]});
    let declared = object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", &none, &labels("y"));
    let found = ask(&declared, &labels("z"), "webhooks k:{\"name\":\"a.b.c\"} namespaceSelector", &[]);
    check("labels count", found.as_ref(), &Ours);
}

#[test]
fn pull_secrets_of_controllers() {
    let account = |names: &[&str]| {
        let secrets: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        object("v1", "ServiceAccount", &json!({}), &json!({"imagePullSecrets": secrets}))
    };
    let pulls = |names: &[&str]| account(names)["imagePullSecrets"].clone();
    for (declared, live, holder, wanted) in [
        (vec!["a"], vec!["a", "x-dockercfg-7zk2p"], "kubectl", Theirs),
        (vec!["a"], vec!["x-dockercfg-7zk2p", "a"], "kubectl", Theirs),
        (vec!["a"], vec!["a", "other-dockercfg-7zk2p"], "kubectl", Ours),
        (vec!["a"], vec!["a", "x-dockercfg-evil"], "kubectl", Ours),
        (vec!["a"], vec!["a", "regcred"], "kubectl", Ours),
        (vec!["a"], vec!["a", "regcred"], "imagepullsecret-patcher", Theirs),
        (vec!["a"], vec!["regcred"], "imagepullsecret-patcher", Ours),
        (vec!["a", "b"], vec!["b", "a"], "kubectl", Theirs),
        (vec!["a"], vec!["x-dockercfg-7zk2p", "evil"], "kubectl", Goes(pulls(&["a", "x-dockercfg-7zk2p"]))),
    ] {
        let mut found = account(&live);
        found["metadata"]["managedFields"] =
            json!([{"manager": holder, "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:imagePullSecrets": {}}}]);
        check(&format!("{live:?} by {holder}"), ask(&account(&declared), &found, "imagePullSecrets", &[]).as_ref(), &wanted);
    }
}

#[test]
fn volumes_grow_and_never_shrink() {
    for (kind, at, declared, live, wanted) in [
        ("PersistentVolumeClaim", "spec resources requests storage", "1Gi", "2Gi", Theirs),
        ("PersistentVolumeClaim", "spec resources requests storage", "1Gi", "1025Mi", Theirs),
        ("PersistentVolumeClaim", "spec resources requests storage", "2Gi", "1Gi", Ours),
        ("PersistentVolumeClaim", "spec resources requests storage", "1Gi", "much", Ours),
        ("PersistentVolume", "spec capacity storage", "1Gi", "2Gi", Theirs),
        ("ResourceQuota", "spec resources requests storage", "1Gi", "2Gi", Ours),
    ] {
        let with = |size: &str| {
            let fields = json!({"spec": {"resources": {"requests": {"storage": size}}, "capacity": {"storage": size}}});
            object("v1", kind, &json!({}), &fields)
        };
        check(&format!("{kind} {live}"), ask(&with(declared), &with(live), at, &[]).as_ref(), &wanted);
    }
}

#[test]
fn what_waits_in_a_queue_is_suspended_and_resumed_by_it() {
    let queued = json!({"labels": {"kueue.x-k8s.io/queue-name": "q"}, "annotations": {"kueue.x-k8s.io/job-min-parallelism": "2"}});
    for (kind, metadata, at, declared, live, wanted) in [
        ("Job", &queued, "spec suspend", json!(true), json!(false), Theirs),
        ("CronJob", &json!({}), "spec suspend", json!(true), json!(false), Ours),
        ("Job", &queued, "spec parallelism", json!(5), json!(3), Theirs),
        ("Job", &queued, "spec parallelism", json!(5), json!(1), Ours),
        ("Job", &queued, "spec parallelism", json!(5), json!(6), Ours),
        ("Job", &json!({}), "spec parallelism", json!(5), json!(3), Ours),
    ] {
        let with = |value: &Value| object("batch/v1", kind, metadata, &json!({"spec": {"suspend": value, "parallelism": value}}));
        check(&format!("{kind} {at} {live}"), ask(&with(&declared), &with(&live), at, &[]).as_ref(), &wanted);
    }
}
