//! `fix` puts back what the hub would put back, and leaves as little behind.

use std::collections::BTreeSet;

use holdfast_testkit::{Helm, programs};
use serde_json::{Value, json};

use crate::{
    program::User,
    support::{
        World,
        drifts::{self, Drift},
        finding,
        twin::Twins,
    },
};

#[tokio::test]
async fn every_drift_of_a_helm_3_release_is_fixed_without_a_trace() {
    is_fixed("fix3", Helm::V3).await;
}

#[tokio::test]
async fn every_drift_of_a_helm_4_release_is_fixed_without_a_trace() {
    is_fixed("fix4", Helm::V4).await;
}

/// What was once seen with the release's metadata is known to a hub, not to a command that looks for the first time.
const ONLY_A_HUB_KNOWS: [&str; 3] = ["lost-release", "lost-namespace", "deleted-role"];

async fn is_fixed(name: &str, helm: Helm) {
    let world = World::new(name).await;
    let twins = Twins::install(&world, helm).await;
    let user = User::of_workload(&world).await;
    let of = |args: &[&str]| [&["fix", "-n", name, "--release", "web"], args].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let run = async |args: &[&str]| {
        let args = of(args);
        user.run(&args.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    let clean = run(&["--yes", "-o", "json"]).await;
    assert_eq!(
        (clean.code, clean.json()[0]["summary"]["inSync"].as_u64()),
        (0, clean.json()[0]["summary"]["objects"].as_u64()),
        "{clean:?}"
    );

    let all = drifts::fields().into_iter().chain(drifts::keys_and_removals()).chain(drifts::deletions());
    let waves = drifts::waves(all.filter(|drift| !ONLY_A_HUB_KNOWS.contains(&drift.editor)));
    for (index, wave) in waves.iter().enumerate() {
        let what = wave.iter().map(|drift| drift.editor).collect::<Vec<_>>().join(", ");
        for drift in wave {
            drift.make(&world.writer(drift.editor), name).await;
        }
        if index == 0 {
            let before = user.calls().await.writes().len();
            let shown = run(&["--dry-run", "-o", "json"]).await;
            assert_eq!((shown.code, user.calls().await.writes().len()), (1, before), "{shown:?}");
            assert_proposed(wave, &shown.json(), helm);
        }
        let fixed = run(&["--yes", "-o", "json"]).await;
        assert_eq!(fixed.code, 0, "{what}: {}\n{}", fixed.out, fixed.err);
        let status = &fixed.json()[0];
        for drift in wave {
            assert_corrected(drift, status);
            twins.assert_equal(&world, drift).await;
        }
    }
    twins.assert_all_equal(&world, "fixed").await;
    twins.assert_revision(&world, 1).await;
    let writes = user.calls().await.writes().len();
    assert_eq!(run(&["--yes"]).await.code, 0);
    assert_eq!(user.calls().await.writes().len(), writes, "nothing is left to write");

    // Nothing stands in the way of the next upgrade.
    let chart = programs::chart("mini10").unwrap();
    let values = ["--set", "image.tag=2.0,replicas=3,password=n3w,service.port=8080,service.type=NodePort,widget.size=4"];
    for namespace in [name.to_owned(), format!("{name}-twin")] {
        helm.upgrade(world.workload, "web", &namespace, &chart, &values).await.unwrap();
    }
    twins.assert_all_equal(&world, "upgraded").await;
}

fn texts(list: &Value) -> BTreeSet<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What a dry run shows of each drift: the object, its paths, the manager and the request. Never a Secret's value.
fn assert_proposed(wave: &[Drift], proposed: &Value, helm: Helm) {
    let proposed = proposed.as_array().unwrap();
    assert_eq!(proposed.len(), wave.len(), "{proposed:#?}");
    for drift in wave {
        let is_of = |entry: &&Value| entry["object"]["kind"] == drift.kind && entry["object"]["name"] == drift.object;
        let entry = proposed.iter().find(is_of).unwrap_or_else(|| panic!("{}: {proposed:#?}", drift.editor));
        let write = &entry["write"];
        let operation = if helm == Helm::V4 { "Apply" } else { "Update" };
        assert_eq!((&write["manager"], &write["operation"]), (&json!("helm"), &json!(operation)), "{entry:#}");
        assert_eq!(texts(&write["paths"]), drift.paths.iter().copied().collect(), "{}: {entry:#}", drift.editor);
        if write["request"] == "JsonPatch" {
            assert!(!write["operations"].as_array().unwrap().is_empty(), "{entry:#}");
        }
        if drift.kind == "Secret" {
            assert!(!entry.to_string().contains("value\":"), "a Secret's values are never shown: {entry:#}");
        }
    }
}

fn assert_corrected(drift: &Drift, status: &Value) {
    let action = if drift.deletes() { "Recreated" } else { "Corrected" };
    let found = finding(status, drift.kind, drift.object).unwrap_or_else(|| panic!("{}: {status:#}", drift.editor));
    assert_eq!((&found["verdict"], &found["action"]), (&json!("InSync"), &json!(action)), "{}: {found:#}", drift.editor);
    let is_of_object = |record: &&Value| record["object"]["kind"] == drift.kind && record["object"]["name"] == drift.object;
    let record = status["corrections"].as_array().unwrap().iter().rfind(is_of_object).unwrap();
    assert_eq!(record["outcome"], action, "{record:#}");
}
