//! Looks up the owned paths of an object: what a [`crate::owned::OwnedSet`] says about one value.

use serde_json::Value;

use crate::{
    canonical::{Digest, Digester},
    owned::{Node, OwnedSet},
    path::{Path, Segment},
};

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// Nothing.
    Absent,
    /// This value.
    Value(&'a Value),
    /// A list item or map is there; only its presence is owned, its fields have leaves of their own.
    Present,
    /// Several list items share the key.
    Duplicate,
}

impl<'a> Found<'a> {
    /// The value, where one counts.
    pub const fn value(self) -> Option<&'a Value> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Whether something is there.
    pub const fn is_there(self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// Digest of what stands there, to remember an accepted value without keeping it.
    pub fn digest(self) -> Digest {
        let mut digester = Digester::new();
        digester.add(match self {
            Self::Absent => b"absent",
            Self::Value(_) => b"value",
            Self::Present => b"present",
            Self::Duplicate => b"duplicate",
        });
        digester.add_value(self.value());
        digester.finish()
    }
}

/// One owned path with what the object has there.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf<'a> {
    /// The path.
    pub path: Path,
    /// What stands there.
    pub found: Found<'a>,
}

/// The owned paths of `object`, in the order of the set. A missing list item stands for everything below it.
pub fn leaves<'a>(owned: &OwnedSet, object: &'a Value) -> Vec<Leaf<'a>> {
    let mut out = Vec::new();
    walk(owned.root(), &[object], &mut Path::root(), &mut out);
    out
}

/// Digest of an object's owned paths: the live hash L of the design.
pub fn digest(leaves: &[Leaf<'_>]) -> Digest {
    let mut digester = Digester::new();
    for leaf in leaves {
        digester.add(leaf.found.digest().bytes());
    }
    digester.finish()
}

fn walk<'a>(node: &Node, at: &[&'a Value], path: &mut Path, out: &mut Vec<Leaf<'a>>) {
    let found = match at {
        [] => Found::Absent,
        [value] if node.is_leaf() => Found::Value(value),
        [_] => Found::Present,
        _ => Found::Duplicate,
    };
    if node.is_own() {
        out.push(Leaf { path: path.clone(), found });
        // A missing item is one finding, not one for each of its fields.
        if !matches!(found, Found::Value(_) | Found::Present) && matches!(path.segments().last(), Some(Segment::Key(_) | Segment::Item(_))) {
            return;
        }
    }
    let value = match at {
        [value] => Some(*value),
        _ => None,
    };
    for (segment, below) in node.children() {
        path.push(segment.clone());
        walk(below, &step(value, segment), path, out);
        path.pop();
    }
}

/// What `segment` leads to: none, one or (for a duplicated list item) several values.
pub fn step<'a>(value: Option<&'a Value>, segment: &Segment) -> Vec<&'a Value> {
    match (value, segment) {
        (Some(Value::Object(members)), Segment::Field(name)) => members.get(&**name).into_iter().collect(),
        (Some(Value::Array(items)), Segment::Item(wanted)) => items.iter().filter(|item| *item == wanted).collect(),
        (Some(Value::Array(items)), Segment::Key(keys)) => {
            let exact: Vec<&Value> = items.iter().filter(|item| keys.iter().all(|(name, value)| item.get(&**name) == Some(value))).collect();
            if !exact.is_empty() {
                return exact;
            }
            // A manifest may leave out a key field that the server defaults, such as a port's protocol.
            items.iter().filter(|item| keys.iter().any(|(name, _)| item.get(&**name).is_some()) && keys.iter().all(|(name, value)| item.get(&**name).is_none_or(|there| there == value))).collect()
        }
        _ => Vec::new(),
    }
}

/// The value at a path, where exactly one is there.
pub fn lookup<'a>(object: &'a Value, path: &Path) -> Option<&'a Value> {
    path.segments().iter().try_fold(object, |value, segment| match step(Some(value), segment).as_slice() {
        [one] => Some(*one),
        _ => None,
    })
}

/// Lists whose items' order decides what runs (`env` refers backwards, `initContainers` run in turn): paths of the
/// list with the declared items' keys in the order they have in `object`.
pub fn orders(owned: &OwnedSet, object: &Value) -> Vec<(Path, Vec<Segment>)> {
    let mut out = Vec::new();
    walk_orders(owned.root(), object, &mut Path::root(), &mut out);
    out
}

fn walk_orders(node: &Node, value: &Value, path: &mut Path, out: &mut Vec<(Path, Vec<Segment>)>) {
    if let (Some(Segment::Field(name)), Value::Array(items)) = (path.segments().last(), value)
        && matches!(&**name, "env" | "initContainers")
    {
        let position = |segment: &Segment| {
            step(Some(value), segment).first().and_then(|found| items.iter().position(|item| std::ptr::eq(item, *found)))
        };
        let mut keyed: Vec<(usize, Segment)> = node
            .children()
            .iter()
            .filter(|(segment, _)| matches!(segment, Segment::Key(_)))
            .filter_map(|(segment, _)| Some((position(segment)?, segment.clone())))
            .collect();
        keyed.sort_by_key(|(position, _)| *position);
        if keyed.len() > 1 {
            out.push((path.join(Segment::Order), keyed.into_iter().map(|(_, segment)| segment).collect()));
        }
    }
    for (segment, below) in node.children() {
        if let [next] = step(Some(value), segment).as_slice() {
            path.push(segment.clone());
            walk_orders(below, next, path, out);
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owned() -> OwnedSet {
        OwnedSet::from_fields_v1(&json!({"f:spec": {"f:selector": {}, "f:ports": {
            "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:nodePort": {}, "f:port": {}}}}}))
    }

    fn show(object: &Value) -> Vec<String> {
        leaves(&owned(), object).iter().map(|leaf| format!("{} {:?}", leaf.path, leaf.found)).collect()
    }

    #[test]
    fn defaulted_keys_are_found_in_manifest_and_live() {
        for ports in [json!([{"port": 80, "nodePort": 1}]), json!([{"port": 80, "nodePort": 1, "protocol": "TCP"}])] {
            let shown = show(&json!({"spec": {"selector": {"a": "b"}, "ports": ports}}));
            assert_eq!(shown[0], "/spec/ports/[port=80,protocol=TCP] Present");
            assert_eq!(shown[1], "/spec/ports/[port=80,protocol=TCP]/nodePort Value(Number(1))");
            assert_eq!(shown.len(), 4);
        }
        // Another protocol is another port.
        assert_eq!(show(&json!({"spec": {"ports": [{"port": 80, "protocol": "UDP"}]}}))[0], "/spec/ports/[port=80,protocol=TCP] Absent");
    }

    #[test]
    fn a_missing_item_is_one_leaf_and_absence_is_kept() {
        assert_eq!(show(&json!({"spec": {"ports": []}})), ["/spec/ports/[port=80,protocol=TCP] Absent", "/spec/selector Absent"]);
        assert_eq!(show(&json!({})).len(), 2);
    }

    #[test]
    fn duplicates_are_not_presence() {
        let twice = json!({"spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "TCP"}]}});
        assert_eq!(show(&twice)[0], "/spec/ports/[port=80,protocol=TCP] Duplicate");
    }

    #[test]
    fn digests_tell_absent_from_null() {
        let set = OwnedSet::from_fields_v1(&json!({"f:a": {}}));
        assert_ne!(digest(&leaves(&set, &json!({}))), digest(&leaves(&set, &json!({"a": null}))));
    }

    #[test]
    fn order_of_declared_env_only() {
        let set = OwnedSet::from_fields_v1(&json!({"f:env": {"k:{\"name\":\"A\"}": {".": {}}, "k:{\"name\":\"B\"}": {".": {}}}}));
        let order = |names: &[&str]| orders(&set, &json!({"env": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()}));
        assert_eq!(order(&["A", "B"]), order(&["A", "X", "B"]));
        assert_ne!(order(&["A", "B"]), order(&["B", "A"]));
        assert!(order(&["A"]).is_empty());
    }
}
