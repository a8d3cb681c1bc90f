//! Reads `metadata.managedFields`: who holds a path, and under which manager a release writes.

use holdfast_api::report::Actor;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    normalise::{MANAGED_BY_LABEL, RELEASE_NAME, RELEASE_NAMESPACE},
    owned::OwnedSet,
    path::{Path, Segment},
};

/// How a manager writes: the two kinds of entries the server keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Every other write.
    Update,
}

impl Operation {
    /// The word the server writes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Field manager.
    pub manager: String,
    /// How it wrote.
    pub operation: Operation,
    /// Subresource it wrote through; empty for the object itself.
    pub subresource: String,
    /// When it last changed its fields, to the second.
    pub time: Option<Timestamp>,
    /// What it holds.
    pub fields: OwnedSet,
}

impl Entry {
    /// Who writes such entries.
    pub fn writer(&self) -> Writer {
        Writer { manager: self.manager.clone(), operation: self.operation }
    }

    /// The entry as a report names it.
    pub fn actor(&self) -> Actor {
        Actor {
            manager: self.manager.clone(),
            operation: self.operation.as_str().to_owned(),
            subresource: self.subresource.clone(),
            time: self.time,
            candidates: Vec::new(),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEntry {
    #[serde(default)]
    manager: String,
    operation: Operation,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    time: Option<Timestamp>,
    #[serde(default)]
    fields_v1: Value,
}

/// The entries of a live object. An entry that cannot be read is left out: it names nobody.
pub fn entries(live: &Value) -> Vec<Entry> {
    let Some(Value::Array(raw)) = live.pointer("/metadata/managedFields") else { return Vec::new() };
    raw.iter()
        .filter_map(|entry| RawEntry::deserialize(entry).ok())
        .map(|raw| Entry {
            manager: raw.manager,
            operation: raw.operation,
            subresource: raw.subresource,
            time: raw.time,
            fields: OwnedSet::from_fields_v1(&raw.fields_v1),
        })
        .collect()
}

/// The entry that last wrote `path`: the newest of those that hold it. An entry that holds only something above, such as the bare map
/// that is left when its last key went to somebody else, counts where no entry holds the path itself. Times are to the second, so the
/// rest of the comparison only makes the answer the same whatever order the entries come in.
pub fn holder<'a>(entries: &'a [Entry], path: &Path) -> Option<&'a Entry> {
    let mut wanted = OwnedSet::default();
    wanted.insert_path(path);
    let rank = |entry: &'a Entry| {
        let is_update = entry.operation == Operation::Update;
        (entry.fields.node(path).is_some(), entry.time, is_update, entry.manager.as_str(), entry.subresource.as_str())
    };
    entries.iter().filter(|entry| entry.fields.intersects(&wanted)).max_by(|a, b| rank(a).cmp(&rank(b)))
}

/// The actor of a change at `path`, where the server kept a trace of it.
pub fn actor(entries: &[Entry], path: &Path) -> Option<Actor> {
    holder(entries, path).map(Entry::actor)
}

/// The manager and way of writing of a release.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Writer {
    /// Field manager, at most 128 characters (a limit of the API server).
    pub manager: String,
    /// `Apply` for server-side releases, `Update` for client-side ones.
    pub operation: Operation,
}

impl Writer {
    /// Whether `entry` is what this writer's writes leave behind.
    pub fn wrote(&self, entry: &Entry) -> bool {
        entry.manager == self.manager && entry.operation == self.operation && entry.subresource.is_empty()
    }
}

/// Under which manager the release of this object writes: the holder of its ownership annotations, never a literal
/// `helm` (Flux and Cluster API's add-on provider write under other names). Where both kinds of entries hold them,
/// `prefer` (what the release record says) decides.
pub fn release_writer(entries: &[Entry], prefer: Option<Operation>) -> Option<Writer> {
    release_entry(entries, prefer, None).map(Entry::writer)
}

/// The entry behind [`release_writer`]. That of `known`, the release's writer elsewhere, goes before all others; who
/// changed one of the annotations holds fewer of them than who wrote them all.
pub fn release_entry<'a>(entries: &'a [Entry], prefer: Option<Operation>, known: Option<&Writer>) -> Option<&'a Entry> {
    let annotations = [RELEASE_NAME, RELEASE_NAMESPACE].map(|name| Path::of_fields(&["metadata", "annotations", name]));
    let label = Path::of_fields(&["metadata", "labels", MANAGED_BY_LABEL]);
    let held = |entry: &Entry| annotations.iter().filter(|path| entry.fields.has(path)).count();
    entries.iter().filter(|entry| entry.subresource.is_empty() && held(entry) > 0).max_by_key(|entry| {
        let is_known = known.is_some_and(|known| known.wrote(entry));
        (is_known, Some(entry.operation) == prefer, held(entry) + usize::from(entry.fields.has(&label)), entry.time)
    })
}

/// Whether the entry of `writer` claims paths beyond `owned`: a forced apply of the manifest would remove these.
pub fn claims_more(entries: &[Entry], writer: &Writer, owned: &OwnedSet) -> bool {
    entries
        .iter()
        .filter(|entry| entry.operation == Operation::Apply && writer.wrote(entry))
        .any(|entry| entry.fields.paths().iter().any(|path| !in_or_beside(owned, path)))
}

/// Whether the path is owned; a key field of an owned list item (`name` of a container) comes with the item.
fn in_or_beside(owned: &OwnedSet, path: &Path) -> bool {
    if owned.has(path) {
        return true;
    }
    match path.segments() {
        [.., Segment::Key(keys), Segment::Field(name)] => keys.iter().any(|(key, _)| key == name) && owned.node(&path.parent()).is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live() -> Value {
        json!({"metadata": {"managedFields": [
            {"manager": "helm", "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1":
                {"f:metadata": {"f:annotations": {"f:meta.helm.sh/release-name": {}}}, "f:spec": {"f:image": {}}}},
            {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:image": {}}}},
            {"manager": "kubectl", "operation": "Update", "subresource": "scale", "time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            {"manager": "broken", "operation": "Nonsense"}
        ]}})
    }

    #[test]
    fn the_newest_holder_is_named() {
        let entries = entries(&live());
        assert_eq!(entries.len(), 3, "what cannot be read names nobody");
        let replicas = actor(&entries, &Path::of_fields(&["spec", "replicas"])).unwrap();
        assert_eq!((replicas.manager.as_str(), replicas.subresource.as_str()), ("kubectl", "scale"));
        assert_eq!(actor(&entries, &Path::of_fields(&["spec", "image"])).unwrap().manager, "kubectl-edit");
        assert_eq!(actor(&entries, &Path::of_fields(&["spec", "other"])), None);
    }

    #[test]
    fn the_order_of_entries_and_their_versions_do_not_matter() {
        let entry = |manager: &str, operation: &str, version: &str, time: &str, fields: Value| json!({"manager": manager, "operation": operation, "apiVersion": version, "time": time, "fieldsV1": fields});
        let image = || json!({"f:spec": {"f:image": {}}});
        let early = "2026-01-01T00:00:00Z";
        let late = "2026-01-01T00:00:01Z";
        for (raw, newest) in [
            (vec![entry("a", "Update", "x/v1", early, image()), entry("b", "Update", "x/v1beta1", late, image())], "b/Update"),
            (vec![entry("b", "Apply", "x/v1", early, image()), entry("a", "Update", "x/v1", early, image())], "a/Update"),
            (vec![entry("a", "Update", "x/v1", early, image()), entry("b", "Update", "x/v1", early, image())], "b/Update"),
            (vec![entry("a", "Apply", "x/v1", late, json!({"f:spec": {}})), entry("b", "Apply", "x/v1", early, image())], "b/Apply"),
        ] {
            let mut turned = raw.clone();
            turned.reverse();
            for raw in [raw, turned] {
                let entries = entries(&json!({"metadata": {"managedFields": raw}}));
                let holder = holder(&entries, &Path::of_fields(&["spec", "image"])).unwrap();
                assert_eq!(format!("{}/{}", holder.manager, holder.operation.as_str()), newest);
            }
        }
    }

    #[test]
    fn a_bare_map_does_not_hold_its_keys() {
        let entry = |manager: &str, fields: Value| json!({"manager": manager, "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields});
        let live = json!({"metadata": {"managedFields": [
            entry("chaos", json!({"f:data": {"f:k": {}}})), entry("helm", json!({"f:data": {}}))]}});
        assert_eq!(actor(&entries(&live), &Path::of_fields(&["data", "k"])).unwrap().manager, "chaos");
    }

    #[test]
    fn the_release_writes_under_its_own_name() {
        assert_eq!(release_writer(&entries(&live()), None), Some(Writer { manager: "helm".into(), operation: Operation::Apply }));
        let mut mixed = live();
        mixed["metadata"]["managedFields"][1]["fieldsV1"]["f:metadata"] = json!({"f:annotations": {"f:meta.helm.sh/release-name": {}}});
        let mixed = entries(&mixed);
        assert_eq!(release_writer(&mixed, Some(Operation::Apply)).unwrap().manager, "helm");
        assert_eq!(release_writer(&mixed, Some(Operation::Update)).unwrap().manager, "kubectl-edit");
        assert_eq!(release_writer(&[], None), None);
    }

    #[test]
    fn a_claim_beyond_the_manifest_is_seen() {
        let entries = entries(&live());
        let writer = release_writer(&entries, None).unwrap();
        let mut owned = OwnedSet::from_fields_v1(&json!({"f:metadata": {"f:annotations": {"f:meta.helm.sh/release-name": {}}}}));
        assert!(claims_more(&entries, &writer, &owned));
        owned.insert_path(&Path::of_fields(&["spec", "image"]));
        assert!(!claims_more(&entries, &writer, &owned));
    }
}
