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
    Walk { node: owned.root(), top: true }.deserialize(&mut text).unwrap_or(true)
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
        let mut empty = true;
        while let Some(name) = members.next_key::<std::borrow::Cow<'_, str>>()? {
            empty = false;
            let below = child(self.node, &name);
            match below {
                Some(node) if !found => found = members.next_value_seed(Walk { node, top: false })?,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                    found |= name == "." && self.node.is_own();
                }
            }
        }
        Ok(found || (empty && !self.top))
    }
}

fn child<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    match name.strip_prefix("f:") {
        Some(field) => node.field(field),
        None => node.child(&Segment::from_fields_v1(name)?),
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
        assert!(meets(&OwnedSet::from_fields_v1(&sets[0]), "{broken"));
    }
}
