//! Rewrites `managedFields` after a positional repair of a server-side release, so that the release's own apply entry
//! holds the repaired paths again and no later `helm upgrade` meets a conflict (measured: a second patch that touches
//! nothing but `managedFields` is stored as sent).

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    manager::{self, Entry, Operation, Writer},
    owned::OwnedSet,
    path::{Path, Segment},
    project,
};

/// Which ownership a repair moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The release's manager and way of writing: the entry that gains.
    pub to: Writer,
    /// Paths that every other entry loses and `to` gains.
    pub paths: OwnedSet,
    /// Items that no longer exist after the repair; every entry loses them.
    pub gone: Vec<Path>,
    /// What an applying release's manager held before the repair by other writes than applies. The first write of the repair is such a
    /// write: it adds to that entry, and the second takes it away again.
    pub kept: OwnedSet,
    /// Paths that belong to nobody: server defaults that whoever created the object anew was given. Every other entry of the object
    /// itself loses them.
    pub released: OwnedSet,
}

/// The entries as read before the repair, with ownership moved. Entries that change nothing stay byte for byte.
pub fn moved(before: &Value, change: &Move, now: Timestamp) -> Value {
    let entries = before.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut found = false;
    let mut out: Vec<Value> = Vec::with_capacity(entries.len() + 1);
    for mut entry in entries {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_whole = text("subresource").is_empty();
        let is_target = is_whole && !found && text("manager") == change.to.manager && text("operation") == change.to.operation.as_str();
        let fields = OwnedSet::from_fields_v1(entry.get("fieldsV1").unwrap_or(&Value::Null));
        let is_first_write = is_whole
            && change.to.operation == Operation::Apply
            && text("operation") == Operation::Update.as_str()
            && text("manager") == change.to.manager;
        let mut next = if is_first_write { intersection(&fields, &change.kept) } else { fields.clone() };
        for path in &change.gone {
            next.remove_tree(path);
        }
        if is_target {
            found = true;
            next.extend(&gained(&fields, &change.paths));
        } else {
            next.subtract(&change.paths);
            if is_whole {
                next.subtract(&change.released);
            }
        }
        if next.is_empty() && !fields.is_empty() {
            continue;
        }
        if next != fields
            && let Some(members) = entry.as_object_mut()
        {
            members.insert("fieldsV1".to_owned(), next.to_fields_v1());
        }
        out.push(entry);
    }
    if !found && !change.paths.is_empty() {
        out.push(json!({
            "manager": change.to.manager,
            "operation": change.to.operation.as_str(),
            "apiVersion": before.get("apiVersion").cloned().unwrap_or_default(),
            "time": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "fieldsType": "FieldsV1",
            "fieldsV1": change.paths.to_fields_v1(),
        }));
    }
    Value::Array(out)
}

/// What a repair may hold by the first of its two writes alone.
pub fn kept_by(entries: &[Entry], writer: &Writer) -> OwnedSet {
    let first_write = Writer { manager: writer.manager.clone(), operation: Operation::Update };
    if *writer == first_write {
        return OwnedSet::default();
    }
    entries.iter().find(|entry| first_write.wrote(entry)).map(|entry| entry.fields.clone()).unwrap_or_default()
}

/// What is left to do of a repair that an earlier process began and may not have ended; `None` where its first write was never made, or
/// its second was. Where somebody wrote since, only what the first write left is moved: the rest may be theirs.
pub fn unfinished(live: &Value, change: &Move, desired: &Value) -> Option<Move> {
    let held = kept_by(&manager::entries(live), &change.to);
    let differences = project::differences(&change.paths, live, desired);
    if !change.kept.covers(&held) {
        let mut paths = change.paths.clone();
        for theirs in differences.iter().filter(|difference| !held.has(&difference.path)) {
            paths.remove_tree(&theirs.path);
        }
        return Some(Move { paths, ..change.clone() });
    }
    let entries = live.pointer("/metadata/managedFields");
    if change.gone.iter().any(|path| project::find(live, path).is_there()) {
        // What the first write takes away is there: it was not made.
        return None;
    }
    (differences.is_empty() && entries != Some(&moved(live, change, Timestamp::UNIX_EPOCH))).then(|| change.clone())
}

fn intersection(one: &OwnedSet, other: &OwnedSet) -> OwnedSet {
    let (mut outside, mut inside) = (one.clone(), one.clone());
    outside.subtract(other);
    inside.subtract(&outside);
    inside
}

/// What the release's entry gains. Who applied a Secret with `stringData` holds that name and never `data`, where the
/// server keeps the value.
fn gained(held: &OwnedSet, paths: &OwnedSet) -> OwnedSet {
    let mut gained = paths.clone();
    if let Some(texts) = held.root().field("stringData") {
        for (name, _) in texts.children() {
            gained.remove_tree(&[Segment::field("data"), name.clone()].into_iter().collect());
        }
    }
    gained
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repaired_paths_go_home_and_emptied_entries_vanish() {
        let before = json!({"apiVersion": "v1", "metadata": {"managedFields": [
            {"manager": "helm", "operation": "Apply", "fieldsV1": {"f:spec": {"f:selector": {}}}, "time": "T"},
            {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:ports": {"k:{\"port\":81}": {".": {}, "f:port": {}}}}}},
            {"manager": "other", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}, "odd": 1}
        ]}});
        let port = |number: i64| json!({"f:spec": {"f:ports": {format!("k:{{\"port\":{number}}}"): {".": {}, "f:port": {}}}}});
        let change = Move {
            to: Writer { manager: "helm".into(), operation: Operation::Apply },
            paths: OwnedSet::from_fields_v1(&port(80)),
            gone: OwnedSet::from_fields_v1(&port(81)).paths().into_iter().take(1).collect(),
            kept: OwnedSet::default(),
            released: OwnedSet::default(),
        };
        assert_eq!(
            moved(&before, &change, Timestamp::UNIX_EPOCH),
            json!([
                {"manager": "helm", "operation": "Apply", "time": "T",
                    "fieldsV1": {"f:spec": {"f:selector": {}, "f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}}}}}},
                {"manager": "other", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}, "odd": 1}
            ])
        );
    }

    #[test]
    fn a_release_without_an_entry_gets_one() {
        let change = Move {
            to: Writer { manager: "helm".into(), operation: Operation::Update },
            paths: OwnedSet::from_fields_v1(&json!({"f:data": {"f:k": {}}})),
            gone: Vec::new(),
            kept: OwnedSet::default(),
            released: OwnedSet::default(),
        };
        let entries = moved(&json!({"apiVersion": "v1", "metadata": {}}), &change, Timestamp::UNIX_EPOCH);
        assert_eq!(entries[0]["time"], "1970-01-01T00:00:00Z");
        assert_eq!(entries[0]["fieldsV1"], json!({"f:data": {"f:k": {}}}));
    }

    #[test]
    fn what_a_creator_was_given_by_default_belongs_to_nobody() {
        let before = json!({"metadata": {"managedFields": [
            {"manager": "kubectl-create", "operation": "Update", "fieldsV1": {"f:spec": {"f:image": {}, "f:paused": {}, "f:foreign": {}}}},
            {"manager": "controller", "operation": "Update", "subresource": "status", "fieldsV1": {"f:spec": {"f:paused": {}}}}
        ]}});
        let change = Move {
            to: Writer { manager: "helm".into(), operation: Operation::Apply },
            paths: OwnedSet::from_fields_v1(&json!({"f:spec": {"f:image": {}}})),
            gone: Vec::new(),
            kept: OwnedSet::default(),
            released: OwnedSet::from_fields_v1(&json!({"f:spec": {"f:paused": {}}})),
        };
        let entries = moved(&before, &change, Timestamp::UNIX_EPOCH);
        assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {"f:foreign": {}}}));
        assert_eq!(entries[1]["fieldsV1"], json!({"f:spec": {"f:paused": {}}}));
        assert_eq!((&entries[2]["manager"], &entries[2]["fieldsV1"]), (&json!("helm"), &json!({"f:spec": {"f:image": {}}})));
    }

    #[test]
    fn string_data_stays_held_under_its_own_name() {
        let before = json!({"metadata": {"managedFields": [
            {"manager": "helm", "operation": "Apply", "fieldsV1": {"f:stringData": {"f:p": {}}}},
            {"manager": "x", "operation": "Update", "fieldsV1": {"f:data": {"f:p": {}}}}
        ]}});
        let change = Move {
            to: Writer { manager: "helm".into(), operation: Operation::Apply },
            paths: OwnedSet::from_fields_v1(&json!({"f:data": {"f:p": {}}})),
            gone: Vec::new(),
            kept: OwnedSet::default(),
            released: OwnedSet::default(),
        };
        assert_eq!(
            moved(&before, &change, Timestamp::UNIX_EPOCH),
            json!([{"manager": "helm", "operation": "Apply", "fieldsV1": {"f:stringData": {"f:p": {}}}}])
        );
    }

    #[test]
    fn what_a_process_left_half_done_is_finished() {
        let apply = |fields: &Value| json!({"manager": "helm", "operation": "Apply", "fieldsV1": fields});
        let update = |manager: &str, fields: &Value| json!({"manager": manager, "operation": "Update", "fieldsV1": fields});
        let object = |color: &str, entries: &[Value]| json!({"data": {"color": color}, "metadata": {"managedFields": entries}});
        let desired = json!({"data": {"color": "blue"}});
        let (color, other, both) =
            (json!({"f:data": {"f:color": {}}}), json!({"f:data": {"f:x": {}}}), json!({"f:data": {"f:color": {}, "f:x": {}}}));
        let change = Move {
            to: Writer { manager: "helm".into(), operation: Operation::Apply },
            paths: OwnedSet::from_fields_v1(&color),
            gone: Vec::new(),
            kept: OwnedSet::from_fields_v1(&other),
            released: OwnedSet::default(),
        };
        let finished = [apply(&color), update("helm", &other)];
        let cases = [
            ("never begun", object("red", &[update("helm", &other), update("edit", &color)]), None),
            ("half done", object("blue", &[update("helm", &both)]), Some(&color)),
            (
                "half done, then somebody took the path",
                object("red", &[update("helm", &json!({"f:data": {"f:y": {}}})), update("edit", &color)]),
                Some(&other),
            ),
            ("applied, not moved", object("blue", &[apply(&color), update("helm", &other), update("edit", &color)]), Some(&color)),
            ("finished", object("blue", &finished), None),
        ];
        for (what, live, left) in cases {
            let found = unfinished(&live, &change, &desired);
            assert_eq!(found.is_some(), left.is_some(), "{what}");
            let Some(found) = found else { continue };
            let entries = moved(&live, &found, Timestamp::UNIX_EPOCH);
            if left == Some(&color) {
                let fields = |operation: &str| {
                    let all = entries.as_array().into_iter().flatten();
                    all.filter(|entry| entry["operation"] == operation).map(|entry| entry["fieldsV1"].clone()).collect::<Vec<_>>()
                };
                assert_eq!((fields("Apply"), fields("Update")), (vec![color.clone()], vec![other.clone()]), "{what}");
            } else {
                assert_eq!(entries, json!([update("edit", &color)]), "{what}: what the first write left goes, theirs stays");
            }
        }
    }
}
