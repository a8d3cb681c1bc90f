//! The webhooks that clusters in the wild have, as one that can be switched on and off.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use anyhow::Result;
use holdfast_testkit::{ControlPlane, MutatingWebhook, Operation, Rule, WebhookOptions, mutate};
use serde_json::{Map, Value, json};

/// Where pods are described.
const POD_SPECS: [&str; 3] = ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];

/// A registered webhook that does all of this while it is switched on: redirects images, sets labels (one that charts set too), requests
/// resources, takes CPU limits away, adds an environment variable and a toleration, makes new containers always pull, and writes another
/// annotation each time.
pub struct Mutators {
    on: Arc<AtomicBool>,
    _webhook: MutatingWebhook,
}

impl Mutators {
    /// Registers it for everything, switched off.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let on = Arc::new(AtomicBool::new(false));
        let (switch, times) = (Arc::clone(&on), AtomicU64::new(0));
        let options = WebhookOptions::everywhere("corpus", vec![Rule::of("*", "*")]);
        let always_pull =
            mutate::on_create(|object, _| for_each_container(object, |container| set(container, "imagePullPolicy", "Always")));
        let label = mutate::label("corpus.holdfast.dev/team", "platform");
        let webhook = MutatingWebhook::start(plane, options, move |object, admission| {
            if !switch.load(Ordering::Relaxed) || admission.operation == Operation::Delete || !object.is_object() {
                return;
            }
            mutate::mirror_images(object, admission);
            label(object, admission);
            relabel(object);
            for_each_container(object, resize);
            for_each_container(object, add_variable);
            for_each_pod_spec(object, tolerate);
            always_pull(object, admission);
            annotate(object, &times.fetch_add(1, Ordering::Relaxed).to_string());
        })
        .await?;
        Ok(Self { on, _webhook: webhook })
    }

    /// Lets it change what is written from now on, or no longer.
    pub fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }
}

/// Sets a label that charts declare, where they do.
fn relabel(object: &mut Value) {
    if let Some(label) = object.pointer_mut("/metadata/labels/app.kubernetes.io~1part-of") {
        *label = "platform".into();
    }
}

fn annotate(object: &mut Value, text: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
    {
        annotations.insert("corpus.holdfast.dev/nonce".to_owned(), text.into());
    }
}

fn resize(container: &mut Map<String, Value>) {
    let resources = container.entry("resources").or_insert_with(|| json!({}));
    if let Some(limits) = resources.get_mut("limits").and_then(Value::as_object_mut) {
        limits.remove("cpu");
    }
    // More than is declared as a limit would be refused.
    let limit = resources.pointer("/limits/memory").cloned();
    if let Some(resources) = resources.as_object_mut() {
        resources.insert("requests".to_owned(), json!({"cpu": "250m", "memory": limit.unwrap_or_else(|| "256Mi".into())}));
    }
}

fn add_variable(container: &mut Map<String, Value>) {
    let variable = json!({"name": "CORPUS_REGION", "value": "eu-1"});
    match container.get_mut("env") {
        Some(Value::Array(variables)) if !variables.contains(&variable) => variables.push(variable),
        Some(Value::Array(_)) => {}
        _ => {
            container.insert("env".to_owned(), json!([variable]));
        }
    }
}

fn tolerate(pod: &mut Map<String, Value>) {
    let toleration = json!({"key": "corpus.holdfast.dev/spot", "operator": "Exists"});
    match pod.get_mut("tolerations") {
        Some(Value::Array(tolerations)) if !tolerations.contains(&toleration) => tolerations.push(toleration),
        Some(Value::Array(_)) => {}
        _ => {
            pod.insert("tolerations".to_owned(), json!([toleration]));
        }
    }
}

fn set(container: &mut Map<String, Value>, field: &str, value: &str) {
    container.insert(field.to_owned(), value.into());
}

fn for_each_pod_spec(object: &mut Value, change: impl Fn(&mut Map<String, Value>)) {
    // A pod that exists takes new tolerations in some cases only; other kinds with containers are no pods.
    let kinds = ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "CronJob"];
    if !object.get("kind").and_then(Value::as_str).is_some_and(|kind| kinds.contains(&kind)) {
        return;
    }
    for at in POD_SPECS {
        if let Some(pod) = object.pointer_mut(at).and_then(Value::as_object_mut).filter(|pod| pod.contains_key("containers")) {
            change(pod);
        }
    }
}

fn for_each_container(object: &mut Value, change: impl Fn(&mut Map<String, Value>)) {
    for_each_pod_spec(object, |pod| {
        for list in ["initContainers", "containers"] {
            for container in pod.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    change(container);
                }
            }
        }
    });
}
