//! Who did it: what leaves no trace is told with the webhooks and policies that act on the object.

use std::cell::Cell;

use anyhow::ensure;
use holdfast_testkit::{MutatingWebhook, Rule, Target, WebhookOptions, release};
use serde_json::{Value, json};

use crate::support::{
    World, condition, finding,
    fixture::{Release, Style, configmap, deployment, hub_writes, lines, wait_live},
    path_of,
};

/// A policy that writes a key of the ConfigMaps of one namespace, and its binding.
fn policy(name: &str, namespace: &str, group: &str, resource: &str) -> [Value; 2] {
    let api = "admissionregistration.k8s.io/v1";
    [
        json!({"apiVersion": api, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "matchConstraints": {
                "resourceRules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch",
                "jsonPatch": {"expression": "[JSONPatch{op: \"add\", path: \"/data/ruled\", value: \"by policy\"}]"}}]}}),
        json!({"apiVersion": api, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": {"policyName": name}}),
    ]
}

/// When a manager's newest entry was written; the server's format sorts.
fn newest(object: &Value, manager: &str) -> Option<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.filter(|entry| entry["manager"] == manager).filter_map(|entry| entry["time"].as_str().map(str::to_owned)).max()
}

fn candidates(path: &Value) -> Vec<&str> {
    path["actor"]["candidates"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[tokio::test]
async fn what_leaves_no_trace_is_told_with_who_acts_on_the_object() {
    for style in Style::BOTH {
        let namespace = &format!("suspects-{}", style.word());
        let mut world = World::new(namespace).await;
        let mut settings = configmap(namespace, "settings", "color", "blue");
        settings["data"]["ruled"] = json!("by nobody");
        let mut web = deployment(namespace, "web", 2);
        web["metadata"]["annotations"] = json!({"owner": "us"});
        Release::new(&world, "web", style)
            .install(&[
                web,
                settings,
                json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "plain", "namespace": namespace, "annotations": {"owner": "us"}}}),
            ])
            .await;
        // The webhook rewrites an image, the policy a key; a policy for other objects is none of this.
        let hook =
            MutatingWebhook::start(world.workload, WebhookOptions::new(namespace, namespace, vec![Rule::deployments()]), |object, _| {
                if let Some(image) = object.pointer_mut("/spec/template/spec/containers/0/image") {
                    *image = json!("mirror.example/web:1.0");
                }
            })
            .await
            .unwrap();
        let documents = policy(namespace, namespace, "", "configmaps").into_iter().chain(policy(
            &format!("{namespace}-other"),
            namespace,
            "batch",
            "jobs",
        ));
        let documents: Vec<String> = documents.map(|document| document.to_string()).collect();
        world.workload.apply_yaml("platform", &documents.join("\n---\n")).await.unwrap();
        let (web, settings, plain) =
            (Target::deployment(namespace, "web"), Target::configmap(namespace, "settings"), Target::service_account(namespace, "plain"));
        let webhook = format!("webhook mutate.testkit.holdfast.dev/{namespace}");
        let policy = format!("policy {namespace}");
        // A write of somebody else brings admission along. The server takes a moment to notice a policy, and whoever wrote in the very
        // second of the deployment is not told from the release.
        let record = world.writer("kubectl").get(&release::target(namespace, "web", 1)).await.unwrap();
        let deployed = newest(&record, "Helm");
        let editor = world.writer("kubectl-annotate");
        let writes = Cell::new(0);
        for (target, pointer, wanted) in [
            (&web, "/spec/template/spec/containers/0/image", "mirror.example/web:1.0"),
            (&settings, "/data/ruled", "by policy"),
            (&plain, "/metadata/annotations/owner", "us"),
        ] {
            world
                .wait("admission acts", async || {
                    writes.set(writes.get() + 1);
                    let note = json!({"metadata": {"annotations": {"note": writes.get().to_string()}}});
                    let object = editor.merge_patch(target, &note).await?;
                    ensure!(object.pointer(pointer) == Some(&json!(wanted)) && newest(&object, "kubectl-annotate") > deployed, "{object}");
                    Ok(())
                })
                .await;
        }
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        let report = world
            .wait_report(Some("web"), "what admission made is accepted", |status| {
                condition(status, "InSync") == "True" && status["deviations"].as_array().map_or(0, Vec::len) == 2
            })
            .await;
        for (kind, suspect, other) in [("Deployment", &webhook, &policy), ("ConfigMap", &policy, &webhook)] {
            let deviation =
                report["status"]["deviations"].as_array().unwrap().iter().find(|deviation| deviation["object"]["kind"] == kind).unwrap();
            let message = deviation["message"].as_str().unwrap();
            assert!(deviation["reason"] == "Admission" && message.contains(suspect) && !message.contains(other), "{style:?} {deviation}");
        }

        for (target, kind, pointer, path, suspect) in [
            (&web, "Deployment", "/metadata/annotations/owner", "/metadata/annotations/owner", Some(&webhook)),
            (&settings, "ConfigMap", "/data/color", "/data/color", Some(&policy)),
            (&plain, "ServiceAccount", "/metadata/annotations/owner", "/metadata/annotations/owner", None),
        ] {
            let declared = if kind == "ConfigMap" { json!("blue") } else { json!("us") };
            editor.json_patch(target, &json!([{"op": "remove", "path": pointer}])).await.unwrap();
            wait_live(&world, &editor, target, pointer, &declared).await;
            let report = world
                .wait_report(Some("web"), "the removal is told", |status| {
                    condition(status, "InSync") == "True"
                        && finding(status, kind, &target.name).is_some_and(|found| path_of(found, path).is_some())
                })
                .await;
            let found = path_of(finding(&report["status"], kind, &target.name).unwrap(), path).unwrap();
            assert_eq!(found["actor"]["manager"], "unattributed", "{style:?} {found}");
            let named = candidates(found);
            let expected: Vec<&str> = ["kubectl-annotate"].into_iter().chain(suspect.map(String::as_str)).collect();
            assert_eq!(named, expected, "{style:?} {kind}");
        }

        hook.stop().await.unwrap();
    }
}

/// Versions of one kind without a conversion between them.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

#[tokio::test]
async fn who_edits_through_another_version_is_named() {
    let namespace = "suspects-versions";
    let mut world = World::new(namespace).await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"}, "mode": {"type": "string"}}}}}});
    let versions: Vec<Value> =
        VERSIONS.iter().map(|version| json!({"name": version, "served": true, "storage": *version == "v1", "schema": schema})).collect();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gauges.suspects.example"},
        "spec": {"group": "suspects.example", "scope": "Namespaced", "names": {"kind": "Gauge", "plural": "gauges"}, "versions": versions}});
    world.workload.apply_yaml("platform", &definition.to_string()).await.unwrap();
    let mut names = Vec::new();
    for style in Style::BOTH {
        for (declared, edited) in [("v1", "v1beta1"), ("v1beta1", "v1")] {
            let name = format!("{}-{declared}", style.word());
            let gauge = json!({"apiVersion": format!("suspects.example/{declared}"), "kind": "Gauge",
                "metadata": {"name": name, "namespace": namespace}, "spec": {"size": 1, "mode": "a"}});
            Release::new(&world, &name, style).install(&[gauge]).await;
            names.push((name, edited));
        }
    }
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    for (name, edited) in &names {
        world.wait_in_sync(name).await;
        let mark = world.workload.audit_mark().await.unwrap();
        let target = Target::custom("suspects.example", edited, "gauges", namespace, name);
        let editor = world.writer("kubectl-edit");
        editor.merge_patch(&target, &json!({"spec": {"size": 7}})).await.unwrap();
        wait_live(&world, &editor, &target, "/spec/size", &json!(1)).await;
        let report = world
            .wait_report(Some(name), "the edit is told", |status| {
                condition(status, "InSync") == "True"
                    && finding(status, "Gauge", name).is_some_and(|found| path_of(found, "/spec/size").is_some())
            })
            .await;
        let found = path_of(finding(&report["status"], "Gauge", name).unwrap(), "/spec/size").unwrap();
        assert_eq!((&found["actor"]["manager"], &found["live"]), (&json!("kubectl-edit"), &json!(7)), "{name}: {found}");
        let writes = hub_writes(world.workload, mark).await.in_namespace(namespace);
        assert_eq!(writes.len(), 1, "{name}: {:?}", lines(&writes));
    }
    world.writer("platform").delete(&Target::crd("gauges.suspects.example")).await.unwrap();
}
