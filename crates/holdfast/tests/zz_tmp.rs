mod support;
use holdfast_testkit::{Helm, Target};
use serde_json::json;
use support::World;
#[tokio::test]
async fn look() {
    for (helm, ns) in [(Helm::V3, "z3"), (Helm::V4, "z4")] {
        let world = World::new(ns).await;
        world.install(helm, "web", "mini10", &[]).await;
        let w = world.writer("me");
        let svc = Target::service(ns, "web-web");
        let dep = Target::deployment(ns, "web-web");
        let show = async |what: &str, t: &Target| {
            let o = w.get(t).await.unwrap();
            println!("== {ns} {what}");
            for e in o["metadata"]["managedFields"].as_array().unwrap() {
                println!("{} {} {}", e["manager"], e["operation"], if t.plural == "services" { e["fieldsV1"]["f:spec"]["f:ports"].to_string() } else { e.pointer("/fieldsV1/f:spec/f:template/f:spec/f:containers").map(|v| v.to_string()).unwrap_or_default() });
            }
        };
        show("base", &svc).await;
        show("base", &dep).await;
        w.json_patch(&svc, &json!([{"op":"replace","path":"/spec/ports/0/port","value":81}])).await.unwrap();
        show("port", &svc).await;
        w.json_patch(&dep, &json!([{"op":"remove","path":"/spec/template/spec/containers/0/ports/1"}])).await.unwrap();
        show("lost", &dep).await;
        w.json_patch(&dep, &json!([{"op":"replace","path":"/spec/template/spec/containers/0/ports/0/containerPort","value":8081}])).await.unwrap();
        show("moved", &dep).await;
    }
}
