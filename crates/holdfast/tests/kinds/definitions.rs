//! Definitions that come after the release, go, and come again (case D18); that are on their way out; and versions served no more.

use futures::future::join_all;
use holdfast_testkit::{Audit, Mark, management::HUB_USER};
use serde_json::json;

use crate::{
    fixture::{Marker, Style, hub_writes, lines},
    site::{A_WHILE, Custom, Site},
};

/// Whatever the hub asks about a kind while it is absent: its watch, its audits and its objects wait longer and longer.
const QUIET: usize = 40;

async fn about(site: &Site, mark: Mark, kind: &Custom) -> Audit {
    let calls = site.world.workload.audit_since(mark).await.unwrap().by_user(HUB_USER);
    calls.filter(|call| call.group == kind.group)
}

async fn define(site: &Site, kind: &Custom, served: &[&str]) {
    site.writer.create(&kind.crd(), &kind.definition(served)).await.unwrap();
}

/// A kind of each scope, written in each way.
const COMING: [(&str, Style, Custom); 3] = [
    (
        "csa",
        Style::ClientSide,
        Custom { group: "csa.coming.example", plural: "widgets", kind: "Widget", namespaced: true, versions: &["v1"] },
    ),
    (
        "ssa",
        Style::ServerSide,
        Custom { group: "ssa.coming.example", plural: "gadgets", kind: "Gadget", namespaced: true, versions: &["v1"] },
    ),
    ("all", Style::ClientSide, Custom { group: "all.coming.example", plural: "lots", kind: "Lot", namespaced: false, versions: &["v1"] }),
];

#[tokio::test]
async fn d18_a_kind_comes_after_its_release_goes_and_comes_again() {
    let mut site = Site::new("kinds-coming").await;
    let mark = site.world.workload.audit_mark().await.unwrap();
    for (release, style, kind) in &COMING {
        site.declare(release, *style, &[kind.object("v1", site.namespace(), "w")]).await;
    }
    let marker = Marker::install(&site.world).await;
    site.guard(true, Vec::new()).await;
    let site = &site;
    for round in 1..=2 {
        join_all(COMING.iter().map(async |(release, _, kind)| {
            site.wait_finding(release, kind.kind, "w", "Unknown", "KindNotServed").await;
            site.wait_unknown(release, "KindNotServed").await;
        }))
        .await;
        marker.pass(&site.world).await;
        // There is nothing to wait for: that nothing happens shows in what is counted below.
        tokio::time::sleep(A_WHILE).await;
        join_all(COMING.iter().map(async |(release, _, kind)| {
            let calls = about(site, mark, kind).await;
            assert!(calls.len() < QUIET * round, "a storm: {:?}", lines(&calls));
            define(site, kind, &["v1"]).await;
            let target = kind.target("v1", site.namespace(), "w");
            site.wait_live(&target, "/spec/size", &json!(1)).await;
            site.world.wait_in_sync(release).await;
            let writes = about(site, mark, kind).await.writes();
            let created = writes.filter(|call| matches!(call.code, Some(200 | 201)));
            assert_eq!(created.len(), round, "{:?}", lines(&writes));
            assert!(writes.len() <= 3 * round, "{:?}", lines(&writes));
            site.writer.delete(&kind.crd()).await.unwrap();
            site.wait_gone(&kind.crd()).await;
        }))
        .await;
    }
    join_all(COMING.iter().map(async |(release, ..)| site.wait_unknown(release, "KindNotServed").await)).await;
    let log = site.world.log();
    assert!(!log.contains("the cluster cannot be reached"), "a new kind that answers 429 is no matter of its cluster\n{log}");
}

/// One kind, made anew in another form each time.
const FORMS: [Custom; 3] = [
    Custom { group: "forms.example", plural: "widgets", kind: "Widget", namespaced: true, versions: &["v1"] },
    Custom { group: "forms.example", plural: "widgets", kind: "Widget", namespaced: false, versions: &["v1"] },
    Custom { group: "forms.example", plural: "gadgets", kind: "Widget", namespaced: true, versions: &["v1"] },
];

#[tokio::test]
async fn a_kind_comes_again_in_another_form() {
    let mut site = Site::new("kinds-forms").await;
    site.declare("web", Style::ClientSide, &[FORMS[0].object("v1", site.namespace(), "w")]).await;
    site.guard(true, Vec::new()).await;
    let edit = site.world.writer("kubectl-edit");
    for form in &FORMS {
        define(&site, form, &["v1"]).await;
        let target = form.target("v1", site.namespace(), "w");
        site.wait_live(&target, "/spec/size", &json!(1)).await;
        site.world.wait_in_sync("web").await;
        edit.merge_patch(&target, &json!({"spec": {"size": 2}})).await.unwrap();
        site.wait_live(&target, "/spec/size", &json!(1)).await;
        site.writer.delete(&form.crd()).await.unwrap();
        site.wait_gone(&form.crd()).await;
        site.wait_unknown("web", "KindNotServed").await;
    }
}

/// Apply would be let through by the server while a definition is on its way out, a POST would not.
const LEAVING: [(&str, Style, Custom); 2] = [
    (
        "csa",
        Style::ClientSide,
        Custom { group: "csa.leaving.example", plural: "widgets", kind: "Widget", namespaced: true, versions: &["v1"] },
    ),
    (
        "ssa",
        Style::ServerSide,
        Custom { group: "ssa.leaving.example", plural: "gadgets", kind: "Gadget", namespaced: true, versions: &["v1"] },
    ),
];

#[tokio::test]
async fn nothing_is_created_of_a_kind_whose_definition_is_on_its_way_out() {
    let mut site = Site::new("kinds-leaving").await;
    let namespace = site.namespace().to_owned();
    for (release, style, kind) in &LEAVING {
        define(&site, kind, &["v1"]).await;
        site.wait_served(&kind.target("v1", &namespace, "kept")).await;
        let objects = ["kept", "w"].map(|name| kind.object("v1", &namespace, name));
        let release = site.declare(release, *style, &objects).await;
        for object in &objects {
            release.write(object).await;
        }
        let finalizer = json!({"metadata": {"finalizers": ["kinds.example/kept"]}});
        site.writer.merge_patch(&kind.target("v1", &namespace, "kept"), &finalizer).await.unwrap();
    }
    let marker = Marker::install(&site.world).await;
    site.guard(false, Vec::new()).await;
    let site = &site;
    let mark = site.world.workload.audit_mark().await.unwrap();
    join_all(LEAVING.iter().map(async |(release, _, kind)| {
        site.world.wait_in_sync(release).await;
        site.writer.delete(&kind.crd()).await.unwrap();
        let finding = site.wait_finding(release, kind.kind, "w", "Missing", "KindTerminating").await;
        assert_eq!(finding["action"], "Deferred", "{finding}");
        site.wait_finding(release, kind.kind, "kept", "Terminating", "ObjectTerminating").await;
    }))
    .await;
    marker.pass(&site.world).await;
    join_all(LEAVING.iter().map(async |(release, _, kind)| {
        let kept = kind.target("v1", &namespace, "kept");
        site.writer.merge_patch(&kept, &json!({"metadata": {"finalizers": null}})).await.unwrap();
        site.wait_gone(&kind.crd()).await;
        site.wait_unknown(release, "KindNotServed").await;
        let writes = about(site, mark, kind).await.writes();
        assert!(writes.is_empty(), "{:?}", lines(&writes));
        define(site, kind, &["v1"]).await;
        for name in ["kept", "w"] {
            site.wait_live(&kind.target("v1", &namespace, name), "/spec/size", &json!(1)).await;
        }
        site.world.wait_in_sync(release).await;
    }))
    .await;
}

const VERSIONED: Custom =
    Custom { group: "versions.example", plural: "widgets", kind: "Widget", namespaced: true, versions: &["v1beta1", "v1"] };

#[tokio::test]
async fn a_version_that_is_served_no_more_makes_nothing_missing() {
    let mut site = Site::new("kinds-versions").await;
    let namespace = site.namespace().to_owned();
    define(&site, &VERSIONED, VERSIONED.versions).await;
    let at_v1 = |name: &str| VERSIONED.target("v1", &namespace, name);
    site.wait_served(&at_v1("old")).await;
    let objects = ["old", "gone"].map(|name| VERSIONED.object("v1beta1", &namespace, name));
    let release = site.declare("old", Style::ClientSide, &objects).await;
    for object in &objects {
        release.write(object).await;
    }
    // What another release names at the other version is none of it.
    let newer = VERSIONED.object("v1", &namespace, "new");
    site.declare("new", Style::ClientSide, std::slice::from_ref(&newer)).await.write(&newer).await;
    let marker = Marker::install(&site.world).await;
    site.guard(false, Vec::new()).await;
    site.world.wait_in_sync("old").await;
    site.world.wait_in_sync("new").await;

    let mark = site.world.workload.audit_mark().await.unwrap();
    site.writer.update(&VERSIONED.crd(), |crd| crd["spec"]["versions"][0]["served"] = json!(false)).await.unwrap();
    site.wait_unknown("old", "KindNotServed").await;
    let edit = site.world.writer("kubectl-edit");
    edit.merge_patch(&at_v1("old"), &json!({"spec": {"size": 2}})).await.unwrap();
    edit.delete(&at_v1("gone")).await.unwrap();
    edit.merge_patch(&at_v1("new"), &json!({"spec": {"size": 3}})).await.unwrap();
    site.wait_live(&at_v1("new"), "/spec/size", &json!(1)).await;
    marker.pass(&site.world).await;
    site.wait_unknown("old", "KindNotServed").await;
    let writes = hub_writes(site.world.workload, mark).await.filter(|call| call.group == VERSIONED.group);
    assert_eq!(writes.len(), 1, "{:?}", lines(&writes));

    site.writer.update(&VERSIONED.crd(), |crd| crd["spec"]["versions"][0]["served"] = json!(true)).await.unwrap();
    for name in ["old", "gone"] {
        site.wait_live(&at_v1(name), "/spec/size", &json!(1)).await;
    }
    site.world.wait_in_sync("old").await;
}
