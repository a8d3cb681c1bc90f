//! The hub as a process: probes, metrics, log lines, secrets, stopping and starting again.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use holdfast_testkit::{Helm, Target};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, deployment, events, hub_writes, lines, metric, reports, wait_event, wait_live},
    support::{World, condition, finding},
};

/// What the hub promises to show.
const METRICS: [&str; 16] = [
    "holdfast_clusters",
    "holdfast_releases",
    "holdfast_objects",
    "holdfast_drift_detected_total",
    "holdfast_corrections_total",
    "holdfast_correction_seconds_count",
    "holdfast_detection_seconds_count",
    "holdfast_contested_paths",
    "holdfast_deviations",
    "holdfast_workload_requests_total",
    "holdfast_oracle_requests_total",
    "holdfast_watches",
    "holdfast_watch_restarts_total",
    "holdfast_state_bytes",
    "holdfast_queue_depth",
    "holdfast_hub_clusters_unowned",
];

/// The only labels that may be there.
const LABELS: [&str; 10] = ["state", "verdict", "kind", "change", "outcome", "le", "reason", "verb", "code", "cluster"];

async fn wait_ready(world: &World) {
    world
        .wait("ready", async || {
            world.try_metrics().await?;
            let ready = world.http("/readyz").await;
            ensure!(ready.starts_with("HTTP/1.1 200"), "{ready}");
            Ok(())
        })
        .await;
}

#[tokio::test]
async fn probes_and_metrics_tell_what_happens() {
    let namespace = "figures";
    let mut world = World::new(namespace).await;
    let objects = [deployment(namespace, "distinctive-name", 2), configmap(namespace, "settings", "color", "blue")];
    Release::new(&world, "distinctive-release", Style::ServerSide).install(&objects).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    wait_ready(&world).await;
    assert!(world.http("/healthz").await.starts_with("HTTP/1.1 200"));
    world.wait_in_sync("distinctive-release").await;
    let before = world.metrics().await;
    for sample in
        ["holdfast_clusters{state=\"Connected\"} 1", "holdfast_releases{verdict=\"InSync\"} 1", "holdfast_objects{verdict=\"InSync\"} 2"]
    {
        assert!(before.contains(sample), "{sample} is not in\n{before}");
    }
    let watches = metric(&world, "holdfast_watches").await.unwrap();
    assert!(watches >= 5, "records in two stores, autoscalers, definitions, two kinds: {watches}");

    let kubectl = world.writer("kubectl-edit");
    let target = Target::deployment(namespace, "distinctive-name");
    kubectl.merge_patch(&target, &json!({"spec": {"replicas": 5}})).await.unwrap();
    wait_live(&world, &kubectl, &target, "/spec/replicas", &json!(2)).await;
    kubectl.delete(&Target::configmap(namespace, "settings")).await.unwrap();
    wait_live(&world, &kubectl, &Target::configmap(namespace, "settings"), "/data/color", &json!("blue")).await;
    for (sample, at_least) in [
        ("holdfast_drift_detected_total{change=\"Changed\",kind=\"Deployment\"}", 1),
        ("holdfast_drift_detected_total{change=\"Removed\",kind=\"ConfigMap\"}", 1),
        ("holdfast_corrections_total{kind=\"Deployment\",outcome=\"Corrected\"}", 1),
        ("holdfast_corrections_total{kind=\"ConfigMap\",outcome=\"Recreated\"}", 1),
        ("holdfast_correction_seconds_count", 2),
        ("holdfast_detection_seconds_count", 2),
        ("holdfast_oracle_requests_total{outcome=\"Answered\"}", 3),
        ("holdfast_state_bytes", 200),
        ("holdfast_workload_requests_total{code=\"200\",verb=\"get\"}", 2),
    ] {
        world
            .wait(sample, async || {
                let value = metric(&world, sample).await?;
                ensure!(value >= at_least, "{value}");
                Ok(())
            })
            .await;
    }
    let page = world.metrics().await;
    for name in METRICS {
        assert!(
            page.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']))),
            "{name} is not in\n{page}"
        );
    }
    let names: BTreeSet<&str> = page.split(['{', ',']).filter_map(|part| part.split_once("=\"").map(|(name, _)| name)).collect();
    let allowed: BTreeSet<&str> = LABELS.into_iter().chain(["namespace"]).collect();
    assert!(names.is_subset(&allowed), "{names:?}");
    assert!(!page.contains("distinctive"), "names of objects and releases are no labels:\n{page}");
}

/// The words that must not come out, by where they were put.
const CANARIES: [&str; 6] =
    ["canary-declared", "canary-edited", "canary-environment", "canary-annotation", "canary-message", "canary-field"];

fn audit_lines(log: &str) -> Vec<Value> {
    log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(|line| line["audit"] == "correction").collect()
}

#[tokio::test]
async fn every_write_is_logged_and_no_secret_ever_comes_out() {
    for (helm, namespace) in [(Helm::V3, "canaries3"), (Helm::V4, "canaries4")] {
        let mut world = World::new(namespace).await;
        world.install(helm, "web", "mini10", &["--set", "password=canary-declared,extraEnv.DB_PASSWORD=canary-environment"]).await;
        // A Secret that the server refuses to take back, and says why with its values: it was made immutable.
        let refused = Release::new(&world, "refused", Style::ClientSide);
        let secret = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fixed", "namespace": namespace}, "stringData": {"password": value}});
        refused.install(&[secret("canary-message")]).await;
        // A manifest with a field that nobody knows and a value of the wrong type, both quoted by the server.
        let mut wrong = deployment(namespace, "wrong", 1);
        Release::new(&world, "wrong", Style::ClientSide).write(&wrong).await;
        wrong["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "TOKEN", "value": {"canary-field": "canary-field"}}]);
        Release::new(&world, "wrong", Style::ClientSide).record(1, "deployed", &[wrong]).await;
        world.policy("Correct", json!({})).await;
        world.start_hub(&["--log", "trace"]);
        world.wait_in_sync("web").await;
        world.wait_in_sync("refused").await;
        world
            .wait_report(Some("wrong"), "judged", |status| {
                finding(status, "Deployment", "wrong").is_some_and(|finding| finding["reason"] == "ManifestInvalid")
            })
            .await;

        let kubectl = world.writer("kubectl-edit");
        let (auth, web, page) =
            (Target::secret(namespace, "web-auth"), Target::deployment(namespace, "web-web"), Target::configmap(namespace, "web-page"));
        kubectl.merge_patch(&auth, &json!({"stringData": {"password": "canary-edited"}})).await.unwrap();
        // Before the others: a report gets a few Events a minute.
        wait_event(&world, "DriftCorrected", "web-auth").await;
        let container = json!({"name": "web", "env": [{"name": "DB_PASSWORD", "value": "canary-edited"}]});
        kubectl.strategic_patch(&web, &json!({"spec": {"template": {"spec": {"containers": [container]}}}})).await.unwrap();
        kubectl.merge_patch(&page, &json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "canary-annotation"}}, "data": {"index.html": "evil"}})).await.unwrap();
        let fixed = Target::secret(namespace, "fixed");
        kubectl.merge_patch(&fixed, &json!({"immutable": true, "stringData": {"password": "canary-edited"}})).await.unwrap();
        wait_live(&world, &kubectl, &auth, "/data/password", &json!(BASE64_STANDARD.encode("canary-declared"))).await;
        wait_live(&world, &kubectl, &page, "/data/index.html", &json!("<h1>Hello</h1>")).await;
        let restored = format!("{helm:?} environment");
        world
            .wait(&restored, async || {
                let live = kubectl.get(&web).await?;
                let env = live["spec"]["template"]["spec"]["containers"][0]["env"].as_array().context("no env")?.clone();
                ensure!(
                    env.iter().any(|variable| variable["name"] == "DB_PASSWORD" && variable["value"] == "canary-environment"),
                    "not yet"
                );
                Ok(())
            })
            .await;
        world
            .wait_report(Some("refused"), "refused", |status| {
                finding(status, "Secret", "fixed").is_some_and(|finding| {
                    finding["verdict"] == "Refused" && finding["reason"] == "Immutable" && finding["paths"][0]["path"] == "/data/password"
                })
            })
            .await;
        wait_event(&world, "CorrectionRefused", "fixed").await;
        world
            .wait_report(Some("web"), "corrected", |status| condition(status, "InSync") == "True" && status["summary"]["corrected"] == 3)
            .await;

        let found = audit_lines(&world.log());
        let line = found.iter().find(|line| line["object"].as_str().is_some_and(|object| object.contains("web-auth"))).unwrap();
        let fields: Vec<&Value> = ["cluster", "release", "paths", "actor", "policy", "outcome"].iter().map(|field| &line[*field]).collect();
        assert_eq!(
            fields,
            [
                &json!(format!("{namespace}/c")),
                &json!(format!("{namespace}/web")),
                &json!("/data/password"),
                &json!("kubectl-edit"),
                &json!(format!("{namespace}/p")),
                &json!("Corrected")
            ],
            "{line}"
        );
        assert_eq!(line["object"], format!("Secret {namespace}/web-auth"));

        let mut all_events = String::new();
        for reason in ["DriftDetected", "DriftCorrected", "CorrectionRefused", "AdmissionChanged", "DriftContested"] {
            all_events += &json!(events(&world, reason).await.unwrap()).to_string();
        }
        let places = [
            ("the log", world.log()),
            ("a report", json!(reports(&world).await.unwrap()).to_string()),
            ("an Event", all_events),
            ("the metrics", world.metrics().await),
            ("the tasks", world.http("/debug/tasks").await),
        ];
        assert!(places.iter().all(|(_, text)| text.len() > 100), "every place was looked at");
        for (place, text) in places {
            for canary in CANARIES {
                for form in [canary.to_owned(), BASE64_STANDARD.encode(canary)] {
                    let at = text.find(&form).map(|at| text[at.saturating_sub(200)..].chars().take(300).collect::<String>());
                    assert!(at.is_none(), "{helm:?}: {canary} is in {place}: {at:?}");
                }
            }
        }
    }
}

fn corrections(report: &Value) -> Vec<&Value> {
    report["status"]["corrections"].as_array().into_iter().flatten().collect()
}

#[tokio::test]
async fn a_hub_stops_at_once_and_the_next_one_goes_on() {
    let namespace = "restart";
    let mut world = World::new(namespace).await;
    Release::new(&world, "web", Style::ServerSide)
        .install(&[deployment(namespace, "web", 2), configmap(namespace, "settings", "color", "blue")])
        .await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let kubectl = world.writer("kubectl-edit");
    let target = Target::deployment(namespace, "web");
    for replicas in [5, 6] {
        kubectl.merge_patch(&target, &json!({"spec": {"replicas": replicas}})).await.unwrap();
        wait_live(&world, &kubectl, &target, "/spec/replicas", &json!(2)).await;
    }
    // Stopped in the same moment: the report is written nevertheless.
    let took = world.stop_hub();
    assert!(took < Duration::from_secs(5), "{took:?}");
    let report = world.report(Some("web")).await.unwrap();
    assert_eq!(corrections(&report).len(), 2, "{report}");

    // Nothing changed: the next one writes nothing. Then an edit while nobody looked is found and put back.
    let mark = world.workload.audit_mark().await.unwrap();
    world.start_hub(&[]);
    wait_ready(&world).await;
    world
        .wait("the next one has judged everything", async || {
            let judged = metric(&world, "holdfast_objects{verdict=\"InSync\"}").await?;
            ensure!(judged == 2, "{judged}");
            Ok(())
        })
        .await;
    let writes = hub_writes(world.workload, mark).await.in_namespace(namespace);
    assert!(writes.is_empty(), "{:?}", lines(&writes));
    assert!(world.stop_hub() < Duration::from_secs(5));
    kubectl.merge_patch(&target, &json!({"spec": {"replicas": 7}})).await.unwrap();
    kubectl.delete(&Target::configmap(namespace, "settings")).await.unwrap();
    world.start_hub(&[]);
    wait_live(&world, &kubectl, &target, "/spec/replicas", &json!(2)).await;
    wait_live(&world, &kubectl, &Target::configmap(namespace, "settings"), "/data/color", &json!("blue")).await;
    let report = world
        .wait_report(Some("web"), "the history goes on", |status| status["corrections"].as_array().is_some_and(|all| all.len() == 4))
        .await;
    let what: Vec<(&Value, &Value)> = corrections(&report).iter().map(|record| (&record["object"]["kind"], &record["outcome"])).collect();
    assert_eq!(what[..2], [(&json!("Deployment"), &json!("Corrected")), (&json!("Deployment"), &json!("Corrected"))]);
    assert!(what[2..].contains(&(&json!("ConfigMap"), &json!("Recreated"))), "{what:?}");
}
