//! Helm release records as the watch on their Secrets shows them.

use std::collections::BTreeMap;

use holdfast_engine::answer::Fence;
use holdfast_fleet::meta::{Meta, parse_list};
use holdfast_helm::{InvalidMeta, Judged, RecordMeta, SecretMeta, fence};
use jiff::Timestamp;

/// Selector of the Secrets that Helm keeps its releases in.
pub const RECORD_LABELS: &str = "owner=helm";
/// Field selector of the same: other Secrets may carry the label.
pub const RECORD_FIELDS: &str = "type=helm.sh/release.v1";

/// Namespace and name of a release on one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReleaseName {
    /// Namespace of its records.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for ReleaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A record Secret as seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSight {
    /// Name of the Secret.
    pub secret: String,
    /// Its namespace.
    pub namespace: String,
    /// What its labels say.
    pub meta: Result<RecordMeta, InvalidMeta>,
    /// When it was last written, by the API server's clock and to the second: its switch to the status it has now.
    pub written_at: Option<Timestamp>,
}

impl RecordSight {
    /// Reads a record Secret's metadata.
    pub fn of(meta: &Meta<'_>) -> Self {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let labels: BTreeMap<String, String> = meta.labels.and_then(|labels| serde_json::from_str(labels.get()).ok()).unwrap_or_default();
        let secret = SecretMeta {
            name: &meta.name,
            namespace,
            uid: &meta.uid,
            resource_version: &meta.resource_version,
            created: None,
            labels: &labels,
        };
        Self {
            secret: meta.name.to_string(),
            namespace: namespace.to_owned(),
            meta: RecordMeta::parse(&secret),
            written_at: meta.managed_fields.iter().filter_map(holdfast_fleet::meta::ManagedEntry::at).max(),
        }
    }

    /// The release it belongs to, as far as that can be told.
    pub fn release(&self) -> Option<ReleaseName> {
        let name = match &self.meta {
            Ok(meta) => meta.name.clone(),
            Err(invalid) => invalid.release.clone()?,
        };
        Some(ReleaseName { namespace: self.namespace.clone(), name })
    }
}

/// The question asked right before a write: is the judged revision still the one that counts?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceQuestion {
    /// Namespace of the records.
    pub namespace: String,
    /// Release name.
    pub name: String,
    /// The revision the judgement is based on.
    pub judged: Judged,
}

impl FenceQuestion {
    /// Reads the answer from a list of the release's record Secrets. Anything odd keeps the write back.
    pub fn answer(&self, list: &[u8]) -> Fence {
        let Ok(page) = parse_list(list) else { return Fence::Unknown };
        if page.continue_token.is_some() {
            return Fence::Unknown;
        }
        let mut records = Vec::new();
        for meta in page.metas() {
            let Ok(meta) = meta else { return Fence::Unknown };
            match RecordSight::of(&meta).meta {
                Ok(record) => records.push(record),
                Err(_) => return Fence::Closed,
            }
        }
        if fence(&self.judged, &records) == holdfast_helm::Fence::Clear { Fence::Clear } else { Fence::Closed }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn secret(version: u64, status: &str) -> Value {
        json!({"metadata": {"name": format!("sh.helm.release.v1.web.v{version}"), "namespace": "t", "uid": format!("u{version}"), "resourceVersion": "1",
            "labels": {"owner": "helm", "name": "web", "status": status, "version": version.to_string()}}})
    }

    fn asked(items: &[Value]) -> Fence {
        let question =
            FenceQuestion { namespace: "t".into(), name: "web".into(), judged: Judged { version: 1, uid: "u1".into(), newest: 1 } };
        question.answer(json!({"metadata": {"resourceVersion": "9"}, "items": items}).to_string().as_bytes())
    }

    #[test]
    fn only_the_judged_revision_alone_lets_a_write_through() {
        assert_eq!(asked(&[secret(1, "deployed")]), Fence::Clear);
        assert_eq!(asked(&[secret(1, "deployed"), secret(2, "pending-upgrade")]), Fence::Closed);
        assert_eq!(asked(&[secret(1, "superseded"), secret(2, "deployed")]), Fence::Closed);
        assert_eq!(asked(&[secret(1, "superseded")]), Fence::Closed);
        assert_eq!(asked(&[secret(1, "deployed"), secret(2, "nonsense")]), Fence::Closed);
        assert_eq!(asked(&[]), Fence::Closed);
        let question =
            FenceQuestion { namespace: "t".into(), name: "web".into(), judged: Judged { version: 1, uid: "u1".into(), newest: 1 } };
        assert_eq!(question.answer(b"{"), Fence::Unknown);
    }
}
