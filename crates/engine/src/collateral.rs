//! Proves that a write changes drifted paths and nothing else.

use serde_json::Value;

use crate::path::{Path, Segment};

/// Whether `predicted` differs from `live` at `paths` and nowhere else.
pub fn only_changes(predicted: &Value, live: &Value, paths: &[Path]) -> bool {
    stripped(predicted, paths) == stripped(live, paths)
}

/// Whether every further difference of `predicted` takes the value the server gives to our own configuration anyway:
/// admission that acts on any write to the object.
pub fn explained_by(predicted: &Value, live: &Value, oracle: &Value, paths: &[Path]) -> bool {
    explained(Some(&stripped(predicted, paths)), Some(&stripped(live, paths)), Some(&stripped(oracle, paths)))
}

fn explained(predicted: Option<&Value>, live: Option<&Value>, oracle: Option<&Value>) -> bool {
    if predicted == live || predicted == oracle {
        return true;
    }
    match (predicted, live) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.keys().chain(b.keys()).all(|name| explained(a.get(name), b.get(name), oracle.and_then(|oracle| oracle.get(name))))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().all(|(index, (a, b))| explained(Some(a), Some(b), oracle.and_then(|oracle| oracle.get(index))))
        }
        _ => false,
    }
}

/// The object without `paths`, without what every write changes, and without containers that this leaves empty.
fn stripped(object: &Value, paths: &[Path]) -> Value {
    let mut object = object.clone();
    if let Some(members) = object.as_object_mut() {
        // Status belongs to controllers and may move between two calls.
        members.remove("status");
        if let Some(Value::Object(metadata)) = members.get_mut("metadata") {
            for volatile in ["resourceVersion", "managedFields", "generation", "selfLink"] {
                metadata.remove(volatile);
            }
        }
    }
    for path in paths {
        remove(&mut object, path.segments());
    }
    prune(&mut object);
    object
}

fn remove(value: &mut Value, segments: &[Segment]) {
    match (segments, value) {
        ([Segment::Order], Value::Array(items)) => items.sort_by_key(ToString::to_string),
        ([Segment::Field(name)], Value::Object(members)) => {
            members.remove(&**name);
        }
        ([Segment::Field(name), rest @ ..], Value::Object(members)) => {
            if let Some(next) = members.get_mut(&**name) {
                remove(next, rest);
            }
        }
        ([item @ (Segment::Key(_) | Segment::Item(_))], Value::Array(items)) => items.retain(|candidate| !crate::patch::matches_item(candidate, item)),
        ([item @ (Segment::Key(_) | Segment::Item(_)), rest @ ..], Value::Array(items)) => {
            for candidate in items.iter_mut().filter(|candidate| crate::patch::matches_item(candidate, item)) {
                remove(candidate, rest);
            }
        }
        _ => {}
    }
}

/// A label map that loses its last label is `{}` on one side and absent on the other.
fn prune(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(prune);
            members.retain(|_, member| !matches!(member, Value::Object(inner) if inner.is_empty()) && !matches!(member, Value::Array(inner) if inner.is_empty()));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn drifted_paths_and_bookkeeping_do_not_count() {
        let live = json!({"metadata": {"resourceVersion": "1", "generation": 1}, "spec": {"replicas": 5, "image": "a"}, "status": {"ready": 1}});
        let oracle = json!({"metadata": {"resourceVersion": "1", "generation": 2, "labels": {"a": "b"}}, "spec": {"replicas": 2, "image": "a"}, "status": {}});
        let replicas = Path::of_fields(&["spec", "replicas"]);
        let label = Path::of_fields(&["metadata", "labels", "a"]);
        assert!(only_changes(&oracle, &live, &[replicas.clone(), label]));
        assert!(!only_changes(&oracle, &live, &[replicas]), "the label would change too");
    }

    #[test]
    fn items_and_order() {
        let item = |text: &str| Path::of_fields(&["c"]).join(Segment::from_fields_v1(text).unwrap());
        let (short, long) = (json!({"c": [{"name": "a"}]}), json!({"c": [{"name": "a"}, {"name": "b"}]}));
        assert!(only_changes(&long, &short, &[item(r#"k:{"name":"b"}"#)]));
        let swapped = json!({"c": [{"name": "b"}, {"name": "a"}]});
        assert!(!only_changes(&swapped, &long, &[]) && only_changes(&swapped, &long, &[Path::of_fields(&["c"]).join(Segment::Order)]));
    }

    #[test]
    fn admission_on_any_write_is_told_from_the_unexplained() {
        let live = json!({"spec": {"image": "a", "x": 1, "y": 1}});
        let oracle = json!({"spec": {"image": "mirror/a", "x": 2, "y": 1}});
        let x = Path::of_fields(&["spec", "x"]);
        assert!(explained_by(&json!({"spec": {"image": "mirror/a", "x": 2, "y": 1}}), &live, &oracle, std::slice::from_ref(&x)));
        assert!(explained_by(&json!({"spec": {"image": "a", "x": 2, "y": 1}}), &live, &oracle, std::slice::from_ref(&x)));
        assert!(!explained_by(&json!({"spec": {"image": "random-7", "x": 2, "y": 1}}), &live, &oracle, &[x]));
    }
}
