//! Objects from YAML text.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result, anyhow};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    control_plane::ControlPlane,
    rest::{status_code, within_deadline},
    target::Target,
    writer::Writer,
};

/// How long a kind may take to be served after its definition was written.
const NEW_KIND: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// Where objects without a namespace go.
const DEFAULT_NAMESPACE: &str = "default";

impl ControlPlane {
    /// Makes a namespace unless it is there.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        match self.writer("testkit")?.create(&Target::namespace(name), &object).await {
            Err(error) if status_code(&error) != Some(409) => Err(error),
            _ => Ok(()),
        }
    }

    /// Applies every document of `text`, in order, by forced server-side apply as `manager`. Waits for kinds defined further up.
    pub async fn apply_yaml(&self, manager: &str, text: &str) -> Result<Vec<Value>> {
        self.each_document(manager, text, async |writer, target, object| writer.apply(target, object).await).await
    }

    /// Creates every document of `text`, in order, by POST as `manager`. Waits for kinds defined further up.
    pub async fn create_yaml(&self, manager: &str, text: &str) -> Result<Vec<Value>> {
        self.each_document(manager, text, async |writer, target, object| writer.create(target, object).await).await
    }

    /// Where these objects are, or would be; those that name no namespace in `namespace`.
    pub async fn targets_of(&self, objects: &[Value], namespace: &str) -> Result<Vec<Target>> {
        let mut kinds = Kinds { client: self.admin()?, served: HashMap::new() };
        let mut targets = Vec::with_capacity(objects.len());
        for object in objects {
            let mut target = kinds.target_of(object).await?;
            if target.namespace.is_some() && object.pointer("/metadata/namespace").is_none() {
                target.namespace = Some(namespace.to_owned());
            }
            targets.push(target);
        }
        Ok(targets)
    }

    async fn each_document(
        &self,
        manager: &str,
        text: &str,
        write: impl AsyncFn(&Writer, &Target, &Value) -> Result<Value>,
    ) -> Result<Vec<Value>> {
        let writer = self.writer(manager)?;
        let mut kinds = Kinds::new(self)?;
        let mut written = Vec::new();
        for object in parse(text)? {
            let until = Instant::now() + NEW_KIND;
            let result = loop {
                let outcome = match kinds.target_of(&object).await {
                    Ok(target) => write(&writer, &target, &object).await,
                    Err(error) => Err(error),
                };
                match outcome {
                    // A new kind is for a moment unknown, then not found, then not yet ready to be written.
                    Err(error) if Instant::now() < until && is_settling(&error) => sleep(POLL).await,
                    outcome => break outcome,
                }
            };
            written.push(result?);
        }
        Ok(written)
    }
}

fn is_settling(error: &anyhow::Error) -> bool {
    error.is::<NotServed>() || matches!(status_code(error), Some(404 | 429))
}

/// The documents of a YAML text that hold something.
pub fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| anyhow!("YAML: {error}"))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The kind is not among those served.
#[derive(Debug)]
struct NotServed {
    api_version: String,
    kind: String,
}

impl std::fmt::Display for NotServed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} is not served", self.api_version, self.kind)
    }
}

impl std::error::Error for NotServed {}

/// Plurals and scopes, asked once for each API version.
pub struct Kinds {
    client: Client,
    served: HashMap<String, APIResourceList>,
}

impl Kinds {
    /// What a control plane serves.
    pub fn new(plane: &ControlPlane) -> Result<Self> {
        Ok(Self { client: plane.admin()?, served: HashMap::new() })
    }

    /// Where an object of any served kind is, in the namespace `default` if it names none.
    pub async fn target_of(&mut self, object: &Value) -> Result<Target> {
        let field = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let api_version = field("/apiVersion").context("a document without apiVersion")?;
        let kind = field("/kind").context("a document without kind")?;
        let name = field("/metadata/name").unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));

        let mut resource = self.look_up(api_version, kind);
        if resource.is_none() {
            self.ask(api_version).await?;
            resource = self.look_up(api_version, kind);
        }
        let (plural, namespaced) = resource.ok_or_else(|| NotServed { api_version: api_version.to_owned(), kind: kind.to_owned() })?;
        Ok(if namespaced {
            Target::custom(group, version, &plural, field("/metadata/namespace").unwrap_or(DEFAULT_NAMESPACE), name)
        } else {
            Target::cluster_scoped(group, version, &plural, name)
        })
    }

    fn look_up(&self, api_version: &str, kind: &str) -> Option<(String, bool)> {
        let served = &self.served.get(api_version)?.resources;
        let resource = served.iter().find(|resource| resource.kind == kind && !resource.name.contains('/'))?;
        Some((resource.name.clone(), resource.namespaced))
    }

    async fn ask(&mut self, api_version: &str) -> Result<()> {
        let list = within_deadline("discovery", async {
            Ok(if api_version.contains('/') {
                self.client.list_api_group_resources(api_version).await?
            } else {
                self.client.list_core_api_resources(api_version).await?
            })
        })
        .await?;
        self.served.insert(api_version.to_owned(), list);
        Ok(())
    }
}
