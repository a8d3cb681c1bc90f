//! Which leaf of an object is edited, and whether a report's path tells of it.

use std::hash::{DefaultHasher, Hash, Hasher};

use base64::{Engine, prelude::BASE64_STANDARD};
use holdfast_testkit::mutation::escape;
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::{Map, Value};

/// Members of an object that no release owns.
const NOT_OWNED: [&str; 3] = ["apiVersion", "kind", "status"];
/// Members of the metadata that somebody may edit.
const METADATA: [&str; 2] = ["labels", "annotations"];

/// A declared value that is neither list nor map.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// Where it is, RFC 6901.
    pub pointer: String,
    /// What is declared.
    pub value: Value,
}

/// The leaves of a declared object that an edit may change, in an order that follows from `seed` and the object's `name`. Left out is
/// what others have a right to: replicas where something scales, CA bundles, the rules of an aggregated role; and the account of a
/// token, with which the token goes.
pub fn shuffled(declared: &Value, name: &str, seed: u64, is_scaled: bool) -> Vec<Leaf> {
    let declared = as_stored(declared.clone());
    let mut leaves = Vec::new();
    collect(&declared, String::new(), &mut leaves);
    let is_aggregated = declared.get("aggregationRule").is_some_and(|rule| !rule.is_null());
    leaves.retain(|leaf| {
        let at = leaf.pointer.as_str();
        !(at.ends_with("/caBundle")
            || at.starts_with("/metadata/annotations/meta.helm.sh")
            || at == "/metadata/annotations/kubernetes.io~1service-account.name"
            || is_aggregated && at.starts_with("/rules")
            || is_scaled && at == "/spec/replicas")
    });
    let mut hasher = DefaultHasher::new();
    (seed, name).hash(&mut hasher);
    leaves.shuffle(&mut StdRng::seed_from_u64(hasher.finish()));
    leaves
}

/// `stringData` is stored as `data`.
fn as_stored(mut declared: Value) -> Value {
    if declared.get("kind").and_then(Value::as_str) != Some("Secret") {
        return declared;
    }
    let Some(members) = declared.as_object_mut() else { return declared };
    if let Some(Value::Object(texts)) = members.remove("stringData") {
        let data = members.entry("data").or_insert_with(|| Value::Object(Map::new()));
        if let Some(data) = data.as_object_mut() {
            data.extend(texts.into_iter().map(|(key, text)| (key, BASE64_STANDARD.encode(text.as_str().unwrap_or_default()).into())));
        }
    }
    declared
}

fn collect(value: &Value, at: String, leaves: &mut Vec<Leaf>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let is_left_out = match at.as_str() {
                    "" => NOT_OWNED.contains(&name.as_str()),
                    "/metadata" => !METADATA.contains(&name.as_str()),
                    _ => false,
                };
                if !is_left_out {
                    collect(member, format!("{at}/{}", escape(name)), leaves);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, format!("{at}/{index}"), leaves);
            }
        }
        Value::Null => {}
        leaf => leaves.push(Leaf { pointer: at, value: leaf.clone() }),
    }
}

/// Where something of `before` is missing in `now`, which may have more: a list item that was given another key stays beside the one
/// that comes back, told as added.
pub fn missing(before: &Value, now: &Value) -> Option<String> {
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => before.iter().find_map(|(name, value)| {
            let Some(there) = now.get(name) else { return Some(format!("/{name}")) };
            missing(value, there).map(|at| format!("/{name}{at}"))
        }),
        (Value::Array(before), Value::Array(now)) => {
            let position = before.iter().position(|item| !now.iter().any(|there| missing(item, there).is_none()));
            position.map(|position| format!("/{position}"))
        }
        _ => (before != now).then(String::new),
    }
}

/// Whether a path of a report (design §2.5) tells of the place at `pointer`: it is that place, or a list or map around it that counts
/// as one value.
pub fn tells_of(path: &str, pointer: &str) -> bool {
    let mut places = pointer.split('/');
    path.split('/')
        .all(|segment| places.next().is_some_and(|place| segment == place || (segment.starts_with('[') && place.parse::<usize>().is_ok())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointers(declared: &Value, is_scaled: bool) -> Vec<String> {
        let mut pointers: Vec<String> = shuffled(declared, "x", 1, is_scaled).into_iter().map(|leaf| leaf.pointer).collect();
        pointers.sort();
        pointers
    }

    #[test]
    fn what_others_may_change_is_left_out() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "status": {"x": 1},
            "metadata": {"name": "x", "labels": {"a/b": "c"}, "annotations": {"meta.helm.sh/release-name": "x"}},
            "spec": {"replicas": 1, "empty": null, "list": [{"caBundle": "x", "name": "y"}, "z"]},
        });
        assert_eq!(pointers(&deployment, true), ["/metadata/labels/a~1b", "/spec/list/0/name", "/spec/list/1"]);
        assert!(pointers(&deployment, false).contains(&"/spec/replicas".to_owned()));
        let role = json!({"kind": "ClusterRole", "aggregationRule": {"a": "b"}, "rules": [{"verbs": ["get"]}]});
        assert_eq!(pointers(&role, false), ["/aggregationRule/a"]);
    }

    #[test]
    fn what_is_written_as_text_is_stored_encoded() {
        let secret = json!({"kind": "Secret", "data": {"a": "YQ=="}, "stringData": {"b": "b"}});
        assert_eq!(pointers(&secret, false), ["/data/a", "/data/b"]);
    }

    #[test]
    fn the_order_follows_from_the_seed() {
        let object = json!({"data": {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": "6"}});
        assert_eq!(shuffled(&object, "x", 1, false), shuffled(&object, "x", 1, false));
        assert!((2..9).any(|seed| shuffled(&object, "x", seed, false) != shuffled(&object, "x", 1, false)));
    }

    #[test]
    fn nothing_may_be_missing() {
        let before = json!({"a": [{"n": 1, "v": "x"}, {"n": 2}], "b": {"c": "d"}});
        for (now, at) in [
            (before.clone(), None),
            (json!({"a": [{"n": 3}, {"n": 2}, {"n": 1, "v": "x", "w": ""}], "b": {"c": "d", "e": 1}}), None),
            (json!({"a": [{"n": 1, "v": "y"}, {"n": 2}], "b": {"c": "d"}}), Some("/a/0")),
            (json!({"a": [{"n": 1, "v": "x"}, {"n": 2}], "b": {"c": "e"}}), Some("/b/c")),
            (json!({"a": [{"n": 1, "v": "x"}, {"n": 2}]}), Some("/b")),
        ] {
            assert_eq!(missing(&before, &now).as_deref(), at, "{now}");
        }
    }

    #[test]
    fn a_path_tells_of_a_place() {
        for (path, pointer, tells) in [
            ("/spec/replicas", "/spec/replicas", true),
            ("/spec/selector", "/spec/selector/matchLabels/a", true),
            ("/spec/containers/[name=a~1b]/image", "/spec/containers/0/image", true),
            ("/spec/containers/[name=a]", "/spec/containers/12/name", true),
            ("/metadata/labels/a~1b", "/metadata/labels/a~1b", true),
            ("/spec/containers/[name=a]/image", "/spec/containers/0/name", false),
            ("/spec/[name=a]", "/spec/name", false),
            ("/spec/replicas/more", "/spec/replicas", false),
            ("/spec/paused", "/spec/replicas", false),
        ] {
            assert_eq!(tells_of(path, pointer), tells, "{path} {pointer}");
        }
    }
}
