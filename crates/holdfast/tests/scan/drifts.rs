//! Every kind of drift is found, with path and actor, whichever Helm installed the release.

use std::time::Duration;

use holdfast_api::report::{Change, Verdict};
use holdfast_fleet::clock::{Clock as _, SystemClock};
use holdfast_testkit::{Helm, Target, Writer, eventually};
use serde_json::{Value, json};

use crate::fixture::{Fixture, finding, manager, path_of};

/// What is done to an object.
enum Edit {
    Merge(Value),
    Json(Value),
    Scale(i64),
    Delete,
}

/// What is done, and what must be found: an empty path means the object itself.
struct Drift {
    kind: &'static str,
    target: Target,
    edit: Edit,
    path: &'static str,
    change: Change,
    actor: &'static str,
}

fn drifts(namespace: &str) -> Vec<Drift> {
    let changed = |kind, target, edit, path| Drift { kind, target, edit, path, change: Change::Changed, actor: "mallory" };
    let removed = |kind, target, edit, path| Drift { kind, target, edit, path, change: Change::Removed, actor: "unattributed" };
    let label = "app.kubernetes.io/managed-by";
    vec![
        changed("Deployment", Target::deployment(namespace, "web-web"), Edit::Scale(5), "/spec/replicas"),
        changed(
            "Deployment",
            Target::deployment(namespace, "web-web"),
            Edit::Json(json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil:1"}])),
            "/spec/template/spec/containers/[name=web]/image",
        ),
        changed(
            "Deployment",
            Target::deployment(namespace, "web-web"),
            Edit::Json(json!([{"op": "replace", "path": "/spec/template/spec/containers/0/args/1", "value": ":9999"}])),
            "/spec/template/spec/containers/[name=web]/args",
        ),
        removed("ConfigMap", Target::configmap(namespace, "web-features"), Edit::Merge(json!({"data": {"beta": null}})), "/data/beta"),
        removed(
            "ConfigMap",
            Target::configmap(namespace, "web-page"),
            Edit::Merge(json!({"metadata": {"labels": {label: null}}})),
            "/metadata/labels/app.kubernetes.io~1managed-by",
        ),
        changed("Secret", Target::secret(namespace, "web-auth"), Edit::Merge(json!({"data": {"password": "aGFja2Vk"}})), "/data/password"),
        changed("Widget", Target::widget(namespace, "web-main"), Edit::Merge(json!({"spec": {"size": 9}})), "/spec/size"),
        changed(
            "Role",
            Target::role(namespace, "web-web"),
            Edit::Json(json!([{"op": "add", "path": "/rules/0/verbs/-", "value": "delete"}])),
            "/rules",
        ),
        removed(
            "Service",
            Target::service(namespace, "web-web"),
            Edit::Json(json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 81}])),
            "/spec/ports/[port=80,protocol=TCP]",
        ),
        Drift {
            kind: "ConfigMap",
            target: Target::configmap(namespace, "web-settings"),
            edit: Edit::Delete,
            path: "",
            change: Change::Removed,
            actor: "",
        },
    ]
}

async fn apply(writer: &Writer, target: &Target, edit: &Edit) {
    match edit {
        Edit::Merge(patch) => writer.merge_patch(target, patch).await,
        Edit::Json(operations) => writer.json_patch(target, operations).await,
        Edit::Scale(replicas) => writer.merge_patch(&target.scale(), &json!({"spec": {"replicas": replicas}})).await,
        Edit::Delete => writer.delete(target).await,
    }
    .unwrap();
}

#[tokio::test]
async fn every_drift_of_a_helm_3_release_is_found() {
    every_drift_is_found(Helm::V3, "drift3").await;
}

#[tokio::test]
async fn every_drift_of_a_helm_4_release_is_found() {
    every_drift_is_found(Helm::V4, "drift4").await;
}

async fn every_drift_is_found(helm: Helm, namespace: &str) {
    let fixture = Fixture::new(namespace).await;
    fixture.install(helm, "web", "mini10", &[]).await;
    assert_eq!(fixture.statuses(&[]).await.0, 0);
    let mallory = fixture.plane.writer("mallory").unwrap();
    for Drift { kind, target, edit, path, change, actor } in drifts(namespace) {
        apply(&mallory, &target, &edit).await;
        let (code, statuses) = fixture.statuses(&[]).await;
        assert_eq!(code, 1, "{kind} {path}");
        let found = finding(&statuses[0], kind, &target.name).unwrap_or_else(|| panic!("{kind} {path}: {:#?}", statuses[0].findings));
        if path.is_empty() {
            assert_eq!(found.verdict, Verdict::Missing);
            continue;
        }
        assert_eq!(found.verdict, Verdict::Drifted, "{found:#?}");
        let entry = path_of(found, path).unwrap_or_else(|| panic!("{path}: {found:#?}"));
        assert_eq!((entry.change, manager(entry)), (change, actor), "{path}");
        assert!(kind != "Secret" || (entry.desired.is_none() && entry.live.is_none()), "a Secret's values are never shown");
    }
    let (_, statuses) = fixture.statuses(&[]).await;
    let summary = &statuses[0].summary;
    assert_eq!((summary.objects, summary.in_sync, summary.drifted, summary.missing), (10, 2, 7, 1));
    for output in ["table", "json", "yaml"] {
        let text = fixture.scan(&["-o", output]).await.out;
        assert!(text.contains("/spec/replicas") && text.contains("mallory"), "{text}");
        for secret in ["s3cret", "czNjcmV0", "hacked", "aGFja2Vk"] {
            assert!(!text.contains(secret), "{output} shows {secret}");
        }
    }
    fixture.wrote_nothing().await;
}

#[tokio::test]
async fn the_table_tells_where_what_and_who() {
    let fixture = Fixture::new("table").await;
    fixture.install(Helm::V4, "web", "mini10", &[]).await;
    let mallory = fixture.plane.writer("mallory").unwrap();
    for Drift { target, edit, .. } in drifts("table") {
        apply(&mallory, &target, &edit).await;
    }
    let table = fixture.scan(&[]).await;
    assert_eq!((table.code, table.err.as_str()), (1, ""));
    let lines: Vec<&str> = table.out.lines().map(str::trim).collect();
    for (line, next) in [
        ("Deployment table/web-web  Drifted: 3 declared fields differ", "/spec/replicas"),
        ("/spec/replicas", "declared 2, live 5, by mallory through scale"),
        ("/rules", r#"at /0/verbs declared ["get","list","watch"], live ["get","list","watch","delete"], by mallory"#),
        ("/data/beta", r#"declared "false", gone"#),
        ("/data/password", "changed (values not shown), by mallory"),
        ("ConfigMap table/web-settings  Missing: the object does not exist", ""),
    ] {
        let at = lines.iter().position(|found| *found == line).unwrap_or_else(|| panic!("{line}\n{}", table.out));
        assert!(lines[at + 1].starts_with(next), "{next}\n{}", table.out);
    }
    assert_eq!(lines.last(), Some(&"10 objects: 2 as declared, 8 not."));
}

#[tokio::test]
async fn an_object_that_somebody_created_again_is_compared_like_any_other() {
    let fixture = Fixture::new("again").await;
    fixture.install(Helm::V4, "web", "shop", &[]).await;
    let mallory = fixture.plane.writer("mallory").unwrap();
    let target = Target::configmap("again", "web-settings");
    let mut object = mallory.get(&target).await.unwrap();
    // Times are kept to the second: within one, nobody could tell Helm from whoever came after it.
    let installed = SystemClock.now().as_second();
    let passed = async || if SystemClock.now().as_second() > installed { Ok(()) } else { Err(anyhow::anyhow!("the same second")) };
    eventually("the next second", Duration::from_secs(5), passed).await.unwrap();
    mallory.delete(&target).await.unwrap();
    for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object["data"]["currency"] = json!("XXX");
    mallory.create(&target, &object).await.unwrap();
    let (code, statuses) = fixture.statuses(&[]).await;
    let found = finding(&statuses[0], "ConfigMap", "web-settings").unwrap();
    assert_eq!((code, found.verdict, manager(path_of(found, "/data/currency").unwrap())), (1, Verdict::Drifted, "mallory"));
    assert_eq!(found.paths.len(), 1, "{found:#?}");
}

#[tokio::test]
async fn an_autoscaler_may_scale_within_its_bounds() {
    let fixture = Fixture::new("scaled").await;
    fixture.install(Helm::V4, "web", "shop", &[]).await;
    let writer = fixture.plane.writer("autoscaler").unwrap();
    let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web", "namespace": "scaled"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 6}});
    writer.create(&Target::hpa("scaled", "web"), &hpa).await.unwrap();
    for (replicas, code, accepted) in [(5, 0, None), (9, 1, Some(json!(6)))] {
        apply(&writer, &Target::deployment("scaled", "web"), &Edit::Scale(replicas)).await;
        let (found_code, statuses) = fixture.statuses(&[]).await;
        assert_eq!((found_code, statuses[0].summary.deviations), (code, u64::from(code == 0)), "{replicas}");
        let found = finding(&statuses[0], "Deployment", "web");
        assert_eq!(found.and_then(|found| path_of(found, "/spec/replicas")?.accepted.clone()), accepted);
    }
    fixture.wrote_nothing().await;
}
