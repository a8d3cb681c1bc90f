//! Fields that somebody added.

use holdfast_api::{
    policy::Foreign,
    report::{Action, Reason, Verdict},
};
use holdfast_engine::{
    foreign::{Look, is_listed, is_nothing},
    manager::{
        self,
        Operation::{Apply, Update},
    },
};
use serde_json::{Value, json};

use crate::world::{World, config_map, deployed, deployment, helm, plays};

/// A ConfigMap to which somebody added a key.
fn with_key(foreign: Foreign) -> World {
    let mut world = deployed(&config_map(), Update);
    world.edit("kubectl-edit", |live| live["data"]["extra"] = json!("x"));
    world.foreign = foreign;
    world
}

#[test]
fn an_addition_is_listed_ignored_or_removed() {
    let (judgement, written) = with_key(Foreign::Report).judged();
    assert_eq!((judgement.verdict, judgement.action, written), (Verdict::InSync, Action::None, None));
    let listed = judgement.additions.listed.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].path.as_str(), listed[0].actor.as_ref().unwrap().manager.as_str()), ("/data/extra", "kubectl-edit"));
    assert!(is_listed(judgement.additions.digest) && judgement.in_sync.is_some());

    let (judgement, _) = with_key(Foreign::Ignore).judged();
    assert_eq!((judgement.verdict, judgement.additions.listed.unwrap()), (Verdict::InSync, Vec::new()));
    assert!(!is_listed(judgement.additions.digest) && !is_nothing(judgement.additions.digest, 0));

    plays(
        &with_key(Foreign::Remove),
        r#"
            read
            ask fence
            prove
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              remove /data/extra
            InSync Corrected AsDeclared: one field was taken away again
              /data/extra Added live "x" by kubectl-edit/Update
        "#,
    );
}

#[test]
fn what_comes_into_a_map_that_was_declared_empty_is_an_addition() {
    for (foreign, verdict) in [(Foreign::Report, Verdict::InSync), (Foreign::Remove, Verdict::Drifted)] {
        let mut manifest = deployment();
        manifest["spec"]["template"]["spec"]["securityContext"] = json!({});
        let mut world = deployed(&manifest, Update);
        world.permit = holdfast_engine::case::Permit::Report(None);
        world.foreign = foreign;
        // Where each field of a map is held for itself, a forced apply leaves what others put into it.
        world.webhook = |object| {
            if object["metadata"].get("uid").is_some() {
                object["spec"]["template"]["spec"]["securityContext"] = json!({"runAsUser": 7});
            }
        };
        world.edit("kubectl-edit", |live| live["spec"]["template"]["spec"]["securityContext"]["runAsUser"] = json!(7));
        let (judgement, _) = world.judged();
        let paths = judgement.paths.iter().chain(judgement.additions.listed.iter().flatten());
        let paths: Vec<&str> = paths.map(|finding| finding.path.as_str()).collect();
        assert_eq!((judgement.verdict, paths), (verdict, vec!["/spec/template/spec/securityContext/runAsUser"]));
        assert_eq!(judgement.accepted, []);
    }
}

#[test]
fn what_nobody_or_the_cluster_holds_is_no_addition() {
    let nobodys: [fn(&mut World); 5] = [
        |world| world.live()["data"]["injected"] = json!("by admission"),
        |world| world.edit("kube-controller-manager", |live| live["data"]["extra"] = json!("x")),
        |world| world.edit_through("kubectl", "scale", |live| live["data"]["extra"] = json!("x")),
        |world| world.edit("helm", |live| live["data"]["extra"] = json!("x")),
        |world| world.edit("kubectl", |live| live["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = json!("now")),
    ];
    for (number, change) in nobodys.into_iter().enumerate() {
        let mut world = deployed(&config_map(), Update);
        world.foreign = Foreign::Remove;
        change(&mut world);
        let (judgement, written) = world.judged();
        assert_eq!((judgement.verdict, written, judgement.additions.listed), (Verdict::InSync, None, Some(Vec::new())), "{number}");
    }
}

#[test]
fn a_default_that_was_changed_and_changed_back_is_no_addition() {
    for (value, expected) in [(json!(false), Verdict::InSync), (json!(true), Verdict::Drifted)] {
        let mut world = deployed(&deployment(), Update);
        world.create_webhook = |object| object["spec"]["paused"] = json!(false);
        world.permit = holdfast_engine::case::Permit::Report(None);
        world.foreign = Foreign::Remove;
        world.edit("kubectl-edit", |live| live["spec"]["paused"] = value.clone());
        let (judgement, _) = world.judged();
        assert_eq!(judgement.verdict, expected, "{value}");
    }
}

#[test]
fn what_admission_puts_back_is_told_and_not_fought() {
    let mut world = with_key(Foreign::Remove);
    world.webhook = |object| {
        if object["metadata"]["name"] == "cm" {
            object["data"]["extra"] = json!("x");
        }
    };
    let (judgement, written) = world.judged();
    assert_eq!((judgement.action, judgement.reason, written), (Action::Deferred, Reason::AdmissionUnstable, None));
}

#[test]
fn an_addition_and_a_drift_go_by_one_write_on_either_kind_of_release() {
    for operation in [Update, Apply] {
        let mut world = deployed(&deployment(), operation);
        world.foreign = Foreign::Remove;
        world.edit("kubectl-edit", |live| {
            live["spec"]["replicas"] = json!(9);
            live["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap().push(json!({"name": "X", "value": "1"}));
        });
        let (judgement, written) = world.judged();
        let written = written.unwrap();
        assert_eq!((judgement.verdict, judgement.paths.len()), (Verdict::InSync, 2));
        assert_eq!(written["spec"], world.desired.value["spec"]);
        if operation == Apply {
            let entries = written["metadata"]["managedFields"].as_array().unwrap();
            assert_eq!(
                entries.iter().map(|entry| &entry["manager"]).collect::<Vec<&Value>>(),
                ["helm"],
                "the editor holds nothing any more"
            );
        }
    }
}

#[test]
fn the_digest_tells_what_changed() {
    let look = |world: &World, known: u64, tag: u64| {
        let (live, owned, writer) = (world.live.clone().unwrap(), world.owned(), helm(Update));
        let entries = manager::entries(&live);
        Look { gvk: &world.desired.key.gvk, owned: &owned, live: &live, entries: &entries, writer: Some(&writer) }.is_as_before(known, tag)
    };
    let mut world = with_key(Foreign::Report);
    let known = world.judged().0.additions.digest;
    assert!(look(&world, known, 0));
    assert!(!look(&world, known, 1), "other rules");
    assert!(!look(&deployed(&config_map(), Update), known, 0), "it is gone");
    world.edit("kubectl-edit", |live| live["data"]["extra"] = json!("y"));
    assert!(!look(&world, known, 0), "another value");
}
