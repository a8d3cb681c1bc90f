//! Somebody keeps undoing corrections: that path is held, its siblings are healed.

use holdfast_api::report::{DeviationReason, Reason};
use holdfast_engine::{
    contest::{Alternation, Ledger},
    manager::Operation::{Apply, Update},
    path::Pattern,
    yields::{Replicas, Scaler},
};
use serde_json::json;

use crate::world::*;

fn contested(operation: holdfast_engine::manager::Operation) -> World {
    let mut world = deployed(&deployment(), operation);
    let mut ledger = Ledger::default();
    for _ in 0..3 {
        ledger.record(&[(path(&["f:spec", "f:replicas"]), digest(&json!(5)))], world.now, Alternation::default());
    }
    world.ledger = Some(ledger);
    world.edit("rival", |live| live["spec"]["replicas"] = json!(5));
    world
}

#[test]
fn a_held_path_is_not_written() {
    plays(
        &contested(Update),
        r"
            read
            Contested Reported Contested: /spec/replicas: helm wants 2, rival wants 5; put back 3 times since 2026-01-02T00:00:01Z, next try at 2026-01-02T00:10:01Z
              /spec/replicas Changed desired 2 live 5 by rival/Update
        ",
    );
}

#[test]
fn its_siblings_are_healed_around_it() {
    for operation in [Update, Apply] {
        let mut world = contested(operation);
        world.edit("kubectl-edit", |live| live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("evil:1"));
        let (judgement, written) = world.judged();
        let written = written.unwrap();
        assert_eq!(
            (&written["spec"]["replicas"], &written["spec"]["template"]["spec"]["containers"][0]["image"]),
            (&json!(5), &json!("img:1"))
        );
        assert_eq!(judgement.accepted, [], "what is contested is not in sync");
    }
    let mut world = contested(Apply);
    world.edit("kubectl-edit", |live| live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("evil:1"));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            prove
            patch as helm/Apply
              replace /metadata/resourceVersion "8"
              replace /spec/template/spec/containers/0/image "img:1"
            then give /spec/template/spec/containers/[name=c]/image
            Contested Corrected Contested: /spec/replicas: helm wants 2, rival wants 5; put back 3 times since 2026-01-02T00:00:01Z, next try at 2026-01-02T00:10:01Z
              /spec/replicas Changed desired 2 live 5 by rival/Update
              /spec/template/spec/containers/[name=c]/image Changed desired "img:1" live "evil:1" by kubectl-edit/Update
        "#,
    );
}

#[test]
fn after_the_wait_it_is_tried_again() {
    let mut world = contested(Update);
    world.now = at("2026-01-02T00:10:02Z");
    assert!(world.judged().1.is_some());
}

#[test]
fn what_is_enforced_is_put_off_and_never_given_up() {
    let mut world = contested(Apply);
    world.enforced = vec![Pattern::parse("/spec/replicas").unwrap()];
    plays(
        &world,
        r"
            read
            Contested Deferred Contested: /spec/replicas: helm wants 2, rival wants 5; put back 3 times since 2026-01-02T00:00:01Z, enforced, next write at 2026-01-02T00:00:11Z
              /spec/replicas Changed desired 2 live 5 by rival/Update
        ",
    );
    world.now = at("2026-01-02T00:00:12Z");
    plays(
        &world,
        r"
            read
            ask oracle fence
            apply as helm/Apply
            InSync Corrected Contested: one field was put back, against somebody who keeps changing what is enforced
              /spec/replicas Changed desired 2 live 5 by rival/Update
        ",
    );
}

#[test]
fn what_is_enforced_belongs_to_no_autoscaler_but_the_server_is_not_fought() {
    let mut world = deployed(&deployment(), Update);
    world.scalers = vec![Scaler::Replicas(Replicas::between("HorizontalPodAutoscaler web".into(), 3, 9))];
    world.edit("hpa", |live| live["spec"]["replicas"] = json!(5));
    assert!(world.judged().1.is_none(), "within its bounds");
    world.enforced = vec![Pattern::parse("/spec/replicas").unwrap()];
    assert_eq!(world.judged().1.unwrap()["spec"]["replicas"], 2);
    // An ignore rule is a way to break the glass.
    world.ignored = world.enforced.clone();
    assert!(world.judged().1.is_none());
    world.ignored = Vec::new();
    world.webhook = |object| object["spec"]["replicas"] = json!(5);
    let (judgement, written) = world.judged();
    assert_eq!((judgement.accepted[0].reason, written), (DeviationReason::Admission, None));
}

#[test]
fn a_contest_shows_no_value_that_a_report_would_hide() {
    let cases = [
        (secret(), path(&["f:data", "f:p"]), "/data/p", json!({"p": "Q0FOQVJZ"})),
        (config_map(), path(&["f:data", "f:a"]), "/data/a", json!({"a": "-----BEGIN CANARY"})),
    ];
    for (manifest, path, pointer, data) in cases {
        let mut world = deployed(&manifest, Update);
        let mut ledger = Ledger::default();
        (0..3).for_each(|_| ledger.record(&[(path.clone(), digest(&json!(5)))], world.now, Alternation::default()));
        world.ledger = Some(ledger);
        world.edit("rival", |live| live["data"].as_object_mut().unwrap().extend(data.as_object().unwrap().clone()));
        let (judgement, written) = world.judged();
        assert_eq!((judgement.reason, written), (Reason::Contested, None));
        let message = judgement.message;
        assert!(message.starts_with(&format!("{pointer}: helm wants ")) && message.contains("rival wants a hidden value"), "{message}");
        assert!(!message.contains("CANARY") && !message.contains("Q0FO") && !message.contains("hunter2"), "{message}");
    }
    // A long one is cut, one that is gone is none.
    let mut world = deployed(&config_map(), Update);
    let mut ledger = Ledger::default();
    (0..3).for_each(|_| ledger.record(&[(path(&["f:data", "f:a"]), digest(&json!(5)))], world.now, Alternation::default()));
    world.ledger = Some(ledger);
    world.edit("rival", |live| live["data"]["a"] = json!("long ".repeat(40)));
    assert!(
        world.judged().0.message.contains("long l…; put back") || world.judged().0.message.contains('…'),
        "{}",
        world.judged().0.message
    );
    world.edit("rival", |live| _ = live["data"].as_object_mut().unwrap().remove("a"));
    assert!(world.judged().0.message.contains(r#"helm wants "1", unattributed removes it;"#), "{}", world.judged().0.message);
}
