//! Whether a `managedFields` entry touches owned paths, read straight from its text: no tree is built on the watch path.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::{
    owned::{Node, OwnedSet},
    path::Segment,
};

/// Whether a write to the fields of this `fieldsV1` text can have changed an owned value. Text that cannot be read could hold anything.
pub fn meets(owned: &OwnedSet, fields_v1: &str) -> bool {
    let mut text = serde_json::Deserializer::from_str(fields_v1);
    let found = Walk { node: owned.root(), top: true }.deserialize(&mut text);
    found.and_then(|found| text.end().map(|()| found)).unwrap_or(true)
}

struct Walk<'a> {
    node: &'a Node,
    /// `{}` at the top is the empty set, elsewhere a leaf.
    top: bool,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<bool, D::Error> {
        text.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fieldsV1 object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<bool, A::Error> {
        // An owned leaf stands for everything below it.
        let mut found = self.node.is_own() && self.node.is_leaf();
        // So does a written one: marked as itself, or empty, and nothing below.
        let (mut is_own, mut is_empty, mut is_leaf) = (false, true, true);
        while let Some(name) = members.next_key::<std::borrow::Cow<'_, str>>()? {
            is_empty = false;
            let below = match Member::of(self.node, &name) {
                Member::Itself => {
                    is_own = true;
                    found |= self.node.is_own();
                    None
                }
                Member::Below(node) => {
                    is_leaf = false;
                    node
                }
                // Could mean anything.
                Member::Unknown => {
                    found = true;
                    None
                }
            };
            match below {
                Some(node) if !found => found = members.next_value_seed(Walk { node, top: false })?,
                _ => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        Ok(found || (!self.top && is_leaf && (is_own || is_empty)))
    }
}

/// What a member of a written set is about.
enum Member<'a> {
    /// The place itself.
    Itself,
    /// A place below, if something is owned there.
    Below(Option<&'a Node>),
    /// A name of a later format.
    Unknown,
}

impl<'a> Member<'a> {
    fn of(node: &'a Node, name: &str) -> Self {
        match name.strip_prefix("f:") {
            Some(field) => Self::Below(node.field(field)),
            None if name == "." => Self::Itself,
            None => Segment::from_fields_v1(name).map_or(Self::Unknown, |segment| Self::Below(node.child(&segment))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn agrees_with_the_trees() {
        let sets = [
            json!({"f:spec": {"f:selector": {}}}),
            json!({"f:spec": {"f:selector": {"f:app": {}}}}),
            json!({"f:status": {"f:phase": {}}}),
            json!({"f:c": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}}}),
            json!({"f:c": {"k:{\"name\":\"a\"}": {"f:tty": {}}}}),
            json!({"f:c": {"k:{\"name\":\"b\"}": {".": {}}}}),
            json!({"f:metadata": {"f:finalizers": {"v:\"x\"": {}}}, "f:spec": {"f:replicas": {}}}),
            json!({"f:metadata": {"f:finalizers": {}}}),
            json!({}),
        ];
        for a in &sets {
            for b in &sets {
                let owned = OwnedSet::from_fields_v1(a);
                assert_eq!(meets(&owned, &b.to_string()), owned.intersects(&OwnedSet::from_fields_v1(b)), "{a} {b}");
            }
        }
        for unreadable in ["{broken", "{} {}", "", "[]"] {
            assert!(meets(&OwnedSet::from_fields_v1(&sets[0]), unreadable), "{unreadable}");
        }
    }
}
