//! What `fix` does not write: what the hub would not, and what nobody agreed to.

use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::{
    program::User,
    support::{
        World, finding,
        fixture::{Release, Style, configmap, deployment},
        live,
    },
};

fn role(namespace: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader", "namespace": namespace},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
}

/// Verdict and reason of an object, over all releases.
fn said<'a>(statuses: &'a Value, kind: &str, name: &str) -> (&'a str, &'a str) {
    let found = statuses.as_array().unwrap().iter().find_map(|status| finding(status, kind, name));
    let found = found.unwrap_or_else(|| panic!("{kind} {name}: {statuses:#}"));
    (found["verdict"].as_str().unwrap(), found["reason"].as_str().unwrap())
}

#[tokio::test]
async fn nobody_is_asked_where_nobody_can_answer() {
    let world = World::new("noterminal").await;
    let user = User::of_workload(&world).await;
    for args in [&["fix", "-n", "noterminal"][..], &["fix", "--approve", "noterminal/c"]] {
        let refused = user.run(args).await;
        assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{refused:?}");
        assert!(refused.err.contains("--yes") && refused.err.contains("--dry-run"), "{}", refused.err);
    }
    assert!(user.calls().await.is_empty(), "and nothing was asked of the cluster either");
}

#[tokio::test]
async fn what_the_hub_would_not_write_is_not_written() {
    let namespace = "fixnot";
    let world = World::new(namespace).await;
    let user = User::of_workload(&world).await;
    let mallory = world.writer("mallory");
    // Two releases declare one object.
    let shared = configmap(namespace, "shared", "color", "blue");
    let first = Release::new(&world, "first", Style::ServerSide);
    first.install(std::slice::from_ref(&shared)).await;
    Release::new(&world, "second", Style::ServerSide).record(1, "deployed", &[shared]).await;
    mallory.merge_patch(&Target::configmap(namespace, "shared"), &json!({"data": {"color": "red"}})).await.unwrap();
    // A record that somebody forged declares what is not its own.
    mallory.create(&Target::configmap(namespace, "victim"), &configmap(namespace, "victim", "color", "red")).await.unwrap();
    let forged = Release::new(&world, "forged", Style::ServerSide);
    forged.record(1, "deployed", &[configmap(namespace, "victim", "color", "blue")]).await;
    // What grants rights is not created on a record's word, and what ran once is not run again.
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": namespace},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let rights = Release::new(&world, "rights", Style::ServerSide);
    rights.write(&configmap(namespace, "beside", "color", "blue")).await;
    rights.record(1, "deployed", &[configmap(namespace, "beside", "color", "blue"), role(namespace), job]).await;
    // Helm is at work.
    let busy = Release::new(&world, "busy", Style::ServerSide);
    busy.install(&[configmap(namespace, "busy", "color", "blue")]).await;
    mallory.merge_patch(&Target::configmap(namespace, "busy"), &json!({"data": {"color": "red"}})).await.unwrap();
    busy.record(2, "pending-upgrade", &[configmap(namespace, "busy", "color", "green")]).await;

    let ended = user.run(&["fix", "-n", namespace, "--yes", "-o", "json"]).await;
    let statuses = ended.json();
    assert_eq!(ended.code, 2, "something could not be judged: {statuses:#}");
    assert_eq!(said(&statuses, "ConfigMap", "shared"), ("Contested", "SelfConflict"));
    assert_eq!(said(&statuses, "ConfigMap", "victim"), ("Unknown", "NotOwned"));
    assert_eq!(said(&statuses, "Role", "reader").0, "Missing");
    assert_eq!(said(&statuses, "Job", "once").0, "Missing");
    let busy = statuses.as_array().unwrap().iter().find(|status| status["source"]["name"] == "busy").unwrap();
    assert_eq!(crate::support::reason(busy, "InSync"), "ReleasePending");
    user.wrote_nothing().await;

    // On the user's word the Role is created; a Job never is.
    let trusted = user.run(&["fix", "-n", namespace, "--release", "rights", "--yes", "--trust", "-o", "json"]).await;
    assert_eq!(trusted.code, 1, "{}", trusted.err);
    let statuses = trusted.json();
    assert_eq!((said(&statuses, "Role", "reader").0, said(&statuses, "Job", "once").0), ("InSync", "Missing"));
    assert_eq!(user.calls().await.writes().len(), 1);
    assert!(mallory.find(&Target::role(namespace, "reader")).await.unwrap().is_some());
}

#[tokio::test]
async fn an_autoscaler_keeps_what_is_its_own() {
    let namespace = "fixscaled";
    let world = World::new(namespace).await;
    let user = User::of_workload(&world).await;
    let writer = world.writer("autoscaler");
    let target = Target::deployment(namespace, "web");
    Release::new(&world, "web", Style::ServerSide).install(&[deployment(namespace, "web", 2)]).await;
    let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 6}});
    writer.create(&Target::hpa(namespace, "web"), &hpa).await.unwrap();
    // Within the bounds it stays; beyond them it goes to the nearest, not to the manifest's.
    for (replicas, fixed) in [(5, 5), (9, 6)] {
        writer.merge_patch(&target.scale(), &json!({"spec": {"replicas": replicas}})).await.unwrap();
        let ended = user.run(&["fix", "-n", namespace, "--yes"]).await;
        assert_eq!((ended.code, live(&writer, &target, "/spec/replicas").await), (0, json!(fixed)), "{ended:?}");
    }
}

#[tokio::test]
async fn who_does_not_see_every_release_writes_nothing() {
    let namespace = "fixblind";
    let world = World::new(namespace).await;
    Release::new(&world, "web", Style::ServerSide).install(&[configmap(namespace, "settings", "color", "blue")]).await;
    let target = Target::configmap(namespace, "settings");
    let mallory = world.writer("mallory");
    mallory.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
    // Everything in the namespace, nothing elsewhere.
    let rights = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "all", "namespace": namespace},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "all", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "cli-fixblind"}]}]});
    for item in rights["items"].as_array().unwrap() {
        world.workload.apply_yaml("testkit", &item.to_string()).await.unwrap();
    }
    let user = User::new(world.workload, "cli-fixblind", &[]).await;
    let refused = user.run(&["fix", "-n", namespace, "--yes"]).await;
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("Secrets in any namespace"), "{}", refused.err);
    user.wrote_nothing().await;
    assert_eq!(live(&mallory, &target, "/data/color").await, json!("red"));
}
