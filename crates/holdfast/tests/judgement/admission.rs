//! What admission makes of declared values is accepted, not fought (issue §5.3).

use std::collections::BTreeSet;

use anyhow::ensure;
use holdfast_testkit::{Helm, MutatingWebhook, Rule, Target, WebhookOptions, mutate};
use serde_json::{Value, json};

use crate::{
    at_rest::restart,
    case::{Case, Edit, Place, RELEASES, Row},
    support::{World, condition, finding, live},
};

const IMAGE: &str = "/spec/template/spec/containers/[name=c]/image";
const IMAGE_POINTER: &str = "/spec/template/spec/containers/0/image";
const MIRRORED: &str = "mirror.local/img:1";

const CHART: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}-web"}
spec:
  replicas: 2
  selector: {matchLabels: {app: "{{ .Release.Name }}-web"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-web"}}
    spec: {containers: [{name: c, image: "img:1", args: [a]}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: "{{ .Release.Name }}-db"}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: "{{ .Release.Name }}-db"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-db"}}
    spec: {containers: [{name: c, image: "img:1", args: [a]}]}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-web"}
spec: {selector: {app: web}, ports: [{port: 80}]}
"#;

/// The objects with an image.
const WORKLOADS: [(Place, &str, &str); 2] = [(Target::deployment, "Deployment", "web"), (Target::statefulset, "StatefulSet", "db")];

fn options(namespace: &str) -> WebhookOptions {
    let rule = Rule { groups: vec!["apps".to_owned()], resources: vec!["deployments".to_owned(), "statefulsets".to_owned()] };
    WebhookOptions::new(namespace, namespace, vec![rule])
}

fn edit(path: &str, value: &Value) -> Edit {
    Edit::Json(json!([{"op": "replace", "path": path, "value": value}]))
}

fn accepted(status: &Value) -> BTreeSet<String> {
    let deviations = status["deviations"].as_array().into_iter().flatten();
    deviations
        .map(|deviation| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            format!(
                "{} {} {} {}",
                text(&deviation["reason"]),
                text(&deviation["object"]["kind"]),
                text(&deviation["object"]["name"]),
                text(&deviation["path"])
            )
        })
        .collect()
}

fn images_accepted(release: &str) -> BTreeSet<String> {
    WORKLOADS.iter().map(|(_, kind, name)| format!("Admission {kind} {release}-{name} {IMAGE}")).collect()
}

/// Waits until both reports are in sync and list the images as accepted, and nothing else.
async fn wait_accepted(case: &Case) {
    for (_, release) in RELEASES {
        case.world
            .wait_report(Some(release), "the images are accepted", |status| {
                condition(status, "InSync") == "True" && accepted(status) == images_accepted(release)
            })
            .await;
    }
}

async fn images(case: &Case) -> BTreeSet<String> {
    let reader = case.world.writer("kubectl");
    let mut images = BTreeSet::new();
    for (_, release) in RELEASES {
        for (target, _, name) in WORKLOADS {
            images.insert(
                live(&reader, &target(case.namespace(), &format!("{release}-{name}")), IMAGE_POINTER).await.as_str().unwrap().to_owned(),
            );
        }
    }
    images
}

fn only(image: &str) -> BTreeSet<String> {
    BTreeSet::from([image.to_owned()])
}

/// Drift beside the rewritten path, then drift of that path itself.
async fn heals_around(case: &mut Case, by_position: bool) {
    let rows = |manager, edit: fn() -> Edit, paths, restored| {
        WORKLOADS.map(|(target, kind, name)| {
            let row = Row::new("drift on a workload", target, kind, name, edit()).by(manager).drifts(paths).restores(restored);
            if by_position { row.by_position() } else { row }
        })
    };
    let mark = case.mark;
    case.mark = case.world.workload.audit_mark().await.unwrap();
    case.corrects(&rows("kubectl-scale", || Edit::Scale(7), &["/spec/replicas"], &["/spec"])).await;
    case.mark = case.world.workload.audit_mark().await.unwrap();
    case.corrects(&rows(
        "kubectl-edit",
        || edit("/spec/template/spec/containers/0/args", &json!(["b"])),
        &["/spec/template/spec/containers/[name=c]/args"],
        &["/spec"],
    ))
    .await;
    case.mark = mark;
}

#[tokio::test]
async fn a_webhook_that_was_there_first() {
    let name = "admission-first";
    let world = World::new(name).await;
    let webhook = MutatingWebhook::start(world.workload, options(name), mutate::mirror_images).await.unwrap();
    for (helm, release) in RELEASES {
        world.install_text(helm, release, &format!("{CHART}{}", crate::case::BEACON), &[]).await;
    }
    let mut case = Case::guard(world).await;
    wait_accepted(&case).await;
    assert!(case.calls().await.writes().is_empty(), "{}", case.calls().await.writes());
    assert!(webhook.dry_run_calls() > 0);
    heals_around(&mut case, false).await;
    wait_accepted(&case).await;
    // The manifest's value is written, so the webhook has one thing to do, not two.
    case.mark = case.world.workload.audit_mark().await.unwrap();
    let rows = WORKLOADS.map(|(target, kind, name)| {
        Row::new("the rewritten path itself", target, kind, name, edit(IMAGE_POINTER, &json!("evil:1")))
            .drifts(&[IMAGE])
            .restores(&["/spec"])
    });
    case.corrects(&rows).await;
    assert_eq!(images(&case).await, only(MIRRORED));
    wait_accepted(&case).await;
    restart(&mut case).await;
    wait_accepted(&case).await;
    webhook.stop().await.unwrap();
}

#[tokio::test]
async fn a_webhook_that_comes_later() {
    let name = "admission-later";
    let mut case = Case::start(name, CHART).await;
    let webhook = MutatingWebhook::start(case.world.workload, options(name), mutate::mirror_images).await.unwrap();
    case.stays_quiet().await;
    assert_eq!(images(&case).await, only("img:1"), "nothing happens before somebody writes");
    case.mark = case.world.workload.audit_mark().await.unwrap();
    let somebody = case.world.writer("kubectl-annotate");
    for (_, release) in RELEASES {
        for (target, _, object) in WORKLOADS {
            somebody
                .merge_patch(&target(name, &format!("{release}-{object}")), &json!({"metadata": {"annotations": {"touched": "yes"}}}))
                .await
                .unwrap();
        }
    }
    assert_eq!(images(&case).await, only(MIRRORED));
    wait_accepted(&case).await;
    assert!(case.calls().await.writes().is_empty(), "{}", case.calls().await.writes());
    let events = case.world.mgmt.kubectl(&["get", "events.events.k8s.io", "-n", name, "-o", "json"]).await.unwrap();
    assert!(events.contains("AdmissionChanged"), "{events}");
    heals_around(&mut case, false).await;
    wait_accepted(&case).await;
    webhook.stop().await.unwrap();
    // It goes again: the accepted value stays until somebody writes, and then is the manifest's.
    case.mark = case.world.workload.audit_mark().await.unwrap();
    case.stays_quiet().await;
    assert_eq!(images(&case).await, only(MIRRORED));
}

#[tokio::test]
async fn a_webhook_that_never_looks_what_is_there() {
    let name = "admission-blind";
    let world = World::new(name).await;
    let webhook = MutatingWebhook::start(world.workload, options(name), mutate::mirror_images_blindly).await.unwrap();
    for (helm, release) in RELEASES {
        world.install_text(helm, release, &format!("{CHART}{}", crate::case::BEACON), &[]).await;
    }
    let mut case = Case::guard(world).await;
    wait_accepted(&case).await;
    case.mark = case.world.workload.audit_mark().await.unwrap();
    let rows = WORKLOADS.map(|(target, kind, name)| {
        Row::new("the rewritten path itself", target, kind, name, edit(IMAGE_POINTER, &json!("evil:1")))
            .drifts(&[IMAGE])
            .restores(&["/spec"])
    });
    case.corrects(&rows).await;
    assert_eq!(images(&case).await, only(MIRRORED), "prefixed once");
    // Somebody's write of anything prefixes again: that is drift, and goes back by one write of both.
    case.mark = case.world.workload.audit_mark().await.unwrap();
    let somebody = case.world.writer("kubectl-edit");
    for (_, release) in RELEASES {
        for (target, _, object) in WORKLOADS {
            somebody.merge_patch(&target(name, &format!("{release}-{object}")), &json!({"spec": {"replicas": 7}})).await.unwrap();
        }
    }
    for (_, release) in RELEASES {
        for (target, kind, object) in WORKLOADS {
            let target = target(name, &format!("{release}-{object}"));
            let report = case
                .world
                .wait_report(Some(release), "corrected", |status| {
                    finding(status, kind, &target.name)
                        .is_some_and(|found| found["action"] == "Corrected" && crate::support::path_of(found, "/spec/replicas").is_some())
                })
                .await;
            assert!(crate::support::path_of(finding(&report["status"], kind, &target.name).unwrap(), IMAGE).is_some(), "{report:#}");
            assert_eq!(
                (live(&somebody, &target, "/spec/replicas").await, live(&somebody, &target, IMAGE_POINTER).await),
                (json!(2), json!(MIRRORED))
            );
        }
    }
    // The scale is written past the webhook. A patch of it alone would prefix again on the client-side release, which is put off.
    case.mark = case.world.workload.audit_mark().await.unwrap();
    for (_, release) in RELEASES {
        somebody
            .merge_patch(&Target::deployment(name, &format!("{release}-web")).scale(), &json!({"spec": {"replicas": 9}}))
            .await
            .unwrap();
    }
    case.world
        .wait_report(Some("h3"), "put off", |status| {
            finding(status, "Deployment", "h3-web")
                .is_some_and(|found| found["action"] == "Deferred" && found["reason"] == "AdmissionUnstable")
        })
        .await;
    case.world
        .wait("the apply carries the manifest's image", async || {
            let replicas = live(&somebody, &Target::deployment(name, "h4-web"), "/spec/replicas").await;
            ensure!(replicas == 2, "{replicas}");
            Ok(())
        })
        .await;
    case.stays_quiet().await;
    assert_eq!(images(&case).await, only(MIRRORED));
    assert!(case.writes_to(&Target::deployment(name, "h3-web")).await.is_empty());
    webhook.stop().await.unwrap();
}

#[tokio::test]
async fn a_webhook_for_new_objects_only() {
    let name = "admission-create";
    let world = World::new(name).await;
    let webhook = MutatingWebhook::start(world.workload, options(name), mutate::on_create(mutate::mirror_images)).await.unwrap();
    for (helm, release) in RELEASES {
        world.install_text(helm, release, &format!("{CHART}{}", crate::case::BEACON), &[]).await;
    }
    let mut case = Case::guard(world).await;
    wait_accepted(&case).await;
    assert!(case.calls().await.writes().is_empty(), "{}", case.calls().await.writes());
    // An apply would flip the image, so the server-side release is patched by position.
    heals_around(&mut case, true).await;
    assert_eq!(images(&case).await, only(MIRRORED), "never flips");
    wait_accepted(&case).await;
    let reader = case.world.writer("kubectl");
    for (target, _, object) in WORKLOADS {
        let object = reader.get(&target(name, &format!("h4-{object}"))).await.unwrap();
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        let helms = entries.iter().filter(|entry| entry["manager"] == "helm").count();
        assert_eq!(helms, 1, "the ownership went back to the one entry of the release: {entries:#?}");
    }
    Helm::V4
        .upgrade(
            case.world.workload,
            "h4",
            name,
            &case.world.chart_of_text("h4", &format!("{}{}", CHART.replace("replicas: 2", "replicas: 3"), crate::case::BEACON)),
            &[],
        )
        .await
        .unwrap();
    case.world
        .wait_report(Some("h4"), "the upgrade is judged", |status| {
            status["source"]["revision"] == 2 && condition(status, "InSync") == "True"
        })
        .await;
    restart(&mut case).await;
    webhook.stop().await.unwrap();
}

#[tokio::test]
async fn a_webhook_that_adds_what_nobody_declared() {
    let name = "admission-label";
    let world = World::new(name).await;
    let rules = vec![Rule { groups: vec![String::new(), "apps".to_owned()], resources: vec!["*".to_owned()] }];
    let options = WebhookOptions::new(name, name, rules);
    let webhook = MutatingWebhook::start(world.workload, options, mutate::label("injected.example.com/team", "a")).await.unwrap();
    for (helm, release) in RELEASES {
        world.install_text(helm, release, &format!("{CHART}{}", crate::case::BEACON), &[]).await;
    }
    let mut case = Case::guard(world).await;
    for (_, release) in RELEASES {
        let report = case.world.wait_in_sync(release).await;
        assert_eq!(accepted(&report["status"]), BTreeSet::new());
        assert_eq!(report["status"]["summary"]["deviations"], 0, "{report:#}");
    }
    assert!(case.calls().await.writes().is_empty());
    heals_around(&mut case, false).await;
    let reader = case.world.writer("kubectl");
    for (_, release) in RELEASES {
        let label = live(&reader, &Target::service(name, &format!("{release}-web")), "/metadata/labels/injected.example.com~1team").await;
        assert_eq!(label, "a");
    }
    webhook.stop().await.unwrap();
}
