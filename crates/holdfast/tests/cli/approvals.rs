//! An approval goes to the policy that decides, about exactly the desired state that was reported.

use holdfast_api::report::Summary;
use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::{
    program::User,
    support::{World, live},
};

fn dr(namespace: &str, name: &str) -> Target {
    Target::custom("holdfast.dev", "v1alpha1", "driftreports", namespace, name)
}

/// A report as the hub writes it.
async fn report(world: &World, release: &str, reason: &str, hash: &str) {
    let namespace = &world.namespace;
    let hub = world.mgmt.writer("hub").unwrap();
    let object = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftReport",
        "metadata": {"name": release, "namespace": namespace, "labels": {"cluster.x-k8s.io/cluster-name": "c"}},
        "spec": {"cluster": "c", "source": format!("HelmRelease {namespace}/{release}")}});
    hub.create(&dr(namespace, release), &object).await.unwrap();
    let status = json!({"status": {
        "source": {"kind": "HelmRelease", "namespace": namespace, "name": release, "revision": 3, "desiredHash": hash},
        "policy": {"kind": "DriftPolicy", "namespace": namespace, "name": "p"},
        "conditions": [{"type": "InSync", "status": "Unknown", "reason": reason, "message": "30 of 40 objects drifted", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "summary": Summary { objects: 40, in_sync: 10, drifted: 30, ..Summary::default() },
    }});
    hub.merge_patch(&dr(namespace, release).status(), &status).await.unwrap();
}

#[tokio::test]
async fn what_the_hub_holds_back_can_be_approved() {
    let world = World::new("approve").await;
    world.policy("Correct", json!({})).await;
    let user = User::of_management(&world).await;
    let policy = Target::custom("holdfast.dev", "v1alpha1", "driftpolicies", "approve", "p");
    let reader = world.mgmt.writer("reader").unwrap();
    let approved = async || live(&reader, &policy, "/spec/approve").await;
    let nothing = user.run(&["fix", "--approve", "approve/c", "--yes"]).await;
    assert_eq!(nothing.code, 2);
    assert!(nothing.err.contains("nothing waits for an approval"), "{}", nothing.err);

    report(&world, "web", "BlastRadius", "aaaa").await;
    report(&world, "db", "BlastRadius", "bbbb").await;
    report(&world, "calm", "Drifted", "cccc").await;
    let shown = user.run(&["fix", "--approve", "approve/c", "--dry-run"]).await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for words in ["approve/web, revision 3: 30 of 40 objects drifted", "approve/db", "DriftPolicy approve/p"] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    assert!(!shown.out.contains("calm"), "{}", shown.out);
    user.wrote_nothing().await;
    assert_eq!(approved().await, Value::Null);

    let one = user.run(&["fix", "--approve", "approve/c", "web", "--yes"]).await;
    assert_eq!((one.code, approved().await), (0, json!(["aaaa"])), "{one:?}");
    let all = user.run(&["fix", "--approve", "approve/c", "--yes"]).await;
    assert_eq!(all.code, 0, "{all:?}");
    let mut hashes: Vec<String> = serde_json::from_value(approved().await).unwrap();
    hashes.sort();
    assert_eq!(hashes, ["aaaa", "bbbb"]);
    // What is approved already is not written again.
    let writes = user.calls().await.writes().len();
    assert_eq!(user.run(&["fix", "--approve", "approve/c", "--yes"]).await.code, 0);
    assert_eq!((user.calls().await.writes().len(), writes), (2, 2));
}
