//! No baseline: only the server and `managedFields` tell drift from what was there from the start (design §3.6).

use holdfast_api::report::{DeviationReason, Reason, Verdict};
use holdfast_engine::{
    case::Permit,
    manager::Operation::{Apply, Update},
    owned::OwnedSet,
};
use serde_json::{Value, json};

use crate::world::*;

const IMAGE: [&str; 6] = ["f:spec", "f:template", "f:spec", "f:containers", "k:{\"name\":\"c\"}", "f:image"];

fn image(object: &mut Value) -> &mut Value {
    &mut object["spec"]["template"]["spec"]["containers"][0]["image"]
}

fn unknown(manifest: &Value) -> World {
    let mut world = deployed(manifest, Update);
    world.baseline = None;
    world
}

#[test]
fn as_declared_needs_no_question() {
    plays(
        &unknown(&deployment()),
        r"
            read
            InSync None AsDeclared: as declared
        ",
    );
}

#[test]
fn a_mutator_on_creation_alone_is_accepted() {
    let mut world = deployed(&deployment(), Update);
    world.create_webhook = |object| *image(object) = json!("mirror/img:1");
    world.live = Some(world.created("helm", Update, DEPLOYED));
    world.baseline = None;
    plays(
        &world,
        r"
            read
            ask oracle
            ask create
            InSync None AsDeclared: as declared
              /spec/template/spec/containers/[name=c]/image accepted Admission: the server makes this of the declared value when the object is created
        ",
    );
}

#[test]
fn another_manager_holds_the_path() {
    let mut world = unknown(&deployment());
    world.edit("kubectl-edit", |live| *image(live) = json!("evil:1"));
    plays(
        &world,
        r#"
            read
            ask oracle
            ask create
            ask fence
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/template/spec/containers/0/image "img:1"
            InSync Corrected AsDeclared: one field was put back
              /spec/template/spec/containers/[name=c]/image Changed desired "img:1" live "evil:1" by kubectl-edit/Update
        "#,
    );
}

#[test]
fn the_release_held_it_when_it_was_deployed() {
    let mut world = unknown(&deployment());
    // A webhook that no longer exists.
    *image(world.live()) = json!("mirror/img:1");
    plays(
        &world,
        r"
            read
            ask oracle
            ask create
            InSync None AsDeclared: as declared
              /spec/template/spec/containers/[name=c]/image accepted Admission: it was there when the release was deployed
        ",
    );
}

#[test]
fn the_release_wrote_it_later() {
    let mut world = unknown(&deployment());
    *image(world.live()) = json!("mirror/img:1");
    world.live()["metadata"]["managedFields"][0]["time"] = json!(LATER);
    plays(
        &world,
        r#"
            read
            ask oracle
            ask create
            Unknown Reported Unverified: nothing tells whether it was so when the release was deployed
              /spec/template/spec/containers/[name=c]/image Changed desired "img:1" live "mirror/img:1" by unattributed
        "#,
    );
    world.live()["metadata"]["managedFields"][0]["time"] = json!(DEPLOYED);
    world.deployed_at = None;
    assert_eq!(world.judged().0.reason, Reason::Unverified, "without the time of the deployment nothing is proven");
    world.deployed_at = Some(at(DEPLOYED));
    world.live()["metadata"]["managedFields"] = json!([]);
    assert_eq!(world.judged().0.reason, Reason::Unverified, "nobody holds it");
}

#[test]
fn both_entries_of_a_release_that_changed_its_way_are_its_own() {
    let mut world = unknown(&deployment());
    *image(world.live()) = json!("mirror/img:1");
    let mut image = OwnedSet::default();
    image.insert_path(&path(&IMAGE));
    world.live()["metadata"]["managedFields"].as_array_mut().unwrap().push(entry("helm", Apply, "", DEPLOYED, &image));
    plays(
        &world,
        r"
            read
            ask oracle
            ask create
            InSync None AsDeclared: as declared
              /spec/template/spec/containers/[name=c]/image accepted Admission: it was there when the release was deployed
        ",
    );
}

#[test]
fn a_bare_list_in_the_releases_entry_holds_no_item() {
    // The server leaves it when the last item goes.
    let mut world = unknown(&service());
    world.live()["spec"]["ports"] = json!([]);
    let fields = &mut world.live()["metadata"]["managedFields"][0]["fieldsV1"];
    fields["f:spec"]["f:ports"] = json!({});
    let play = world.play();
    assert!(play.contains("/spec/ports/[port=80,protocol=TCP] Removed") && !play.contains("Admission"), "{play}");
}

#[test]
fn gone_and_held_or_gone_and_let_go() {
    let mut world = unknown(&config_map());
    world.live()["data"].as_object_mut().unwrap().remove("a");
    plays(
        &world,
        r"
            read
            ask oracle
            ask create
            InSync None AsDeclared: as declared
              /data/a accepted Admission: gone, yet the release still holds it
        ",
    );
    let mut world = unknown(&config_map());
    world.edit("kubectl-edit", |live| {
        live["data"].as_object_mut().unwrap().remove("a");
    });
    plays(
        &world,
        r#"
            read
            ask oracle
            ask create
            ask fence
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              add /data/a "1"
            InSync Corrected AsDeclared: one field was put back
              /data/a Removed desired "1" by unattributed
        "#,
    );
}

#[test]
fn a_refused_manifest_is_asked_for_as_a_creation() {
    let mut world = unknown(&deployment());
    world.oracle = Some(refusal(Reason::Immutable));
    world.edit("kubectl-edit", |live| *image(live) = json!("evil:1"));
    plays(
        &world,
        r#"
            read
            ask oracle
            ask create
            ask fence
            prove
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/template/spec/containers/0/image "img:1"
            InSync Corrected AsDeclared: one field was put back
              /spec/template/spec/containers/[name=c]/image Changed desired "img:1" live "evil:1" by kubectl-edit/Update
        "#,
    );
    world.create = Some(refusal(Reason::QuotaExceeded));
    plays(
        &world,
        r#"
            read
            ask oracle
            ask create
            Unknown Reported QuotaExceeded: the server refuses to tell what it makes of the manifest
              /spec/template/spec/containers/[name=c]/image Changed desired "img:1" live "evil:1" by kubectl-edit/Update
        "#,
    );
    // A creation that is refused while the manifest is not proves nothing either way; managedFields do.
    world.oracle = None;
    assert_eq!(world.judged().0.reason, Reason::AsDeclared);
    world.create = Some(refusal(Reason::ServerError));
    assert_eq!(world.judged().0.reason, Reason::ServerError, "a lost question is no answer");
}

#[test]
fn an_answer_without_claims_is_no_answer() {
    let mut world = unknown(&deployment());
    world.owned = None;
    plays(
        &world,
        r"
            read
            ask oracle
            Unknown Reported ServerError: the answer to the dry-run did not tell which fields the manifest claims
        ",
    );
}

#[test]
fn a_path_the_server_claims_and_nobody_declared_is_never_written() {
    let mut world = unknown(&config_map());
    world.owned.as_mut().unwrap().insert_path(&path(&["f:data", "f:ghost"]));
    world.edit("kubectl-edit", |live| live["data"]["ghost"] = json!("x"));
    // The dry-run of the manifest would take it away.
    world.webhook = |object| {
        object["data"].as_object_mut().unwrap().remove("ghost");
    };
    plays(
        &world,
        r#"
            read
            ask oracle
            Unknown Reported Unverified: nothing tells whether it was so when the release was deployed
              /data/ghost Changed live "x" by kubectl-edit/Update
        "#,
    );
}

#[test]
fn a_sibling_is_healed_beside_the_unverified() {
    let mut world = unknown(&deployment());
    *image(world.live()) = json!("mirror/img:1");
    world.deployed_at = None;
    world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
    plays(
        &world,
        r#"
            read
            ask oracle
            ask create
            ask fence
            prove
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/replicas 2
            Unknown Corrected Unverified: nothing tells whether it was so when the release was deployed
              /spec/template/spec/containers/[name=c]/image Changed desired "img:1" live "mirror/img:1" by unattributed (kubectl-edit?)
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
        "#,
    );
    assert!(!world.judged().0.settled, "the unverified path keeps the object at first sight");
}

#[test]
fn a_forged_revision_adds_no_rights() {
    // The release owns a ClusterRole; a record that nobody deployed declares more of it.
    let role = |more: &Value| {
        let mut role =
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "cm"}, "rules": []});
        role.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        role
    };
    let mut world = unknown(&role(&json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]}})));
    world.vouched = false;
    world.live = deployed(&role(&json!({})), Update).live;
    let (judgement, written) = world.judged();
    assert_eq!((judgement.reason, judgement.settled, written), (Reason::Unverified, false, None), "{judgement:?}");
    // The same difference of an object that was once as this revision declares it is drift.
    world.vouched = true;
    assert!(world.judged().1.is_some());
}

/// A webhook that came later makes something of what was declared empty and never stored.
#[test]
fn what_is_declared_empty_was_never_stored() {
    for (member, empty, expected) in [
        ("tolerations", json!([]), Verdict::InSync),
        ("nodeSelector", json!({}), Verdict::InSync),
        ("securityContext", Value::Null, Verdict::InSync),
        // An empty one is stored.
        ("securityContext", json!({}), Verdict::Drifted),
        ("tolerations", json!([{"operator": "Exists"}]), Verdict::Drifted),
    ] {
        let mut manifest = deployment();
        manifest["spec"]["template"]["spec"][member] = empty.clone();
        let mut world = unknown(&manifest);
        world.edit("x", |live| drop(live["spec"]["template"]["spec"].as_object_mut().unwrap().remove(member)));
        world.webhook = |object| {
            let pod = object["spec"]["template"]["spec"].as_object_mut().unwrap();
            for member in ["tolerations", "nodeSelector", "securityContext"] {
                pod.insert(member.to_owned(), json!({"of": "the webhook"}));
            }
        };
        world.permit = Permit::Report(None);
        let (judgement, written) = world.judged();
        assert_eq!((judgement.verdict, written), (expected, None), "{member}: {empty}");
        let normalized = judgement.accepted.iter().filter(|accepted| accepted.reason == DeviationReason::Normalized).count();
        assert_eq!(normalized, usize::from(expected == Verdict::InSync), "{member}: {empty}");
    }
}

/// Custom resources keep what is empty: there it was taken away.
#[test]
fn what_a_custom_resource_declares_empty_is_stored() {
    let manifest =
        json!({"apiVersion": "test.example/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "t"}, "spec": {"tags": []}});
    let mut world = unknown(&manifest);
    world.edit("x", |live| live["spec"] = json!({}));
    world.webhook = |object| object["spec"]["tags"] = json!(["webhook"]);
    world.permit = Permit::Report(None);
    assert_eq!(world.judged().0.verdict, Verdict::Drifted);
}
