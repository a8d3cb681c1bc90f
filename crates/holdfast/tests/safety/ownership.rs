//! A release writes under its own name, and only what is its own: a record is a claim that any tenant can make.

use anyhow::{Context, ensure};
use holdfast_testkit::{Target, managed_fields_without_times};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, deployment, hub_writes, lines, wait_live, writes_to},
    support::{World, condition, finding, path_of},
};

#[tokio::test]
async fn corrections_are_written_as_the_release_s_own_manager() {
    for (index, (manager, style)) in
        [("manager", Style::ServerSide), ("manager", Style::ClientSide), ("helm-controller", Style::ServerSide)].into_iter().enumerate()
    {
        let namespace = &format!("own-manager-{index}");
        let mut world = World::new(namespace).await;
        let release = Release { manager, ..Release::new(&world, "web", style) };
        release
            .install(&[
                deployment(namespace, "web", 2),
                configmap(namespace, "settings", "color", "blue"),
                configmap(namespace, "gone", "color", "blue"),
            ])
            .await;
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        let kubectl = world.writer("kubectl-edit");
        let targets =
            [Target::deployment(namespace, "web"), Target::configmap(namespace, "settings"), Target::configmap(namespace, "gone")];
        let mut before = Vec::new();
        for target in &targets {
            before.push(managed_fields_without_times(&kubectl.get(target).await.unwrap()));
        }
        let mark = world.workload.audit_mark().await.unwrap();
        kubectl.merge_patch(&targets[0], &json!({"spec": {"replicas": 5}})).await.unwrap();
        kubectl.merge_patch(&targets[1], &json!({"data": {"color": "red"}})).await.unwrap();
        kubectl.delete(&targets[2]).await.unwrap();
        wait_live(&world, &kubectl, &targets[0], "/spec/replicas", &json!(2)).await;
        wait_live(&world, &kubectl, &targets[1], "/data/color", &json!("blue")).await;
        wait_live(&world, &kubectl, &targets[2], "/data/color", &json!("blue")).await;
        let report = world
            .wait_report(Some("web"), "all of it is told", |status| {
                status["summary"]["corrected"] == 3 && condition(status, "InSync") == "True"
            })
            .await;
        for (target, before) in targets.iter().zip(before) {
            let after = managed_fields_without_times(&kubectl.get(target).await.unwrap());
            assert_eq!(after, before, "{manager} {style:?} {}", target.name);
        }
        let writes = hub_writes(world.workload, mark).await.in_namespace(namespace);
        assert_eq!(writes.len(), 3, "{:?}", lines(&writes));
        for write in &writes {
            assert!(write.uri.contains(&format!("fieldManager={manager}")), "{}", write.uri);
        }
        let path = path_of(finding(&report["status"], "Deployment", "web").unwrap(), "/spec/replicas").unwrap().clone();
        assert_eq!(path["actor"]["manager"], "kubectl-edit");
    }
}

fn binding(kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}],
    });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn role(kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn secret(namespace: &str, name: &str, password: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": {"password": password}})
}

/// What a forged record claims of an object: every value another one.
fn spoilt(object: &Value) -> Value {
    let mut object = object.clone();
    let evil = [("subjects", json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "evil"}])), ("rules", json!([]))];
    for (field, value) in evil {
        if let Some(there) = object.get_mut(field) {
            *there = value;
        }
    }
    for field in ["data", "stringData"] {
        for value in object.get_mut(field).and_then(Value::as_object_mut).into_iter().flat_map(|members| members.values_mut()) {
            *value = json!("evil");
        }
    }
    object
}

#[tokio::test]
async fn a_forged_record_makes_nobody_write() {
    let namespace = "forged";
    let elsewhere = "forged-victim";
    let mut world = World::new(namespace).await;
    world.workload.namespace(elsewhere).await.unwrap();
    let release = Release::new(&world, "forged", Style::ClientSide);
    let own = configmap(namespace, "own", "color", "blue");
    release.write(&own).await;

    // What is there and belongs to others.
    let theirs = [
        binding("ClusterRoleBinding", None, "forged-admins"),
        role("ClusterRole", None, "forged-readers"),
        secret(elsewhere, "vault", "of the victim"),
        configmap(elsewhere, "settings", "color", "blue"),
        binding("RoleBinding", Some(namespace), "operators"),
        configmap(namespace, "of-nobody", "color", "blue"),
    ];
    for object in &theirs {
        world.workload.create_yaml("platform", &object.to_string()).await.unwrap();
    }
    let neighbour = Release::new(&world, "neighbour", Style::ClientSide);
    let of_neighbour = configmap(namespace, "of-neighbour", "color", "blue");
    neighbour.write(&of_neighbour).await;

    // What the record claims of them.
    let mut claimed = vec![own.clone()];
    claimed.extend(theirs.iter().chain([&of_neighbour]).map(spoilt));
    // What is not there and a release may not bring about on its own word.
    let missing = [
        binding("ClusterRoleBinding", None, "forged-new-admins"),
        role("ClusterRole", None, "forged-new-readers"),
        role("Role", Some(namespace), "new-role"),
        binding("RoleBinding", Some(namespace), "new-binding"),
        secret(elsewhere, "new-secret", "evil"),
        configmap(elsewhere, "new-settings", "color", "evil"),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "forged-new-namespace"}}),
    ];
    claimed.extend(missing.iter().cloned());
    release.record(1, "deployed", &claimed).await;
    world.policy("Correct", json!({})).await;
    let mark = world.workload.audit_mark().await.unwrap();
    world.start_hub(&[]);

    let count = |status: &Value, verdict: &str| {
        status["findings"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|finding| finding["verdict"] == verdict && finding["reason"] == "NotOwned")
            .count()
    };
    let all_refused = |status: &Value| count(status, "Unknown") == theirs.len() + 1 && count(status, "Missing") == missing.len();
    world.wait_report(Some("forged"), "everything forged is not owned", all_refused).await;
    // Somebody's edit of a claimed object brings the hub to look again, and again it keeps its hands off.
    let kubectl = world.writer("kubectl-edit");
    kubectl.merge_patch(&Target::configmap(elsewhere, "settings"), &json!({"data": {"color": "red"}})).await.unwrap();
    kubectl.merge_patch(&Target::configmap(namespace, "own"), &json!({"data": {"color": "red"}})).await.unwrap();
    wait_live(&world, &kubectl, &Target::configmap(namespace, "own"), "/data/color", &json!("blue")).await;
    let report = world.wait_report(Some("forged"), "still not owned", all_refused).await;
    let text = report.to_string();
    assert!(!text.contains("of the victim"), "a Secret's value in a report");
    let writes = hub_writes(world.workload, mark)
        .await
        .filter(|call| call.namespace == namespace || call.namespace == elsewhere || call.uri.contains("forged"));
    assert_eq!(writes.len(), 1, "the own ConfigMap alone: {:?}", lines(&writes));

    // The policy's word makes the missing ones the release's business, and never what belongs to others.
    let mark = world.workload.audit_mark().await.unwrap();
    world.policy("Correct", json!({"releases": [{"namespace": namespace, "trust": "ClusterScoped"}]})).await;
    let targets = [
        Target::clusterrole_binding("forged-new-admins"),
        Target::clusterrole("forged-new-readers"),
        Target::role(namespace, "new-role"),
        Target::role_binding(namespace, "new-binding"),
        Target::secret(elsewhere, "new-secret"),
        Target::configmap(elsewhere, "new-settings"),
        Target::namespace("forged-new-namespace"),
    ];
    for target in &targets {
        world
            .wait(&format!("{} is created", target.path()), async || {
                let object = kubectl.find(target).await?.context("missing")?;
                ensure!(object["metadata"]["annotations"]["meta.helm.sh/release-name"] == "forged", "{object}");
                Ok(())
            })
            .await;
    }
    world
        .wait_report(Some("forged"), "what belongs to others is untouched", |status| {
            count(status, "Unknown") == theirs.len() + 1 && status["summary"]["missing"] == 0
        })
        .await;
    for target in [
        Target::clusterrole_binding("forged-admins"),
        Target::clusterrole("forged-readers"),
        Target::secret(elsewhere, "vault"),
        Target::role_binding(namespace, "operators"),
        Target::configmap(namespace, "of-neighbour"),
    ] {
        let writes = writes_to(world.workload, mark, &target).await.filter(|call| call.verb != "create");
        assert!(writes.is_empty(), "{:?}", lines(&writes));
    }
}

#[tokio::test]
async fn what_one_release_was_seen_to_own_is_not_the_next_one_s() {
    let namespace = "inherited";
    let mut world = World::new(namespace).await;
    let legitimate = Release::new(&world, "legitimate", Style::ClientSide);
    let reader = role("ClusterRole", None, "inherited-readers");
    legitimate.install(&[reader.clone(), configmap(namespace, "settings", "color", "blue")]).await;
    let forged = Release::new(&world, "forged", Style::ClientSide);
    forged.install(&[configmap(namespace, "own", "color", "blue")]).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("legitimate").await;
    world.wait_in_sync("forged").await;
    let mark = world.workload.audit_mark().await.unwrap();
    // A tenant's record claims the role as well; then its owner goes and takes the role along.
    let mut evil = reader.clone();
    evil["rules"] = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let claimed = [configmap(namespace, "own", "color", "blue"), evil];
    forged.record(1, "superseded", &claimed[..1]).await;
    forged.record(2, "deployed", &claimed).await;
    world
        .wait_report(Some("forged"), "conflict", |status| {
            finding(status, "ClusterRole", "inherited-readers").is_some_and(|finding| finding["reason"] == "SelfConflict")
        })
        .await;
    legitimate.record(1, "uninstalling", &[reader]).await;
    world.writer("helm").delete(&Target::clusterrole("inherited-readers")).await.unwrap();
    legitimate.forget(1).await;
    world
        .wait_report(Some("forged"), "not owned", |status| {
            finding(status, "ClusterRole", "inherited-readers").is_some_and(|finding| finding["reason"] == "NotOwned")
        })
        .await;
    let writes =
        writes_to(world.workload, mark, &Target::clusterrole("inherited-readers")).await.filter(|call| call.uri.contains("clusterroles"));
    let writes = writes.filter(|call| call.name == "inherited-readers" || call.verb == "create" && call.uri.contains("fieldManager=helm"));
    assert!(writes.is_empty(), "{:?}", lines(&writes));
    assert!(world.writer("helm").find(&Target::clusterrole("inherited-readers")).await.unwrap().is_none());
}
