//! Proves that a write changes drifted paths and nothing else.

use serde_json::Value;

use crate::{
    canonical::canonical,
    items,
    path::{Path, Segment},
};

/// Whether `predicted` differs from `live` at `paths` and nowhere else.
pub fn only_changes(predicted: &Value, live: &Value, paths: &[Path]) -> bool {
    stripped(predicted, paths) == stripped(live, paths)
}

/// What a dry-run is compared with.
#[derive(Clone, Copy)]
pub struct Predicted<'a> {
    /// What is there.
    pub live: &'a Value,
    /// What the server makes of our own configuration: admission that acts on any write to the object gives the same.
    pub oracle: Option<&'a Value>,
    /// The answer to the same dry-run once more: what differs there is another each time, so no write can avoid it.
    pub again: Option<&'a Value>,
}

impl Predicted<'_> {
    /// Whether every difference of `predicted` from what is there, `paths` left out, is explained by one of the others.
    pub fn explains(&self, predicted: &Value, paths: &[Path]) -> bool {
        let [oracle, again] = [self.oracle, self.again].map(|answer| answer.map(|answer| stripped(answer, paths)));
        let [oracle, again] = [&oracle, &again].map(|answer| answer.as_ref().map_or(Side::None, |answer| Side::Has(Some(answer))));
        let at = At { live: Some(&stripped(self.live, paths)), oracle, again };
        explained(Some(&stripped(predicted, paths)), at)
    }
}

/// What an answer has at one place of the object.
#[derive(Clone, Copy)]
enum Side<'a> {
    /// There is no such answer.
    None,
    /// This, or nothing.
    Has(Option<&'a Value>),
}

/// The same at one place of the objects.
#[derive(Clone, Copy)]
struct At<'a> {
    live: Option<&'a Value>,
    oracle: Side<'a>,
    again: Side<'a>,
}

impl<'a> At<'a> {
    fn below(self, step: impl Fn(&'a Value) -> Option<&'a Value>) -> Self {
        let [oracle, again] = [self.oracle, self.again].map(|side| match side {
            Side::None => Side::None,
            Side::Has(value) => Side::Has(value.and_then(&step)),
        });
        Self { live: self.live.and_then(&step), oracle, again }
    }
}

fn explained(predicted: Option<&Value>, at: At<'_>) -> bool {
    if predicted == at.live || matches!(at.oracle, Side::Has(oracle) if predicted == oracle) {
        return true;
    }
    match (predicted, at.live) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.keys().chain(b.keys()).all(|name| explained(a.get(name), at.below(|value| value.get(name))))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() || matches!(at.again, Side::Has(_)) => {
            (0..a.len().max(b.len())).all(|index| explained(a.get(index), at.below(|value| value.get(index))))
        }
        _ => matches!(at.again, Side::Has(again) if predicted != again),
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
            // The server counts changes of a DaemonSet's template here, as it counts those of a spec in `generation`.
            if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                annotations.remove("deprecated.daemonset.template.generation");
            }
        }
    }
    // Orders last: sorting is meant for what the other paths leave.
    let (orders, others): (Vec<&Path>, Vec<&Path>) = paths.iter().partition(|path| matches!(path.segments().last(), Some(Segment::Order)));
    for path in others.into_iter().chain(orders) {
        remove(&mut object, path.segments());
    }
    object
}

/// Takes away what a path leads to. A map that loses its last label is `{}` on one side and absent on the other, so empty
/// containers on the way go too; elsewhere `{}` means something (`podSelector: {}`).
fn remove(value: &mut Value, segments: &[Segment]) {
    let Some((first, rest)) = segments.split_first() else { return };
    match (first, value) {
        (Segment::Order, Value::Array(items)) => items.sort_by_cached_key(canonical),
        (Segment::Field(name), Value::Object(members)) => {
            if let Some(next) = members.get_mut(&**name) {
                remove(next, rest);
                if rest.is_empty() || is_empty(next) {
                    members.remove(&**name);
                }
            }
        }
        (Segment::Key(_) | Segment::Item(_), Value::Array(items)) => {
            for position in items::positions(items, first).into_iter().rev() {
                if rest.is_empty() {
                    items.remove(position);
                } else if let Some(item) = items.get_mut(position) {
                    remove(item, rest);
                }
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn drifted_paths_and_bookkeeping_do_not_count() {
        let live =
            json!({"metadata": {"resourceVersion": "1", "generation": 1}, "spec": {"replicas": 5, "image": "a"}, "status": {"ready": 1}});
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
    fn empty_containers_count_unless_a_drifted_path_leads_through_them() {
        let label = Path::of_fields(&["metadata", "labels", "a"]);
        let with = json!({"metadata": {"labels": {"a": "b"}}});
        for without in [json!({"metadata": {"labels": {}}}), json!({"metadata": {}}), json!({})] {
            assert!(only_changes(&with, &without, std::slice::from_ref(&label)), "{without}");
        }
        // Every namespace is something else than none.
        assert!(!only_changes(&json!({"spec": {"namespaceSelector": {}}}), &json!({"spec": {}}), &[label]));
    }

    #[test]
    fn an_item_that_leaves_a_key_out_is_not_mistaken_for_another() {
        let item = Path::of_fields(&["p"]).join(Segment::from_fields_v1(r#"k:{"port":53,"protocol":"UDP"}"#).unwrap());
        let live = json!({"p": [{"port": 53}]});
        assert!(only_changes(
            &json!({"p": [{"port": 53}, {"port": 53, "protocol": "UDP"}]}),
            &json!({"p": [{"port": 53}, {"port": 53, "protocol": "UDP", "x": 1}]}),
            &[item]
        ));
        assert!(!only_changes(&json!({"p": [{"port": 54}]}), &live, &[]));
    }

    #[test]
    fn admission_on_any_write_is_told_from_the_unexplained() {
        let live = json!({"spec": {"image": "a", "x": 1, "y": 1}});
        let oracle = json!({"spec": {"image": "mirror/a", "x": 2, "y": 1}});
        let x = Path::of_fields(&["spec", "x"]);
        let explains =
            |predicted: Value, paths: &[Path]| Predicted { live: &live, oracle: Some(&oracle), again: None }.explains(&predicted, paths);
        assert!(explains(json!({"spec": {"image": "mirror/a", "x": 2, "y": 1}}), std::slice::from_ref(&x)));
        assert!(explains(json!({"spec": {"image": "a", "x": 2, "y": 1}}), std::slice::from_ref(&x)));
        assert!(!explains(json!({"spec": {"image": "random-7", "x": 2, "y": 1}}), &[x]));
    }

    #[test]
    fn what_is_another_each_time_is_told_from_the_unexplained() {
        let live = json!({"a": {"nonce": "1", "b": 1}, "c": [{"name": "web"}]});
        let explains = |predicted: Value, again: Option<&Value>| {
            Predicted { live: &live, oracle: None, again }.explains(&predicted, &[Path::of_fields(&["x"])])
        };
        let nonce = |nonce: &str, b: i64| json!({"a": {"nonce": nonce, "b": b}, "c": [{"name": "web"}]});
        assert!(!explains(nonce("2", 1), None), "nobody knows yet");
        assert!(explains(nonce("2", 1), Some(&nonce("3", 1))));
        assert!(!explains(nonce("2", 1), Some(&nonce("2", 1))), "the same twice");
        assert!(!explains(nonce("2", 2), Some(&nonce("3", 2))), "what is beside it counts");
        // An item or a key with a name that is another each time.
        let sidecar = |name: &str, first: &str| json!({"a": {"nonce": "1", "b": 1, name: 1}, "c": [{"name": first}, {"name": name}]});
        assert!(explains(sidecar("s-1", "web"), Some(&sidecar("s-2", "web"))));
        assert!(!explains(sidecar("s-1", "evil"), Some(&sidecar("s-2", "evil"))));
        assert!(!explains(json!({"a": {"nonce": "1"}, "c": []}), Some(&json!({"a": {"nonce": "1"}, "c": []}))), "taken away");
    }
}
