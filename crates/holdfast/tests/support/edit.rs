//! How somebody changes an object.

use holdfast_testkit::{Target, Writer, status_code};
use serde_json::{Value, json};

/// One change.
pub enum Edit {
    /// JSON merge patch.
    Merge(Value),
    /// Strategic merge patch, as `kubectl edit` sends it.
    Strategic(Value),
    /// JSON Patch.
    Json(Value),
    /// Through `/scale`.
    Scale(u32),
    /// The object is deleted.
    Delete,
    /// The object is deleted and somebody makes another one in its place.
    Recreate(Value),
}

impl Edit {
    /// Does it.
    pub async fn make(&self, writer: &Writer, target: &Target) {
        match self {
            Self::Merge(patch) => writer.merge_patch(target, patch).await,
            Self::Strategic(patch) => writer.strategic_patch(target, patch).await,
            Self::Json(operations) => writer.json_patch(target, operations).await,
            Self::Scale(replicas) => writer.merge_patch(&target.scale(), &json!({"spec": {"replicas": replicas}})).await,
            Self::Delete => writer.delete(target).await,
            Self::Recreate(object) => {
                writer.delete(target).await.unwrap();
                let text = object.to_string().replace("NAMESPACE", target.namespace.as_deref().unwrap());
                match writer.create(target, &serde_json::from_str(&text).unwrap()).await {
                    // Somebody was faster.
                    Err(error) if status_code(&error) == Some(409) => Ok(Value::Null),
                    created => created,
                }
            }
        }
        .unwrap_or_else(|error| panic!("{target:?}: {error:#}"));
    }
}
