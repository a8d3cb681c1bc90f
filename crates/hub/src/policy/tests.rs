//! Policies by table: what compiles, who decides, what is ignored.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use holdfast_api::policy::{DriftPolicySpec, Mode};
use holdfast_engine::{
    object::{Gvk, ObjectKey},
    path::{Path, Segment},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::fleet_view::{ClusterEntry, ClusterName, Credential, Gate, OwnerRef};

fn spec(value: Value) -> DriftPolicySpec {
    serde_json::from_value(value).unwrap()
}

fn with(mut extra: Value) -> DriftPolicySpec {
    extra.as_object_mut().unwrap().entry("clusterSelector").or_insert(json!({}));
    spec(extra)
}

fn cluster(namespace: &str, labels: &[(&str, &str)]) -> ClusterEntry {
    ClusterEntry {
        name: ClusterName::new(namespace, "c1"),
        labels: Arc::new(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()),
        namespace_labels: None,
        owner: OwnerRef { api_version: "v1".into(), kind: "Secret".into(), name: "c1".into(), uid: "u".into() },
        created: jiff::Timestamp::UNIX_EPOCH,
        gate: Gate::Open,
        secret: None,
        credential: Credential::Missing,
    }
}

fn set(policies: &[(&str, &str, Value)], default_mode: DefaultMode) -> PolicySet {
    let inputs: BTreeMap<PolicyName, PolicyInput> = policies
        .iter()
        .map(|(namespace, name, value)| {
            let spec = serde_json::from_value(value.clone()).ok();
            (PolicyName::new(namespace, name), PolicyInput { generation: 1, uid: String::new(), spec, namespaces: None })
        })
        .collect();
    PolicySet::compile(inputs.iter().map(|(name, input)| (name.clone(), input)), default_mode)
}

fn error(value: Value) -> PolicyError {
    Policy::compile(PolicyName::new("fleet", "p"), &with(value), None).unwrap_err()
}

#[test]
fn what_is_wrong_is_named() {
    let table = [
        (json!({"interval": "10s"}), "spec.interval"),
        (json!({"interval": "29s999ms"}), "spec.interval"),
        (json!({"clusterSelector": {"matchLabels": {"a b": "x"}}}), "spec.clusterSelector.matchLabels"),
        (
            json!({"clusterSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "In"}]}}),
            "spec.clusterSelector.matchExpressions[1]",
        ),
        (json!({"releases": [{"name": "x".repeat(300)}]}), "spec.releases[0].name"),
        (json!({"releases": [{}, {"namespace": "x".repeat(300)}]}), "spec.releases[1].namespace"),
        (json!({"ignore": [{"paths": [""]}, {"reason": "none"}]}), "spec.ignore[1]"),
        (json!({"ignore": [{"paths": ["/spec", "spec/replicas"]}]}), "spec.ignore[0].paths[1]"),
        (json!({"ignore": [{"managers": ["x".repeat(300)]}]}), "spec.ignore[0].managers[0]"),
        (json!({"ignore": [{"paths": [""], "target": {"kind": "x".repeat(300)}}]}), "spec.ignore[0].target.kind"),
        (
            json!({"ignore": [{"paths": [""], "target": {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn"}]}}}]}),
            "spec.ignore[0].target.labelSelector.matchExpressions[0]",
        ),
        (json!({"contest": {"rounds": 1}}), "spec.contest"),
        (json!({"contest": {"window": "0s"}}), "spec.contest"),
        (json!({"contest": {"window": "25h"}}), "spec.contest"),
        (json!({"exclusive": [{"paths": ["spec"]}]}), "spec.exclusive[0].paths[0]"),
        (json!({"enforce": [{"paths": ["spec"]}]}), "spec.enforce[0].paths[0]"),
        (json!({"limit": {"correctionsPerMinute": 0}}), "spec.limit"),
        (json!({"limit": {"correctionsPerMinute": 6001}}), "spec.limit"),
        (json!({"limit": {"blastRadius": {"percent": 101, "minObjects": 20}}}), "spec.limit"),
        (json!({"limit": {"blastRadius": {"percent": 30, "minObjects": 0}}}), "spec.limit"),
    ];
    for (value, field) in table {
        let error = error(value.clone());
        assert_eq!(error.field, field, "{value}");
        assert!(error.to_string().starts_with(&format!("{field}: ")), "{error}");
    }
}

#[test]
fn an_error_does_not_repeat_what_the_policy_says() {
    for value in [
        json!({"clusterSelector": {"matchLabels": {"CANARY!": "x"}}}),
        json!({"ignore": [{"paths": ["CANARY!"]}]}),
        json!({"releases": [{"name": "CANARY!".repeat(60)}]}),
    ] {
        assert!(!error(value).to_string().contains("CANARY"));
    }
}

#[test]
fn a_default_that_is_spelled_out_is_no_unsupported_field() {
    let value = json!({
        "foreign": "Report", "recreate": "Never",
        "limit": {"correctionsPerMinute": 60, "blastRadius": {"percent": 30, "minObjects": 20}},
        "contest": {"rounds": 5, "window": "1h"}, "exclusive": [], "enforce": [],
    });
    let policies = set(&[("fleet", "p", json!({"clusterSelector": {}, "contest": value["contest"]}))], DefaultMode::Off);
    assert!(Policy::compile(PolicyName::new("fleet", "p"), &with(value), None).is_ok());
    let guard = policies.decide(&cluster("fleet", &[]), "shop", "web").unwrap();
    assert_eq!(guard.contest, ContestRule { rounds: 5, window: Duration::from_hours(1) });
    assert_eq!(Guard::default_warn().contest, ContestRule { rounds: 3, window: Duration::from_mins(30) });
    assert_eq!((guard.mode, guard.interval), (Mode::Warn, Duration::from_mins(10)));
    assert_eq!((guard.limit, &*guard.approved), (LimitRule::default(), [].as_slice()));
}

#[test]
fn the_highest_priority_decides_then_the_name() {
    let policies = set(
        &[
            ("fleet", "b-base", json!({"clusterSelector": {}})),
            ("fleet", "a-base", json!({"clusterSelector": {}, "interval": "1h"})),
            ("fleet", "prod", json!({"clusterSelector": {"matchLabels": {"env": "prod"}}, "mode": "Correct", "priority": 10})),
            ("fleet", "off", json!({"clusterSelector": {}, "releases": [{"name": "scratch-*"}], "mode": "Off", "priority": 20})),
            ("other", "all", json!({"clusterSelector": {}, "mode": "Correct", "priority": 100})),
        ],
        DefaultMode::Warn,
    );
    let prod = cluster("fleet", &[("env", "prod")]);
    let dev = cluster("fleet", &[("env", "dev")]);
    let table = [
        (&prod, "web", Some("fleet/prod")),
        (&dev, "web", Some("fleet/a-base")),
        (&prod, "scratch-1", None),
        (&dev, "scratch-1", None),
        (&cluster("elsewhere", &[]), "web", Some("default")),
        (&cluster("other", &[]), "web", Some("other/all")),
    ];
    for (cluster, release, expected) in table {
        let guard = policies.decide(cluster, "shop", release);
        let said = guard.map(|guard| guard.policy.as_ref().map_or_else(|| "default".to_owned(), ToString::to_string));
        assert_eq!(said.as_deref(), expected, "{} {release}", cluster.name);
    }
}

/// A set of policies of the whole cluster, and others.
fn with_cluster_policies(of_cluster: &[(&str, Value)], others: &[(&str, &str, Value)]) -> PolicySet {
    let input = |spec: &Value, is_of_cluster: bool| PolicyInput {
        generation: 1,
        uid: String::new(),
        spec: serde_json::from_value(spec.clone()).ok(),
        namespaces: spec
            .get("namespaceSelector")
            .filter(|_| is_of_cluster)
            .and_then(|selector| serde_json::from_value(selector.clone()).ok()),
    };
    let of_cluster = of_cluster.iter().map(|(name, spec)| (PolicyName::of_cluster(name), input(spec, true)));
    let others = others.iter().map(|(namespace, name, spec)| (PolicyName::new(namespace, name), input(spec, false)));
    let inputs: BTreeMap<PolicyName, PolicyInput> = of_cluster.chain(others).collect();
    PolicySet::compile(inputs.iter().map(|(name, input)| (name.clone(), input)), DefaultMode::Off)
}

/// A cluster of a namespace with such a label.
fn cluster_in(namespace: &str, team: &str) -> ClusterEntry {
    let labels = BTreeMap::from([("team".to_owned(), team.to_owned())]);
    ClusterEntry { namespace_labels: Some(Arc::new(labels)), ..cluster(namespace, &[]) }
}

#[test]
fn a_policy_of_the_cluster_decides_where_none_of_the_namespace_does() {
    let of_cluster = [
        ("base", json!({"namespaceSelector": {}, "clusterSelector": {}})),
        (
            "shop",
            json!({"namespaceSelector": {"matchLabels": {"team": "shop"}}, "clusterSelector": {}, "priority": 100, "mode": "Correct"}),
        ),
        ("none", json!({"namespaceSelector": {"matchLabels": {"team": "nobody"}}, "clusterSelector": {}, "priority": 1000})),
    ];
    let policies = with_cluster_policies(
        &of_cluster,
        &[("fleet", "own", json!({"clusterSelector": {}, "releases": [{"name": "web"}], "priority": -5}))],
    );
    let deciding = |cluster: &ClusterEntry, release: &str| {
        let all: Vec<String> = policies.selecting_release(cluster, "shop", release).map(ToString::to_string).collect();
        let guard = policies.decide(cluster, "shop", release);
        assert_eq!(guard.and_then(|guard| guard.policy.clone()).map(|name| name.to_string()).as_ref(), all.first());
        all.join(" ")
    };
    assert_eq!(deciding(&cluster_in("fleet", "shop"), "web"), "fleet/own shop base", "however low its priority");
    assert_eq!(deciding(&cluster_in("fleet", "shop"), "db"), "shop base");
    assert_eq!(deciding(&cluster_in("elsewhere", "other"), "web"), "base");
    assert_eq!(deciding(&cluster("elsewhere", &[]), "web"), "", "nobody knows the labels of the namespace");
}

#[test]
fn an_invalid_policy_of_the_cluster_only_reports() {
    let broken = |spec: Value| {
        let policies = with_cluster_policies(
            &[("broken", spec), ("fine", json!({"namespaceSelector": {}, "clusterSelector": {}, "mode": "Correct", "priority": -1}))],
            &[("own", "own", json!({"clusterSelector": {}, "mode": "Correct"}))],
        );
        assert!(policies.acceptance()[&PolicyName::of_cluster("broken")].result.is_err());
        ["shop", "other", "own"].map(|namespace| policies.decide(&cluster_in(namespace, namespace), "shop", "web").unwrap().mode)
    };
    let of_shop = json!({"matchLabels": {"team": "shop"}});
    let nonsense = json!({"matchLabels": {"a b": "c"}});
    let (warn, correct) = (Mode::Warn, Mode::Correct);
    assert_eq!(broken(json!({"namespaceSelector": of_shop, "clusterSelector": {}, "interval": "1s"})), [warn, correct, correct]);
    assert_eq!(broken(json!({"namespaceSelector": of_shop, "mode": "Fight", "priority": 1})), [warn, correct, correct]);
    assert_eq!(broken(json!({"namespaceSelector": nonsense, "clusterSelector": {}})), [warn, warn, correct]);
    assert_eq!(broken(json!({"clusterSelector": {}})), [warn, warn, correct]);
}

/// What an invalid policy leaves to others, and what it does not.
#[test]
fn what_an_invalid_policy_selects_is_only_reported() {
    let base = ("fleet", "base", json!({"clusterSelector": {}, "mode": "Correct"}));
    let prod = cluster("fleet", &[("env", "prod")]);
    let dev = cluster("fleet", &[("env", "dev")]);
    let of_prod = json!({"matchLabels": {"env": "prod"}});
    let no_selector = json!({"matchLabels": {"a b": "x"}});
    let long = "x".repeat(300);
    // Each says whether `base` may correct: shop/web on prod, shop/web on dev, shop/db on prod.
    let table = [
        ("any field", json!({"clusterSelector": of_prod, "releases": [{"name": "web"}], "interval": "1s"}), [false, true, true]),
        ("not even off", json!({"clusterSelector": of_prod, "mode": "Off", "interval": "1s"}), [false, true, false]),
        ("a glob", json!({"clusterSelector": of_prod, "releases": [{"name": "web"}, {"name": long}]}), [false, true, false]),
        ("the selector", json!({"clusterSelector": no_selector, "releases": [{"name": "web"}]}), [false, false, true]),
        ("both", json!({"clusterSelector": no_selector, "releases": [{"name": long}]}), [false, false, false]),
        ("the shape", json!({"mode": "Fight"}), [false, false, false]),
    ];
    for (what, mut broken, expected) in table {
        let object = broken.as_object_mut().unwrap();
        object.insert("priority".to_owned(), json!(10));
        object.entry("mode").or_insert(json!("Correct"));
        let policies = set(&[base.clone(), ("fleet", "broken", broken.clone())], DefaultMode::Off);
        assert!(policies.acceptance()[&PolicyName::new("fleet", "broken")].result.is_err(), "{what}");
        let decided = [(&prod, "web"), (&dev, "web"), (&prod, "db")].map(|(cluster, name)| policies.decide(cluster, "shop", name).unwrap());
        for (guard, corrects) in decided.iter().zip(expected) {
            let (mode, policy) = if corrects { (Mode::Correct, "base") } else { (Mode::Warn, "broken") };
            assert_eq!((guard.mode, guard.policy.as_ref()), (mode, Some(&PolicyName::new("fleet", policy))), "{what}");
        }
        // Deleted, it is gone; and another namespace's clusters were never its business.
        let without = set(std::slice::from_ref(&base), DefaultMode::Off);
        assert_eq!(without.decide(&prod, "shop", "web").unwrap().mode, Mode::Correct);
        let alone = set(&[("fleet", "broken", broken)], DefaultMode::Off);
        assert!(alone.selects(&prod) && !alone.selects(&cluster("other", &[("env", "prod")])), "{what}");
    }
}

#[test]
fn nothing_of_an_invalid_policy_is_applied_but_its_selection_and_priority() {
    let broken = json!({
        "clusterSelector": {}, "mode": "Correct", "priority": 5, "interval": "1s", "onFailedRelease": "LastDeployed", "suspend": true,
        "releases": [{"name": "*", "trust": "ClusterScoped"}], "ignore": [{"paths": [""]}], "contest": {"rounds": 5, "window": "1h"},
    });
    let here = cluster("fleet", &[]);
    let decide = |priority: i32| {
        let other = json!({"clusterSelector": {}, "mode": "Correct", "priority": priority});
        set(&[("fleet", "broken", broken.clone()), ("fleet", "other", other)], DefaultMode::Off).decide(&here, "shop", "web").unwrap()
    };
    assert_eq!(*decide(4), Guard { policy: Some(PolicyName::new("fleet", "broken")), ..Guard::default_warn() });
    assert_eq!(decide(6).mode, Mode::Correct, "a stronger policy decides as ever");
}

#[test]
fn releases_are_selected_by_name_and_namespace_and_trusted_one_by_one() {
    let releases = json!([{"name": "web", "namespace": "shop-*"}, {"name": "cni", "trust": "ClusterScoped"}]);
    let policies = set(&[("fleet", "p", json!({"clusterSelector": {}, "releases": releases}))], DefaultMode::Off);
    let cluster = cluster("fleet", &[]);
    let trust = |namespace, name| policies.decide(&cluster, namespace, name).map(|guard| guard.trust);
    assert_eq!(trust("shop-1", "web"), Some(false));
    assert_eq!(trust("shop", "web"), None);
    assert_eq!(trust("kube-system", "cni"), Some(true));
    assert_eq!(trust("shop-1", "db"), None);
}

#[test]
fn a_cluster_is_selected_by_what_is_not_off() {
    let off = json!({"clusterSelector": {}, "mode": "Off"});
    let here = cluster("fleet", &[]);
    assert!(!set(&[("fleet", "off", off.clone())], DefaultMode::Off).selects(&here));
    assert!(set(&[("fleet", "off", off.clone()), ("fleet", "on", json!({"clusterSelector": {}}))], DefaultMode::Off).selects(&here));
    assert!(set(&[("fleet", "off", off.clone())], DefaultMode::Warn).selects(&here));
    assert!(set(&[("fleet", "off", off)], DefaultMode::Warn).decide(&here, "shop", "web").is_none(), "Off beats the default mode");
    assert!(!set(&[], DefaultMode::Off).selects(&here));
    let elsewhere = set(&[("other", "on", json!({"clusterSelector": {}}))], DefaultMode::Off);
    assert!(!elsewhere.selects(&here));
    let other = cluster("other", &[]);
    let counts = elsewhere.selected_clusters([&here, &other]);
    assert_eq!(counts[&PolicyName::new("other", "on")], [&ClusterName::new("other", "c1")]);
}

#[test]
fn ignore_rules_match_objects_paths_managers_and_time() {
    let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
    let value = json!({"ignore": [{
        "target": {"group": "apps", "kind": "Deploy*", "namespace": "shop",
            "labelSelector": {"matchLabels": {"tier": "web"}}, "annotationSelector": {"matchExpressions": [{"key": "x/note", "operator": "Exists"}]}},
        "paths": ["/spec/replicas", "/metadata/labels/*"],
        "managers": ["kube-*", "scaler"],
        "until": "2026-12-01T00:00:00Z",
    }]});
    let policies = set(&[("fleet", "p", json!({"clusterSelector": {}, "ignore": value["ignore"]}))], DefaultMode::Off);
    let guard = policies.decide(&cluster("fleet", &[]), "shop", "web").unwrap();
    let [rule] = &*guard.ignore else { panic!() };

    let key = |api_version, kind, namespace| ObjectKey::new(Arc::new(Gvk::new(api_version, kind)), namespace, "web");
    let labels = |tier: &str| BTreeMap::from([("tier".to_owned(), tier.to_owned())]);
    let annotations = BTreeMap::from([("x/note".to_owned(), "any text".to_owned())]);
    let deployment = key("apps/v1", "Deployment", Some("shop"));
    let matches = |key: &ObjectKey, labels: &Texts, annotations: &Texts, now: Timestamp| {
        rule.holds(now) && rule.is_about(&RuleSubject::new(key, || (labels.clone(), annotations.clone())))
    };
    assert!(matches(&deployment, &labels("web"), &annotations, now));
    for (key, labels, annotations, now) in [
        (key("apps/v1", "StatefulSet", Some("shop")), labels("web"), annotations.clone(), now),
        (key("v1", "Deployment", Some("shop")), labels("web"), annotations.clone(), now),
        (key("apps/v1", "Deployment", Some("shop2")), labels("web"), annotations.clone(), now),
        (key("apps/v1", "Deployment", None), labels("web"), annotations.clone(), now),
        (deployment.clone(), labels("db"), annotations.clone(), now),
        (deployment.clone(), labels("web"), BTreeMap::new(), now),
        (deployment, labels("web"), annotations, "2026-12-01T00:00:00Z".parse().unwrap()),
    ] {
        assert!(!matches(&key, &labels, &annotations, now), "{key}");
    }

    let replicas = Path::of_fields(&["spec", "replicas"]);
    let label = Path::of_fields(&["metadata", "labels", "a"]);
    assert!(rule.covers(&replicas, Some("kube-controller-manager")));
    assert!(rule.covers(&label, Some("scaler")));
    assert!(!rule.covers(&replicas, Some("kubectl-edit")));
    assert!(!rule.covers(&replicas, None), "nobody can be named");
    assert!(!rule.covers(&Path::of_fields(&["spec"]), Some("scaler")));
    assert!(!rule.covers(&Path::of_fields(&["metadata", "labels"]), Some("scaler")));
}

#[test]
fn a_rule_with_one_side_leaves_the_other_open() {
    let ignore = json!([{"paths": ["/spec"]}, {"managers": ["scaler"]}, {"paths": [""]}]);
    let policies = set(&[("fleet", "p", json!({"clusterSelector": {}, "ignore": ignore}))], DefaultMode::Off);
    let guard = policies.decide(&cluster("fleet", &[]), "shop", "web").unwrap();
    let [by_path, by_manager, all] = &*guard.ignore else { panic!() };
    let item = Path::of_fields(&["spec", "ports"]).join(Segment::key("name", "http"));
    assert!(by_path.covers(&item, None));
    assert!(by_manager.covers(&item, Some("scaler")) && !by_manager.covers(&item, Some("x")));
    assert!(all.covers(&item, None) && all.covers(&Path::root(), None));
}
