//! Drift in a list key: the item is changed back in place.

use holdfast_api::report::{Action, Reason};
use holdfast_engine::{
    manager::Operation::{Apply, Update},
    yields::{Resources, Scaler},
};
use serde_json::{Value, json};

use crate::world::*;

fn containers(world: &World) -> Value {
    world.judged().1.unwrap()["spec"]["template"]["spec"]["containers"].clone()
}

#[test]
fn a_service_port_keeps_its_node_port() {
    for operation in [Update, Apply] {
        let mut world = deployed(&service(), operation);
        // Port is the merge key: a forced apply would name two ports alike, and is refused.
        world.oracle = Some(refusal(Reason::Invalid));
        world.live()["spec"]["ports"][0]["nodePort"] = json!(30080);
        world.edit("kubectl-edit", |live| live["spec"]["ports"][0]["port"] = json!(81));
        let ports = world.judged().1.unwrap()["spec"]["ports"].clone();
        assert_eq!(
            ports,
            json!([{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}, {"name": "https", "port": 443, "protocol": "TCP"}])
        );
    }
    let mut world = deployed(&service(), Update);
    world.oracle = Some(refusal(Reason::Invalid));
    world.edit("kubectl-edit", |live| live["spec"]["ports"][0]["port"] = json!(81));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            prove
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/ports/0/port 80
            InSync Corrected AsDeclared: one field was put back
              /spec/ports/[port=80,protocol=TCP] Removed desired {"name":"http","port":80} by unattributed (kubectl-edit?)
        "#,
    );
}

#[test]
fn at_first_sight_another_name_tells_what_is_claimed() {
    let mut world = deployed(&service(), Update);
    world.oracle = Some(refusal(Reason::Invalid));
    world.edit("kubectl-edit", |live| live["spec"]["ports"][0]["port"] = json!(81));
    (world.owned, world.baseline) = (None, None);
    plays(
        &world,
        r#"
            read
            ask oracle
            ask create claims
            ask fence
            prove
            patch as helm/Update
              replace /metadata/resourceVersion "8"
              replace /spec/ports/0/port 80
            InSync Corrected AsDeclared: one field was put back
              /spec/ports/[port=80,protocol=TCP] Removed desired {"name":"http","port":80} by unattributed (kubectl-edit?)
        "#,
    );
    world.claims = Some(refusal(Reason::Invalid));
    plays(
        &world,
        "
            read
            ask oracle
            ask create claims
            Unknown Reported Invalid: the server refuses the manifest in a dry-run
        ",
    );
}

#[test]
fn a_server_side_release_gets_its_fields_back() {
    let mut world = deployed(&service(), Apply);
    world.oracle = Some(refusal(Reason::Invalid));
    world.edit("kubectl-edit", |live| live["spec"]["ports"][0]["port"] = json!(81));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            prove
            patch as helm/Apply
              replace /metadata/resourceVersion "8"
              replace /spec/ports/0/port 80
            then give /spec/ports/[port=80,protocol=TCP] /spec/ports/[port=80,protocol=TCP]/name /spec/ports/[port=80,protocol=TCP]/port
              and drop /spec/ports/[port=81,protocol=TCP]
            InSync Corrected AsDeclared: one field was put back
              /spec/ports/[port=80,protocol=TCP] Removed desired {"name":"http","port":80} by unattributed (kubectl-edit?)
        "#,
    );
    let fields = world.judged().1.unwrap()["metadata"]["managedFields"].clone();
    assert_eq!(fields.as_array().unwrap().len(), 1, "the editor's entry held nothing else");
    assert!(fields[0]["fieldsV1"]["f:spec"]["f:ports"].get(r#"k:{"port":80,"protocol":"TCP"}"#).is_some());
}

#[test]
fn a_renamed_container_is_not_doubled() {
    for operation in [Update, Apply] {
        let mut world = deployed(&deployment(), operation);
        world.edit("kubectl-edit", |live| {
            let container = &mut live["spec"]["template"]["spec"]["containers"][0];
            container["name"] = json!("c2");
            container["args"] = json!(["evil"]);
            container["tty"] = json!(true);
        });
        let mut wanted = deployment()["spec"]["template"]["spec"]["containers"].clone();
        wanted[0]["tty"] = json!(true);
        assert_eq!(containers(&world), wanted, "what nobody declared stays");
    }
    let mut world = deployed(&deployment(), Apply);
    world.edit("kubectl-edit", |live| live["spec"]["template"]["spec"]["containers"][0]["name"] = json!("c2"));
    plays(
        &world,
        r#"
            read
            ask oracle fence
            prove
            patch as helm/Apply
              replace /metadata/resourceVersion "8"
              replace /spec/template/spec/containers/0/name "c"
            then give /spec/template/spec/containers/[name=c] /spec/template/spec/containers/[name=c]/args /spec/template/spec/containers/[name=c]/env/[name=A] /spec/template/spec/containers/[name=c]/env/[name=A]/name /spec/template/spec/containers/[name=c]/env/[name=A]/value /spec/template/spec/containers/[name=c]/env/[name=B] /spec/template/spec/containers/[name=c]/env/[name=B]/name /spec/template/spec/containers/[name=c]/env/[name=B]/value /spec/template/spec/containers/[name=c]/image /spec/template/spec/containers/[name=c]/name /spec/template/spec/containers/[name=c]/ports/[containerPort=80,protocol=TCP] /spec/template/spec/containers/[name=c]/ports/[containerPort=80,protocol=TCP]/containerPort /spec/template/spec/containers/[name=c]/ports/[containerPort=80,protocol=TCP]/name /spec/template/spec/containers/[name=c]/ports/[containerPort=80,protocol=TCP]/protocol
              and drop /spec/template/spec/containers/[name=c2]
            InSync Corrected AsDeclared: one field was put back
              /spec/template/spec/containers/[name=c] Removed desired {"args":["a"],"env":[{"name":"A","value":"1"},{"name":"B","value":"$(A)2"}],"image":"img:1","name":"c","ports":[{"containerPort":80,"name":"http","protocol":"TCP"}]} by unattributed (kubectl-edit?)
        "#,
    );
}

#[test]
fn a_sidecar_is_no_renamed_container() {
    let mut world = deployed(&deployment(), Update);
    world.edit("injector", |live| {
        let list = live["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
        *list = vec![json!({"name": "proxy", "image": "proxy:1"}), json!({"name": "logs", "image": "logs:1"})];
    });
    let names: Vec<Value> = containers(&world).as_array().unwrap().iter().map(|container| container["name"].clone()).collect();
    assert_eq!(names, ["proxy", "logs", "c"], "the container comes back and both sidecars stay");
}

#[test]
fn a_variable_that_replaced_another_is_an_addition() {
    let mut world = deployed(&deployment(), Update);
    world.edit("kubectl-edit", |live| live["spec"]["template"]["spec"]["containers"][0]["env"][0] = json!({"name": "MINE", "value": "1"}));
    assert_eq!(
        containers(&world)[0]["env"],
        json!([{"name": "MINE", "value": "1"}, {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}])
    );
}

#[test]
fn an_item_without_its_key_gets_it_back() {
    let env = |world: &World| containers(world)[0]["env"].clone();
    for operation in [Update, Apply] {
        for lost in [&[0][..], &[1], &[0, 1]] {
            let mut world = deployed(&deployment(), operation);
            // The server finds what is stored unfit for an apply, and keeps no record of who holds what.
            world.oracle = Some(refusal(Reason::Invalid));
            world.edit("kubectl-edit", |live| {
                for item in lost {
                    live["spec"]["template"]["spec"]["containers"][0]["env"][*item].as_object_mut().unwrap().remove("name");
                }
            });
            world.live()["metadata"].as_object_mut().unwrap().remove("managedFields");
            let (judgement, _) = world.judged();
            assert_eq!(judgement.action, Action::Corrected, "{operation:?} {lost:?} {judgement:?}");
            assert_eq!(env(&world), deployment()["spec"]["template"]["spec"]["containers"][0]["env"], "{operation:?} {lost:?}");
        }
    }
}

#[test]
fn several_ports_at_once() {
    let mut world = deployed(&service(), Update);
    world.oracle = Some(refusal(Reason::Invalid));
    world.edit("kubectl-edit", |live| {
        live["spec"]["ports"] = json!([{"name": "https", "port": 444, "protocol": "TCP"}, {"name": "http", "port": 81, "protocol": "TCP"}]);
    });
    let ports = world.judged().1.unwrap()["spec"]["ports"].clone();
    assert_eq!(ports, json!([{"name": "https", "port": 443, "protocol": "TCP"}, {"name": "http", "port": 80, "protocol": "TCP"}]));
}

#[test]
fn one_number_two_protocols() {
    let dns = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "dns", "namespace": "t"},
        "spec": {"ports": [{"name": "tcp", "port": 53}, {"name": "udp", "port": 53, "protocol": "UDP"}]}});
    let mut world = deployed(&dns, Update);
    assert_eq!(world.judged().0.reason, Reason::AsDeclared);
    world.edit("kubectl-edit", |live| {
        live["spec"]["ports"].as_array_mut().unwrap().remove(1);
    });
    let ports = world.judged().1.unwrap()["spec"]["ports"].clone();
    assert_eq!(ports, json!([{"name": "tcp", "port": 53, "protocol": "TCP"}, {"name": "udp", "port": 53, "protocol": "UDP"}]));
}

#[test]
fn one_renamed_and_one_removed_come_back_in_order() {
    let mut manifest = deployment();
    manifest["spec"]["template"]["spec"]["initContainers"] =
        json!([{"name": "one", "image": "i:1"}, {"name": "two", "image": "i:2"}, {"name": "three", "image": "i:3"}]);
    let mut world = deployed(&manifest, Update);
    world.edit("kubectl-edit", |live| {
        live["spec"]["template"]["spec"]["initContainers"] = json!([{"name": "other", "image": "i:2"}, {"name": "one", "image": "i:1"}]);
    });
    let (judgement, written) = world.judged();
    let names: Vec<Value> = written.unwrap()["spec"]["template"]["spec"]["initContainers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|container| container["name"].clone())
        .collect();
    assert_eq!((names, judgement.reason), (vec![json!("one"), json!("two"), json!("three")], Reason::AsDeclared));
}

#[test]
fn inside_a_renamed_container_what_an_autoscaler_set_stays() {
    let mut manifest = deployment();
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    for (scalers, cpu) in [(vec![Scaler::Resources(Resources { by: "vpa".into(), rules: Vec::new() })], "2"), (Vec::new(), "1")] {
        let mut world = deployed(&manifest, Update);
        world.scalers = scalers;
        world.edit("somebody", |live| {
            let container = &mut live["spec"]["template"]["spec"]["containers"][0];
            container["name"] = json!("renamed");
            container["resources"]["requests"]["cpu"] = json!("2");
        });
        let container = &containers(&world)[0];
        assert_eq!((&container["name"], &container["resources"]["requests"]["cpu"]), (&json!("c"), &json!(cpu)));
    }
}
