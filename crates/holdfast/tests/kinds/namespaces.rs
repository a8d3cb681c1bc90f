//! Namespaces that go and come again under objects and records of releases.
//!
//! Nothing but the API server runs on the cluster, so a namespace that is being deleted stays until a test finishes that.

use anyhow::ensure;
use futures::future::join_all;
use holdfast_testkit::{Audit, Fault, FaultRule, Mark, Match, Reply, Target, management::HUB_USER};
use serde_json::json;

use crate::{
    fixture::{Marker, Style, configmap, hub_writes, lines},
    site::{Custom, Site},
    support::{condition, reason},
};

/// More than are judged at the same time, 16.
const MANY: usize = 40;
const AT_ONCE: usize = 16;

/// Begins to delete a namespace.
async fn delete(site: &Site, namespace: &str) {
    site.writer.delete(&Target::namespace(namespace)).await.unwrap();
}

/// Deletes what is in it, as the namespace controller does.
async fn empty(site: &Site, namespace: &str, what: &str) {
    site.world.workload.kubectl(&["delete", what, "--all", "-n", namespace]).await.unwrap();
}

/// Ends the deletion of a namespace, as the namespace controller does.
async fn finish(site: &Site, namespace: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}, "spec": {"finalizers": []}});
    let file = site.world.workload.dir().join(format!("{namespace}.finalize.json"));
    std::fs::write(&file, object.to_string()).unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/finalize");
    site.world.workload.kubectl(&["replace", "--raw", &path, "-f", file.to_str().unwrap()]).await.unwrap();
}

/// Writes of the hub in a namespace that were refused, and others.
async fn writes(site: &Site, mark: Mark, namespace: &str) -> (Audit, Audit) {
    let writes = hub_writes(site.world.workload, mark).await.in_namespace(namespace);
    let refused = |code: Option<u16>| code.is_some_and(|code| code >= 400);
    (writes.filter(|call| refused(call.code)), writes.filter(|call| !refused(call.code)))
}

/// Waits until so many objects of a release are missing, each for this reason.
async fn wait_missing(site: &Site, release: &str, count: usize, why: &str) {
    let is_so = |status: &serde_json::Value| {
        let findings = status["findings"].as_array().map_or(&[][..], Vec::as_slice);
        let meant = findings.iter().filter(|finding| finding["verdict"] == "Missing" && finding["reason"] == why).count();
        status["summary"]["missing"] == count && meant == count
    };
    site.world.wait_report(Some(release), &format!("{count} are missing, {why}"), is_so).await;
}

type Strike = fn(&Site) -> Vec<FaultRule>;

/// Who cannot look at namespaces finds out by trying.
fn blind(site: &Site) -> Vec<FaultRule> {
    let forbidden = Reply::status(403, "Forbidden", "namespaces is forbidden: User \"hub\" cannot list resource");
    vec![site.proxy.rule(Match::path("/api/v1/namespaces"), Fault::Answer(forbidden))]
}

pub async fn a_namespace_goes_and_comes_again_under_a_releases_objects() {
    let cases: [(&str, Style, Strike); 3] =
        [("csa", Style::ClientSide, |_| Vec::new()), ("ssa", Style::ServerSide, |_| Vec::new()), ("blind", Style::ClientSide, blind)];
    join_all(cases.map(async |(word, style, rules)| {
        let mut site = Site::new(&format!("kinds-namespace-{word}")).await;
        let away = format!("{}-away", site.namespace());
        site.world.workload.namespace(&away).await.unwrap();
        let objects: Vec<_> = (0..MANY).map(|number| configmap(&away, &format!("o{number}"), "color", "blue")).collect();
        let release = site.declare("web", style, &objects).await;
        for object in &objects {
            release.write(object).await;
        }
        let marker = Marker::install(&site.world).await;
        let rules = rules(&site);
        let _rules = site.guard(false, rules).await;
        site.world.wait_in_sync("web").await;
        let mark = site.world.workload.audit_mark().await.unwrap();

        delete(&site, &away).await;
        empty(&site, &away, "configmaps").await;
        wait_missing(&site, "web", MANY, "NamespaceTerminating").await;
        marker.pass(&site.world).await;
        let (refused, others) = writes(&site, mark, &away).await;
        assert!(others.is_empty() && !refused.is_empty() && refused.len() <= AT_ONCE, "{word}: {:?}", lines(&refused));
        let tried = refused.len();

        finish(&site, &away).await;
        if word != "blind" {
            wait_missing(&site, "web", MANY, "NamespaceMissing").await;
            let (refused, others) = writes(&site, mark, &away).await;
            assert!(others.is_empty() && refused.len() == tried, "{word}: it was not tried again: {:?}", lines(&refused));
        }

        site.world.workload.namespace(&away).await.unwrap();
        site.wait_live(&Target::configmap(&away, "o0"), "/data/color", &json!("blue")).await;
        site.world.wait_in_sync("web").await;
        let (refused, made) = writes(&site, mark, &away).await;
        assert_eq!(made.len(), MANY, "{word}: {:?}", lines(&made));
        assert!(refused.len() <= 2 * AT_ONCE, "{word}: {:?}", lines(&refused));
        // It is watched for as long as it matters, and no longer.
        let watch = Match::watches("/api/v1/namespaces");
        site.world
            .wait("namespaces are watched no more", async || {
                ensure!(site.proxy.open(&watch) == 0, "{word}: {} watches", site.proxy.open(&watch));
                Ok(())
            })
            .await;
    }))
    .await;
}

#[tokio::test]
async fn a_namespace_that_never_was_is_told_and_waited_for() {
    let mut site = Site::new("kinds-nowhere").await;
    let nowhere = "kinds-nowhere-else";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": nowhere}, "data": {"k": "dg=="}});
    let objects = [configmap(nowhere, "one", "color", "blue"), secret];
    site.declare("web", Style::ClientSide, &objects).await;
    site.guard(true, Vec::new()).await;
    wait_missing(&site, "web", 2, "NamespaceMissing").await;
    site.world.workload.namespace(nowhere).await.unwrap();
    site.wait_live(&Target::configmap(nowhere, "one"), "/data/color", &json!("blue")).await;
    site.wait_live(&Target::secret(nowhere, "s"), "/data/k", &json!("dg==")).await;
    site.world.wait_in_sync("web").await;
}

/// A release that declares its namespaces and kinds itself brings them back before what needs them.
#[tokio::test]
async fn what_others_need_comes_first() {
    const OWN: Custom = Custom { group: "own.example", plural: "widgets", kind: "Widget", namespaced: true, versions: &["v1"] };
    let mut site = Site::new("kinds-first").await;
    let away = "kinds-first-away";
    let objects = [
        configmap(away, "needs", "color", "blue"),
        OWN.object("v1", site.namespace(), "needs"),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": away, "labels": {"team": "red"}}}),
        OWN.definition(&["v1"]),
    ];
    let release = site.declare("web", Style::ClientSide, &objects).await;
    for object in objects.iter().rev() {
        release.write(object).await;
    }
    let marker = Marker::install(&site.world).await;
    site.guard(false, Vec::new()).await;
    site.world.wait_in_sync("web").await;
    delete(&site, away).await;
    site.writer.delete(&OWN.crd()).await.unwrap();
    site.wait_finding("web", "Namespace", away, "Terminating", "ObjectTerminating").await;
    empty(&site, away, "configmaps").await;
    site.wait_finding("web", "ConfigMap", "needs", "Missing", "NamespaceTerminating").await;
    marker.pass(&site.world).await;
    finish(&site, away).await;
    site.wait_live(&Target::namespace(away), "/metadata/labels/team", &json!("red")).await;
    site.wait_live(&Target::configmap(away, "needs"), "/data/color", &json!("blue")).await;
    site.wait_live(&OWN.target("v1", site.namespace(), "needs"), "/spec/size", &json!(1)).await;
    site.world.wait_in_sync("web").await;
}

/// The record went with the namespace: nobody says any more that anything should be there.
#[tokio::test]
async fn a_namespace_goes_with_the_releases_record() {
    let mut site = Site::new("kinds-record").await;
    let namespace = site.namespace().to_owned();
    let object = configmap(&namespace, "settings", "color", "blue");
    let release = site.declare("web", Style::ClientSide, std::slice::from_ref(&object)).await;
    release.write(&object).await;
    site.guard(false, Vec::new()).await;
    site.world.wait_in_sync("web").await;
    delete(&site, &namespace).await;
    empty(&site, &namespace, "secrets").await;
    site.wait_unknown("web", "RecordsVanished").await;
    empty(&site, &namespace, "configmaps").await;
    finish(&site, &namespace).await;
    site.world.workload.namespace(&namespace).await.unwrap();
    let mark = site.world.workload.audit_mark().await.unwrap();
    let marker = Marker::install(&site.world).await;
    marker.pass(&site.world).await;
    let report = site.world.report(Some("web")).await.unwrap();
    assert_eq!((condition(&report["status"], "InSync"), reason(&report["status"], "InSync")), ("Unknown", "RecordsVanished"));
    let (refused, made) = writes(&site, mark, &namespace).await;
    let made = made.filter(|call| call.name != "marker");
    assert!(made.is_empty() && refused.is_empty(), "{:?} {:?}", lines(&made), lines(&refused));
    // Installed again, it is guarded again: other objects under the old names.
    release.install(std::slice::from_ref(&object)).await;
    site.world.wait_in_sync("web").await;
    let settings = Target::configmap(&namespace, "settings");
    site.world.writer("kubectl-edit").merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
    site.wait_live(&settings, "/data/color", &json!("blue")).await;
    assert!(!site.world.workload.audit_since(mark).await.unwrap().by_user(HUB_USER).is_empty());
}
