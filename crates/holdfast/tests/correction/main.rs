//! Drift of a Helm 3 and a Helm 4 release is found, named and put back without a trace; under `Warn` it is only reported.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy allows it in test functions, not in their helpers"
)]

mod coupled;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;

use holdfast_testkit::{Audit, Helm, Mark};
use serde_json::{Value, json};

use support::{
    World, condition,
    drifts::{self, Drift, Edit, Named},
    finding, path_of,
    twin::{HELM_AT_WORK, Twins},
};

#[tokio::test]
async fn every_drift_of_a_helm_3_release_goes_back_without_a_trace() {
    goes_back("correct3", Helm::V3).await;
}

#[tokio::test]
async fn every_drift_of_a_helm_4_release_goes_back_without_a_trace() {
    goes_back("correct4", Helm::V4).await;
}

#[tokio::test]
async fn warn_reports_drift_of_a_helm_3_release_and_touches_nothing() {
    is_reported("warn3", Helm::V3).await;
}

#[tokio::test]
async fn warn_reports_drift_of_a_helm_4_release_and_touches_nothing() {
    is_reported("warn4", Helm::V4).await;
}

/// Drift by drift under `Correct`, at most one of an object at a time.
async fn goes_back(name: &str, helm: Helm) {
    let mut world = World::new(name).await;
    let twins = Twins::install(&world, helm).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let mut node_port = node_port(&world).await;
    let start = world.workload.audit_mark().await.unwrap();
    let (mut corrections, mut writes) = (0, 0);
    for wave in drifts::waves(drifts::fields().into_iter().chain(drifts::keys_and_removals()).chain(drifts::deletions())) {
        // A record that changes anywhere in the cluster may claim these objects: what is under way is then decided on anew.
        let _quiet = HELM_AT_WORK.read().await;
        let what: Vec<&str> = wave.iter().map(|drift| drift.editor).collect();
        let what = what.join(", ");
        let mark = world.workload.audit_mark().await.unwrap();
        for drift in &wave {
            drift.make(&world.writer(drift.editor), name).await;
        }
        let report = world.wait_report(Some("web"), &what, |status| wave.iter().all(|drift| is_corrected(status, drift))).await;
        let calls = of_objects(&world, mark).await;
        let expected: Vec<usize> = wave.iter().map(|drift| drift.calls[usize::from(helm == Helm::V4)]).collect();
        let (count, moves) = (wave.len(), expected.iter().filter(|calls| **calls == 6).count());
        assert_eq!(
            [calls.len(), calls.gets().len(), calls.lists().len(), calls.writes().len()],
            [expected.iter().sum(), count, count, count + moves],
            "{what}:\n{calls}"
        );
        corrections += count;
        writes += count + moves;
        for drift in &wave {
            assert_named(drift, finding(&report["status"], drift.kind, drift.object).unwrap());
            assert_recorded(drift, &report["status"]);
            twins.assert_equal(&world, drift).await;
        }
        let port = self::node_port(&world).await;
        if !what.contains("deleted-service") {
            assert_eq!(port, node_port, "{what}: the port the cluster handed out stays");
        }
        node_port = port;
    }
    assert_eq!(of_objects(&world, start).await.writes().len(), writes, "and no write afterwards");
    twins.assert_all_equal(&world, "corrected").await;
    twins.assert_revision(&world, 1).await;
    assert_secret_stays_secret(&world).await;
    assert_eq!(world.log().matches(r#""audit":"correction""#).count(), corrections, "one audit line for each");

    // Whoever is faster, the hub or somebody else: the release's object stands in the end.
    for drift in drifts::replacements() {
        drift.make(&world.writer(drift.editor), name).await;
        world.wait(drift.editor, async || twins.same(&world, &drift).await).await;
    }
    world.wait_in_sync("web").await;
    twins.upgrade_and_roll_back(&world).await;
}

/// The last correction of the object that the report lists is this one.
fn assert_recorded(drift: &Drift, status: &Value) {
    let is_of_object = |record: &&Value| record["object"]["kind"] == drift.kind && record["object"]["name"] == drift.object;
    let last = status["corrections"].as_array().unwrap().iter().rfind(is_of_object).unwrap();
    let outcome = if drift.deletes() { "Recreated" } else { "Corrected" };
    assert_eq!(last["outcome"], outcome, "{}", drift.editor);
    assert_eq!(paths(last), drift.paths.iter().copied().collect(), "{}: {last:#}", drift.editor);
}

/// Many drifts at a time under `Warn`, before and after a restart; then the policy says `Correct`.
async fn is_reported(name: &str, helm: Helm) {
    let mut world = World::new(name).await;
    let twins = Twins::install(&world, helm).await;
    for Round { what, drifts, restart } in rounds() {
        world.policy("Warn", json!({})).await;
        start_anew(&mut world).await;
        world.wait_in_sync("web").await;
        let mark = world.workload.audit_mark().await.unwrap();
        for drift in &drifts {
            drift.make(&world.writer(drift.editor), name).await;
        }
        let before = twins.state(&world).await;
        let report = world.wait_report(Some("web"), what, |status| are_reported(status, &drifts)).await;
        assert_all_named(&report["status"], &drifts);
        if restart {
            world.stop_hub();
            start_anew(&mut world).await;
            let report = world.wait_report(Some("web"), what, |status| are_reported(status, &drifts)).await;
            assert_all_named(&report["status"], &drifts);
        }
        assert_eq!(condition(&report["status"], "InSync"), "False", "{what}");
        let writes = of_objects(&world, mark).await.writes();
        assert!(writes.is_empty(), "{what}: Warn writes nothing:\n{writes}");
        assert_eq!(twins.state(&world).await, before, "{what}: nothing changed");

        world.policy("Correct", json!({})).await;
        world.wait_report(Some("web"), what, |status| drifts.iter().all(|drift| is_put_back(status, drift))).await;
        twins.assert_all_equal(&world, what).await;
        assert_secret_stays_secret(&world).await;
        world.stop_hub();
    }
    world.start_hub(&[]);
    twins.assert_revision(&world, 1).await;
    twins.upgrade_and_roll_back(&world).await;
}

/// Drifts that are made together.
struct Round {
    what: &'static str,
    drifts: Vec<Drift>,
    restart: bool,
}

fn rounds() -> [Round; 4] {
    let of = |editors: &[&str]| -> Vec<Drift> {
        let all = drifts::fields().into_iter().chain(drifts::keys_and_removals()).chain(drifts::deletions());
        all.filter(|drift| editors.contains(&drift.editor)).collect()
    };
    let without = |drifts: Vec<Drift>, editors: &[&str]| -> Vec<Drift> {
        drifts.into_iter().filter(|drift| !editors.contains(&drift.editor)).collect()
    };
    // What was seen with the release's metadata is not remembered over a restart.
    let disowned = ["lost-release", "lost-namespace", "deleted-role"];
    [
        Round { what: "fields", drifts: without(drifts::fields(), &["scale", "role-rule"]), restart: true },
        Round {
            what: "keys and removals",
            drifts: without(drifts::keys_and_removals(), &[&disowned[..], &["container"]].concat()),
            restart: true,
        },
        Round {
            what: "deletions",
            drifts: without(drifts::deletions(), &["deleted-deployment", "deleted-role"])
                .into_iter()
                .chain(of(&["container", "scale"]))
                .collect(),
            restart: true,
        },
        Round { what: "replacements", drifts: drifts::replacements().into_iter().chain(of(&disowned)).collect(), restart: false },
    ]
}

/// Starts the hub without anything an earlier one reported.
async fn start_anew(world: &mut World) {
    world.mgmt.kubectl(&["delete", "driftreports", "--all", "--namespace", &world.namespace]).await.unwrap();
    world.start_hub(&[]);
}

/// Calls of the hub about objects of the world's namespace since `mark`. The hubs of other tests read its release records too.
async fn of_objects(world: &World, mark: Mark) -> Audit {
    let calls = world.of_hub(&world.workload.audit_since(mark).await.unwrap());
    calls.filter(|call| !(call.resource == "secrets" && call.verb == "get" && call.name.starts_with("sh.helm.release.v1.")))
}

async fn node_port(world: &World) -> Value {
    let service = drifts::target("Service", &world.namespace, "web-web");
    let port = support::live(&world.writer("reader"), &service, "/spec/ports/0/nodePort").await;
    assert!(port.is_number(), "{port}");
    port
}

fn paths(finding: &Value) -> BTreeSet<&str> {
    finding["paths"].as_array().into_iter().flatten().filter_map(|entry| entry["path"].as_str().or(entry.as_str())).collect()
}

/// Whether the report says that this very drift was put back, and nothing is left.
fn is_corrected(status: &Value, drift: &Drift) -> bool {
    let Some(found) = finding(status, drift.kind, drift.object) else { return false };
    let is_this = drift.deletes() || (paths(found) == drift.paths.iter().copied().collect() && is_by(found, drift));
    is_this && is_put_back(status, drift)
}

fn is_by(found: &Value, drift: &Drift) -> bool {
    let manager = if drift.named == Named::Editor { drift.editor } else { "unattributed" };
    path_of(found, drift.paths[0]).is_some_and(|entry| entry["actor"]["manager"] == manager)
}

/// Whether the report says that the object was put back, and nothing is left.
fn is_put_back(status: &Value, drift: &Drift) -> bool {
    let action = if drift.deletes() { "Recreated" } else { "Corrected" };
    let found = finding(status, drift.kind, drift.object);
    condition(status, "InSync") == "True" && found.is_some_and(|found| found["verdict"] == "InSync" && found["action"] == action)
}

/// Whether every object of `drifts` is reported, with every path.
fn are_reported(status: &Value, drifts: &[Drift]) -> bool {
    drifts.iter().all(|drift| {
        finding(status, drift.kind, drift.object).is_some_and(|found| {
            let wanted: BTreeSet<&str> = drifts
                .iter()
                .filter(|other| (other.kind, other.object) == (drift.kind, drift.object))
                .flat_map(|other| other.paths.iter().copied())
                .collect();
            let missing = found["verdict"] == "Missing";
            found["action"] == "Reported" && if drift.deletes() { missing } else { paths(found) == wanted || (missing && is_hidden(drift)) }
        })
    })
}

/// Whether the watch cannot show the object: without the label it is only found by the next audit.
fn is_hidden(drift: &Drift) -> bool {
    matches!(&drift.edit, Edit::Recreate(object) if object.pointer("/metadata/labels").is_none())
}

fn assert_all_named(status: &Value, drifts: &[Drift]) {
    for drift in drifts.iter().filter(|drift| !drift.deletes() && !is_hidden(drift)) {
        let found = finding(status, drift.kind, drift.object).unwrap();
        assert_eq!(found["verdict"], "Drifted", "{}", drift.editor);
        assert_named(drift, found);
    }
}

/// The finding names who did it and what stands there.
fn assert_named(drift: &Drift, found: &Value) {
    for path in drift.paths {
        let entry = path_of(found, path).unwrap_or_else(|| panic!("{}: no {path} in {found:#}", drift.editor));
        let is_candidate = entry["actor"]["candidates"].as_array().is_some_and(|candidates| candidates.contains(&json!(drift.editor)));
        let removed = entry["change"] == "Removed";
        let (editor, candidate) = match drift.named {
            Named::Editor => (true, false),
            Named::Nobody => (false, false),
            Named::Candidate => (false, true),
            Named::Creator => (!removed, removed),
        };
        let manager = if editor { drift.editor } else { "unattributed" };
        assert_eq!(
            (&entry["actor"]["manager"], is_candidate, removed),
            (&json!(manager), candidate, !editor),
            "{}: {entry:#}",
            drift.editor
        );
        let subresource = if matches!(drift.edit, Edit::Scale(_)) { json!("scale") } else { Value::Null };
        assert_eq!(entry["actor"]["subresource"], subresource, "{}", drift.editor);
        if drift.kind == "Secret" && path.starts_with("/data") {
            assert_eq!(
                (&entry["desired"], &entry["live"], &entry["accepted"]),
                (&Value::Null, &Value::Null, &Value::Null),
                "{}",
                drift.editor
            );
        }
    }
    if let Some((desired, live)) = &drift.shown {
        let entry = path_of(found, drift.paths[0]).unwrap();
        assert_eq!((&entry["desired"], &entry["live"]), (desired, live), "{}", drift.editor);
    }
}

/// No value of a Secret, declared or not, plain or encoded, reaches a report, an Event or the log.
async fn assert_secret_stays_secret(world: &World) {
    let reports = world
        .mgmt
        .kubectl(&["get", "driftreports,events.events.k8s.io", "--namespace", &world.namespace, "--output", "json"])
        .await
        .unwrap();
    let log = world.log();
    assert!(reports.contains("web-auth") && log.contains("web-auth"), "the Secret's drift is told");
    for value in ["s3cret", "czNjcmV0", "token-web", "dG9rZW4td2Vi", "stolen", "c3RvbGVu"] {
        assert!(!reports.contains(value) && !log.contains(value), "{value} leaked");
    }
}
