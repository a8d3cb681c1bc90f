//! Fields that a rightful writer sets are its own; look-alikes of it are not (design §3.4).

use anyhow::ensure;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::support::{
    World, condition, finding,
    fixture::{Marker, Release, Style, lines, wait_live, writes_to},
    live,
};

/// One declared object, what somebody else sets of it, and whose that is.
struct Row {
    object: Value,
    plural: &'static str,
    manager: &'static str,
    patch: Value,
    pointer: &'static str,
    becomes: Becomes,
}

enum Becomes {
    /// What was set stays, as a deviation at this path.
    Theirs(&'static str),
    /// What was set stays, and is none: nothing is declared there.
    Unsaid,
    /// It goes to this value.
    Goes(Value),
}

impl Row {
    fn target(&self) -> Target {
        let (group, version) = match self.object["apiVersion"].as_str().unwrap().split_once('/') {
            Some((group, version)) => (group, version),
            None => ("", "v1"),
        };
        let name = self.object["metadata"]["name"].as_str().unwrap();
        match self.object["metadata"]["namespace"].as_str() {
            Some(namespace) => Target::custom(group, version, self.plural, namespace, name),
            None => Target::cluster_scoped(group, version, self.plural, name),
        }
    }
}

/// A webhook that sees nothing.
fn hook(fields: &Value) -> Value {
    let mut hook = json!({
        "name": "a.hook.example", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        "clientConfig": {"service": {"name": "none", "namespace": "none"}},
        "rules": [{"apiGroups": ["nothing.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothing"]}],
    });
    for (name, value) in fields.as_object().unwrap() {
        match (hook.get_mut(name).and_then(Value::as_object_mut), value) {
            (Some(members), Value::Object(further)) => members.extend(further.clone()),
            _ => hook[name] = value.clone(),
        }
    }
    hook
}

fn validating(name: &str, annotations: &Value, fields: &Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name, "annotations": annotations}, "webhooks": [hook(fields)]})
}

fn definition(plural: &str, annotations: &Value, bundle: &str) -> Value {
    let kind = plural.to_uppercase();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": format!("{plural}.yields.example"), "annotations": annotations},
    "spec": {
        "group": "yields.example", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"caBundle": bundle, "service": {"name": "none", "namespace": "none"}}}},
    }})
}

const BUNDLE: &str = "/webhooks/[name=a.hook.example]/clientConfig/caBundle";
const BUNDLE_AT: &str = "/webhooks/0/clientConfig/caBundle";
const SELECTOR: &str = "/webhooks/[name=a.hook.example]/namespaceSelector";
const SELECTOR_AT: &str = "/webhooks/0/namespaceSelector";

#[expect(clippy::too_many_lines, reason = "a table")]
fn rows(namespace: &str, authority: &str) -> Vec<Row> {
    let encoded = |text: &str| BASE64_STANDARD.encode(text);
    // Two bundles that the server takes.
    let (one, other) = (encoded(authority), encoded(&format!("{authority}\n")));
    let name = |text: &str| format!("{namespace}-{text}");
    let none = json!({});
    let from = json!({"cert-manager.io/inject-ca-from": "x/y"});
    let plane = json!({"key": "control-plane", "operator": "NotIn", "values": ["true"]});
    let managed = json!({"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]});
    let own = json!({"key": "env", "operator": "In", "values": ["prod", "test"]});
    let strange = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["prod"]});
    let select = |expressions: &[&Value]| json!({"matchExpressions": expressions});
    let replace = |pointer: &str, value: &Value| json!([{"op": "add", "path": pointer, "value": value}]);
    let hooked = |object: Value, manager, patch: Value, pointer, becomes| Row {
        object,
        plural: "validatingwebhookconfigurations",
        manager,
        patch,
        pointer,
        becomes,
    };
    let defined = |plural: &str, annotations: &Value, declared: &str, becomes| Row {
        object: definition(&format!("{plural}{}", namespace.replace('-', "")), annotations, declared),
        plural: "customresourcedefinitions",
        manager: "cert-manager-cainjector",
        patch: replace("/spec/conversion/webhook/clientConfig/caBundle", &json!(other)),
        pointer: "/spec/conversion/webhook/clientConfig/caBundle",
        becomes,
    };
    let account = |text: &str, manager, added: &str, becomes| Row {
        object: json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": text, "namespace": namespace}, "imagePullSecrets": [{"name": "pull"}]}),
        plural: "serviceaccounts",
        manager,
        patch: replace("/imagePullSecrets/0", &json!({"name": added})),
        pointer: "/imagePullSecrets",
        becomes,
    };
    let job = |text: &str, labels: Value, becomes| Row {
        object: json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": text, "namespace": namespace, "labels": labels},
            "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example/run:1"}]}}}}),
        plural: "jobs",
        manager: "kueue",
        patch: replace("/spec/suspend", &json!(false)),
        pointer: "/spec/suspend",
        becomes,
    };
    let role = |text: &str, fields: Value, becomes| {
        let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name(text)}});
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Row {
            object,
            plural: "clusterroles",
            manager: "clusterrole-aggregation-controller",
            patch: replace("/rules", &json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])),
            pointer: "/rules",
            becomes,
        }
    };
    let aggregates = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "nobody"}}]}, "rules": []});
    vec![
        hooked(
            validating(&name("injected"), &from, &json!({"clientConfig": {"caBundle": one}})),
            "cert-manager-cainjector",
            replace(BUNDLE_AT, &json!(other)),
            BUNDLE_AT,
            Becomes::Theirs(BUNDLE),
        ),
        hooked(
            validating(&name("asked-live"), &none, &json!({"clientConfig": {"caBundle": one}})),
            "kubectl-edit",
            json!([{"op": "add", "path": BUNDLE_AT, "value": other},
                {"op": "add", "path": "/metadata/annotations/cert-manager.io~1inject-ca-from", "value": "x/y"}]),
            BUNDLE_AT,
            Becomes::Goes(json!(one)),
        ),
        hooked(
            validating(&name("left-out"), &none, &json!({"clientConfig": {"caBundle": "Cg=="}})),
            "webhook",
            replace(BUNDLE_AT, &json!(other)),
            BUNDLE_AT,
            Becomes::Theirs(BUNDLE),
        ),
        hooked(validating(&name("unsaid"), &none, &json!({})), "webhook", replace(BUNDLE_AT, &json!(other)), BUNDLE_AT, Becomes::Unsaid),
        hooked(
            validating(&name("ready"), &none, &json!({})),
            "pilot-discovery",
            json!([{"op": "add", "path": BUNDLE_AT, "value": other}, {"op": "add", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]),
            "/webhooks/0/failurePolicy",
            Becomes::Theirs("/webhooks/[name=a.hook.example]/failurePolicy"),
        ),
        hooked(
            validating(&name("closed"), &none, &json!({})),
            "kubectl-edit",
            replace("/webhooks/0/failurePolicy", &json!("Fail")),
            "/webhooks/0/failurePolicy",
            Becomes::Goes(json!("Ignore")),
        ),
        hooked(
            validating(&name("narrowed"), &none, &json!({"namespaceSelector": select(&[&own])})),
            "aksService",
            replace(SELECTOR_AT, &select(&[&managed, &own, &plane])),
            SELECTOR_AT,
            Becomes::Theirs(SELECTOR),
        ),
        hooked(
            validating(&name("opened"), &none, &json!({"namespaceSelector": select(&[&own])})),
            "kubectl-edit",
            replace(SELECTOR_AT, &select(&[&own, &strange])),
            SELECTOR_AT,
            Becomes::Goes(select(&[&own])),
        ),
        hooked(
            validating(&name("emptied"), &none, &json!({"namespaceSelector": select(&[&own])})),
            "kubectl-edit",
            replace(SELECTOR_AT, &select(&[&plane])),
            SELECTOR_AT,
            Becomes::Goes(select(&[&own, &plane])),
        ),
        defined("as", &from, &one, Becomes::Theirs("/spec/conversion/webhook/clientConfig/caBundle")),
        defined("bs", &none, &one, Becomes::Goes(json!(one))),
        account("dockercfg", "openshift-controller-manager", "dockercfg-dockercfg-x7zqp", Becomes::Theirs("/imagePullSecrets")),
        account("patched", "imagepullsecret-patcher", "regcred", Becomes::Theirs("/imagePullSecrets")),
        account("edited", "kubectl-edit", "regcred", Becomes::Goes(json!([{"name": "pull"}]))),
        job("queued", json!({"kueue.x-k8s.io/queue-name": "q"}), Becomes::Theirs("/spec/suspend")),
        job("held", json!({}), Becomes::Goes(json!(true))),
        role("aggregated", aggregates, Becomes::Unsaid),
        role("empty", json!({"rules": []}), Becomes::Goes(Value::Null)),
    ]
}

#[tokio::test]
async fn what_a_rightful_writer_sets_is_its_own() {
    for style in Style::BOTH {
        let namespace = &format!("yields-{}", style.word());
        let mut world = World::new(namespace).await;
        let rows = rows(namespace, world.workload.authority_pem());
        let objects: Vec<Value> = rows.iter().map(|row| row.object.clone()).collect();
        Release::new(&world, "web", style).install(&objects).await;
        // Servers used to take what they refuse today: the manifest has a placeholder, and the object was injected since.
        let annotations = json!({"cert-manager.io/inject-ca-from": "x/y"});
        let old = format!("olds{}", namespace.replace('-', ""));
        let release = Release::new(&world, "old", style);
        release.write(&definition(&old, &annotations, &BASE64_STANDARD.encode(world.workload.authority_pem()))).await;
        release.record(1, "deployed", &[definition(&old, &annotations, "Cg==")]).await;
        let marker = Marker::install(&world).await;
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        for release in ["web", "old"] {
            world.wait_in_sync(release).await;
        }

        let mark = world.workload.audit_mark().await.unwrap();
        let mut set = Vec::new();
        for row in &rows {
            let writer = world.writer(row.manager);
            writer.json_patch(&row.target(), &row.patch).await.unwrap();
            set.push(match &row.becomes {
                Becomes::Goes(value) => value.clone(),
                _ => live(&writer, &row.target(), row.pointer).await,
            });
        }
        let reader = world.writer("kubectl");
        for (row, wanted) in rows.iter().zip(&set) {
            wait_live(&world, &reader, &row.target(), row.pointer, wanted).await;
        }
        let yielded: Vec<(String, String, String)> = rows
            .iter()
            .filter_map(|row| match (&row.becomes, row.target().name.as_str()) {
                (Becomes::Theirs(path), name) => Some((name.to_owned(), (*path).to_owned())),
                // What the cloud added stays with what is put back.
                (Becomes::Goes(_), name) if name.ends_with("-emptied") => Some((name.to_owned(), SELECTOR.to_owned())),
                _ => None,
            })
            .map(|(name, path)| ("Yielded".to_owned(), name, path))
            .collect();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        world
            .wait_report(Some("web"), "in sync with what is yielded", |status| {
                let mut found: Vec<_> = status["deviations"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|deviation| (text(&deviation["reason"]), text(&deviation["object"]["name"]), text(&deviation["path"])))
                    .collect();
                found.sort();
                let mut wanted = yielded.clone();
                wanted.sort();
                condition(status, "InSync") == "True" && found == wanted
            })
            .await;
        marker.pass(&world).await;
        for (row, wanted) in rows.iter().zip(&set) {
            let target = row.target();
            assert_eq!(live(&reader, &target, row.pointer).await, *wanted, "{style:?} {}", target.name);
            let writes = writes_to(world.workload, mark, &target).await;
            let is_corrected = matches!(row.becomes, Becomes::Goes(_));
            assert_eq!(!writes.is_empty(), is_corrected, "{style:?} {}: {:?}", target.name, lines(&writes));
        }

        // Drift beside what is yielded goes back and takes nothing along.
        let injected = Target::cluster_scoped(
            "admissionregistration.k8s.io",
            "v1",
            "validatingwebhookconfigurations",
            &format!("{namespace}-injected"),
        );
        let bundle = live(&reader, &injected, BUNDLE_AT).await;
        world
            .writer("kubectl-edit")
            .json_patch(&injected, &json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]))
            .await
            .unwrap();
        wait_live(&world, &reader, &injected, "/webhooks/0/failurePolicy", &json!("Ignore")).await;
        assert_eq!(live(&reader, &injected, BUNDLE_AT).await, bundle);
        let old = Target::crd(&format!("{old}.yields.example"));
        world
            .writer("kubectl-edit")
            .json_patch(&old, &json!([{"op": "remove", "path": "/metadata/annotations/cert-manager.io~1inject-ca-from"}]))
            .await
            .unwrap();
        wait_live(&world, &reader, &old, "/metadata/annotations/cert-manager.io~1inject-ca-from", &json!("x/y")).await;
        assert!(live(&reader, &old, "/spec/conversion/webhook/clientConfig/caBundle").await.is_string());
        reader.delete(&old).await.unwrap();
        for row in &rows {
            if row.object["metadata"]["namespace"].is_null() {
                reader.delete(&row.target()).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_volume_that_was_grown_is_as_declared() {
    let namespace = "grown";
    let mut world = World::new(namespace).await;
    let admin = world.writer("csi-resizer");
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": namespace}, "provisioner": "none.example", "allowVolumeExpansion": true});
    admin.create(&Target::cluster_scoped("storage.k8s.io", "v1", "storageclasses", namespace), &class).await.unwrap();
    let claim = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": namespace, "volumeName": "none", "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let styles = [(Style::ClientSide, "c"), (Style::ServerSide, "s")];
    for (style, name) in styles {
        Release::new(&world, name, style).install(&[claim(name)]).await;
        let status = Target::custom("", "v1", "persistentvolumeclaims", namespace, name).status();
        admin.merge_patch(&status, &json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})).await.unwrap();
    }
    let marker = Marker::install(&world).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    for (_, name) in styles {
        world.wait_in_sync(name).await;
        let target = Target::custom("", "v1", "persistentvolumeclaims", namespace, name);
        admin.merge_patch(&target, &json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})).await.unwrap();
        world
            .wait_report(Some(name), "the growth is yielded", |status| {
                let deviation = &status["deviations"][0];
                condition(status, "InSync") == "True"
                    && deviation["reason"] == "Yielded"
                    && deviation["path"] == "/spec/resources/requests/storage"
            })
            .await;
    }
    marker.pass(&world).await;
    for (_, name) in styles {
        let report = world.report(Some(name)).await.unwrap();
        assert!(report["status"]["corrections"].as_array().is_none_or(Vec::is_empty), "{report:#}");
    }
}

#[tokio::test]
async fn a_job_that_goes_when_it_has_ended_is_not_missed() {
    let namespace = "ended";
    let mut world = World::new(namespace).await;
    let admin = world.writer("kube-controller-manager");
    let job = |name: &str, fields: Value| {
        let mut spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "run", "image": "registry.example/migrate:1"}]}}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    };
    let jobs = [job("goes", json!({"ttlSecondsAfterFinished": 60})), job("stays", json!({}))];
    Release::new(&world, "web", Style::ServerSide).install(&jobs).await;
    let marker = Marker::install(&world).await;
    for mode in ["Correct", "Warn"] {
        world.policy(mode, json!({})).await;
        if mode == "Correct" {
            world.start_hub(&[]);
            world.wait_in_sync("web").await;
            for name in ["goes", "stays"] {
                let target = Target::job(namespace, name);
                admin.delete(&target).await.unwrap();
                if admin.find(&target).await.unwrap().is_some() {
                    admin.json_patch(&target, &json!([{"op": "remove", "path": "/metadata/finalizers"}])).await.unwrap();
                }
            }
        } else {
            world.stop_hub();
            world.start_hub(&[]);
        }
        let report = world
            .wait_report(Some("web"), "one is missed", |status| status["summary"]["missing"] == 1 && status["summary"]["inSync"] == 1)
            .await;
        let missed = finding(&report["status"], "Job", "stays").unwrap();
        assert_eq!((&missed["verdict"], &missed["reason"]), (&json!("Missing"), &json!("RunOnce")), "{mode}: {missed}");
        let gone = finding(&report["status"], "Job", "goes").unwrap();
        assert_eq!(
            (&gone["verdict"], &gone["action"], &gone["reason"]),
            (&json!("InSync"), &json!("Yielded"), &json!("RunOnce")),
            "{mode}: {gone}"
        );
        if mode == "Correct" {
            marker.pass(&world).await;
        }
        for name in ["goes", "stays"] {
            world
                .wait("it is not run again", async || {
                    ensure!(admin.find(&Target::job(namespace, name)).await?.is_none(), "{name} is there");
                    Ok(())
                })
                .await;
        }
    }
}
