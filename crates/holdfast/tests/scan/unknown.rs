//! What cannot be judged is said, and is never called in sync.

use holdfast_api::report::{Reason, Verdict};
use holdfast_testkit::{Helm, Target, release};
use serde_json::json;

use crate::fixture::{Fixture, finding, in_sync};

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata:\n  a: b\n";

#[tokio::test]
async fn releases_that_cannot_be_judged() {
    for (namespace, status, manifest, told) in [
        ("state-stuck", "pending-upgrade", CONFIG_MAP, "Unknown ReleaseStuck"),
        ("state-failed", "failed", CONFIG_MAP, "Unknown ReleaseFailed"),
        ("state-kind", "deployed", "apiVersion: none.example/v1\nkind: Nothing\nmetadata:\n  name: x\n", "Unknown KindNotServed"),
        ("state-yaml", "deployed", "a: [b", "Unknown ManifestInvalid"),
    ] {
        let fixture = Fixture::new(namespace).await;
        fixture.plane.put_release(&release::secret("web", namespace, 1, status, manifest, &json!({})).unwrap()).await.unwrap();
        let (code, statuses) = fixture.statuses(&[]).await;
        assert_eq!((code, in_sync(&statuses[0]).as_str()), (2, told), "{:#?}", statuses[0]);
        let table = fixture.scan(&[]).await;
        assert!(table.code == 2 && table.out.contains("Unknown"), "{}", table.out);
        fixture.wrote_nothing().await;
    }
}

#[tokio::test]
async fn a_record_that_is_no_record() {
    let fixture = Fixture::new("record").await;
    fixture.plane.put_release(&release::secret_of_bytes("web", "record", 1, "deployed", b"nonsense")).await.unwrap();
    let (code, statuses) = fixture.statuses(&[]).await;
    assert_eq!((code, in_sync(&statuses[0]).as_str()), (2, "Unknown RecordInvalid"));
}

#[tokio::test]
async fn an_object_of_somebody_else_is_not_the_releases() {
    let fixture = Fixture::new("notowned").await;
    fixture.install(Helm::V4, "web", "shop", &[]).await;
    let mallory = fixture.plane.writer("mallory").unwrap();
    let patch = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "other"}}});
    mallory.merge_patch(&Target::configmap("notowned", "web-settings"), &patch).await.unwrap();
    let (code, statuses) = fixture.statuses(&[]).await;
    let found = finding(&statuses[0], "ConfigMap", "web-settings").unwrap();
    assert_eq!((code, found.verdict, found.reason), (2, Verdict::Unknown, Reason::NotOwned));
}

#[tokio::test]
async fn two_releases_that_declare_one_object_are_both_named() {
    let fixture = Fixture::new("conflict").await;
    for name in ["left", "right"] {
        fixture.plane.put_release(&release::secret(name, "conflict", 1, "deployed", CONFIG_MAP, &json!({})).unwrap()).await.unwrap();
    }
    // Both matter even where only one is asked for.
    for (args, sources) in [(&[] as &[&str], 2), (&["--release", "left"], 1)] {
        let (code, statuses) = fixture.statuses(args).await;
        assert_eq!((code, statuses.len()), (1, sources));
        for status in &statuses {
            let found = finding(status, "ConfigMap", "one").unwrap();
            let other = if status.source.as_ref().unwrap().name == "left" { "right" } else { "left" };
            assert_eq!((found.verdict, found.reason), (Verdict::Contested, Reason::SelfConflict));
            assert!(found.message.contains(other), "{}", found.message);
        }
    }
}

#[tokio::test]
async fn a_manifest_that_the_server_will_not_apply_is_judged_by_a_merge() {
    let fixture = Fixture::new("unfit").await;
    // A variable given twice: Helm 3 creates the object, server-side apply refuses it.
    let template = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: registry.example/web:1
        resources: {requests: {cpu: 1000m}}
        env: [{name: A, value: "1"}, {name: A, value: "2"}]
"#;
    fixture.install_text(Helm::V3, "web", template).await;
    let (code, statuses) = fixture.statuses(&[]).await;
    let found = finding(&statuses[0], "Deployment", "web").unwrap();
    assert_eq!((code, found.verdict, found.reason), (0, Verdict::InSync, Reason::ManifestInvalid), "{found:#?}");
    let kubectl = fixture.plane.writer("kubectl-edit").unwrap();
    kubectl.merge_patch(&Target::deployment("unfit", "web"), &json!({"spec": {"replicas": 5}})).await.unwrap();
    let (code, statuses) = fixture.statuses(&[]).await;
    let found = finding(&statuses[0], "Deployment", "web").unwrap();
    assert_eq!((code, found.verdict, found.reason), (1, Verdict::Drifted, Reason::ManifestInvalid), "{found:#?}");
    assert_eq!(found.paths.iter().map(|path| path.path.as_str()).collect::<Vec<_>>(), ["/spec/replicas"]);
    assert!(found.message.contains("env"), "the manifest error stays named: {}", found.message);
    fixture.wrote_nothing().await;
}
