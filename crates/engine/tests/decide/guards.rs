//! What stops a write.

use holdfast_api::report::Reason;
use holdfast_engine::{
    answer::Fence,
    manager::Operation::{Apply, Update},
};
use serde_json::json;

use crate::world::*;

fn drifted() -> World {
    let mut world = deployed(&config_map(), Update);
    world.edit("kubectl-edit", |live| live["data"]["a"] = json!("9"));
    world
}

#[test]
fn a_newer_release_or_unread_records() {
    let mut world = drifted();
    world.fence = Fence::Closed;
    plays(
        &world,
        r#"
            read
            ask oracle fence
            Drifted Deferred ReleasePending: a newer or running release operation was seen
              /data/a Changed desired "1" live "9" by kubectl-edit/Update
        "#,
    );
    world.fence = Fence::Unknown;
    plays(
        &world,
        r#"
            read
            ask oracle fence
            Drifted Deferred ServerError: the release records could not be read
              /data/a Changed desired "1" live "9" by kubectl-edit/Update
        "#,
    );
}

#[test]
fn an_object_that_was_never_this_releases() {
    let mut world = drifted();
    world.seen = false;
    world.live()["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("other");
    plays(
        &world,
        r#"
            read
            ask oracle fence
            Unknown Reported NotOwned: the object does not carry this release's ownership metadata
              /data/a Changed desired "1" live "9" by kubectl-edit/Update
              /metadata/annotations/meta.helm.sh~1release-name Changed desired "rel" live "other" by unattributed (kubectl-edit?)
        "#,
    );
    world.live()["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(world.judged().0.reason, Reason::NotOwned);
}

#[test]
fn no_manager_of_the_release() {
    let mut world = drifted();
    world.writer = None;
    world.live()["metadata"]["managedFields"] = json!([]);
    plays(
        &world,
        r#"
            read
            ask oracle fence
            Drifted Reported OwnerUnclear: no field manager of the release could be found, so nothing is written
              /data/a Changed desired "1" live "9" by unattributed
        "#,
    );
}

#[test]
fn two_releases_declare_it() {
    let mut world = drifted();
    world.also = Some("HelmRelease t/other".into());
    plays(
        &world,
        r"
            Contested Reported SelfConflict: HelmRelease t/other declares this object too; neither is written
        ",
    );
}

#[test]
fn no_version_to_guard_with() {
    let mut world = drifted();
    world.live()["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    plays(
        &world,
        r#"
            read
            ask oracle fence
            Drifted Reported FieldChanged: one declared field differs
              /data/a Changed desired "1" live "9" by kubectl-edit/Update
        "#,
    );
}

#[test]
fn an_apply_that_would_take_something_else_away() {
    let mut world = deployed(&config_map(), Apply);
    // A leftover of an earlier revision that the release's entry still claims: an apply would remove it.
    world.live()["data"]["old"] = json!("x");
    world.live()["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]["f:old"] = json!({});
    world.edit("kubectl-edit", |live| live["data"]["a"] = json!("9"));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            prove
            patch as helm/Apply
              replace /metadata/resourceVersion "8"
              replace /data/a "1"
            then give /data/a
            InSync Corrected AsDeclared: one field was put back
              /data/a Changed desired "1" live "9" by kubectl-edit/Update
        "#,
    );
    assert_eq!(world.judged().1.unwrap()["data"]["old"], "x");
}

#[test]
fn the_manager_is_the_releases_own_whatever_it_is_called() {
    let mut world = drifted();
    world.writer = None;
    world.live()["metadata"]["managedFields"][0]["manager"] = json!("manager");
    plays(
        &world,
        r#"
            read
            ask oracle fence
            patch as manager/Update
              replace /metadata/resourceVersion "8"
              replace /data/a "1"
            InSync Corrected AsDeclared: one field was put back
              /data/a Changed desired "1" live "9" by kubectl-edit/Update
        "#,
    );
}
