//! Edits one leaf of every object of a release and waits until a hub has put it back.

use anyhow::{Context, Result, bail, ensure};
use futures::future::join_all;
use holdfast_api::report::{CorrectionRecord, DriftReportStatus};
use holdfast_testkit::{ControlPlane, Helm, Kinds, Target, Writer, eventually, management::HUB_USER, mutation};
use serde_json::{Value, json};
use tokio::time::Duration;

use super::{
    leaf::{self, Leaf},
    scan::Scan,
};
use crate::fleet::Fleet;

/// Objects edited before they are waited for: a report lists no more writes than this.
const BATCH: usize = 15;
/// Leaves of one object that are tried: many are immutable, or take few values.
const TRIES: usize = 12;
/// Bound for the restoration of a batch.
const SOON: Duration = Duration::from_secs(30);
/// Where the controller of Deployments counts.
const COUNTED: &str = "deployment.kubernetes.io/revision";

/// A guarded release.
pub struct Guarded<'a> {
    /// Where its report is.
    pub fleet: &'a Fleet,
    /// The name of its cluster.
    pub cluster: &'a str,
    /// Its cluster.
    pub plane: &'a ControlPlane,
    /// Who installed it.
    pub helm: Helm,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub release: &'a str,
}

/// How the edits of a release ended.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    /// Objects that were edited.
    pub edited: usize,
    /// Edits that the hub named by object and path.
    pub named: usize,
    /// Objects that are as before.
    pub restored: usize,
    /// Objects of which no leaf could be changed.
    pub unedited: usize,
    /// Writes of the hub before anything was edited.
    pub unasked: usize,
    /// What is not as it should be, a line each.
    pub details: Vec<String>,
}

/// One edit.
struct Edit {
    target: Target,
    object: String,
    kind: String,
    pointer: String,
    before: Value,
}

impl Guarded<'_> {
    /// Edits and waits. The policy that guards the release comes and goes with it. What the scan could not judge exactly, no hub writes.
    pub async fn edit(&self, seed: u64, scan: &Scan) -> Result<Edits> {
        let mark = self.plane.audit_mark().await?;
        let objects = self.declared().await?;
        let (unwritten, written): (Vec<Value>, Vec<Value>) =
            objects.iter().cloned().partition(|object| scan.unwritten.contains(&name(object)));
        self.policy().await?;
        let judged = |status: &DriftReportStatus| {
            let summary = &status.summary;
            (summary.objects > 0 && summary.in_sync + scan.unknown >= summary.objects).then_some(())
        };
        self.fleet.report_when("every object in sync", self.cluster, self.release, judged).await?;
        let unasked = self.plane.audit_since(mark).await?.by_user(HUB_USER).writes();
        let mut edits = Edits { unasked: unasked.len(), unedited: unwritten.len(), ..Edits::default() };
        if !unasked.is_empty() {
            edits.details.push(format!("written although nothing was edited:\n{unasked}"));
        }
        for batch in written.chunks(BATCH) {
            self.batch(batch, &objects, seed, &mut edits).await?;
        }
        self.fleet.management.kubectl(&["delete", "driftpolicy", &self.policy_name(), "-n", crate::fleet::NAMESPACE]).await?;
        Ok(edits)
    }

    /// The clusters have the same releases.
    fn policy_name(&self) -> String {
        format!("{}-{}", self.namespace, self.cluster)
    }

    async fn policy(&self) -> Result<()> {
        let spec = json!({"clusterSelector": {}, "mode": "Correct", "releases": [{"namespace": self.namespace, "name": self.release}]});
        let policy = |spec: &Value| {
            json!({
                "apiVersion": "holdfast.dev/v1alpha1",
                "kind": "DriftPolicy",
                "metadata": {"name": self.policy_name(), "namespace": crate::fleet::NAMESPACE},
                "spec": spec,
            })
        };
        // Everything is edited at once here, which elsewhere would look like a bad release.
        let mut unlimited = spec.clone();
        if let Some(spec) = unlimited.as_object_mut() {
            let limit = json!({"correctionsPerMinute": 6000, "blastRadius": {"percent": 100, "minObjects": 100_000}});
            spec.insert("limit".to_owned(), limit);
        }
        // A hub that has no brakes yet refuses to loosen them.
        for spec in [unlimited, spec] {
            self.fleet.management.apply_yaml("platform", &policy(&spec).to_string()).await?;
            if self.fleet.is_accepted(&self.policy_name()).await? {
                return Ok(());
            }
        }
        bail!("the hub does not accept the policy")
    }

    /// The declared objects with their namespaces, as kubectl reads the manifest.
    async fn declared(&self) -> Result<Vec<Value>> {
        let manifest = self.helm.manifest(self.plane, self.release, self.namespace).await?;
        let file = |kind: &str| self.plane.dir().join(format!("{}.{kind}", self.namespace));
        let (file, kubeconfig) = (file("manifest"), file("kubeconfig"));
        std::fs::write(&file, manifest).context("writing a manifest")?;
        // Told the release's namespace by a flag, kubectl refuses what is declared for another one.
        let context = "    user: default\n";
        let with_namespace = self.plane.admin_kubeconfig()?.replacen(context, &format!("{context}    namespace: {}\n", self.namespace), 1);
        std::fs::write(&kubeconfig, with_namespace).context("writing a kubeconfig")?;
        let (file, kubeconfig) = file.to_str().zip(kubeconfig.to_str()).context("a path that is not text")?;
        let read = ["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", file, "--kubeconfig", kubeconfig];
        let text = self.plane.kubectl(&read).await?;
        let mut objects = Vec::new();
        for object in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            flatten(object.context("what kubectl reads")?, &mut objects);
        }
        Ok(objects)
    }

    async fn batch(&self, batch: &[Value], all: &[Value], seed: u64, edits: &mut Edits) -> Result<()> {
        let editor = self.plane.writer("kubectl-edit")?;
        let mut kinds = Kinds::new(self.plane)?;
        let mut made = Vec::new();
        for declared in batch {
            let target = kinds.target_of(declared).await?;
            match edit(&editor, target, declared, seed, is_scaled(declared, all)).await? {
                Ok(edit) => made.push(edit),
                Err(why) => {
                    edits.unedited += 1;
                    if let Some(why) = why {
                        edits.details.push(why);
                    }
                }
            }
        }
        edits.edited += made.len();
        // Side by side, so that one that does not come back costs the others nothing.
        let waits = made.iter().map(|edit| eventually("restored", SOON, async || edit.restored(&editor).await));
        for (edit, outcome) in made.iter().zip(join_all(waits).await) {
            match outcome {
                Ok(()) => edits.restored += 1,
                Err(error) => edits.details.push(format!("{} {}: {error:#}", edit.object, edit.pointer)),
            }
        }
        let named = async || {
            let status = self.fleet.report(self.cluster, self.release).await?;
            let unnamed: Vec<&Edit> = made.iter().filter(|edit| !edit.is_named(&status.corrections)).collect();
            let list = unnamed.iter().map(|edit| format!("{} {}", edit.object, edit.pointer)).collect::<Vec<_>>().join(", ");
            ensure!(unnamed.is_empty(), "not named: {list}");
            Ok(())
        };
        match eventually("every edit is named", SOON, named).await {
            Ok(()) => edits.named += made.len(),
            Err(error) => {
                let status = self.fleet.report(self.cluster, self.release).await?;
                edits.named += made.iter().filter(|edit| edit.is_named(&status.corrections)).count();
                edits.details.push(format!("{error:#}"));
            }
        }
        Ok(())
    }
}

impl Edit {
    async fn restored(&self, through: &Writer) -> Result<()> {
        let now = comparable(&through.get(&self.target).await?);
        let value = |object: &Value| object.pointer(&self.pointer).cloned().unwrap_or_default();
        if let Some(at) = leaf::missing(&self.before, &now) {
            bail!("{at} is not as before; the edited value is {} instead of {}", value(&now), value(&self.before));
        }
        Ok(())
    }

    fn is_named(&self, corrections: &[CorrectionRecord]) -> bool {
        corrections.iter().any(|correction| {
            let object = &correction.object;
            object.kind == self.kind
                && object.name == self.target.name
                && object.namespace == self.target.namespace.as_deref().unwrap_or_default()
                && correction.paths.iter().any(|path| leaf::tells_of(path, &self.pointer))
        })
    }
}

/// Kind, namespace and name.
fn name(object: &Value) -> (String, String, String) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// Edits one leaf of an object, or says why none; silently where there is none to edit.
async fn edit(editor: &Writer, target: Target, declared: &Value, seed: u64, is_scaled: bool) -> Result<Result<Edit, Option<String>>> {
    let kind = declared.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let object = format!("{kind} {}/{}", target.namespace.as_deref().unwrap_or_default(), target.name);
    let Some(live) = editor.find(&target).await? else { return Ok(Err(Some(format!("{object} is gone before it was edited")))) };
    let stands = |leaf: &Leaf| live.pointer(&leaf.pointer) == Some(&leaf.value);
    for leaf in leaf::shuffled(declared, &object, seed, is_scaled).into_iter().filter(stands).take(TRIES) {
        for other in mutation::others(&leaf.pointer, &leaf.value) {
            let operations = json!([{"op": "replace", "path": leaf.pointer, "value": other}]);
            // Refused, or made the same again: another leaf is tried.
            let Ok(edited) = editor.json_patch(&target, &operations).await else { continue };
            if edited.pointer(&leaf.pointer) != Some(&leaf.value) {
                return Ok(Ok(Edit { target, object, kind, pointer: leaf.pointer, before: comparable(&live) }));
            }
        }
    }
    Ok(Err(None))
}

/// An object without what changes with every write.
fn comparable(object: &Value) -> Value {
    let mut object = mutation::content(object);
    if object.get("aggregationRule").is_some_and(Value::is_object) {
        // A controller fills the rules, in its own order.
        object.as_object_mut().map(|role| role.remove("rules"));
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(COUNTED);
    }
    object
}

fn flatten(object: Value, objects: &mut Vec<Value>) {
    match object {
        Value::Object(mut list) if list.get("kind").is_some_and(|kind| kind == "List") => {
            let items = list.remove("items");
            for item in items.as_ref().and_then(Value::as_array).into_iter().flatten() {
                flatten(item.clone(), objects);
            }
        }
        object => objects.push(object),
    }
}

/// Whether something in the release scales the object.
fn is_scaled(declared: &Value, all: &[Value]) -> bool {
    let name = declared.pointer("/metadata/name");
    all.iter().any(|scaler| name.is_some() && scaler.pointer("/spec/scaleTargetRef/name") == name)
}
