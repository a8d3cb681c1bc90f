//! What is said where the server does not tell which paths a manifest claims.

use holdfast_api::report::{Action, Reason, Verdict};
use holdfast_engine::manager::Operation;
use serde_json::{Value, json};

use crate::world::{World, deployed, deployment, plays, refusal};

/// At first sight, with an oracle that says no for this reason.
fn blind(reason: Reason) -> World {
    let mut world = deployed(&deployment(), Operation::Apply);
    world.owned = None;
    world.baseline = None;
    world.seen = false;
    world.oracle = Some(refusal(reason));
    world
}

fn edit(world: &mut World, manager: &str, value: &Value) {
    world.edit(manager, |object| object["spec"]["replicas"] = value.clone());
}

#[test]
fn an_unfit_manifest_is_merged_and_keeps_its_finding() {
    let mut world = blind(Reason::ManifestInvalid);
    world.oracle.as_mut().unwrap().fields = vec!["/spec/template/spec/containers/[name=c]/imagePullPolcy".into()];
    plays(
        &world,
        r"
            read
            ask oracle
            merge
            InSync Reported ManifestInvalid: as declared, as far as can be told: the server refuses the manifest in a dry-run at /spec/template/spec/containers/[name=c]/imagePullPolcy
        ",
    );
    edit(&mut world, "kubectl-edit", &json!(5));
    let (judgement, _) = world.judged();
    assert_eq!((judgement.verdict, judgement.action, judgement.reason), (Verdict::Drifted, Action::Reported, Reason::ManifestInvalid));
    assert_eq!(judgement.paths.iter().map(|path| path.path.as_str()).collect::<Vec<_>>(), ["/spec/replicas"]);
    assert!(!judgement.settled && judgement.in_sync.is_none(), "a guess is no baseline");
}

#[test]
fn the_merge_tells_what_the_server_makes_of_a_value() {
    let mut world = blind(Reason::ManifestInvalid);
    world.webhook = |object| object["spec"]["replicas"] = json!(9);
    edit(&mut world, "kubectl-edit", &json!(9));
    assert_eq!(world.judged().0.verdict, Verdict::InSync);
    world.merged = Some(refusal(Reason::ServerError));
    assert_eq!(world.judged().0.verdict, Verdict::Drifted, "without its word, who wrote it decides");
}

#[test]
fn what_no_object_can_hold_is_unknown() {
    for reason in [Reason::ManifestInvalid, Reason::Invalid] {
        let mut world = blind(Reason::ManifestInvalid);
        world.oracle.as_mut().unwrap().fields = vec!["/spec/replicas".into()];
        world.merged = Some(refusal(reason));
        for replicas in [2, 5] {
            edit(&mut world, "kubectl-edit", &json!(replicas));
            let (judgement, _) = world.judged();
            assert_eq!(
                (judgement.verdict, judgement.action, judgement.reason),
                (Verdict::Unknown, Action::Reported, Reason::ManifestInvalid)
            );
            assert!(judgement.message.ends_with("at /spec/replicas") && judgement.paths.is_empty() && !judgement.settled);
        }
    }
}

#[test]
fn without_the_right_to_ask_only_traces_count() {
    for reason in [Reason::Forbidden, Reason::Unverified] {
        let mut world = blind(reason);
        let (judgement, _) = world.judged();
        assert_eq!((judgement.verdict, judgement.action, judgement.reason), (Verdict::InSync, Action::Reported, reason));
        edit(&mut world, "kubectl-edit", &json!(5));
        let (judgement, _) = world.judged();
        assert_eq!((judgement.verdict, judgement.reason), (Verdict::Drifted, reason));
        edit(&mut world, "helm", &json!(6));
        let (judgement, _) = world.judged();
        assert_eq!((judgement.verdict, judgement.reason), (Verdict::Unknown, reason), "the release itself wrote it after it was deployed");
    }
    // Other spelling, and what the release wrote as it was deployed, are no drift.
    let mut world = blind(Reason::Forbidden);
    world.live()["spec"]["replicas"] = json!("2");
    assert_eq!(world.judged().0.verdict, Verdict::InSync);
    world.live()["spec"]["replicas"] = json!(7);
    assert_eq!(world.judged().0.verdict, Verdict::InSync, "nobody but the release held it, since it was deployed");
    world.deployed_at = None;
    assert_eq!(world.judged().0.verdict, Verdict::Unknown);
}

#[test]
fn a_stranger_with_the_same_name_is_not_the_release() {
    let mut world = blind(Reason::Forbidden);
    world.live()["metadata"]["annotations"] = json!({});
    edit(&mut world, "kubectl-edit", &json!(5));
    let (judgement, _) = world.judged();
    assert_eq!((judgement.verdict, judgement.reason), (Verdict::Unknown, Reason::NotOwned));
}
