//! Somebody deleted the object and created it again: values and ownership go back to the release.

use holdfast_engine::{
    manager::Operation::{Apply, Update},
    plan::{self, Request},
};
use serde_json::{Value, json};

use crate::world::*;

/// A server that gives every creator a default the manifest does not name.
fn defaults(object: &mut Value) {
    object["spec"]["paused"] = json!(false);
}

fn taken_over(operation: holdfast_engine::manager::Operation) -> World {
    let mut world = deployed(&deployment(), operation);
    world.create_webhook = defaults;
    let mut live = world.created("kubectl-create", Update, LATER);
    live["spec"]["replicas"] = json!(5);
    live["spec"]["foreign"] = json!(1);
    live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:foreign"] = json!({});
    world.live = Some(live);
    world.baseline = None;
    world
}

#[test]
fn the_creator_holds_the_annotations_and_yet_is_not_the_release() {
    for operation in [Update, Apply] {
        let (judgement, written) = taken_over(operation).judged();
        let written = written.unwrap();
        assert_eq!((judgement.paths.len(), &written["spec"]["replicas"]), (1, &json!(2)));
        let entries = written["metadata"]["managedFields"].as_array().unwrap();
        let managers: Vec<&Value> = entries.iter().map(|entry| &entry["manager"]).collect();
        assert_eq!(managers, ["kubectl-create", "helm"]);
        assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {"f:foreign": {}}}), "the creator keeps what it added");
        assert_eq!(entries[1]["operation"], operation.as_str());
    }
    plays(
        &taken_over(Apply),
        r"
            read
            ask oracle create
            ask fence
            apply as helm/Apply
            then give /metadata/annotations/meta.helm.sh~1release-name /metadata/annotations/meta.helm.sh~1release-namespace /metadata/labels/app /metadata/labels/app.kubernetes.io~1managed-by /spec/replicas /spec/selector /spec/template/metadata/labels/app /spec/template/spec/containers/[name=c] /spec/template/spec/containers/[name=c]/args /spec/template/spec/containers/[name=c]/env/[name=A] /spec/template/spec/containers/[name=c]/env/[name=A]/name /spec/template/spec/containers/[name=c]/env/[name=A]/value /spec/template/spec/containers/[name=c]/env/[name=B] /spec/template/spec/containers/[name=c]/env/[name=B]/name /spec/template/spec/containers/[name=c]/env/[name=B]/value /spec/template/spec/containers/[name=c]/image /spec/template/spec/containers/[name=c]/name /spec/template/spec/containers/[name=c]/ports/[containerPort=80,protocol=TCP] /spec/template/spec/containers/[name=c]/ports/[containerPort=80,protocol=TCP]/containerPort /spec/template/spec/containers/[name=c]/ports/[containerPort=80,protocol=TCP]/name /spec/template/spec/containers/[name=c]/ports/[containerPort=80,protocol=TCP]/protocol
              and release /spec/paused
            InSync Corrected AsDeclared: one field was put back
              /spec/replicas Changed desired 2 live 5 by kubectl-create/Update
        ",
    );
}

#[test]
fn without_any_metadata_it_is_still_the_releases_where_it_was_seen() {
    let mut world = taken_over(Update);
    world.live()["metadata"].as_object_mut().unwrap().remove("annotations");
    world.live()["metadata"].as_object_mut().unwrap().remove("labels");
    let (_, written) = world.judged();
    assert_eq!(written.unwrap()["metadata"]["annotations"]["meta.helm.sh/release-name"], "rel");
}

#[test]
fn what_a_creator_is_given_is_asked_for_where_the_object_was_judged_before() {
    let mut world = taken_over(Update);
    world.baseline = deployed(&deployment(), Update).baseline;
    assert!(world.play().contains(" create"), "{}", world.play());
    let (_, written) = world.judged();
    let entries = written.unwrap()["metadata"]["managedFields"].clone();
    assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {"f:foreign": {}}}), "the defaults went to the release");
}

#[test]
fn a_secret_goes_back_to_who_applied_its_texts() {
    let mut world = deployed(&secret(), Apply);
    let mut live = world.created("kubectl-create", Update, LATER);
    live["data"]["p"] = json!("b3RoZXI=");
    (world.live, world.baseline) = (Some(live), None);
    let entries = world.judged().1.unwrap()["metadata"]["managedFields"].clone();
    assert_eq!((entries.as_array().unwrap().len(), &entries[0]["manager"]), (1, &json!("helm")));
    assert_eq!(entries[0]["fieldsV1"]["f:stringData"], json!({"f:p": {}, "f:q": {}}));
    assert_eq!(entries[0]["fieldsV1"]["f:data"], Value::Null);
    let Request::CreateByApply(body) = plan::create(&world.desired, &helm(Apply)).request else { panic!("an apply") };
    assert_eq!((&body["stringData"]["p"], &body["data"]), (&json!("hunter2"), &Value::Null), "created as the release would");
}

#[test]
fn an_older_name_of_the_release_stays_its_name() {
    // The release moved to another tool; objects it had no reason to touch keep the old manager.
    let mut world = deployed(&deployment(), Update);
    world.writer = Some(holdfast_engine::manager::Writer { manager: "helm-controller".into(), operation: Update });
    world.deployed_at = Some(at("2026-01-01T00:00:01Z"));
    world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
    assert!(world.play().contains("patch as helm/Update"), "{}", world.play());
}
