//! The definitions on a real API server: which policies it takes, what it fills in, what it says about the others.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "clippy allows it in test functions, not in their helpers")]

use std::time::Duration;

use holdfast_api::{
    cluster_policy::ClusterDriftPolicy,
    policy::DriftPolicy,
    report::{DriftReport, DriftReportStatus},
};
use holdfast_testkit::{ControlPlane, Options, Target, eventually, status_code};
use kube::CustomResourceExt;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

async fn plane() -> &'static ControlPlane {
    PLANE
        .get_or_init(|| async {
            let plane = ControlPlane::start(Options::named("crds")).await.unwrap();
            for definition in [DriftPolicy::crd(), ClusterDriftPolicy::crd(), DriftReport::crd()] {
                plane.apply_yaml("test", &serde_saphyr::to_string(&definition).unwrap()).await.unwrap();
            }
            plane.namespace("fleet").await.unwrap();
            eventually("the kinds are served", Duration::from_secs(20), async || {
                let writer = plane.writer("test").unwrap();
                let object = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftReport", "metadata": {"name": "probe"},
                    "spec": {"cluster": "c", "source": "s"}});
                writer.apply(&policy("probe"), &with_spec("probe", &json!({"clusterSelector": {}}))).await?;
                writer.apply(&report("probe"), &object).await
            })
            .await
            .unwrap();
            plane
        })
        .await
}

fn policy(name: &str) -> Target {
    Target::custom("holdfast.dev", "v1alpha1", "driftpolicies", "fleet", name)
}

fn report(name: &str) -> Target {
    Target::custom("holdfast.dev", "v1alpha1", "driftreports", "fleet", name)
}

fn with_spec(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": name}, "spec": spec})
}

/// Creates a policy with this spec; `Err` is what the server said.
async fn create(name: &str, spec: &Value) -> Result<Value, String> {
    let writer = plane().await.writer("test").unwrap();
    writer.create(&policy(name), &with_spec(name, spec)).await.map_err(|error| {
        assert_eq!(status_code(&error), Some(422), "{error:#}");
        format!("{error:#}")
    })
}

fn selects_all(mut extra: Value) -> Value {
    extra["clusterSelector"] = json!({});
    extra
}

#[tokio::test]
async fn valid_policies_are_taken() {
    let labels = json!({"matchLabels": {"env": "prod"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]});
    let rules =
        json!([{"paths": [""]}, {"managers": ["scaler"], "target": {"group": "", "kind": "Config*"}, "until": "2026-12-24T00:00:00Z"}]);
    let specs = [
        json!({"clusterSelector": {}}),
        json!({"clusterSelector": labels}),
        selects_all(json!({"interval": "30s"})),
        selects_all(json!({"interval": "1h30m"})),
        selects_all(json!({"mode": "Correct", "releases": [{"name": "web-*", "namespace": "shop", "trust": "ClusterScoped"}]})),
        selects_all(json!({"ignore": rules})),
        selects_all(
            json!({"contest": {"rounds": 5}, "foreign": "Remove", "priority": -3, "suspend": true, "onFailedRelease": "LastDeployed"}),
        ),
        selects_all(json!({"limit": {"correctionsPerMinute": 10, "blastRadius": {"percent": 30, "minObjects": 20}}})),
    ];
    for (number, spec) in specs.iter().enumerate() {
        let name = format!("valid-{number}");
        let stored = create(&name, spec).await.unwrap_or_else(|error| panic!("{spec}: {error}"));
        let stored: DriftPolicy = serde_json::from_value(stored).unwrap();
        let sent: DriftPolicy = serde_json::from_value(with_spec(&name, spec)).unwrap();
        assert_eq!(stored.spec, sent.spec);
    }
}

#[tokio::test]
async fn defaults_are_filled_in() {
    let stored = create("defaults", &json!({"clusterSelector": {}})).await.unwrap();
    let spec = &stored["spec"];
    assert_eq!((&spec["mode"], &spec["interval"], &spec["onFailedRelease"]), (&json!("Warn"), &json!("10m"), &json!("Report")));
    assert_eq!((&spec["suspend"], &spec["priority"]), (&json!(false), &json!(0)));
}

#[tokio::test]
async fn invalid_policies_are_refused_with_the_field() {
    let unknown_operator = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
    let table = [
        (json!({}), "spec.clusterSelector"),
        (json!({"clusterSelector": unknown_operator}), "spec.clusterSelector.matchExpressions[0].operator"),
        (selects_all(json!({"interval": "10s"})), "interval must be 30s or more"),
        (selects_all(json!({"interval": "29s999ms"})), "interval must be 30s or more"),
        (selects_all(json!({"interval": "ten minutes"})), "spec.interval"),
        (selects_all(json!({"interval": "1d"})), "spec.interval"),
        (selects_all(json!({"interval": -5})), "spec.interval"),
        (selects_all(json!({"mode": "Enforce"})), "spec.mode"),
        (selects_all(json!({"mode": "correct"})), "spec.mode"),
        (selects_all(json!({"ignore": [{"reason": "nothing"}]})), "give paths or managers"),
        (selects_all(json!({"ignore": [{"paths": [], "managers": []}]})), "give paths or managers"),
        (selects_all(json!({"ignore": [{"paths": ["/spec"], "until": "tomorrow"}]})), "spec.ignore[0].until"),
        (selects_all(json!({"releases": [{"name": ""}]})), "spec.releases[0].name"),
        (selects_all(json!({"releases": [{"trust": "Everything"}]})), "spec.releases[0].trust"),
        (selects_all(json!({"contest": {"rounds": 1}})), "spec.contest.rounds"),
        (selects_all(json!({"contest": {"rounds": 21}})), "spec.contest.rounds"),
        (selects_all(json!({"limit": {"correctionsPerMinute": 0}})), "spec.limit.correctionsPerMinute"),
        (selects_all(json!({"limit": {"blastRadius": {"percent": 101, "minObjects": 1}}})), "spec.limit.blastRadius.percent"),
        (selects_all(json!({"foreign": "Delete"})), "spec.foreign"),
        (selects_all(json!({"exclusive": [{"paths": []}]})), "spec.exclusive[0].paths"),
        (selects_all(json!({"priority": "high"})), "spec.priority"),
    ];
    for (number, (spec, expected)) in table.iter().enumerate() {
        match create(&format!("invalid-{number}"), spec).await {
            Ok(_) => panic!("{spec} was taken"),
            Err(said) => assert!(said.contains(expected), "{spec}: {said}"),
        }
    }
}

/// A status that uses every field.
fn full_status() -> Value {
    let time = "2026-11-30T12:00:00Z";
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u"});
    let actor = json!({"manager": "kubectl-edit", "operation": "Update", "time": time});
    let values = [json!(1), json!(1.5), json!("x"), json!(true), json!(["x", 1]), json!({"a": {"b": [1]}})];
    let paths: Vec<_> = values
        .iter()
        .map(|value| json!({"path": "/spec/replicas", "change": "Changed", "desired": value, "live": value, "actor": actor}))
        .collect();
    json!({
        "conditions": [{"type": "InSync", "status": "False", "reason": "Drifted", "message": "m", "lastTransitionTime": time, "observedGeneration": 3}],
        "source": {"kind": "HelmRelease", "namespace": "shop", "name": "web", "revision": 7, "desiredHash": "h"},
        "observedAt": "2026-11-30T12:00:00.123456789Z", "lastDriftAt": time, "lastCorrectionAt": time,
        "summary": {"objects": 3, "inSync": 2, "drifted": 1, "missing": 0, "terminating": 0, "refused": 0, "contested": 0, "unknown": 0,
            "deviations": 1, "foreign": 0, "corrected": 1},
        "findings": [{"object": object, "verdict": "Drifted", "action": "Corrected", "reason": "FieldChanged", "message": "m", "paths": paths,
            "firstSeen": time, "lastSeen": time, "count": 2}],
        "truncated": 4, "deviationsTruncated": 5,
        "deviations": [{"object": object, "path": "/spec", "reason": "Admission", "since": time, "message": "m"}],
        "corrections": [{"object": object, "paths": ["/spec"], "outcome": "Corrected", "time": time}],
    })
}

#[tokio::test]
async fn a_status_is_stored_as_it_is() {
    let writer = plane().await.writer("test").unwrap();
    let sent: DriftReportStatus = serde_json::from_value(full_status()).unwrap();
    writer.merge_patch(&report("probe").status(), &json!({"status": sent})).await.unwrap();
    let stored = writer.get(&report("probe")).await.unwrap();
    assert_eq!(serde_json::from_value::<DriftReportStatus>(stored["status"].clone()).unwrap(), sent);
}
