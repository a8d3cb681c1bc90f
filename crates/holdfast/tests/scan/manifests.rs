//! Plain manifests instead of releases.

use holdfast_api::report::{DriftReportStatus, SourceKind, Verdict};
use holdfast_testkit::Target;
use serde_json::json;

use crate::fixture::{Fixture, finding, in_sync, manager, path_of};

const MANIFESTS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: here}
data: {a: b}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Secret
  metadata: {name: there, namespace: plain-b}
  stringData: {password: hunter2}
";

#[tokio::test]
async fn plain_manifests_are_compared() {
    let fixture = Fixture::new("plain").await;
    fixture.plane.namespace("plain-b").await.unwrap();
    let scan = async |input: &str| {
        let outcome = fixture.run(&["-n", "plain", "--manifest", "-", "-o", "json"], input).await;
        let statuses: Vec<DriftReportStatus> = serde_json::from_str(&outcome.out).unwrap();
        (outcome.code, statuses.into_iter().next().unwrap())
    };
    let (code, status) = scan(MANIFESTS).await;
    assert_eq!((code, status.summary.missing), (1, 2));
    assert_eq!(status.source.as_ref().unwrap().kind, SourceKind::Manifests);

    let kubectl = fixture.plane.writer("kubectl").unwrap();
    let (here, there) = (Target::configmap("plain", "here"), Target::secret("plain-b", "there"));
    kubectl
        .create(&here, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here"}, "data": {"a": "b", "more": "c"}}))
        .await
        .unwrap();
    kubectl
        .create(
            &there,
            &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "there"}, "stringData": {"password": "hunter2"}}),
        )
        .await
        .unwrap();
    let (code, status) = scan(MANIFESTS).await;
    assert_eq!((code, status.summary.in_sync, in_sync(&status).as_str()), (0, 2, "True AsDeclared"));

    let mallory = fixture.plane.writer("mallory").unwrap();
    mallory.merge_patch(&here, &json!({"data": {"a": "x"}})).await.unwrap();
    mallory.merge_patch(&there, &json!({"data": {"password": "aGFja2Vk"}})).await.unwrap();
    let (code, status) = scan(MANIFESTS).await;
    assert_eq!((code, status.summary.drifted), (1, 2));
    let found = finding(&status, "ConfigMap", "here").unwrap();
    assert_eq!((found.verdict, manager(path_of(found, "/data/a").unwrap())), (Verdict::Drifted, "mallory"));

    let file = fixture.plane.dir().join("plain.yaml");
    std::fs::write(&file, MANIFESTS).unwrap();
    let table = fixture.run(&["-n", "plain", "--manifest", file.to_str().unwrap()], "").await;
    assert!(table.code == 1 && table.out.contains("Secret plain-b/there  Drifted"), "{}", table.out);
    assert!(!table.out.contains("hunter2") && !table.out.contains("aGFja2Vk"), "{}", table.out);

    for (input, told) in [
        ("kind: [", "Unknown ManifestInvalid"),
        ("apiVersion: none.example/v1\nkind: Nothing\nmetadata: {name: x}", "Unknown KindNotServed"),
    ] {
        let (code, status) = scan(input).await;
        assert_eq!((code, in_sync(&status).as_str()), (2, told));
    }
    fixture.wrote_nothing().await;
}
