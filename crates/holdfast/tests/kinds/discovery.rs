//! Discovery that tells only a part, at the start and later; and scope, which only discovery tells (case D07).

use futures::future::join_all;
use holdfast_testkit::{Fault, FaultRule, Match, Reply, Target};
use serde_json::{Value, json};

use crate::{
    fixture::{Marker, Release, Style, configmap, hub_writes, lines},
    site::{Custom, Site},
    support::{condition, finding, message},
};

const CUSTOM: Custom = Custom { group: "scope.example", plural: "lots", kind: "Lot", namespaced: false, versions: &["v1"] };

/// Kinds of clusters, not of namespaces: where each is, an object of it, and a field to edit.
fn unscoped(word: &str) -> [(Target, Value, &'static str, Value); 4] {
    let name = format!("kinds-{word}");
    let object = |api: &str, kind: &str, fields: Value| {
        let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}});
        object.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
        object
    };
    let rule = |verb: &str| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
    [
        (
            Target::clusterrole(&name),
            object("rbac.authorization.k8s.io/v1", "ClusterRole", json!({"rules": rule("get")})),
            "/rules",
            rule("list"),
        ),
        (
            Target::cluster_scoped("scheduling.k8s.io", "v1", "priorityclasses", &name),
            object("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 7, "description": "kept"})),
            "/description",
            json!("edited"),
        ),
        (
            Target::cluster_scoped("node.k8s.io", "v1", "runtimeclasses", &name),
            object("node.k8s.io/v1", "RuntimeClass", json!({"handler": "runc", "scheduling": {"nodeSelector": {"a": "b"}}})),
            "/scheduling/nodeSelector/a",
            json!("c"),
        ),
        (CUSTOM.target("v1", "", &name), CUSTOM.object("v1", "", &name), "/spec/size", json!(2)),
    ]
}

/// The groups above.
const GROUPS: [&str; 4] = ["rbac.authorization.k8s.io", "scheduling.k8s.io", "node.k8s.io", CUSTOM.group];

fn is_struck(group: &str) -> bool {
    GROUPS.contains(&group)
}

type Strike = fn(&Site) -> Vec<FaultRule>;
type MakeReply = fn() -> Reply;

/// All groups in one document: it says of these that it could not ask.
fn aggregated(site: &Site) -> Vec<FaultRule> {
    let strike = |document: &mut Value| {
        for group in document["items"].as_array_mut().into_iter().flatten() {
            if group["metadata"]["name"].as_str().is_some_and(is_struck) {
                for version in group["versions"].as_array_mut().into_iter().flatten() {
                    *version = json!({"version": version["version"], "freshness": "Stale"});
                }
            }
        }
    };
    vec![site.proxy.rule(Match::path("/apis"), Fault::rewrite_json(strike))]
}

/// A document for each version, of which these are not answered.
fn plain(site: &Site) -> Vec<FaultRule> {
    let groups = |document: &mut Value| {
        let items = document["items"].as_array().cloned().unwrap_or_default();
        let groups = items.iter().map(|item| {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            let version = |version: &Value| {
                let version = version["version"].as_str().unwrap_or_default();
                json!({"groupVersion": format!("{name}/{version}"), "version": version})
            };
            json!({"name": name, "versions": item["versions"].as_array().into_iter().flatten().map(version).collect::<Vec<_>>()})
        });
        *document = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.collect::<Vec<_>>()});
    };
    let version = Match::any().when(|asked| {
        let mut parts = asked.path.trim_start_matches('/').split('/');
        parts.next() == Some("apis") && parts.next().is_some_and(is_struck) && parts.count() == 1
    });
    vec![
        site.proxy
            .rule(Match::path("/api"), Fault::rewrite_json(|document| *document = json!({"kind": "APIVersions", "versions": ["v1"]}))),
        site.proxy.rule(Match::path("/apis"), Fault::rewrite_json(groups)),
        site.proxy.rule(version, Fault::Answer(Reply::text(503, "service unavailable"))),
    ]
}

/// Declares each of them with a namespace, which it has not, beside a ConfigMap.
async fn declare(site: &Site, word: &str) -> Release {
    let (namespace, release) = (site.namespace(), Release::new(&site.world, "web", Style::ClientSide));
    let settings = configmap(namespace, "settings", "color", "blue");
    release.write(&settings).await;
    let mut declared = vec![settings];
    for (_, object, ..) in unscoped(word) {
        release.write(&object).await;
        let mut object = object;
        object["metadata"]["namespace"] = json!(namespace);
        declared.push(object);
    }
    release.record(1, "deployed", &declared).await;
    release
}

#[tokio::test]
async fn d07_a_namespace_on_what_has_none() {
    let cases: [(&str, Option<Strike>); 3] = [("whole", None), ("aggregated", Some(aggregated)), ("plain", Some(plain))];
    let mut sites = Vec::new();
    for (word, strike) in cases {
        let site = Site::new(&format!("kinds-scope-{word}")).await;
        if sites.is_empty() {
            site.writer.create(&CUSTOM.crd(), &CUSTOM.definition(&["v1"])).await.unwrap();
            site.wait_served(&CUSTOM.target("v1", "", "x")).await;
        }
        sites.push((word, strike, site));
    }
    join_all(sites.into_iter().map(async |(word, strike, mut site)| {
        declare(&site, word).await;
        let marker = Marker::install(&site.world).await;
        let mark = site.world.workload.audit_mark().await.unwrap();
        let rules = strike.map(|strike| strike(&site)).unwrap_or_default();
        let rules = site.guard(false, rules).await;
        if strike.is_some() {
            let report = site.wait_unknown("web", "DiscoveryIncomplete").await;
            assert!(message(&report["status"], "InSync").contains("discovery"), "{}", report["status"]["conditions"]);
            for (_, object, ..) in unscoped(word) {
                let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
                let finding = finding(&report["status"], kind, name).unwrap_or_else(|| panic!("{word}: {kind}"));
                assert_eq!((&finding["verdict"], &finding["reason"]), (&json!("Unknown"), &json!("DiscoveryIncomplete")), "{word}: {kind}");
            }
            let edit = site.world.writer("kubectl-edit");
            let settings = Target::configmap(site.namespace(), "settings");
            edit.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
            site.wait_live(&settings, "/data/color", &json!("blue")).await;
            marker.pass(&site.world).await;
            site.wait_unknown("web", "DiscoveryIncomplete").await;
            drop(rules);
        }
        let report = site.world.wait_in_sync("web").await;
        assert_eq!(report["status"]["summary"]["objects"], 5, "{word}: {}", report["status"]["summary"]);
        let writes =
            hub_writes(site.world.workload, mark).await.in_namespace("").filter(|call| call.uri.contains(&format!("kinds-{word}")));
        assert!(writes.is_empty(), "{word}: {:?}", lines(&writes));
        for (target, object, pointer, edited) in unscoped(word) {
            let patch = json!([{"op": "replace", "path": pointer, "value": edited}]);
            site.world.writer("kubectl-edit").json_patch(&target, &patch).await.unwrap();
            site.wait_live(&target, pointer, object.pointer(pointer).unwrap()).await;
        }
        let corrected = |status: &Value| status["corrections"].as_array().is_some_and(|corrections| corrections.len() >= 4);
        let report = site.world.wait_report(Some("web"), "each is corrected", corrected).await;
        for correction in report["status"]["corrections"].as_array().unwrap() {
            let is_settings = correction["object"]["kind"] == "ConfigMap";
            assert!(is_settings || correction["object"].get("namespace").is_none(), "{word}: {correction}");
        }
        site.world.wait_in_sync("web").await;
    }))
    .await;
}

/// Discovery fails for groups that were known before: what was known of them still stands, and is not known of what is new.
#[tokio::test]
async fn a_group_that_stops_answering_later_is_still_guarded() {
    const LATER: Custom = Custom { group: "later.example", plural: "widgets", kind: "Widget", namespaced: true, versions: &["v1"] };
    let mut site = Site::new("kinds-later").await;
    let role = |name: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name, "namespace": "kinds-later"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
    };
    let release = Release::new(&site.world, "web", Style::ClientSide);
    release.install(&[role("known")]).await;
    site.guard(false, Vec::new()).await;
    site.world.wait_in_sync("web").await;

    let rules = aggregated(&site);
    let asked = site.proxy.count(&Match::path("/apis"));
    site.writer.create(&LATER.crd(), &LATER.definition(&["v1"])).await.unwrap();
    let widget = LATER.target("v1", site.namespace(), "w");
    site.wait_served(&widget).await;
    site.declare("later", Style::ClientSide, &[LATER.object("v1", site.namespace(), "w")]).await;
    site.wait_live(&widget, "/spec/size", &json!(1)).await;
    assert!(site.proxy.count(&Match::path("/apis")) > asked && !rules.is_empty(), "discovery was asked while it told a part");

    let known = Target::role(site.namespace(), "known");
    let edit = site.world.writer("kubectl-edit");
    let denied = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    edit.merge_patch(&known, &json!({"rules": denied})).await.unwrap();
    site.wait_live(&known, "/rules/0/verbs/0", &json!("get")).await;

    // A revision that comes meanwhile, with a kind of the group that was known and one that never was.
    let strange = json!({"apiVersion": "node.k8s.io/v1", "kind": "Strange", "metadata": {"name": "strange"}});
    release.record(1, "superseded", &[role("known")]).await;
    release.record(2, "deployed", &[role("known"), strange]).await;
    site.wait_unknown("web", "DiscoveryIncomplete").await;
    edit.merge_patch(&known, &json!({"rules": denied})).await.unwrap();
    site.wait_live(&known, "/rules/0/verbs/0", &json!("get")).await;
    site.wait_unknown("web", "DiscoveryIncomplete").await;
    drop(rules);
    site.wait_unknown("web", "KindNotServed").await;
    let status = site.world.report(Some("web")).await.unwrap()["status"].take();
    assert_eq!((&status["summary"]["inSync"], &status["summary"]["unknown"]), (&json!(1), &json!(1)), "{}", status["summary"]);
}

/// Discovery that fails as a whole: nothing is concluded from it, and nothing of it is left afterwards.
pub async fn discovery_that_fails_as_a_whole_concludes_nothing() {
    let failures: [(&str, MakeReply); 3] = [
        ("outages", || Reply::text(503, "service unavailable")),
        ("blanks", || Reply::json(200, &json!({"kind": "Status", "apiVersion": "v1"}))),
        ("delays", || Reply::text(429, "Too many requests, please try again later.").retry_after(1)),
    ];
    join_all(failures.map(async |(word, reply)| {
        let mut site = Site::new(&format!("kinds-whole-{word}")).await;
        let object = configmap(site.namespace(), "settings", "color", "blue");
        Release::new(&site.world, "web", Style::ClientSide).install(&[object]).await;
        let settings = Target::configmap(site.namespace(), "settings");
        let edit = site.world.writer("kubectl-edit");
        let mark = site.world.workload.audit_mark().await.unwrap();
        let strike = |site: &Site| vec![site.proxy.rule(Match::path("/apis"), Fault::Answer(reply()))];
        let rules = strike(&site);
        let rules = site.guard(false, rules).await;
        edit.merge_patch(&settings, &json!({"data": {"color": "red"}})).await.unwrap();
        site.world.wait_report(None, "not connected", |status| condition(status, "InSync") == "Unknown").await;
        assert!(site.world.report(Some("web")).await.is_none(), "{word}: nothing is known of a release");
        assert!(hub_writes(site.world.workload, mark).await.in_namespace(site.namespace()).is_empty(), "{word}");
        drop(rules);
        site.wait_live(&settings, "/data/color", &json!("blue")).await;

        // Later it is only asked in vain: what was known stands.
        let rules = strike(&site);
        let kind = Custom { group: "whole.example", plural: word, kind: word, namespaced: true, versions: &["v1"] };
        site.writer.create(&kind.crd(), &kind.definition(&["v1"])).await.unwrap();
        site.world
            .wait("discovery is asked", async || {
                anyhow::ensure!(rules.iter().any(|rule| rule.hits() > 0), "not yet");
                Ok(())
            })
            .await;
        edit.merge_patch(&settings, &json!({"data": {"color": "green"}})).await.unwrap();
        site.wait_live(&settings, "/data/color", &json!("blue")).await;
        site.world.wait_in_sync("web").await;
    }))
    .await;
}

/// An aggregated API behind which nobody answers: its kinds are not known, everything else goes on.
#[tokio::test]
async fn an_aggregated_api_without_a_server_is_told_and_costs_nothing_else() {
    let mut site = Site::new("kinds-aggregated").await;
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.nowhere.kinds.example"},
        "spec": {
            "group": "nowhere.kinds.example", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "nobody"},
        },
    });
    let target = Target::cluster_scoped("apiregistration.k8s.io", "v1", "apiservices", "v1.nowhere.kinds.example");
    site.writer.create(&target, &service).await.unwrap();
    let gadget =
        json!({"apiVersion": "nowhere.kinds.example/v1", "kind": "Gadget", "metadata": {"name": "g", "namespace": site.namespace()}});
    site.declare("gadgets", Style::ClientSide, &[gadget]).await;
    let marker = Marker::install(&site.world).await;
    site.world
        .wait("the group is listed", async || {
            let list = site.world.workload.kubectl(&["get", "--raw", "/apis"]).await?;
            anyhow::ensure!(list.contains("nowhere.kinds.example"), "not yet");
            Ok(())
        })
        .await;
    site.guard(false, Vec::new()).await;
    site.wait_finding("gadgets", "Gadget", "g", "Unknown", "DiscoveryIncomplete").await;
    site.wait_unknown("gadgets", "DiscoveryIncomplete").await;
    marker.pass(&site.world).await;
    let teacher = Target::configmap(site.namespace(), "gadgets-teacher");
    site.world.writer("kubectl-edit").merge_patch(&teacher, &json!({"data": {"at": "work"}})).await.unwrap();
    site.wait_live(&teacher, "/data/at", &json!("rest")).await;
    site.writer.delete(&target).await.unwrap();
    site.wait_finding("gadgets", "Gadget", "g", "Unknown", "KindNotServed").await;
    site.wait_unknown("gadgets", "KindNotServed").await;
}
