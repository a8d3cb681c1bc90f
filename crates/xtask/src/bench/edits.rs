//! Edits on a guarded release and on its twin, timed alike: from the answer to the edit until the restored object is seen on a watch.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use holdfast_testkit::{Audit, ControlPlane, Helm, Target, Writer, management::HUB_USER};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::{BY_HAND, GUARDED, hand::Hand};
use crate::lookout::Lookout;

/// What a kind's edit changes.
#[derive(Clone, Copy)]
pub enum Edited {
    /// A key of a ConfigMap.
    ConfigMap,
    /// An environment variable of a Deployment.
    Deployment,
}

impl Edited {
    fn target(self, namespace: &str, name: &str) -> Target {
        match self {
            Self::ConfigMap => Target::configmap(namespace, name),
            Self::Deployment => Target::deployment(namespace, name),
        }
    }

    /// Where the edited value is.
    pub const fn pointer(self) -> &'static str {
        match self {
            Self::ConfigMap => "/data/key-1",
            Self::Deployment => "/spec/template/spec/containers/0/env/0/value",
        }
    }

    fn edit(self, value: &str) -> Value {
        json!([{"op": "replace", "path": self.pointer(), "value": value}])
    }
}

/// What the edits of one release came to.
pub struct Outcome {
    /// By Holdfast.
    pub hub: Vec<Duration>,
    /// By hand.
    pub hand: Vec<Duration>,
    /// Calls of the hub, for each correction.
    pub calls: f64,
}

/// A run of edits on one cluster.
pub struct Edits {
    editor: Writer,
    hand: Hand,
    /// Declared objects by kind and name.
    declared: BTreeMap<String, Value>,
    hub_took: Vec<Duration>,
    hand_took: Vec<Duration>,
}

impl Edits {
    /// Reads what the twin declares.
    pub async fn prepare(helm: Helm, plane: &ControlPlane) -> Result<Self> {
        let manifest = helm.manifest(plane, "bulk", BY_HAND).await?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&manifest).map_err(|error| anyhow!("the manifest: {error}"))?;
        let declared = documents.into_iter().filter(|document| !document.is_null());
        let declared = declared.map(|document| (key(text(&document, "/kind"), text(&document, "/metadata/name")), document)).collect();
        Ok(Self {
            editor: plane.writer("kubectl-edit")?,
            hand: Hand::new(helm, plane)?,
            declared,
            hub_took: Vec::new(),
            hand_took: Vec::new(),
        })
    }

    /// One edit for the hub, one by hand. No path is edited twice: a path that keeps changing would be held as contested.
    pub async fn step(&mut self, number: u32) -> Result<()> {
        let (edited, kind) = if number.is_multiple_of(2) { (Edited::ConfigMap, "ConfigMap") } else { (Edited::Deployment, "Deployment") };
        let index = number / 2;
        let names = (format!("bulk-{index}"), key(kind, &format!("bulk-{index}")));
        let declared = self.declared.get(&names.1).with_context(|| format!("{} is not declared", names.1))?.clone();
        let wanted = text(&declared, edited.pointer()).to_owned();
        let back = |object: Option<&Value>| object.is_some_and(|object| text(object, edited.pointer()) == wanted);

        self.hub_took.push(restored(&self.editor, edited, &names.0, Some(&wanted)).await?);

        let target = edited.target(BY_HAND, &names.0);
        let mut lookout = Lookout::open(&self.editor, &target).await?;
        self.editor.json_patch(&target, &edited.edit("drifted")).await?;
        let answered = Instant::now();
        lookout.until(|object| !back(object)).await?;
        self.hand.correct(&target, &declared, edited.pointer()).await?;
        self.hand_took.push(lookout.until(back).await? - answered);
        Ok(())
    }

    /// The figures, with the hub's calls of the whole run.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn finish(self, audit: &Audit) -> Outcome {
        let by_hub = audit.by_user(HUB_USER).filter(|call| call.verb != "watch");
        Outcome { calls: by_hub.len() as f64 / self.hub_took.len() as f64, hub: self.hub_took, hand: self.hand_took }
    }
}

/// Edits an object of the guarded release; answers how long its restoration took. What is wanted is what stands there, unless told.
pub async fn restored(editor: &Writer, edited: Edited, name: &str, wanted: Option<&str>) -> Result<Duration> {
    let target = edited.target(GUARDED, name);
    let wanted = match wanted {
        Some(wanted) => wanted.to_owned(),
        None => text(&editor.get(&target).await?, edited.pointer()).to_owned(),
    };
    let back = |object: Option<&Value>| object.is_some_and(|object| text(object, edited.pointer()) == wanted);
    let mut lookout = Lookout::open(editor, &target).await?;
    editor.json_patch(&target, &edited.edit("drifted")).await?;
    let answered = Instant::now();
    lookout.until(|object| !back(object)).await?;
    Ok(lookout.until(back).await? - answered)
}

fn key(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
