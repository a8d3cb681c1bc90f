//! JSON Patch (RFC 6902) that puts single paths back and touches nothing else.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::path::{Path, Segment};

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Op {
    /// Sets a member or inserts a list item.
    Add {
        /// JSON pointer.
        path: String,
        /// The value.
        value: Value,
    },
    /// Sets what is there.
    Replace {
        /// JSON pointer.
        path: String,
        /// The value.
        value: Value,
    },
    /// Takes away what is there.
    Remove {
        /// JSON pointer.
        path: String,
    },
}

/// The guard every patch starts with: a stale version is a clean 409, where `test` would be an anonymous 422.
pub fn version_guard(resource_version: &str) -> Op {
    Op::Replace { path: "/metadata/resourceVersion".to_owned(), value: Value::String(resource_version.to_owned()) }
}

/// Builds a patch step by step on a working copy, so that every pointer fits the state its operation meets.
pub struct Builder {
    work: Value,
    ops: Vec<Op>,
}

/// Where a path leads in a concrete object.
enum Place {
    /// It is there.
    There(String),
    /// The first `depth` segments are there, at this pointer; the rest is missing.
    Missing { pointer: String, depth: usize },
}

impl Builder {
    /// Starts from the live object.
    pub fn new(live: &Value) -> Self {
        Self { work: live.clone(), ops: Vec::new() }
    }

    /// The operations so far.
    pub fn finish(self) -> Vec<Op> {
        self.ops
    }

    /// The object as the operations so far leave it.
    pub const fn result(&self) -> &Value {
        &self.work
    }

    /// Makes `path` hold `value`; `None` takes it away. Missing parents are made; `declared` says where a missing list
    /// item belongs and what it looks like.
    pub fn set(&mut self, path: &Path, value: Option<&Value>, declared: &Value) {
        match (locate(&self.work, path.segments()), value) {
            (Place::There(pointer), Some(value)) => {
                if self.work.pointer(&pointer) != Some(value) {
                    self.push(Op::Replace { path: pointer, value: value.clone() });
                }
            }
            (Place::There(pointer), None) => self.push(Op::Remove { path: pointer }),
            (Place::Missing { .. }, None) => {}
            (Place::Missing { pointer, depth }, Some(value)) => self.create(path, &pointer, depth, value, declared),
        }
    }

    /// Gives the declared items of a list the order they have in `declared`; others keep their places.
    pub fn reorder(&mut self, list: &Path, wanted: &[Segment]) {
        let Place::There(pointer) = locate(&self.work, list.segments()) else { return };
        let Some(Value::Array(items)) = self.work.pointer(&pointer) else { return };
        let mut places: Vec<usize> = Vec::new();
        let mut ordered: Vec<Value> = Vec::new();
        for segment in wanted {
            if let Some(position) = items.iter().position(|item| matches_item(item, segment)) {
                places.push(position);
                ordered.extend(items.get(position).cloned());
            }
        }
        places.sort_unstable();
        let mut next = items.clone();
        for (place, item) in places.into_iter().zip(ordered) {
            if let Some(slot) = next.get_mut(place) {
                *slot = item;
            }
        }
        if next != *items {
            self.push(Op::Replace { path: pointer, value: Value::Array(next) });
        }
    }

    /// Sets a key field of one list item in place: undoes a renamed key without losing what the item holds otherwise.
    pub fn rename(&mut self, list: &Path, position: usize, field: &str, value: Option<&Value>) {
        let Place::There(pointer) = locate(&self.work, list.segments()) else { return };
        let path = format!("{pointer}/{position}/{}", escape(field));
        match (value, self.work.pointer(&path).is_some()) {
            (Some(value), true) => self.push(Op::Replace { path, value: value.clone() }),
            (Some(value), false) => self.push(Op::Add { path, value: value.clone() }),
            (None, true) => self.push(Op::Remove { path }),
            (None, false) => {}
        }
    }

    fn create(&mut self, path: &Path, pointer: &str, depth: usize, value: &Value, declared: &Value) {
        let (above, missing) = path.segments().split_at(depth);
        let Some((first, rest)) = missing.split_first() else { return };
        let content = nest(rest, value);
        let op = match first {
            Segment::Field(name) => Op::Add { path: format!("{pointer}/{}", escape(name)), value: content },
            Segment::Order => return,
            Segment::Key(_) | Segment::Item(_) => {
                let content = match first {
                    Segment::Key(keys) => with_keys(content, keys),
                    _ => content,
                };
                let list: Path = above.iter().cloned().collect();
                let at = insertion_point(self.work.pointer(pointer), crate::project::lookup(declared, &list), first);
                Op::Add { path: format!("{pointer}/{at}"), value: content }
            }
        };
        self.push(op);
    }

    fn push(&mut self, op: Op) {
        apply(&mut self.work, &op);
        self.ops.push(op);
    }
}

/// A missing parent list is made as a whole, so its pointer may not exist yet.
fn nest(segments: &[Segment], value: &Value) -> Value {
    segments.iter().rev().fold(value.clone(), |inner, segment| match segment {
        Segment::Field(name) => Value::Object(Map::from_iter([(name.to_string(), inner)])),
        Segment::Key(keys) => Value::Array(vec![with_keys(inner, keys)]),
        Segment::Item(item) => json!([item]),
        Segment::Order => inner,
    })
}

fn with_keys(item: Value, keys: &[(Box<str>, Value)]) -> Value {
    match item {
        Value::Object(mut members) => {
            for (name, value) in keys {
                members.entry(name.to_string()).or_insert_with(|| value.clone());
            }
            Value::Object(members)
        }
        other => other,
    }
}

/// Index at which a missing declared item goes: right after the declared item before it that is there, else first
/// among its declared peers, else at the end (`-`).
fn insertion_point(live: Option<&Value>, declared: Option<&Value>, item: &Segment) -> String {
    let (Some(Value::Array(live)), Some(Value::Array(declared))) = (live, declared) else { return "-".to_owned() };
    let Some(wanted) = declared.iter().position(|candidate| matches_item(candidate, item)) else { return "-".to_owned() };
    let same = |a: &Value, b: &Value| match item {
        Segment::Key(keys) => keys.iter().all(|(name, _)| a.get(&**name) == b.get(&**name) || a.get(&**name).is_none() || b.get(&**name).is_none()),
        _ => a == b,
    };
    for earlier in declared.iter().take(wanted).rev() {
        if let Some(position) = live.iter().position(|candidate| same(candidate, earlier)) {
            return (position + 1).to_string();
        }
    }
    declared
        .iter()
        .skip(wanted + 1)
        .find_map(|later| live.iter().position(|candidate| same(candidate, later)))
        .map_or_else(|| "-".to_owned(), |position| position.to_string())
}

/// Whether a list item is the one a segment names; a key field that the item leaves out does not speak against it.
pub fn matches_item(item: &Value, segment: &Segment) -> bool {
    match segment {
        Segment::Item(value) => item == value,
        Segment::Key(keys) => {
            keys.iter().any(|(name, value)| item.get(&**name) == Some(value)) && keys.iter().all(|(name, value)| item.get(&**name).is_none_or(|there| there == value))
        }
        _ => false,
    }
}

fn locate(object: &Value, segments: &[Segment]) -> Place {
    let mut at = object;
    let mut pointer = String::new();
    for (depth, segment) in segments.iter().enumerate() {
        let next = match (at, segment) {
            (Value::Object(members), Segment::Field(name)) => members.get(&**name).map(|value| (escape(name), value)),
            (Value::Array(items), Segment::Key(_) | Segment::Item(_)) => {
                items.iter().enumerate().find(|(_, item)| matches_item(item, segment)).map(|(index, item)| (index.to_string(), item))
            }
            _ => None,
        };
        match next {
            Some((step, value)) => {
                pointer.push('/');
                pointer.push_str(&step);
                at = value;
            }
            None => return Place::Missing { pointer, depth },
        }
    }
    Place::There(pointer)
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Applies one operation to a copy. Operations come from [`Builder`], so their pointers fit; others do nothing.
pub fn apply(object: &mut Value, op: &Op) {
    let (path, value) = match op {
        Op::Add { path, value } | Op::Replace { path, value } => (path, Some(value)),
        Op::Remove { path } => (path, None),
    };
    let Some((parent, last)) = path.rsplit_once('/') else { return };
    let last = last.replace("~1", "/").replace("~0", "~");
    match (object.pointer_mut(parent), value) {
        (Some(Value::Object(members)), Some(value)) => {
            members.insert(last, value.clone());
        }
        (Some(Value::Object(members)), None) => {
            members.remove(&last);
        }
        (Some(Value::Array(items)), Some(value)) => {
            let index = if last == "-" { Some(items.len()) } else { last.parse::<usize>().ok().filter(|index| *index <= items.len()) };
            match (op, index) {
                (Op::Add { .. }, Some(index)) => items.insert(index, value.clone()),
                (_, Some(index)) => {
                    if let Some(slot) = items.get_mut(index) {
                        *slot = value.clone();
                    }
                }
                _ => {}
            }
        }
        (Some(Value::Array(items)), None) => {
            if let Some(index) = last.parse::<usize>().ok().filter(|index| *index < items.len()) {
                items.remove(index);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(segments: &[&str]) -> Path {
        segments.iter().map(|text| Segment::from_fields_v1(text).unwrap()).collect()
    }

    fn ops(live: &Value, changes: &[(&[&str], Option<Value>)], declared: &Value) -> (Value, Value) {
        let mut builder = Builder::new(live);
        for (segments, value) in changes {
            builder.set(&path(segments), value.as_ref(), declared);
        }
        let result = builder.result().clone();
        (serde_json::to_value(builder.finish()).unwrap(), result)
    }

    #[test]
    fn scalars_maps_and_missing_parents() {
        let live = json!({"spec": {"replicas": 3}, "metadata": {"annotations": {"a/b": "x"}}});
        let (patch, result) = ops(
            &live,
            &[
                (&["f:spec", "f:replicas"], Some(json!(2))),
                (&["f:metadata", "f:annotations", "f:a/b"], Some(json!("y"))),
                (&["f:metadata", "f:labels", "f:app"], Some(json!("web"))),
                (&["f:metadata", "f:labels", "f:tier"], Some(json!("front"))),
                (&["f:spec", "f:paused"], None),
            ],
            &json!({}),
        );
        assert_eq!(
            patch,
            json!([
                {"op": "replace", "path": "/spec/replicas", "value": 2},
                {"op": "replace", "path": "/metadata/annotations/a~1b", "value": "y"},
                {"op": "add", "path": "/metadata/labels", "value": {"app": "web"}},
                {"op": "add", "path": "/metadata/labels/tier", "value": "front"},
            ])
        );
        assert_eq!(result["metadata"]["labels"], json!({"app": "web", "tier": "front"}));
    }

    #[test]
    fn items_go_where_they_were_declared() {
        let declared = json!({"c": [{"name": "a"}, {"name": "b", "image": "i"}, {"name": "d"}]});
        let live = json!({"c": [{"name": "x"}, {"name": "a"}, {"name": "d"}]});
        let item = declared["c"][1].clone();
        let (patch, result) = ops(&live, &[(&["f:c", r#"k:{"name":"b"}"#], Some(item))], &declared);
        assert_eq!(patch, json!([{"op": "add", "path": "/c/2", "value": {"name": "b", "image": "i"}}]));
        assert_eq!(result["c"][2]["name"], "b");
        let (patch, _) = ops(&json!({"c": [{"name": "d"}]}), &[(&["f:c", r#"k:{"name":"a"}"#], Some(json!({"name": "a"})))], &declared);
        assert_eq!(patch[0]["path"], "/c/0", "before the declared item that follows it");
    }

    #[test]
    fn a_field_of_a_missing_list_is_made_with_its_keys() {
        let (patch, _) = ops(&json!({"spec": {}}), &[(&["f:spec", "f:ports", r#"k:{"port":80}"#, "f:name"], Some(json!("http")))], &json!({}));
        assert_eq!(patch, json!([{"op": "add", "path": "/spec/ports", "value": [{"name": "http", "port": 80}]}]));
    }

    #[test]
    fn order_moves_declared_items_only() {
        let live = json!({"env": [{"name": "B"}, {"name": "X"}, {"name": "A"}]});
        let mut builder = Builder::new(&live);
        builder.reorder(&path(&["f:env"]), &[Segment::key("name", "A"), Segment::key("name", "B")]);
        assert_eq!(builder.result()["env"], json!([{"name": "A"}, {"name": "X"}, {"name": "B"}]));
    }

    #[test]
    fn a_renamed_key_is_undone_in_place() {
        let live = json!({"ports": [{"name": "http", "port": 81, "nodePort": 30080}]});
        let mut builder = Builder::new(&live);
        builder.rename(&path(&["f:ports"]), 0, "port", Some(&json!(80)));
        assert_eq!(builder.result()["ports"], json!([{"name": "http", "port": 80, "nodePort": 30080}]));
    }
}
