//! Helm release records as the watches on them show them.

use std::collections::BTreeMap;

use holdfast_engine::answer::Fence;
use holdfast_fleet::{
    call::{Endpoint, EndpointError},
    meta::{Meta, parse_list},
};
use holdfast_helm::{InvalidMeta, Judged, RecordMeta, Store, StoredMeta, fence};
use jiff::Timestamp;

/// Label selector of the objects that Helm keeps its releases in.
pub const RECORD_LABELS: &str = "owner=helm";

/// Field selector of the same: other Secrets may carry the label. ConfigMaps have no type.
pub const fn record_fields(store: Store) -> &'static str {
    match store {
        Store::Secrets => "type=helm.sh/release.v1",
        Store::ConfigMaps => "",
    }
}

/// Where the records of a store are, in all namespaces.
pub fn record_place(store: Store) -> Result<Endpoint, EndpointError> {
    Endpoint::new("", "v1", store.plural())
}

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

/// A record as seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSight {
    /// Kind of object it is kept in.
    pub store: Store,
    /// Name of that object.
    pub stored_name: String,
    /// Its namespace.
    pub namespace: String,
    /// What its labels say.
    pub meta: Result<RecordMeta, InvalidMeta>,
    /// When it was last written, by the API server's clock and to the second: its switch to the status it has now.
    pub written_at: Option<Timestamp>,
}

impl RecordSight {
    /// Reads a record's metadata; `None` for an object that is none.
    pub fn of(store: Store, meta: &Meta<'_>) -> Option<Self> {
        store.holds(&meta.name).then(|| Self::read(store, meta))
    }

    fn read(store: Store, meta: &Meta<'_>) -> Self {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let labels: BTreeMap<String, String> = meta.labels.and_then(|labels| serde_json::from_str(labels.get()).ok()).unwrap_or_default();
        let stored = StoredMeta {
            store,
            name: &meta.name,
            namespace,
            uid: &meta.uid,
            resource_version: &meta.resource_version,
            created: meta.created(),
            labels: &labels,
        };
        Self {
            store,
            stored_name: meta.name.to_string(),
            namespace: namespace.to_owned(),
            meta: RecordMeta::parse(&stored),
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
    /// What the release's records are kept in, all of them: where they are in both stores nothing is judged.
    pub store: Store,
    /// Namespace of the records.
    pub namespace: String,
    /// Release name.
    pub name: String,
    /// The revision the judgement is based on.
    pub judged: Judged,
}

impl FenceQuestion {
    /// Reads the answer from a list of the release's records. Anything odd keeps the write back.
    pub fn answer(&self, list: &[u8]) -> Fence {
        let Ok(page) = parse_list(list) else { return Fence::Unknown };
        if page.continue_token.is_some() {
            return Fence::Unknown;
        }
        let mut records = Vec::new();
        for meta in page.metas() {
            let Ok(meta) = meta else { return Fence::Unknown };
            match RecordSight::of(self.store, &meta).map(|sight| sight.meta) {
                None => {}
                Some(Ok(record)) => records.push(record),
                Some(Err(_)) => return Fence::Closed,
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

    fn question(store: Store) -> FenceQuestion {
        FenceQuestion { store, namespace: "t".into(), name: "web".into(), judged: Judged { version: 1, uid: "u1".into(), newest: 1 } }
    }

    fn asked(items: &[Value]) -> Fence {
        question(Store::Secrets).answer(json!({"metadata": {"resourceVersion": "9"}, "items": items}).to_string().as_bytes())
    }

    #[test]
    fn only_the_judged_revision_alone_lets_a_write_through() {
        assert_eq!(asked(&[secret(1, "deployed")]), Fence::Clear);
        assert_eq!(asked(&[secret(1, "deployed"), secret(2, "pending-upgrade")]), Fence::Closed);
        assert_eq!(asked(&[secret(1, "superseded"), secret(2, "deployed")]), Fence::Closed);
        assert_eq!(asked(&[secret(1, "superseded")]), Fence::Closed);
        assert_eq!(asked(&[secret(1, "deployed"), secret(2, "nonsense")]), Fence::Closed);
        assert_eq!(asked(&[]), Fence::Closed);
        assert_eq!(question(Store::Secrets).answer(b"{"), Fence::Unknown);
    }

    #[test]
    fn a_configmap_with_the_labels_need_not_be_a_record() {
        let mut other = secret(2, "nonsense");
        other["metadata"]["name"] = json!("web-settings");
        let list = json!({"metadata": {"resourceVersion": "9"}, "items": [secret(1, "deployed"), other]}).to_string();
        assert_eq!(question(Store::ConfigMaps).answer(list.as_bytes()), Fence::Clear);
        assert_eq!(question(Store::Secrets).answer(list.as_bytes()), Fence::Closed);
    }
}
