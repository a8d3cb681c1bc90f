//! Finds the items of a list that a path segment names.

use std::collections::HashMap;

use serde_json::Value;
use smallvec::SmallVec;

use crate::{canonical::canonical, path::Segment};

/// Positions of list items: one nearly always, none for a missing item, several for a duplicate.
pub type Positions = SmallVec<[usize; 1]>;

/// Children from which on an index pays.
const INDEXED_FROM: usize = 16;

/// Positions of the items that `segment` names in a list of the server, where items have all their key fields.
pub fn positions(items: &[Value], segment: &Segment) -> Positions {
    match segment {
        Segment::Item(wanted) => matching(items, |item| item == wanted),
        Segment::Key(keys) => {
            matching(items, |item| keys.iter().all(|(name, value)| item.get(&**name).is_some_and(|there| same_key(there, value))))
        }
        Segment::Field(_) | Segment::Order => Positions::new(),
    }
}

/// Positions of the items that `segment` names in a declared list. A manifest may leave out a key field that the server
/// defaults, such as a port's protocol; such an item counts only where no item has all key fields.
pub fn declared_positions(items: &[Value], segment: &Segment) -> Positions {
    let exact = positions(items, segment);
    match segment {
        Segment::Key(keys) if exact.is_empty() => partial(items, keys),
        _ => exact,
    }
}

fn partial(items: &[Value], keys: &[(Box<str>, Value)]) -> Positions {
    matching(items, |item| {
        keys.iter().any(|(name, _)| item.get(&**name).is_some())
            && keys.iter().all(|(name, value)| item.get(&**name).is_none_or(|there| same_key(there, value)))
    })
}

fn matching(items: &[Value], is_wanted: impl Fn(&Value) -> bool) -> Positions {
    items.iter().enumerate().filter(|(_, item)| is_wanted(item)).map(|(position, _)| position).collect()
}

/// Key fields are compared as the server compares them: `1` and `1.0` are one number.
fn same_key(a: &Value, b: &Value) -> bool {
    a == b || matches!((a, b), (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64())
}

/// Looks up many items of one list.
pub struct Finder<'a> {
    items: &'a [Value],
    is_declared: bool,
    index: Option<Index>,
}

/// The positions of items that have all key fields, by the canonical text of these.
struct Index {
    names: Vec<Box<str>>,
    by_key: HashMap<Vec<u8>, Positions>,
    /// Some item leaves out a key field.
    has_partial: bool,
}

impl<'a> Finder<'a> {
    /// A finder for `segments`, of which a list of many gets an index; `is_declared` as in [`declared_positions`].
    pub fn new<'s>(items: &'a [Value], is_declared: bool, mut segments: impl ExactSizeIterator<Item = &'s Segment>) -> Self {
        let is_long = segments.len() >= INDEXED_FROM && items.len() >= INDEXED_FROM;
        let index = if is_long { segments.next().and_then(|first| Index::new(items, first)) } else { None };
        Self { items, is_declared, index }
    }

    /// See [`positions`].
    pub fn positions(&self, segment: &Segment) -> Positions {
        match (&self.index, segment) {
            (Some(index), Segment::Item(value)) if index.names.is_empty() => {
                index.by_key.get(&canonical(value)).cloned().unwrap_or_default()
            }
            (Some(index), Segment::Key(keys)) if index.fits(keys) => match index.by_key.get(&key_text(keys.iter().map(|(_, value)| value)))
            {
                Some(positions) => positions.clone(),
                None if index.has_partial && self.is_declared => partial(self.items, keys),
                None => Positions::new(),
            },
            _ if self.is_declared => declared_positions(self.items, segment),
            _ => positions(self.items, segment),
        }
    }

    /// The items that `segment` names.
    pub fn find(&self, segment: &Segment) -> SmallVec<[&'a Value; 1]> {
        self.positions(segment).into_iter().filter_map(|position| self.items.get(position)).collect()
    }
}

impl Index {
    fn new(items: &[Value], example: &Segment) -> Option<Self> {
        let names: Vec<Box<str>> = match example {
            Segment::Key(keys) => keys.iter().map(|(name, _)| name.clone()).collect(),
            Segment::Item(_) => Vec::new(),
            Segment::Field(_) | Segment::Order => return None,
        };
        let mut index = Self { names, by_key: HashMap::with_capacity(items.len()), has_partial: false };
        for (position, item) in items.iter().enumerate() {
            let key = if index.names.is_empty() {
                Some(canonical(item))
            } else {
                index.names.iter().map(|name| item.get(&**name)).collect::<Option<Vec<_>>>().map(|values| key_text(values.into_iter()))
            };
            match key {
                Some(key) => index.by_key.entry(key).or_default().push(position),
                None => index.has_partial = true,
            }
        }
        Some(index)
    }

    fn fits(&self, keys: &[(Box<str>, Value)]) -> bool {
        keys.len() == self.names.len() && keys.iter().zip(&self.names).all(|((name, _), known)| **name == **known)
    }
}

fn key_text<'v>(values: impl Iterator<Item = &'v Value>) -> Vec<u8> {
    let mut text = Vec::new();
    for value in values {
        match value.as_f64() {
            Some(number) => text.extend_from_slice(number.to_string().as_bytes()),
            None => text.extend_from_slice(&canonical(value)),
        }
        text.push(0);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn port(text: &str) -> Segment {
        Segment::from_fields_v1(text).unwrap()
    }

    #[test]
    fn an_item_with_all_keys_goes_before_one_that_leaves_some_out() {
        let ports = [json!({"port": 53}), json!({"port": 53, "protocol": "UDP"}), json!({"port": 80.0})];
        let found = |text: &str| declared_positions(&ports, &port(text)).to_vec();
        assert_eq!(found(r#"k:{"port":53,"protocol":"UDP"}"#), [1]);
        assert_eq!(found(r#"k:{"port":53,"protocol":"TCP"}"#), [0]);
        assert_eq!(found(r#"k:{"port":80,"protocol":"TCP"}"#), [2], "80 and 80.0 are one port");
        assert!(found(r#"k:{"port":54,"protocol":"TCP"}"#).is_empty());
        assert!(positions(&ports, &port(r#"k:{"port":53,"protocol":"TCP"}"#)).is_empty(), "the server leaves no key out");
        assert!(declared_positions(&[json!({"other": 1}), json!("text"), json!(null)], &port(r#"k:{"port":53}"#)).is_empty());
    }

    #[test]
    fn the_index_agrees_with_the_plain_search() {
        let mut items: Vec<Value> =
            (0..40).map(|number| json!({"port": number % 30, "protocol": if number % 3 == 0 { "UDP" } else { "TCP" }})).collect();
        items.extend([json!({"port": 5.0}), json!({"port": 99}), json!(7), json!(null)]);
        let segments: Vec<Segment> = (0..100).map(|number| port(&format!(r#"k:{{"port":{number},"protocol":"TCP"}}"#))).collect();
        let (live, declared) = (Finder::new(&items, false, segments.iter()), Finder::new(&items, true, segments.iter()));
        assert!(live.index.is_some());
        for segment in &segments {
            assert_eq!(live.positions(segment), positions(&items, segment), "{segment}");
            assert_eq!(declared.positions(segment), declared_positions(&items, segment), "{segment}");
        }
        let set: Vec<Value> = (0..40).map(|number| json!(number % 20)).chain([json!("5"), json!(5.0)]).collect();
        let segments: Vec<Segment> = (0..30).map(|number| Segment::Item(json!(number))).chain([Segment::Item(json!("5"))]).collect();
        let finder = Finder::new(&set, false, segments.iter());
        for segment in &segments {
            assert_eq!(finder.positions(segment), positions(&set, segment), "{segment}");
        }
    }
}
