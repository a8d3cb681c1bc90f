//! The calls of a correction, made by hand: a GET, the dry-run beside the list of release records, the write.

use anyhow::{Context, Result};
use holdfast_testkit::{ControlPlane, Helm, Target};
use http::{Method, Request, header};
use kube::Client;
use serde_json::{Value, json};

use super::BY_HAND;

const APPLY: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const JSON: &str = "application/json";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Somebody quick who corrects by hand.
pub struct Hand {
    client: Client,
    helm: Helm,
}

impl Hand {
    /// Corrects objects of releases that this Helm installed.
    pub fn new(helm: Helm, plane: &ControlPlane) -> Result<Self> {
        Ok(Self { client: plane.client("by-hand")?, helm })
    }

    /// Puts the value at `pointer` back as `declared` has it.
    pub async fn correct(&self, target: &Target, declared: &Value, pointer: &str) -> Result<()> {
        let path = target.path();
        let live = self.send(Method::GET, &path, JSON, JSON, Vec::new()).await?;
        let version = live.pointer("/metadata/resourceVersion").context("no version")?;

        let mut desired = declared.clone();
        let metadata = desired.get_mut("metadata").and_then(Value::as_object_mut).context("no metadata")?;
        metadata.insert("labels".to_owned(), json!({"app.kubernetes.io/managed-by": "Helm"}));
        let owner = json!({"meta.helm.sh/release-name": "bulk", "meta.helm.sh/release-namespace": BY_HAND});
        metadata.insert("annotations".to_owned(), owner);

        let dry_run = format!("{path}?fieldManager=holdfast&force=true&dryRun=All");
        let records = format!("/api/v1/namespaces/{BY_HAND}/secrets?labelSelector=owner%3Dhelm,name%3Dbulk");
        tokio::try_join!(
            self.send(Method::PATCH, &dry_run, APPLY, JSON, serde_json::to_vec(&desired)?),
            self.send(Method::GET, &records, JSON, METADATA_LIST, Vec::new()),
        )?;

        let write = format!("{path}?fieldManager=helm");
        match self.helm {
            Helm::V3 => {
                let value = declared.pointer(pointer).context("nothing declared there")?;
                let operations = json!([
                    {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
                    {"op": "replace", "path": pointer, "value": value},
                ]);
                self.send(Method::PATCH, &write, JSON_PATCH, JSON, serde_json::to_vec(&operations)?).await?;
            }
            Helm::V4 => {
                let uid = live.pointer("/metadata/uid").context("no uid")?;
                if let Some(metadata) = desired.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.insert("uid".to_owned(), uid.clone());
                    metadata.insert("resourceVersion".to_owned(), version.clone());
                }
                self.send(Method::PATCH, &format!("{write}&force=true"), APPLY, JSON, serde_json::to_vec(&desired)?).await?;
            }
        }
        Ok(())
    }

    async fn send(&self, method: Method, path: &str, content: &str, accept: &str, body: Vec<u8>) -> Result<Value> {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content).header(header::ACCEPT, accept);
        self.client.request(request.body(body).context("building a request")?).await.with_context(|| path.to_owned())
    }
}
