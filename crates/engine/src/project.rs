//! Looks up the owned paths of an object: what a [`crate::owned::OwnedSet`] says about one value.

use std::fmt;

use serde_json::Value;
use smallvec::{SmallVec, smallvec};

use crate::{
    canonical::{Digest, Digester},
    items::{self, Finder},
    owned::{Node, OwnedSet},
    path::{Path, Segment},
};

/// The values a path leads to: one nearly always, several for a duplicated list item.
pub type Values<'a> = SmallVec<[&'a Value; 1]>;

/// Lists whose items' order decides what runs: `env` refers backwards, `initContainers` run in turn.
const ORDERED: [&str; 2] = ["env", "initContainers"];

/// What stands at a path. `Debug` hides the value: it may be a Secret's.
#[derive(Clone, Copy, PartialEq)]
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

    /// Whether both are the same. A value where only presence counts is presence.
    pub fn same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Value(a), Self::Value(b)) => a == b,
            (Self::Absent, Self::Absent) | (Self::Present, Self::Present | Self::Value(_)) | (Self::Value(_), Self::Present) => true,
            _ => false,
        }
    }

    /// Digest of what stands there, to remember an accepted value without keeping it.
    pub fn digest(self) -> Digest {
        let mut digester = Digester::new();
        digester.add(self.word().as_bytes());
        digester.add_value(self.value());
        digester.finish()
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Value(_) => "value",
            Self::Present => "present",
            Self::Duplicate => "duplicate",
        }
    }

    fn of(node: &Node, at: &[&'a Value]) -> Self {
        match at {
            [] => Self::Absent,
            [value] if node.is_leaf() => Self::Value(value),
            [_] => Self::Present,
            _ => Self::Duplicate,
        }
    }
}

impl fmt::Debug for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
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

/// The owned paths of `object`. A missing list item stands for everything below it. Items of lists whose order matters
/// come in the order the object has them, so that a digest tells two orders apart; the rest in the order of the set.
pub fn leaves<'a>(owned: &OwnedSet, object: &'a Value) -> Vec<Leaf<'a>> {
    let mut out = Vec::new();
    let mut path = Path::root();
    walk(owned.root(), &[object], &mut path, &mut |path, found| out.push(Leaf { path: path.clone(), found }));
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

fn walk<'a>(node: &Node, at: &[&'a Value], path: &mut Path, visit: &mut impl FnMut(&Path, Found<'a>)) {
    let found = Found::of(node, at);
    if node.is_own() {
        visit(path, found);
        if stands_for_all_below(path, found) {
            return;
        }
    }
    let lookup = Lookup::new(node, at, true);
    let mut children: Vec<(usize, &Segment, &Node, Values<'a>)> = Vec::new();
    let ordered = is_ordered(path);
    for (segment, below) in node.children() {
        let next = lookup.step(segment);
        if ordered {
            children.push((lookup.position(segment), segment, below, next));
        } else {
            path.push(segment.clone());
            walk(below, &next, path, visit);
            path.pop();
        }
    }
    children.sort_by_key(|(position, ..)| *position);
    for (_, segment, below, next) in children {
        path.push(segment.clone());
        walk(below, &next, path, visit);
        path.pop();
    }
}

/// An owned path at which two objects differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference<'a> {
    /// Where.
    pub path: Path,
    /// What the live object has there.
    pub live: Found<'a>,
    /// What the declared object has there.
    pub declared: Found<'a>,
}

/// The owned paths at which `live` is not as `declared`, the order of lists apart.
pub fn differences<'a>(owned: &OwnedSet, live: &'a Value, declared: &'a Value) -> Vec<Difference<'a>> {
    let mut out = Vec::new();
    compare(owned.root(), &[live], &[declared], &mut Path::root(), &mut out);
    out
}

fn compare<'a>(node: &Node, live: &[&'a Value], declared: &[&'a Value], path: &mut Path, out: &mut Vec<Difference<'a>>) {
    if node.is_own() {
        let (found, wanted) = (Found::of(node, live), Found::of(node, declared));
        if !found.same(wanted) {
            out.push(Difference { path: path.clone(), live: found, declared: wanted });
        }
        if stands_for_all_below(path, found) {
            return;
        }
    }
    let (live, declared) = (Lookup::new(node, live, false), Lookup::new(node, declared, true));
    for (segment, below) in node.children() {
        path.push(segment.clone());
        compare(below, &live.step(segment), &declared.step(segment), path, out);
        path.pop();
    }
}

/// A missing item is one finding, not one for each of its fields.
fn stands_for_all_below(path: &Path, found: Found<'_>) -> bool {
    !matches!(found, Found::Value(_) | Found::Present) && matches!(path.segments().last(), Some(Segment::Key(_) | Segment::Item(_)))
}

/// Looks up the children of one node.
enum Lookup<'a> {
    Nothing,
    Members(&'a serde_json::Map<String, Value>),
    Items(Finder<'a>),
}

impl<'a> Lookup<'a> {
    fn new(node: &Node, at: &[&'a Value], is_declared: bool) -> Self {
        match at {
            [Value::Object(members)] => Self::Members(members),
            [Value::Array(items)] => Self::Items(Finder::new(items, is_declared, node.children().iter().map(|(segment, _)| segment))),
            _ => Self::Nothing,
        }
    }

    fn step(&self, segment: &Segment) -> Values<'a> {
        match (self, segment) {
            (Self::Members(members), Segment::Field(name)) => members.get(&**name).into_iter().collect(),
            (Self::Items(finder), _) => finder.find(segment),
            _ => Values::new(),
        }
    }

    /// Where a list item stands; missing ones come last.
    fn position(&self, segment: &Segment) -> usize {
        match self {
            Self::Items(finder) => finder.positions(segment).first().copied().unwrap_or(usize::MAX),
            _ => usize::MAX,
        }
    }
}

/// What `segment` leads to.
pub fn step<'a>(value: &'a Value, segment: &Segment) -> Values<'a> {
    match (value, segment) {
        (Value::Object(members), Segment::Field(name)) => members.get(&**name).into_iter().collect(),
        (Value::Array(list), _) => items::declared_positions(list, segment).into_iter().filter_map(|position| list.get(position)).collect(),
        _ => Values::new(),
    }
}

/// What stands at one path, taken as a leaf.
pub fn find<'a>(object: &'a Value, path: &Path) -> Found<'a> {
    let mut at: Values<'a> = smallvec![object];
    for segment in path.segments() {
        let [one] = at.as_slice() else { return Found::Absent };
        at = step(one, segment);
    }
    match at.as_slice() {
        [] => Found::Absent,
        [value] => Found::Value(value),
        _ => Found::Duplicate,
    }
}

/// The value at a path, where exactly one is there.
pub fn lookup<'a>(object: &'a Value, path: &Path) -> Option<&'a Value> {
    find(object, path).value()
}

fn is_ordered(path: &Path) -> bool {
    matches!(path.segments().last(), Some(Segment::Field(name)) if ORDERED.contains(&&**name))
}

/// Lists whose items' order matters: their paths, with the declared items' keys in the order they have in `object`.
pub fn orders(owned: &OwnedSet, object: &Value) -> Vec<(Path, Vec<Segment>)> {
    let mut out = Vec::new();
    walk_orders(owned.root(), object, &mut Path::root(), &mut out);
    out
}

fn walk_orders(node: &Node, value: &Value, path: &mut Path, out: &mut Vec<(Path, Vec<Segment>)>) {
    if node.is_leaf() {
        return;
    }
    let lookup = Lookup::new(node, &[value], true);
    if is_ordered(path) {
        let keyed = node.children().iter().filter(|(segment, _)| matches!(segment, Segment::Key(_)));
        let mut there: Vec<(usize, Segment)> =
            keyed.map(|(segment, _)| (lookup.position(segment), segment.clone())).filter(|(position, _)| *position < usize::MAX).collect();
        there.sort_by_key(|(position, _)| *position);
        if there.len() > 1 {
            out.push((path.join(Segment::Order), there.into_iter().map(|(_, segment)| segment).collect()));
        }
    }
    for (segment, below) in node.children() {
        if let [next] = lookup.step(segment).as_slice() {
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
        let value = |found: Found<'_>| found.value().map(ToString::to_string).unwrap_or_default();
        leaves(&owned(), object)
            .iter()
            .map(|leaf| format!("{} {:?} {}", leaf.path, leaf.found, value(leaf.found)).trim_end().to_owned())
            .collect()
    }

    #[test]
    fn defaulted_keys_are_found_in_manifest_and_live() {
        for ports in [json!([{"port": 80, "nodePort": 1}]), json!([{"port": 80, "nodePort": 1, "protocol": "TCP"}])] {
            let shown = show(&json!({"spec": {"selector": {"a": "b"}, "ports": ports}}));
            assert_eq!(shown[0], "/spec/ports/[port=80,protocol=TCP] present");
            assert_eq!(shown[1], "/spec/ports/[port=80,protocol=TCP]/nodePort value 1");
            assert_eq!(shown.len(), 4);
        }
        // Another protocol is another port.
        assert_eq!(show(&json!({"spec": {"ports": [{"port": 80, "protocol": "UDP"}]}}))[0], "/spec/ports/[port=80,protocol=TCP] absent");
    }

    #[test]
    fn a_missing_item_is_one_leaf_and_absence_is_kept() {
        assert_eq!(show(&json!({"spec": {"ports": []}})), ["/spec/ports/[port=80,protocol=TCP] absent", "/spec/selector absent"]);
        assert_eq!(show(&json!({})).len(), 2);
        for wrong in [
            json!(null),
            json!("text"),
            json!({"spec": 5}),
            json!({"spec": {"ports": "x", "selector": []}}),
            json!({"spec": {"ports": {"port": 80}}}),
        ] {
            assert_eq!(show(&wrong)[0], "/spec/ports/[port=80,protocol=TCP] absent", "{wrong}");
        }
    }

    #[test]
    fn duplicates_are_not_presence() {
        let twice = json!({"spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "TCP"}]}});
        assert_eq!(show(&twice)[0], "/spec/ports/[port=80,protocol=TCP] duplicate");
    }

    #[test]
    fn digests_tell_absent_from_null() {
        let set = OwnedSet::from_fields_v1(&json!({"f:a": {}}));
        assert_ne!(digest(&leaves(&set, &json!({}))), digest(&leaves(&set, &json!({"a": null}))));
    }

    #[test]
    fn order_of_declared_env_only() {
        let set = OwnedSet::from_fields_v1(
            &json!({"f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}}, "k:{\"name\":\"B\"}": {".": {}, "f:name": {}}}}),
        );
        let env = |names: &[&str]| json!({"env": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
        let order = |names: &[&str]| orders(&set, &env(names));
        assert_eq!(order(&["A", "B"]), order(&["A", "X", "B"]));
        assert_ne!(order(&["A", "B"]), order(&["B", "A"]));
        assert!(order(&["A"]).is_empty());
        let hash = |names: &[&str]| digest(&leaves(&set, &env(names)));
        assert_eq!(hash(&["A", "B"]), hash(&["A", "X", "B"]), "foreign items do not count");
        assert_ne!(hash(&["A", "B"]), hash(&["B", "A"]), "the live hash tells an order-only change");
    }

    #[test]
    fn differences_are_by_path() {
        let live = json!({"spec": {"selector": {"a": "x"}, "ports": [{"port": 80, "protocol": "TCP"}]}});
        let declared = json!({"spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "nodePort": 1}]}});
        let owned = owned();
        let found: Vec<String> =
            differences(&owned, &live, &declared).iter().map(|d| format!("{} {:?} {:?}", d.path, d.declared, d.live)).collect();
        assert_eq!(found, ["/spec/ports/[port=80,protocol=TCP]/nodePort value absent", "/spec/selector value value"]);
        let full = json!({"spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "protocol": "TCP", "nodePort": 1}]}});
        assert!(differences(&owned, &full, &declared).is_empty());
        // What the server keeps has all its keys: an item without one is none of ours.
        assert_eq!(differences(&owned, &declared, &declared).len(), 1);
    }
}
