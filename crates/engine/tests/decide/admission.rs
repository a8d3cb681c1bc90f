//! What the server makes of the declared object is accepted and never fought.

use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_api::report::{DeviationReason, Reason, Verdict};
use holdfast_engine::{
    case::{Accepted, Permit},
    manager::Operation::{Apply, Update},
    project::Found,
};
use serde_json::{Value, json};

use crate::world::*;

fn mirror(object: &mut Value) {
    if let Some(image) = object.pointer_mut("/spec/template/spec/containers/0/image") {
        let name = image.as_str().unwrap();
        if !name.starts_with("mirror/") {
            *image = json!(format!("mirror/{name}"));
        }
    }
}

/// A release whose image a webhook rewrote from the start, judged once.
fn mirrored(operation: holdfast_engine::manager::Operation) -> World {
    let mut world = deployed(&deployment(), operation);
    world.webhook = mirror;
    world.live = Some(world.created("helm", operation, DEPLOYED));
    world.baseline = None;
    let (judgement, written) = world.judged();
    assert_eq!((judgement.accepted.len(), written), (1, None));
    world.baseline = Some(remembering(&judgement));
    world
}

#[test]
fn a_rewritten_image_is_accepted_at_first_sight_and_later() {
    for operation in [Update, Apply] {
        let mut world = deployed(&deployment(), operation);
        world.webhook = mirror;
        world.live = Some(world.created("helm", operation, DEPLOYED));
        // A new webhook, met by an object with a baseline: no write either.
        plays(
            &world,
            r"
                read
                ask oracle fence
                InSync None AsDeclared: as declared
                  /spec/template/spec/containers/[name=c]/image accepted Admission: the server makes this of the declared value
            ",
        );
        world.baseline = None;
        plays(
            &world,
            r"
                read
                ask oracle
                InSync None AsDeclared: as declared
                  /spec/template/spec/containers/[name=c]/image accepted Admission: the server makes this of the declared value
            ",
        );
    }
    plays(
        &mirrored(Update),
        r"
            read
            InSync None AsDeclared: as declared
              /spec/template/spec/containers/[name=c]/image accepted Admission: accepted before
        ",
    );
}

#[test]
fn drift_beside_it_is_corrected_without_touching_it() {
    let mut world = mirrored(Update);
    world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            prove
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/replicas 2
            InSync Corrected AsDeclared: one field was put back
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
              /spec/template/spec/containers/[name=c]/image accepted Admission: accepted before
        "#,
    );
    let mut world = mirrored(Apply);
    world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
    plays(
        &world,
        r"
            read
            ask oracle fence
            apply as helm/Apply
            InSync Corrected AsDeclared: one field was put back
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
              /spec/template/spec/containers/[name=c]/image accepted Admission: accepted before
        ",
    );
}

#[test]
fn a_patch_that_would_be_prefixed_twice_is_put_off() {
    let mut world = mirrored(Update);
    world.webhook = |object| {
        if let Some(image) = object.pointer_mut("/spec/template/spec/containers/0/image") {
            *image = json!(format!("mirror/{}", image.as_str().unwrap()));
        }
    };
    // Through a subresource, past the webhook.
    world.live.as_mut().unwrap()["spec"]["replicas"] = json!(5);
    let (judgement, written) = world.judged();
    assert_eq!((judgement.verdict, judgement.reason), (Verdict::Drifted, Reason::AdmissionUnstable));
    assert!(written.is_none());
}

#[test]
fn drift_on_the_mutated_path_gets_the_declared_value_and_one_prefix() {
    for operation in [Update, Apply] {
        let mut world = mirrored(operation);
        world.edit("kubectl-set", |live| live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("evil:1"));
        let (judgement, written) = world.judged();
        assert_eq!(written.as_ref().unwrap()["spec"]["template"]["spec"]["containers"][0]["image"], "mirror/img:1");
        // The answered value is the new baseline: nothing is left to do.
        world.live = written;
        world.baseline = Some(remembering(&judgement));
        assert_eq!(world.judged().0.reason, Reason::AsDeclared);
    }
    let mut world = mirrored(Update);
    world.edit("kubectl-set", |live| live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("evil:1"));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/template/spec/containers/0/image "img:1"
            InSync Corrected AsDeclared: one field was put back
              /spec/template/spec/containers/[name=c]/image Changed desired "img:1" accepted "mirror/img:1" live "evil:1" by kubectl-set/Update
              /spec/template/spec/containers/[name=c]/image accepted Admission: accepted before
        "#,
    );
}

#[test]
fn another_spelling_is_normalised() {
    let mut manifest = deployment();
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1000m", "memory": "1.5Gi"}});
    manifest["spec"]["strategy"] = json!({"rollingUpdate": null});
    let mut world = deployed(&manifest, Update);
    world.webhook = |object| {
        object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "1", "memory": "1536Mi"});
        object["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": "25%"}});
    };
    world.live = Some(world.created("helm", Update, DEPLOYED));
    world.baseline = None;
    plays(
        &world,
        r"
            read
            ask oracle
            InSync None AsDeclared: as declared
              /spec/strategy/rollingUpdate accepted Normalized: the server makes this of the declared value
              /spec/template/spec/containers/[name=c]/resources/limits/cpu accepted Normalized: the server makes this of the declared value
              /spec/template/spec/containers/[name=c]/resources/limits/memory accepted Normalized: the server makes this of the declared value
        ",
    );
    world.baseline = Some(remembering(&world.judged().0));
    assert_eq!(world.judged().0.reason, Reason::AsDeclared);
    world.webhook = |_| {};
    world.edit("kubectl-edit", |live| live["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("999m"));
    assert_eq!(world.judged().0.paths[0].path, "/spec/template/spec/containers/[name=c]/resources/limits/cpu");
}

#[test]
fn a_write_that_would_change_more_is_not_sent() {
    // A webhook that was down or away when the object was created would now change the image as well. It is what the server
    // makes of our own configuration on any write: allowed, and remembered.
    let mut world = deployed(&deployment(), Update);
    world.webhook = mirror;
    world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            prove
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/replicas 2
            InSync Corrected AsDeclared: one field was put back
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
              /spec/template/spec/containers/[name=c]/image accepted Admission: the server makes this of the declared value
        "#,
    );
}

/// Another annotation of the template each time it is asked.
fn nonce(object: &mut Value) {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    object["spec"]["template"]["metadata"]["annotations"]["nonce"] = json!(CALLS.fetch_add(1, Ordering::Relaxed).to_string());
}

#[test]
fn a_webhook_that_answers_something_else_each_time_does_not_stop_a_write() {
    let mut world = deployed(&deployment(), Update);
    world.webhook = nonce;
    world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            prove
            prove again
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/replicas 2
            InSync Corrected AsDeclared: one field was put back
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
        "#,
    );
    // What else it changes counts all the same.
    world.webhook = |object| {
        nonce(object);
        object["spec"]["paused"] = json!(true);
    };
    world.oracle = Some(refusal(Reason::Immutable));
    plays(
        &world,
        r"
            read
            ask oracle fence
            prove
            prove again
            Drifted Deferred AdmissionUnstable: the correction would change more than what drifted
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
        ",
    );
}

fn with_nonce() -> Value {
    let mut manifest = deployment();
    manifest["spec"]["template"]["metadata"]["annotations"] = json!({"nonce": "x"});
    manifest
}

#[test]
fn a_declared_value_that_is_another_each_time_is_no_drift() {
    for operation in [Update, Apply] {
        let mut world = deployed(&with_nonce(), operation);
        world.webhook = nonce;
        // Somebody wrote something else, and admission rewrote this on the way.
        nonce(world.live());
        plays(
            &world,
            r"
                read
                ask oracle fence
                ask again
                InSync None AsDeclared: as declared
                  /spec/template/metadata/annotations/nonce accepted Admission: the server gives another value each time
            ",
        );
        world.baseline = Some(remembering(&world.judged().0));
        nonce(world.live());
        plays(
            &world,
            r"
                read
                InSync None AsDeclared: as declared
                  /spec/template/metadata/annotations/nonce accepted Admission: accepted before
            ",
        );
        // Drift elsewhere goes back, and the object is in sync with whatever came of it.
        world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
        let (judgement, written) = world.judged();
        assert_eq!((judgement.verdict, judgement.accepted.len()), (Verdict::InSync, 1));
        assert!(judgement.in_sync.is_some() && written.unwrap()["spec"]["replicas"] == 2);
        // Who can be named for a value, or takes it away, did not do what admission does.
        let mut edited = World { live: world.live.clone(), ..deployed(&with_nonce(), operation) };
        edited.webhook = nonce;
        edited.baseline.clone_from(&world.baseline);
        edited.edit("kubectl-edit", |live| live["spec"]["template"]["metadata"]["annotations"]["nonce"] = json!("mine"));
        assert!(edited.judged().1.is_some());
        edited.edit("kubectl-edit", |live| live["spec"]["template"]["metadata"]["annotations"] = json!({}));
        assert!(edited.judged().1.is_some());
    }
}

#[test]
fn a_dry_run_that_tells_something_else_costs_one_write() {
    for operation in [Update, Apply] {
        // The webhook does nothing in a dry-run, and something else each time otherwise.
        let mut world = deployed(&with_nonce(), operation);
        world.surprise = nonce;
        nonce(world.live());
        let (judgement, written) = world.judged();
        assert_eq!((judgement.verdict, judgement.action), (Verdict::InSync, holdfast_api::report::Action::Corrected));
        assert_eq!(judgement.accepted[0].note, "the server makes of it what no dry-run tells");
        world.baseline = Some(remembering(&judgement));
        world.live = written;
        nonce(world.live());
        let (judgement, written) = world.judged();
        assert_eq!((judgement.verdict, written), (Verdict::InSync, None), "one write taught it");
    }
}

#[test]
fn a_webhook_that_comes_later_and_allows_no_dry_run_leaves_drift_reported() {
    for operation in [Update, Apply] {
        let mut world = deployed(&deployment(), operation);
        world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
        world.oracle = Some(refusal(Reason::Unverified));
        world.proof = Some(refusal(Reason::Unverified));
        plays(
            &world,
            r"
                read
                ask oracle fence
                prove
                Drifted Deferred Unverified: a webhook allows no dry-run, so nothing tells what the correction would change
                  /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
            ",
        );
    }
}

#[test]
fn a_server_that_undoes_the_correction_is_not_asked_again_and_again() {
    // The dry-run of the manifest is refused, so only the dry-run of the correction shows that admission pins the value.
    let mut world = deployed(&deployment(), Update);
    world.oracle = Some(refusal(Reason::Immutable));
    world.webhook = |object| object["spec"]["replicas"] = json!(5);
    world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
    plays(
        &world,
        r"
            read
            ask oracle fence
            prove
            Drifted Deferred AdmissionUnstable: the server turns the correction back into what is there
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
        ",
    );
}

#[test]
fn what_a_policy_or_an_autoscaler_allowed_is_not_remembered() {
    let mut world = deployed(&deployment(), Update);
    world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
    let found = Found::Value(&json!(5)).digest();
    let replicas = path(&["f:spec", "f:replicas"]);
    for (reason, written) in [
        (DeviationReason::Admission, false),
        (DeviationReason::Normalized, false),
        (DeviationReason::Ignored, true),
        (DeviationReason::Yielded, true),
        (DeviationReason::Contested, true),
    ] {
        world.baseline.as_mut().unwrap().accepted = Box::from([Accepted::new(&replicas, reason, found)]);
        assert_eq!(world.judged().1.is_some(), written, "{reason:?}");
    }
}

#[test]
fn a_refused_question_with_a_baseline_is_drift_by_comparison() {
    let mut world = deployed(&deployment(), Update);
    world.oracle = Some(refusal(Reason::Immutable));
    world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            prove
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/replicas 2
            InSync Corrected AsDeclared: one field was put back
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
        "#,
    );
    world.proof = Some(refusal(Reason::Immutable));
    plays(
        &world,
        r"
            read
            ask oracle fence
            prove
            Refused Reported Immutable: the server refuses the correction
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
        ",
    );
}

#[test]
fn a_lost_question_is_no_answer() {
    let mut world = deployed(&deployment(), Update);
    world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
    world.oracle = Some(refusal(Reason::ServerError));
    plays(
        &world,
        r"
            read
            ask oracle fence
            Unknown Reported ServerError: the server did not tell what it makes of the manifest
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
        ",
    );
    world.oracle = Some(refusal(Reason::Immutable));
    world.proof = Some(refusal(Reason::ServerError));
    plays(
        &world,
        r"
            read
            ask oracle fence
            prove
            Drifted Deferred ServerError: the dry-run of the correction was not answered
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
        ",
    );
    world.permit = Permit::Report(None);
    assert_eq!(world.judged().0.reason, Reason::FieldChanged);
}
