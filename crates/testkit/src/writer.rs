//! A second client: whoever else writes to the cluster.

use anyhow::Result;
use kube::Client;
use serde_json::Value;

use crate::{
    rest::{self, PatchType},
    target::Target,
};

/// Writes objects as one field manager. A [`Target`] with a subresource makes every call go through it.
pub struct Writer {
    client: Client,
    manager: String,
}

impl Writer {
    /// Writes through `client` as field manager `manager`, which goes into URLs as it is.
    pub fn new(client: Client, manager: &str) -> Self {
        Self { client, manager: manager.to_owned() }
    }

    /// The client it writes through.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The object.
    pub async fn get(&self, target: &Target) -> Result<Value> {
        rest::get(&self.client, &target.path()).await
    }

    /// The object, unless there is none.
    pub async fn find(&self, target: &Target) -> Result<Option<Value>> {
        match self.get(target).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if rest::is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// POST.
    pub async fn create(&self, target: &Target, object: &Value) -> Result<Value> {
        rest::post(&self.client, &self.with_manager(&target.collection_path()), object).await
    }

    /// Forced server-side apply; `object` carries `apiVersion` and `kind`.
    pub async fn apply(&self, target: &Target, object: &Value) -> Result<Value> {
        let path = format!("{}&force=true", self.with_manager(&target.path()));
        rest::patch(&self.client, &path, PatchType::Apply, object).await
    }

    /// What [`Writer::apply`] would answer, without writing.
    pub async fn dry_run_apply(&self, target: &Target, object: &Value) -> Result<Value> {
        let path = format!("{}&force=true&dryRun=All", self.with_manager(&target.path()));
        rest::patch(&self.client, &path, PatchType::Apply, object).await
    }

    /// GET, change, PUT with the resource version read.
    pub async fn update(&self, target: &Target, change: impl FnOnce(&mut Value)) -> Result<Value> {
        let mut object = self.get(target).await?;
        change(&mut object);
        rest::put(&self.client, &self.with_manager(&target.path()), &object).await
    }

    /// JSON patch: `operations` is the array.
    pub async fn json_patch(&self, target: &Target, operations: &Value) -> Result<Value> {
        self.patch(target, PatchType::Json, operations).await
    }

    /// JSON merge patch.
    pub async fn merge_patch(&self, target: &Target, patch: &Value) -> Result<Value> {
        self.patch(target, PatchType::Merge, patch).await
    }

    /// Strategic merge patch, what kubectl sends for built-in kinds.
    pub async fn strategic_patch(&self, target: &Target, patch: &Value) -> Result<Value> {
        self.patch(target, PatchType::Strategic, patch).await
    }

    /// DELETE; answers what the server does.
    pub async fn delete(&self, target: &Target) -> Result<Value> {
        rest::delete(&self.client, &target.path()).await
    }

    async fn patch(&self, target: &Target, patch_type: PatchType, patch: &Value) -> Result<Value> {
        rest::patch(&self.client, &self.with_manager(&target.path()), patch_type, patch).await
    }

    fn with_manager(&self, path: &str) -> String {
        format!("{path}?fieldManager={}", self.manager)
    }
}

/// An object's `managedFields` without their times, sorted: what two objects with the same history share.
pub fn managed_fields_without_times(object: &Value) -> Vec<Value> {
    let mut entries = object.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    for entry in &mut entries {
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("time");
        }
    }
    entries.sort_by_cached_key(Value::to_string);
    entries
}
