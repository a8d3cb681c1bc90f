//! Somebody changed declared fields: found, attributed, put back with the smallest write.

use holdfast_api::report::Reason;
use holdfast_engine::{
    case::Permit,
    manager::Operation::{Apply, Update},
    yields::{Replicas, Scaler},
};
use serde_json::json;

use crate::world::*;

fn hpa(min: i64, max: i64) -> Scaler {
    Scaler::Replicas(Replicas::between("HorizontalPodAutoscaler web".into(), min, max))
}

#[test]
fn in_sync_costs_one_read() {
    assert_eq!(deployed(&deployment(), Update).play(), "read\nInSync None AsDeclared: as declared");
}

#[test]
fn a_scalar_of_a_client_side_release() {
    let mut world = deployed(&deployment(), Update);
    world.edit_through("kubectl", "scale", |live| live["spec"]["replicas"] = json!(5));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/replicas 2
            InSync Corrected AsDeclared: one field was put back
              /spec/replicas Changed desired 2 live 5 by kubectl/Update/scale
        "#,
    );
}

#[test]
fn a_scalar_of_a_server_side_release() {
    let mut world = deployed(&deployment(), Apply);
    world.edit("kubectl-edit", |live| live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("evil:1"));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            apply as helm/Apply
            InSync Corrected AsDeclared: one field was put back
              /spec/template/spec/containers/[name=c]/image Changed desired "img:1" live "evil:1" by kubectl-edit/Update
        "#,
    );
}

#[test]
fn a_deleted_map_key_and_a_replaced_list() {
    let mut world = deployed(&config_map(), Update);
    world.edit("kubectl-edit", |live| {
        live["data"].as_object_mut().unwrap().remove("x/y~z");
    });
    plays(
        &world,
        r#"
            read
            ask oracle fence
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              add /data/x~1y~0z "3"
            InSync Corrected AsDeclared: one field was put back
              /data/x~1y~0z Removed desired "3" by unattributed
        "#,
    );

    let mut world = deployed(&deployment(), Update);
    world.edit("kubectl-edit", |live| live["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["a", "--evil"]));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/template/spec/containers/0/args ["a"]
            InSync Corrected AsDeclared: one field was put back
              /spec/template/spec/containers/[name=c]/args Changed desired ["a"] live ["a","--evil"] by kubectl-edit/Update
        "#,
    );
}

#[test]
fn a_missing_list_item_goes_where_it_was() {
    let mut world = deployed(&deployment(), Update);
    world.edit("kubectl-edit", |live| {
        live["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap().remove(0);
    });
    plays(
        &world,
        r#"
            read
            ask oracle fence
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              add /spec/template/spec/containers/0/env/0 {"name":"A","value":"1"}
            InSync Corrected AsDeclared: one field was put back
              /spec/template/spec/containers/[name=c]/env/[name=A] Removed desired {"name":"A","value":"1"} by unattributed
        "#,
    );
}

#[test]
fn env_is_put_back_in_order() {
    let mut world = deployed(&deployment(), Update);
    world.edit("kubectl-edit", |live| {
        live["spec"]["template"]["spec"]["containers"][0]["env"] =
            json!([{"name": "B", "value": "$(A)2"}, {"name": "X"}, {"name": "A", "value": "1"}]);
    });
    plays(
        &world,
        r#"
            read
            ask oracle fence
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/template/spec/containers/0/env [{"name":"A","value":"1"},{"name":"X"},{"name":"B","value":"$(A)2"}]
            InSync Corrected AsDeclared: one field was put back
              /spec/template/spec/containers/[name=c]/env/[#order] Changed desired ["[name=A]","[name=B]"] live ["[name=B]","[name=A]"] by unattributed (kubectl-edit?)
        "#,
    );
}

#[test]
fn a_doubled_list_item_is_made_one_again() {
    let mut world = deployed(&deployment(), Update);
    world.edit("kubectl-edit", |live| {
        live["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap().push(json!({"name": "A", "value": "2"}));
    });
    plays(
        &world,
        r#"
            read
            ask oracle fence
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              remove /spec/template/spec/containers/0/env/2
            InSync Corrected AsDeclared: one field was put back
              /spec/template/spec/containers/[name=c]/env/[name=A] Changed desired {"name":"A","value":"1"} by kubectl-edit/Update
        "#,
    );
}

#[test]
fn lost_labels_and_ownership_annotations() {
    let mut world = deployed(&config_map(), Update);
    world.edit("kubectl-label", |live| {
        live["metadata"].as_object_mut().unwrap().remove("labels");
    });
    plays(
        &world,
        r#"
            read
            ask oracle fence
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              add /metadata/labels {"app.kubernetes.io/managed-by":"Helm"}
            InSync Corrected AsDeclared: one field was put back
              /metadata/labels/app.kubernetes.io~1managed-by Removed desired "Helm" by unattributed
        "#,
    );

    let mut world = deployed(&config_map(), Update);
    world.edit("kubectl-annotate", |live| {
        live["metadata"].as_object_mut().unwrap().remove("annotations");
    });
    plays(
        &world,
        r#"
            read
            ask oracle fence
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              add /metadata/annotations {"meta.helm.sh/release-name":"rel"}
              add /metadata/annotations/meta.helm.sh~1release-namespace "t"
            InSync Corrected AsDeclared: 2 fields were put back
              /metadata/annotations/meta.helm.sh~1release-name Removed desired "rel" by unattributed
              /metadata/annotations/meta.helm.sh~1release-namespace Removed desired "t" by unattributed
        "#,
    );
    // Without having been seen with them, nothing says that the object is the release's.
    world.seen = false;
    plays(
        &world,
        r#"
            read
            ask oracle fence
            Unknown Reported NotOwned: the object does not carry this release's ownership metadata
              /metadata/annotations/meta.helm.sh~1release-name Removed desired "rel" by unattributed
              /metadata/annotations/meta.helm.sh~1release-namespace Removed desired "t" by unattributed
        "#,
    );
    world.seen = true;
    world.writer = None;
    plays(
        &world,
        r#"
            read
            ask oracle fence
            Drifted Reported OwnerUnclear: no field manager of the release could be found, so nothing is written
              /metadata/annotations/meta.helm.sh~1release-name Removed desired "rel" by unattributed
              /metadata/annotations/meta.helm.sh~1release-namespace Removed desired "t" by unattributed
        "#,
    );
}

#[test]
fn an_object_that_another_release_adopted_is_left_alone() {
    let mut world = deployed(&config_map(), Update);
    world.edit("helm-of-another", |live| live["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("other"));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            Unknown Reported NotOwned: the object does not carry this release's ownership metadata
              /metadata/annotations/meta.helm.sh~1release-name Changed desired "rel" live "other" by helm-of-another/Update
        "#,
    );
}

#[test]
fn secret_values_are_never_shown() {
    let mut world = deployed(&secret(), Update);
    world.edit("x", |live| live["data"]["p"] = json!("aHVudGVyMw=="));
    let (judgement, written) = world.judged();
    let shown = format!("{judgement:?} {}", serde_json::to_string(&judgement.paths).unwrap());
    for value in ["hunter2", "aHVudGVyMg==", "aHVudGVyMw=="] {
        assert!(!shown.contains(value), "{shown}");
    }
    assert_eq!(judgement.paths.len(), 1, "the other key is not listed");
    assert_eq!((judgement.paths[0].path.as_str(), &judgement.paths[0].desired, &judgement.paths[0].live), ("/data/p", &None, &None));
    assert_eq!(written.unwrap()["data"]["p"], "aHVudGVyMg==");
}

#[test]
fn warn_reads_and_asks_but_never_proves_or_writes() {
    let mut world = deployed(&deployment(), Apply);
    world.permit = Permit::Report(None);
    world.edit("kubectl-edit", |live| live["spec"]["replicas"] = json!(5));
    plays(
        &world,
        r"
            read
            ask oracle
            Drifted Reported FieldChanged: one declared field differs
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
        ",
    );
    world.permit = Permit::Report(Some(Reason::Suspended));
    plays(
        &world,
        r"
            read
            ask oracle
            Drifted Reported Suspended: one declared field differs
              /spec/replicas Changed desired 2 live 5 by kubectl-edit/Update
        ",
    );
}

#[test]
fn replicas_belong_to_the_autoscaler_within_its_bounds() {
    let mut world = deployed(&deployment(), Update);
    world.scalers = vec![hpa(2, 6)];
    world.edit_through("kube-controller-manager", "scale", |live| live["spec"]["replicas"] = json!(5));
    plays(
        &world,
        r"
            read
            InSync None AsDeclared: as declared
              /spec/replicas accepted Yielded: HorizontalPodAutoscaler web scales it
        ",
    );

    world.live()["spec"]["replicas"] = json!(9);
    plays(
        &world,
        r#"
            read
            ask fence
            prove
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/replicas 6
            InSync Corrected AsDeclared: one field was put back
              /spec/replicas Changed desired 2 accepted 6 live 9 by kube-controller-manager/Update/scale
              /spec/replicas accepted Yielded: HorizontalPodAutoscaler web scales it
        "#,
    );

    world.live()["spec"]["replicas"] = json!(0);
    let (judgement, written) = world.judged();
    assert_eq!((judgement.paths[0].accepted.clone(), written.unwrap()["spec"]["replicas"].clone()), (Some(json!(2)), json!(2)));

    // The same edit without this autoscaler, as where it rules another object.
    world.live()["spec"]["replicas"] = json!(5);
    world.scalers.clear();
    assert_eq!(world.judged().1.unwrap()["spec"]["replicas"], json!(2));
}

#[test]
fn a_server_side_release_beyond_its_bounds_is_patched_not_applied() {
    let mut world = deployed(&deployment(), Apply);
    world.scalers = vec![hpa(3, 6)];
    world.edit_through("kubectl", "scale", |live| live["spec"]["replicas"] = json!(9));
    plays(
        &world,
        r#"
            read
            ask fence
            prove
            patch as helm/Apply
              replace /metadata/resourceVersion "8"
              replace /spec/replicas 6
            then give /spec/replicas
            InSync Corrected AsDeclared: one field was put back
              /spec/replicas Changed desired 2 accepted 6 live 9 by kubectl/Update/scale
              /spec/replicas accepted Yielded: HorizontalPodAutoscaler web scales it
        "#,
    );
}

#[test]
fn an_ignored_path_stays_while_its_sibling_is_healed() {
    let mut world = deployed(&deployment(), Apply);
    world.ignored = vec![holdfast_engine::path::Pattern::parse("/spec/replicas").unwrap()];
    world.edit("kubectl-edit", |live| {
        live["spec"]["replicas"] = json!(5);
        live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("evil:1");
    });
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
            InSync Corrected AsDeclared: one field was put back
              /spec/template/spec/containers/[name=c]/image Changed desired "img:1" live "evil:1" by kubectl-edit/Update
              /spec/replicas accepted Ignored: a policy ignores it
        "#,
    );
}

/// A server that completes every strategy.
fn strategy_type(object: &mut serde_json::Value) {
    if let Some(strategy) = object.pointer_mut("/spec/strategy").and_then(serde_json::Value::as_object_mut) {
        strategy.insert("type".into(), json!("RollingUpdate"));
    }
}

#[test]
fn defaults_inside_what_comes_back_need_no_proof() {
    for (operation, write) in [(Update, "patch as helm/Update"), (Apply, "apply as helm/Apply")] {
        let mut manifest = deployment();
        manifest["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 1}});
        let mut world = deployed(&manifest, operation);
        world.webhook = strategy_type;
        world.edit("kubectl-edit", |live| {
            live["spec"].as_object_mut().unwrap().remove("strategy");
        });
        let play = world.play();
        assert!(play.contains(write) && !play.contains("prove"), "{play}");
        // Beside what comes back, a default would be a change.
        world.edit("kubectl-edit", |live| live["spec"]["strategy"] = json!({"odd": 1}));
        assert!(world.play().contains("prove"), "{}", world.play());
    }
}

#[test]
fn what_leaves_no_trace_is_told_with_who_may_have_done_it() {
    let mut world = deployed(&deployment(), Update);
    world.suspects = vec!["webhook img.example/mirror".into(), "policy labels".into()];
    world.edit("kubectl-label", |live| live["metadata"]["labels"]["mine"] = json!("x"));
    world.live()["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other:1");
    world.permit = Permit::Report(None);
    plays(
        &world,
        r#"
            read
            ask oracle
            Drifted Reported FieldChanged: one declared field differs
              /spec/template/spec/containers/[name=c]/image Changed desired "img:1" live "other:1" by unattributed (kubectl-label, webhook img.example/mirror, policy labels?)
        "#,
    );
    world.webhook = |object| object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other:1");
    plays(
        &world,
        r"
            read
            ask oracle
            InSync None AsDeclared: as declared
              /spec/template/spec/containers/[name=c]/image accepted Admission: the server makes this of the declared value, perhaps by webhook img.example/mirror or policy labels
        ",
    );
}
