//! Right after an installation there is nothing to find, however the charts spell things.

use holdfast_testkit::Helm;

use crate::fixture::{Fixture, in_sync};

#[tokio::test]
async fn nothing_differs_right_after_helm_3() {
    nothing_differs(Helm::V3, "fresh3").await;
}

#[tokio::test]
async fn nothing_differs_right_after_helm_4() {
    nothing_differs(Helm::V4, "fresh4").await;
}

async fn nothing_differs(helm: Helm, namespace: &str) {
    let fixture = Fixture::new(namespace).await;
    let releases = [("web", "mini10"), ("shop", "shop"), ("cache", "cache"), ("bulk", "bulk"), (namespace, "kinds")];
    for (release, chart) in releases {
        fixture.install(helm, release, chart, &[]).await;
    }
    let (code, statuses) = fixture.statuses(&[]).await;
    assert_eq!(statuses.len(), releases.len());
    for status in &statuses {
        assert!(status.findings.is_empty(), "{:#?}", status.findings);
        assert_eq!(in_sync(status), "True AsDeclared");
        assert!(status.summary.objects >= 3 && status.summary.objects == status.summary.in_sync, "{:?}", status.summary);
        assert_eq!(status.source.as_ref().unwrap().revision, Some(1));
    }
    assert_eq!(code, 0);
    let table = fixture.scan(&[]).await;
    assert!(table.code == 0 && table.err.is_empty() && table.out.ends_with(" objects are as declared.\n"), "{}{}", table.out, table.err);
    assert!(!table.out.contains('\x1b'), "colours are for terminals");
    fixture.wrote_nothing().await;
}

#[tokio::test]
async fn many_objects_take_few_calls() {
    let fixture = Fixture::new("bulk4").await;
    fixture.install(Helm::V4, "bulk", "bulk", &["--set", "count=300"]).await;
    let (code, statuses) = fixture.statuses(&["--release", "bulk"]).await;
    assert_eq!((code, statuses[0].summary.in_sync), (0, 300));
    let calls = fixture.calls().await;
    // One question for the shape, asked by those that are judged at the same time; the record; one list of the objects, one of records.
    assert!((1..=16).contains(&calls.dry_runs().len()), "{}", calls.dry_runs());
    assert_eq!(calls.gets().len(), 1, "{}", calls.gets());
    assert_eq!(calls.of_resource("configmaps").lists().len(), 2);
}

#[tokio::test]
async fn all_namespaces_one_namespace_one_release() {
    let (one, other) = (Fixture::new("scope-a").await, Fixture::new("scope-b").await);
    one.install(Helm::V4, "web", "shop", &[]).await;
    one.install(Helm::V4, "db", "cache", &[]).await;
    other.install(Helm::V3, "web", "shop", &[]).await;
    let names = |json: &str| -> Vec<String> {
        let statuses: Vec<holdfast_api::report::DriftReportStatus> = serde_json::from_str(json).unwrap();
        statuses
            .iter()
            .map(|status| status.source.as_ref().unwrap())
            .map(|source| format!("{}/{}", source.namespace, source.name))
            .collect()
    };
    let everywhere = names(&one.run(&["-A", "-o", "json"], "").await.out);
    for release in ["scope-a/web", "scope-a/db", "scope-b/web"] {
        assert!(everywhere.iter().any(|name| name == release), "{everywhere:?}");
    }
    assert_eq!(names(&one.scan(&["-o", "json"]).await.out), ["scope-a/db", "scope-a/web"]);
    assert_eq!(names(&one.scan(&["--release", "web", "-o", "json"]).await.out), ["scope-a/web"]);
    let yaml = one.scan(&["--release", "web", "-o", "yaml"]).await;
    assert!(yaml.code == 0 && yaml.out.contains("    namespace: scope-a\n    name: web\n    revision: 1\n"), "{}", yaml.out);
    let none = Fixture::new("scope-c").await.scan(&[]).await;
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    assert!(none.err.contains("no Helm releases in namespace scope-c") && none.err.contains("-A"), "{}", none.err);
    assert_eq!(Fixture::new("scope-d").await.scan(&["-o", "json"]).await.out, "[]\n");
}
