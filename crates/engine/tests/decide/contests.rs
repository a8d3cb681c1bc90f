//! Somebody keeps undoing corrections: that path is held, its siblings are healed.

use holdfast_engine::{
    contest::Ledger,
    manager::Operation::{Apply, Update},
};
use serde_json::json;

use crate::world::*;

fn contested(operation: holdfast_engine::manager::Operation) -> World {
    let mut world = deployed(&deployment(), operation);
    let mut ledger = Ledger::default();
    for _ in 0..5 {
        ledger.record(&path(&["f:spec", "f:replicas"]), digest(&json!(5)), world.now, None);
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
            ask oracle fence
            Contested Reported Contested: /spec/replicas was corrected 5 times against rival; next try at 2026-01-02T00:10:01Z
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
            Contested Corrected Contested: /spec/replicas was corrected 5 times against rival; next try at 2026-01-02T00:10:01Z
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
