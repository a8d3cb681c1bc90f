//! A live object as its metadata shows it, and what a change of it means (design §3.3).

use holdfast_engine::{
    canonical::{Digest, Digester},
    meets::meets,
    object::Gvk,
    owned::OwnedSet,
};
use holdfast_fleet::meta::{ManagedEntry, Meta, MetaDigest, Operation, meta_digest};

use crate::state_secrets::StoredSight;

/// What is remembered of an object's metadata: enough to tell whether an owned path can have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    uid: u64,
    version: u64,
    generation: i64,
    metadata: MetaDigest,
    /// Entries of `managedFields` that meet an owned path.
    ours: u64,
    /// The other entries, those of the status subresource apart.
    others: u64,
    /// Who of those holds what, whenever it was written.
    holdings: u64,
    status: u64,
}

/// What a change of the metadata means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// No owned path can have changed: nothing to do.
    Known,
    /// Somebody wrote beside the owned paths. Admission may have ridden on that write, so one read a minute is due.
    Beside,
    /// Somebody else holds other fields beside the owned paths than before: something may have been added, or taken away.
    Holdings,
    /// An owned path may have changed: read it now.
    Changed,
}

impl Sight {
    /// The sight of an object whose owned paths are known.
    pub fn of(meta: &Meta<'_>, owned: &OwnedSet, gvk: &Gvk) -> Self {
        let (mut ours, mut others, mut holdings, mut status) = (Digester::new(), Digester::new(), Digester::new(), Digester::new());
        // Where the generation tells, the entries need not be read.
        let generation = meta.generation.unwrap_or_default();
        let entries = if counts_generation(gvk, generation) { &[] } else { meta.managed_fields.as_slice() };
        for entry in entries {
            let is_status = entry.subresource.as_deref() == Some("status");
            let into = if is_status {
                &mut status
            } else if touches(entry, owned) {
                &mut ours
            } else {
                add_holding(&mut holdings, entry);
                &mut others
            };
            add_holding(into, entry);
            into.add(entry.time.as_deref().unwrap_or_default().as_bytes());
        }
        Self {
            uid: Digest::of_bytes(meta.uid.as_bytes()).number(),
            version: version_of(meta),
            generation,
            metadata: meta_digest(meta),
            ours: ours.finish().number(),
            others: others.finish().number(),
            holdings: holdings.finish().number(),
            status: status.finish().number(),
        }
    }

    /// The form that outlives the process.
    pub const fn stored(&self) -> StoredSight {
        let Self { uid, version, generation, metadata, ours, others, holdings, status } = *self;
        StoredSight { uid, version, generation, metadata: *metadata.as_bytes(), ours, others, holdings, status }
    }

    /// What an earlier process stored.
    pub const fn restored(stored: &StoredSight) -> Self {
        let StoredSight { uid, version, generation, metadata, ours, others, holdings, status } = *stored;
        Self { uid, version, generation, metadata: MetaDigest::from_bytes(metadata), ours, others, holdings, status }
    }

    /// Whether `meta` is this very version of this very object.
    pub fn is_version(&self, meta: &Meta<'_>) -> bool {
        self.version == version_of(meta) && self.uid == Digest::of_bytes(meta.uid.as_bytes()).number()
    }

    /// The resource version, as a number or its digest: only equality counts.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Whether the object was deleted and created again since.
    pub const fn is_other_object(&self, next: &Self) -> bool {
        self.uid != next.uid
    }

    /// What the step from here to `next` means.
    pub fn news(&self, next: &Self, gvk: &Gvk) -> News {
        if self.uid != next.uid {
            return News::Changed;
        }
        if self.version == next.version {
            return News::Known;
        }
        // An aggregated API may keep no generation; then only the entries tell.
        if counts_generation(gvk, self.generation) && counts_generation(gvk, next.generation) {
            let same = self.generation == next.generation && self.metadata == next.metadata;
            return if same { News::Known } else { News::Changed };
        }
        if self.ours != next.ours {
            return News::Changed;
        }
        // The write must be explained by an entry that moved: two writes of one manager within a second look alike, and a removal
        // may leave no trace.
        match (self.others != next.others, self.status != next.status) {
            (true, _) if self.holdings != next.holdings => News::Holdings,
            (true, _) => News::Beside,
            (false, true) if self.metadata == next.metadata => News::Known,
            _ => News::Changed,
        }
    }
}

fn add_holding(into: &mut Digester, entry: &ManagedEntry<'_>) {
    into.add(entry.manager.as_bytes());
    into.add(match entry.operation {
        Operation::Apply => b"A",
        Operation::Update => b"U",
        Operation::Other => b"?",
    });
    into.add(entry.subresource.as_deref().unwrap_or_default().as_bytes());
    into.add(entry.fields.map_or("", |fields| fields.get()).as_bytes());
}

/// Whether a change of the spec shows in this generation.
fn counts_generation(gvk: &Gvk, generation: i64) -> bool {
    generation > 0 && generation_moves(gvk)
}

/// Kinds whose `metadata.generation` the server moves with every change of the spec (measured on 1.36: `PriorityClass` has one that
/// never moves, and `Service`, `ConfigMap`, `Secret`, RBAC, HPA and most others have none). Custom resources always do.
pub fn generation_moves(gvk: &Gvk) -> bool {
    match gvk.group.as_str() {
        "apps" => matches!(gvk.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet"),
        "batch" => matches!(gvk.kind.as_str(), "Job" | "CronJob"),
        "networking.k8s.io" => matches!(gvk.kind.as_str(), "Ingress" | "IngressClass" | "NetworkPolicy"),
        "policy" => gvk.kind == "PodDisruptionBudget",
        "apiextensions.k8s.io" => gvk.kind == "CustomResourceDefinition",
        "admissionregistration.k8s.io" => true,
        group => holdfast_engine::normalise::is_custom_group(group),
    }
}

fn touches(entry: &ManagedEntry<'_>, owned: &OwnedSet) -> bool {
    // An entry that does not say what it holds could hold anything.
    entry.fields.is_none_or(|fields| meets(owned, fields.get()))
}

/// Versions are opaque by contract and numbers in practice; either way only equality counts.
pub fn version_of(meta: &Meta<'_>) -> u64 {
    meta.resource_version.parse().unwrap_or_else(|_| Digest::of_bytes(meta.resource_version.as_bytes()).number())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn owned() -> OwnedSet {
        OwnedSet::from_fields_v1(&json!({"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:app": {}}}}))
    }

    fn sight(gvk: &Gvk, version: u32, generation: i64, entries: &Value, annotations: &Value) -> Sight {
        let object = json!({"metadata": {"name": "x", "uid": "u", "resourceVersion": version.to_string(), "generation": generation,
            "annotations": annotations, "managedFields": entries}});
        let text = object.to_string();
        Sight::of(&Meta::of_object(text.as_bytes()).unwrap(), &owned(), gvk)
    }

    fn entry(manager: &str, subresource: &str, second: u32, fields: &Value) -> Value {
        json!({"manager": manager, "operation": "Update", "subresource": subresource, "time": format!("2026-01-01T00:00:{second:02}Z"), "fieldsV1": fields})
    }

    #[test]
    fn without_generation_the_entries_tell() {
        let gvk = Gvk::new("v1", "ConfigMap");
        let helm = entry("helm", "", 0, &json!({"f:data": {"f:k": {}}}));
        let leader = |second| entry("leader", "", second, &json!({"f:metadata": {"f:annotations": {"f:lead": {}}}}));
        let base = sight(&gvk, 1, 0, &json!([helm, leader(1)]), &json!({"lead": "a"}));
        let cases = [
            ("same version", sight(&gvk, 1, 0, &json!([helm, leader(1)]), &json!({})), News::Known),
            ("leader renewed", sight(&gvk, 2, 0, &json!([helm, leader(2)]), &json!({"lead": "b"})), News::Beside),
            ("leader renewed within the second", sight(&gvk, 2, 0, &json!([helm, leader(1)]), &json!({"lead": "b"})), News::Changed),
            (
                "somebody's key came",
                sight(&gvk, 2, 0, &json!([helm, leader(1), entry("edit", "", 3, &json!({"f:data": {"f:x": {}}}))]), &json!({"lead": "a"})),
                News::Holdings,
            ),
            ("the leader's annotation went", sight(&gvk, 2, 0, &json!([helm]), &json!({})), News::Holdings),
            (
                "status",
                sight(&gvk, 2, 0, &json!([helm, leader(1), entry("hpa", "status", 5, &json!({"f:status": {}}))]), &json!({"lead": "a"})),
                News::Known,
            ),
            (
                "owned key taken",
                sight(&gvk, 2, 0, &json!([leader(1), entry("edit", "", 3, &json!({"f:data": {"f:k": {}}}))]), &json!({"lead": "a"})),
                News::Changed,
            ),
            (
                "owned key gone",
                sight(&gvk, 2, 0, &json!([entry("helm", "", 0, &json!({"f:data": {}})), leader(1)]), &json!({"lead": "a"})),
                News::Changed,
            ),
        ];
        for (what, next, news) in cases {
            assert_eq!(base.news(&next, &gvk), news, "{what}");
        }
    }

    #[test]
    fn with_generation_status_writes_are_nothing() {
        let gvk = Gvk::new("apps/v1", "Deployment");
        let base = sight(&gvk, 1, 3, &json!([]), &json!({}));
        assert_eq!(
            base.news(&sight(&gvk, 2, 3, &json!([entry("kubelet", "status", 1, &json!({"f:status": {}}))]), &json!({})), &gvk),
            News::Known
        );
        assert_eq!(base.news(&sight(&gvk, 2, 4, &json!([]), &json!({})), &gvk), News::Changed);
        assert_eq!(base.news(&sight(&gvk, 2, 3, &json!([]), &json!({"a": "b"})), &gvk), News::Changed);
    }

    #[test]
    fn which_kinds_have_a_moving_generation() {
        for (api_version, kind, moves) in [
            ("apps/v1", "Deployment", true),
            ("v1", "Service", false),
            ("autoscaling/v2", "HorizontalPodAutoscaler", false),
            ("scheduling.k8s.io/v1", "PriorityClass", false),
            ("rbac.authorization.k8s.io/v1", "Role", false),
            ("coordination.k8s.io/v1", "Lease", false),
            ("test.example/v1", "Widget", true),
            ("gateway.networking.k8s.io/v1", "Gateway", true),
        ] {
            assert_eq!(generation_moves(&Gvk::new(api_version, kind)), moves, "{kind}");
        }
    }
}
