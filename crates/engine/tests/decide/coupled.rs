//! What cannot stand beside the declared value goes with its return.

use holdfast_api::report::Reason;
use holdfast_engine::{answer::Refusal, manager::Operation::Update, path::Pattern};
use serde_json::{Value, json};

use crate::world::*;

/// A Deployment under `Recreate` that somebody turned into a rolling one; the server refuses `Recreate` beside `rollingUpdate`.
fn swapped() -> World {
    let mut manifest = deployment();
    manifest["spec"]["strategy"] = json!({"type": "Recreate"});
    let mut world = deployed(&manifest, Update);
    world.edit("kubectl-edit", |live| live["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}));
    world.oracle = Some(Refusal { reason: Reason::Invalid, fields: vec!["spec.strategy.rollingUpdate".to_owned()] });
    world
}

#[test]
fn what_the_server_names_beside_drift_is_taken_away() {
    plays(
        &swapped(),
        r#"
            read
            ask oracle fence
            ask create
            prove
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/strategy/type "Recreate"
              remove /spec/strategy/rollingUpdate
            InSync Corrected AsDeclared: one field was put back and 1 taken away again
              /spec/strategy/type Changed desired "Recreate" live "RollingUpdate" by kubectl-edit/Update
              /spec/strategy/rollingUpdate Added live {"maxSurge":1} by kubectl-edit/Update
        "#,
    );
}

fn written(world: &World) -> Option<Value> {
    world.judged().1.map(|written| written["spec"]["strategy"].clone())
}

#[test]
fn what_is_not_in_the_way_stays() {
    let keeps = json!({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}});
    assert_eq!(written(&swapped()), Some(json!({"type": "Recreate"})));
    // The server names another place: what is undeclared here is somebody's addition and nothing more.
    let mut elsewhere = swapped();
    elsewhere.oracle = Some(Refusal { reason: Reason::Invalid, fields: vec!["spec.template.spec.containers[0].name".to_owned()] });
    assert_eq!(written(&elsewhere), Some(keeps.clone()));
    // The server adds it itself.
    let mut defaulted = swapped();
    defaulted.create_webhook = |created| created["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 2});
    assert_eq!(written(&defaulted), Some(keeps.clone()));
    // The creation cannot tell.
    let mut unknown = swapped();
    unknown.create = Some(Refusal::new(Reason::AdmissionDenied));
    assert_eq!(written(&unknown), Some(keeps.clone()));
    // A policy ignores it.
    let mut ignored = swapped();
    ignored.ignored = vec![Pattern::parse("/spec/strategy/rollingUpdate").unwrap()];
    assert_eq!(written(&ignored), Some(keeps));
}

#[test]
fn right_below_the_spec_only_what_the_server_names_goes() {
    let mut world = deployed(&deployment(), Update);
    world.edit("kubectl-edit", |live| {
        live["spec"]["replicas"] = json!(5);
        live["spec"]["paused"] = json!(true);
        live["spec"]["progressDeadlineSeconds"] = json!(1);
    });
    world.oracle = Some(Refusal { reason: Reason::Invalid, fields: vec!["spec.progressDeadlineSeconds".to_owned()] });
    let spec = world.judged().1.unwrap()["spec"].clone();
    assert_eq!((&spec["replicas"], &spec["paused"], spec.get("progressDeadlineSeconds")), (&json!(2), &json!(true), None));
}
