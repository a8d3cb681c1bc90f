//! With few rights a scan is still of use, and says where it is inexact.

use holdfast_api::report::{Action, Reason, Verdict};
use holdfast_testkit::{Helm, Target};
use serde_json::json;

use crate::fixture::{Fixture, finding, manager, path_of};

/// Lets the fixture's user do these things.
async fn grant(fixture: &Fixture, rules: &str) {
    let name = &fixture.namespace;
    let rbac = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: scan-{name}}}\nrules: {rules}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: scan-{name}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scan-{name}}}\n\
         subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: scan-{name}}}]\n"
    );
    fixture.plane.apply_yaml("testkit", &rbac).await.unwrap();
}

#[tokio::test]
async fn who_may_only_look_finds_the_same() {
    for (helm, namespace) in [(Helm::V3, "view3"), (Helm::V4, "view4")] {
        let fixture = Fixture::with_groups(namespace, &[]).await;
        grant(&fixture, "[{apiGroups: ['*'], resources: ['*'], verbs: [get, list]}]").await;
        fixture.install(helm, "web", "mini10", &[]).await;
        fixture.install(helm, namespace, "kinds", &[]).await;
        let (code, statuses) = fixture.statuses(&[]).await;
        assert_eq!(code, 0, "{statuses:#?}");
        for status in &statuses {
            assert_eq!(status.summary.in_sync, status.summary.objects);
            assert!(
                status.findings.iter().all(|found| found.action == Action::Reported && found.reason == Reason::Forbidden),
                "{status:#?}"
            );
            let condition = status.conditions.iter().find(|condition| condition.kind == "InSync").unwrap();
            assert!(condition.message.ends_with("of them as far as can be told"), "{}", condition.message);
        }
        let table = fixture.scan(&[]).await;
        assert!(table.out.contains("compared without the server's dry-run"), "{}", table.out);

        let mallory = fixture.plane.writer("mallory").unwrap();
        mallory.merge_patch(&Target::deployment(namespace, "web-web"), &json!({"spec": {"replicas": 5}})).await.unwrap();
        mallory.merge_patch(&Target::configmap(namespace, "web-features"), &json!({"data": {"beta": null}})).await.unwrap();
        mallory.merge_patch(&Target::secret(namespace, "web-auth"), &json!({"data": {"password": "aGFja2Vk"}})).await.unwrap();
        let (code, statuses) = fixture.statuses(&["--release", "web"]).await;
        assert_eq!((code, statuses[0].summary.drifted), (1, 3), "{statuses:#?}");
        for (kind, name, path, actor) in [
            ("Deployment", "web-web", "/spec/replicas", "mallory"),
            ("ConfigMap", "web-features", "/data/beta", "unattributed"),
            ("Secret", "web-auth", "/data/password", "mallory"),
        ] {
            let found = finding(&statuses[0], kind, name).unwrap();
            assert_eq!((found.verdict, found.reason, found.paths.len()), (Verdict::Drifted, Reason::Forbidden, 1), "{found:#?}");
            assert_eq!(manager(path_of(found, path).unwrap()), actor);
            assert!(found.message.contains("as far as can be told"), "{}", found.message);
        }
        fixture.wrote_nothing().await;
    }
}

#[tokio::test]
async fn who_may_not_read_secrets_is_told_what_to_do() {
    let fixture = Fixture::with_groups("nosecrets", &[]).await;
    grant(&fixture, "[{apiGroups: ['', apps], resources: [configmaps, services, deployments], verbs: [get, list]}]").await;
    fixture.install(Helm::V4, "web", "shop", &[]).await;
    let refused = fixture.scan(&[]).await;
    assert_eq!((refused.code, refused.out.as_str(), refused.err.lines().count()), (2, "", 1), "{}", refused.err);
    assert!(refused.err.contains("Secrets in namespace nosecrets") && refused.err.contains("--manifest -"), "{}", refused.err);
    // Which then works, though autoscalers may not be listed either.
    let manifest = Helm::V4.manifest(fixture.plane, "web", "nosecrets").await.unwrap();
    let plain = fixture.run(&["-n", "nosecrets", "--manifest", "-"], &manifest).await;
    assert!(plain.code == 0 && plain.err.contains("autoscalers"), "{}{}", plain.out, plain.err);
    fixture.wrote_nothing().await;
}

#[tokio::test]
async fn what_may_not_be_read_is_unknown() {
    let fixture = Fixture::with_groups("noread", &[]).await;
    grant(&fixture, "[{apiGroups: ['', autoscaling], resources: [secrets, configmaps, horizontalpodautoscalers], verbs: [get, list]}]")
        .await;
    fixture.install(Helm::V4, "web", "shop", &[]).await;
    let (code, statuses) = fixture.statuses(&[]).await;
    assert_eq!((code, statuses[0].summary.unknown), (2, 2));
    for (kind, name) in [("Deployment", "web"), ("Service", "web")] {
        let found = finding(&statuses[0], kind, name).unwrap();
        assert_eq!((found.verdict, found.reason), (Verdict::Unknown, Reason::Forbidden));
    }
    fixture.wrote_nothing().await;
}
