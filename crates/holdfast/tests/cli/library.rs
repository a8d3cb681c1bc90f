//! The engine as a library: the example controller against a real API server.

use holdfast_testkit::{MutatingWebhook, Rule, Target, WebhookOptions, mutate};
use serde_json::json;

use crate::support::{World, live};

#[allow(dead_code, reason = "its own program has a main function")]
#[path = "../../../engine/examples/keep_generated.rs"]
mod keep_generated;

use keep_generated::{Done, Keeper};

#[tokio::test]
async fn a_generated_object_is_kept_without_a_loop_against_a_webhook() {
    let world = World::new("keeper").await;
    let options = WebhookOptions::new("keeper", "keeper", vec![Rule::deployments()]);
    // The kind of webhook that makes others write for ever.
    let webhook = MutatingWebhook::start(world.workload, options, mutate::mirror_images_blindly).await.unwrap();
    let mark = world.workload.audit_mark().await.unwrap();
    let calls = async || {
        let calls = world.workload.audit_since(mark).await.unwrap().by_user("keeper").of_resource("deployments");
        (calls.writes().len(), calls.dry_runs().len())
    };
    let client = world.workload.client("keeper").unwrap();
    let mut keeper = Keeper::new(client.clone(), "keeper");
    assert_eq!(keeper.reconcile().await.unwrap(), Done::Written);
    for _ in 0..3 {
        assert_eq!(keeper.reconcile().await.unwrap(), Done::Nothing);
    }
    assert_eq!(calls().await, (1, 0), "created, and left alone");

    // A restarted one knows nothing, and asks.
    let mut keeper = Keeper::new(client, "keeper");
    assert_eq!(keeper.reconcile().await.unwrap(), Done::Accepted);
    assert_eq!(calls().await, (1, 1));

    let target = Target::deployment("keeper", "generated");
    let mallory = world.writer("mallory");
    mallory.merge_patch(&target, &json!({"metadata": {"labels": {"team": "red"}}})).await.unwrap();
    mallory.merge_patch(&target.status(), &json!({"status": {"replicas": 1}})).await.unwrap();
    // An edit of a label goes through the webhook, which puts its prefix before the image once more.
    let pointer = "/spec/template/spec/containers/0/image";
    assert_eq!(live(&mallory, &target, pointer).await, json!("mirror.local/mirror.local/web:1"));
    assert_eq!(keeper.reconcile().await.unwrap(), Done::Written);
    assert_eq!(live(&mallory, &target, pointer).await, json!("mirror.local/web:1"));
    assert_eq!(keeper.reconcile().await.unwrap(), Done::Nothing);
    assert_eq!(calls().await, (2, 2));

    mallory.merge_patch(&target.scale(), &json!({"spec": {"replicas": 7}})).await.unwrap();
    assert_eq!(keeper.reconcile().await.unwrap(), Done::Written);
    assert_eq!(keeper.reconcile().await.unwrap(), Done::Nothing);
    assert_eq!(live(&mallory, &target, "/spec/replicas").await, json!(2));
    assert_eq!(live(&mallory, &target, "/metadata/labels/team").await, json!("red"), "what it does not claim stays");
    assert_eq!(calls().await, (3, 3), "the edit is put back once");
    webhook.stop().await.unwrap();
}
