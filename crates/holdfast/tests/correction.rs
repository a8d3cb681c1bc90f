//! Drift of a Helm 3 and a Helm 4 release is found, named and put back.

#![allow(clippy::unwrap_used, reason = "clippy allows it in test functions, not in their helpers")]

mod support;

use holdfast_testkit::{Helm, Target};
use serde_json::json;

use support::{World, finding, live, path_of};

#[tokio::test]
async fn an_edited_scalar_goes_back() {
    for (helm, name) in [(Helm::V3, "scalar3"), (Helm::V4, "scalar4")] {
        let mut world = World::new(name).await;
        world.install(helm, "web", "mini10", &[]).await;
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        let kubectl = world.writer("kubectl-edit");
        let target = Target::deployment(name, "web-web");
        kubectl.merge_patch(&target, &json!({"spec": {"replicas": 5}})).await.unwrap();
        let report = world
            .wait_report(Some("web"), "corrected", |status| finding(status, "Deployment", "web-web").is_some_and(|finding| finding["action"] == "Corrected"))
            .await;
        let found = finding(&report["status"], "Deployment", "web-web").unwrap();
        let path = path_of(found, "/spec/replicas").unwrap();
        assert_eq!((&path["desired"], &path["live"], &path["actor"]["manager"]), (&json!(2), &json!(5), &json!("kubectl-edit")));
        assert_eq!(live(&kubectl, &target, "/spec/replicas").await, json!(2));
    }
}
