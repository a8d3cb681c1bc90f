//! The field paths a desired object claims, exactly as the API server computes them.
//!
//! Read from the `fieldsV1` of our own entry in a forced server-side-apply dry-run, so that no client-side schema is
//! needed: the leaves are the server's own atomic boundaries.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use crate::{
    canonical::Digest,
    path::{Path, Segment},
};

/// A set of paths as a tree. A path in the set with nothing below it is a *leaf*: its whole value counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedSet {
    root: Node,
}

/// One step of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The path up to here is itself in the set (`.` in fieldsV1, or a leaf).
    own: bool,
    children: Vec<(Segment, Node)>,
}

impl Node {
    /// Whether the path up to here is in the set.
    pub const fn is_own(&self) -> bool {
        self.own
    }

    /// Whether nothing of the set lies below.
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// What lies below, sorted.
    pub fn children(&self) -> &[(Segment, Self)] {
        &self.children
    }

    /// The child behind one segment.
    pub fn child(&self, segment: &Segment) -> Option<&Self> {
        self.children
            .binary_search_by(|(candidate, _)| candidate.cmp(segment))
            .ok()
            .and_then(|index| self.children.get(index))
            .map(|(_, node)| node)
    }

    /// The child behind a plain field.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let order = |segment: &Segment| match segment {
            Segment::Field(candidate) => (**candidate).cmp(name),
            _ => Ordering::Greater,
        };
        self.children
            .binary_search_by(|(candidate, _)| order(candidate))
            .ok()
            .and_then(|index| self.children.get(index))
            .map(|(_, node)| node)
    }

    fn is_empty(&self) -> bool {
        !self.own && self.children.is_empty()
    }

    fn child_mut(&mut self, segment: &Segment) -> &mut Self {
        let index = match self.children.binary_search_by(|(candidate, _)| candidate.cmp(segment)) {
            Ok(index) => index,
            Err(index) => {
                self.children.insert(index, (segment.clone(), Self::default()));
                index
            }
        };
        // The index was just found or made.
        #[expect(clippy::indexing_slicing, reason = "binary_search or insert returned this index")]
        &mut self.children[index].1
    }

    fn read(fields: &Map<String, Value>) -> Self {
        let mut node = Self { own: fields.is_empty(), children: Vec::with_capacity(fields.len()) };
        for (name, below) in fields {
            if name == "." {
                node.own = true;
            } else if let (Some(segment), Value::Object(below)) = (Segment::from_fields_v1(name), below) {
                let below = Self::read(below);
                // Of unknown members alone nothing is left, which is no leaf.
                if !below.is_empty() {
                    node.children.push((segment, below));
                }
            }
        }
        node.children.sort_by(|a, b| a.0.cmp(&b.0));
        node
    }

    fn write(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        if self.own && !self.children.is_empty() {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (segment, below) in &self.children {
            if let Some(name) = segment.to_fields_v1() {
                fields.insert(name, Value::Object(below.write()));
            }
        }
        fields
    }

    fn remove(&mut self, other: &Self) {
        if other.own {
            self.own = false;
        }
        self.children.retain_mut(|(segment, node)| {
            let Some(below) = other.child(segment) else { return true };
            node.remove(below);
            !node.is_empty()
        });
    }

    fn remove_tree(&mut self, segments: &[Segment]) {
        let Some((first, rest)) = segments.split_first() else {
            *self = Self::default();
            return;
        };
        if let Ok(index) = self.children.binary_search_by(|(candidate, _)| candidate.cmp(first))
            && let Some((_, node)) = self.children.get_mut(index)
        {
            node.remove_tree(rest);
            if node.is_empty() {
                self.children.remove(index);
            }
        }
    }

    fn insert(&mut self, other: &Self) {
        self.own |= other.own;
        for (segment, below) in &other.children {
            self.child_mut(segment).insert(below);
        }
    }

    fn covers(&self, other: &Self) -> bool {
        (!other.own || self.own) && other.children.iter().all(|(segment, below)| self.child(segment).is_some_and(|node| node.covers(below)))
    }

    fn intersects(&self, other: &Self) -> bool {
        // A leaf stands for everything below it, on either side.
        (self.own && (other.own || self.is_leaf()))
            || (other.own && other.is_leaf())
            || other.children.iter().any(|(segment, below)| self.child(segment).is_some_and(|node| node.intersects(below)))
    }

    fn visit(&self, path: &mut Path, visit: &mut impl FnMut(&Path)) {
        if self.own {
            visit(path);
        }
        for (segment, below) in &self.children {
            path.push(segment.clone());
            below.visit(path, visit);
            path.pop();
        }
    }
}

impl OwnedSet {
    /// Reads a `fieldsV1` object. Unknown member names are left out.
    pub fn from_fields_v1(fields: &Value) -> Self {
        let mut root = fields.as_object().map(Node::read).unwrap_or_default();
        // `{}` at the top means nothing, not the whole object.
        root.own = false;
        Self { root }
    }

    /// The whole set as `fieldsV1`.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.root.write())
    }

    /// Where a walk starts.
    pub const fn root(&self) -> &Node {
        &self.root
    }

    /// Whether the set has no path.
    pub fn is_empty(&self) -> bool {
        self.root.children.is_empty()
    }

    /// Every path of the set, in order.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.root.visit(&mut Path::root(), &mut |path| paths.push(path.clone()));
        paths
    }

    /// Adds one path.
    pub fn insert_path(&mut self, path: &Path) {
        let node = path.segments().iter().fold(&mut self.root, |node, segment| node.child_mut(segment));
        node.own = true;
    }

    /// The step that `path` leads to.
    pub fn node(&self, path: &Path) -> Option<&Node> {
        path.segments().iter().try_fold(&self.root, |node, segment| node.child(segment))
    }

    /// Whether exactly this path is in the set.
    pub fn has(&self, path: &Path) -> bool {
        self.node(path).is_some_and(Node::is_own)
    }

    /// The part of the set at or below `path`, still rooted at the top.
    #[must_use]
    pub fn below(&self, path: &Path) -> Self {
        let Some(from) = self.node(path) else { return Self::default() };
        let mut set = Self::default();
        let to = path.segments().iter().fold(&mut set.root, |node, segment| node.child_mut(segment));
        *to = from.clone();
        set
    }

    /// Adds every path of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.root.insert(&other.root);
    }

    /// Takes away every path of `other`.
    pub fn subtract(&mut self, other: &Self) {
        self.root.remove(&other.root);
    }

    /// Takes away `path` and everything below it.
    pub fn remove_tree(&mut self, path: &Path) {
        self.root.remove_tree(path.segments());
    }

    /// Whether every path of `other` is in this set.
    pub fn covers(&self, other: &Self) -> bool {
        self.root.covers(&other.root)
    }

    /// Whether a write to the paths of `other` can have changed a value of this set.
    pub fn intersects(&self, other: &Self) -> bool {
        self.root.intersects(&other.root)
    }

    /// Digest of the set, for sharing equal sets.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_fields_v1())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Value {
        json!({"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}}}}})
    }

    #[test]
    fn reads_lists_and_writes_what_the_server_wrote() {
        let set = OwnedSet::from_fields_v1(&sample());
        assert_eq!(set.to_fields_v1(), sample());
        let paths: Vec<String> = set.paths().iter().map(ToString::to_string).collect();
        assert_eq!(
            paths,
            [
                "/metadata/labels/app",
                "/spec/replicas",
                "/spec/template/spec/containers/[name=c]",
                "/spec/template/spec/containers/[name=c]/image",
                "/spec/template/spec/containers/[name=c]/name"
            ]
        );
        assert!(OwnedSet::from_fields_v1(&json!({})).is_empty());
    }

    #[test]
    fn set_arithmetic() {
        let set = OwnedSet::from_fields_v1(&sample());
        let replicas = OwnedSet::from_fields_v1(&json!({"f:spec": {"f:replicas": {}}}));
        let mut rest = set.clone();
        rest.subtract(&replicas);
        assert!(!rest.intersects(&replicas) && set.intersects(&replicas) && set.covers(&replicas) && !rest.covers(&replicas));
        rest.extend(&replicas);
        assert_eq!(rest, set);
        let mut nothing = set.clone();
        nothing.subtract(&set);
        assert!(nothing.is_empty());
        assert_eq!(set.below(&Path::of_fields(&["spec", "replicas"])), replicas);
        assert!(set.below(&Path::of_fields(&["spec", "nothing"])).is_empty());
    }

    #[test]
    fn leaves_meet_what_lies_above_or_below_them() {
        let atomic = OwnedSet::from_fields_v1(&json!({"f:spec": {"f:selector": {}}}));
        let inside = OwnedSet::from_fields_v1(&json!({"f:spec": {"f:selector": {"f:app": {}}}}));
        let status = OwnedSet::from_fields_v1(&json!({"f:status": {"f:phase": {}}}));
        assert!(atomic.intersects(&inside) && inside.intersects(&atomic) && !atomic.intersects(&status));
        // Presence of a list item is one thing, a foreign field inside it another.
        let item = OwnedSet::from_fields_v1(&json!({"f:c": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}}}));
        let foreign = OwnedSet::from_fields_v1(&json!({"f:c": {"k:{\"name\":\"a\"}": {"f:tty": {}}}}));
        assert!(!item.intersects(&foreign));
    }
}
