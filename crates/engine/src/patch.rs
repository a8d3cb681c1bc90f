//! JSON Patch (RFC 6902) that puts single paths back and touches nothing else.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    items,
    path::{Path, Segment},
    project,
};

/// One operation. `Debug` hides the value: it may be a Secret's.
#[derive(Clone, PartialEq, Serialize)]
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

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.word(), self.path())
    }
}

impl Op {
    /// Where it works, as a JSON pointer.
    pub fn path(&self) -> &str {
        match self {
            Self::Add { path, .. } | Self::Replace { path, .. } | Self::Remove { path } => path,
        }
    }

    /// What it puts there.
    pub const fn value(&self) -> Option<&Value> {
        match self {
            Self::Add { value, .. } | Self::Replace { value, .. } => Some(value),
            Self::Remove { .. } => None,
        }
    }

    /// The word of RFC 6902.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Add { .. } => "add",
            Self::Replace { .. } => "replace",
            Self::Remove { .. } => "remove",
        }
    }

    /// Whether it only guards the version of the object, see [`version_guard`].
    pub fn is_version_guard(&self) -> bool {
        self.path() == VERSION
    }
}

/// Where an object's version stands.
const VERSION: &str = "/metadata/resourceVersion";

/// The guard every patch starts with: a stale version is a clean 409, where `test` would be an anonymous 422.
pub fn version_guard(resource_version: &str) -> Op {
    Op::Replace { path: VERSION.to_owned(), value: Value::String(resource_version.to_owned()) }
}

/// Builds a patch step by step on a working copy, so that every pointer fits the state its operation meets.
pub struct Builder {
    work: Value,
    ops: Vec<Op>,
    replaced: Vec<Path>,
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
        Self { work: live.clone(), ops: Vec::new(), replaced: Vec::new() }
    }

    /// The operations so far, and the paths above the requested ones that had to be replaced because something else than
    /// a container stood there.
    pub fn finish(self) -> (Vec<Op>, Vec<Path>) {
        (self.ops, self.replaced)
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

    /// Takes away what is at `path`: of list items that share a key, all.
    pub fn take_away(&mut self, path: &Path) {
        let Some(item @ (Segment::Key(_) | Segment::Item(_))) = path.segments().last() else {
            return self.set(path, None, &Value::Null);
        };
        let Some((pointer, items)) = self.list(&path.parent()) else { return };
        for position in items::positions(items, item).into_iter().rev() {
            self.push(Op::Remove { path: format!("{pointer}/{position}") });
        }
    }

    /// Gives the declared items of a list the order they have in `declared`; others keep their places. True where that moved any.
    pub fn reorder(&mut self, list: &Path, wanted: &[Segment]) -> bool {
        let Some((pointer, items)) = self.list(list) else { return false };
        let positions: Vec<usize> = wanted.iter().filter_map(|segment| items::positions(items, segment).first().copied()).collect();
        let mut places = positions.clone();
        places.sort_unstable();
        let mut next = items.to_vec();
        for (place, from) in places.into_iter().zip(positions) {
            if let (Some(slot), Some(item)) = (next.get_mut(place), items.get(from)) {
                *slot = item.clone();
            }
        }
        let moves = next != *items;
        if moves {
            self.push(Op::Replace { path: pointer, value: Value::Array(next) });
        }
        moves
    }

    /// Sets a key field of the list item `item` in place: undoes a renamed key without losing what the item holds otherwise.
    pub fn rename(&mut self, list: &Path, item: &Segment, fields: &[(&str, &Value)]) {
        let Some((pointer, items)) = self.list(list) else { return };
        let Some(position) = items::positions(items, item).first().copied() else { return };
        for (field, value) in fields {
            let path = format!("{pointer}/{position}/{}", escape(field));
            match self.work.pointer(&path) {
                Some(there) if there == *value => {}
                Some(_) => self.push(Op::Replace { path, value: (*value).clone() }),
                None => self.push(Op::Add { path, value: (*value).clone() }),
            }
        }
    }

    /// Leaves the first of several list items that share the key: the others came later, and its place is the declared one
    /// where the order of the list is.
    pub fn keep_one(&mut self, path: &Path) {
        let Some(item) = path.segments().last() else { return };
        let Some((pointer, items)) = self.list(&path.parent()) else { return };
        for position in items::positions(items, item).into_iter().skip(1).rev() {
            self.push(Op::Remove { path: format!("{pointer}/{position}") });
        }
    }

    /// How many list items share the key that ends `path`.
    pub fn count(&self, path: &Path) -> usize {
        match (path.segments().last(), self.list(&path.parent())) {
            (Some(item), Some((_, items))) => items::positions(items, item).len(),
            _ => 0,
        }
    }

    fn list(&self, path: &Path) -> Option<(String, &[Value])> {
        let Place::There(pointer) = locate(&self.work, path.segments()) else { return None };
        let items = self.work.pointer(&pointer)?.as_array()?;
        Some((pointer, items))
    }

    fn create(&mut self, path: &Path, pointer: &str, depth: usize, value: &Value, declared: &Value) {
        let (above, missing) = path.segments().split_at(depth);
        let Some((first, rest)) = missing.split_first() else { return };
        let content = nest(rest, value);
        let parent = self.work.pointer(pointer);
        let op = match (first, parent) {
            (Segment::Order, _) => return,
            (Segment::Field(name), Some(Value::Object(_))) => Op::Add { path: format!("{pointer}/{}", escape(name)), value: content },
            (Segment::Key(_) | Segment::Item(_), Some(Value::Array(_))) => {
                let content = match first {
                    Segment::Key(keys) => with_keys(content, keys),
                    _ => content,
                };
                let list: Path = above.iter().cloned().collect();
                let at = insertion_point(parent, project::lookup(declared, &list), first);
                Op::Add { path: format!("{pointer}/{at}"), value: content }
            }
            // A text, a number or null where a container belongs: only custom resources can have that.
            _ => {
                self.replaced.push(above.iter().cloned().collect());
                Op::Replace { path: pointer.to_owned(), value: nest(missing, value) }
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
    let Some(wanted) = items::declared_positions(declared, item).first().copied() else { return "-".to_owned() };
    // A live item has all its keys; a declared one may leave out what the server defaults.
    let same = |live: &Value, declared: &Value| match item {
        Segment::Key(keys) => keys.iter().all(|(name, _)| {
            let (there, wanted) = (live.get(&**name), declared.get(&**name));
            there.is_some() && (wanted.is_none() || there == wanted)
        }),
        _ => live == declared,
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

fn locate(object: &Value, segments: &[Segment]) -> Place {
    let mut at = object;
    let mut pointer = String::new();
    for (depth, segment) in segments.iter().enumerate() {
        let next = match (at, segment) {
            (Value::Object(members), Segment::Field(name)) => members.get(&**name).map(|value| (escape(name), value)),
            (Value::Array(items), Segment::Key(_) | Segment::Item(_)) => {
                items::positions(items, segment).first().and_then(|index| items.get(*index).map(|item| (index.to_string(), item)))
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
    let (path, value) = (op.path(), op.value());
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
        (serde_json::to_value(builder.finish().0).unwrap(), result)
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
        let (patch, _) =
            ops(&json!({"spec": {}}), &[(&["f:spec", "f:ports", r#"k:{"port":80}"#, "f:name"], Some(json!("http")))], &json!({}));
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
        builder.rename(&path(&["f:ports"]), &Segment::from_fields_v1(r#"k:{"port":81}"#).unwrap(), &[("port", &json!(80))]);
        assert_eq!(builder.result()["ports"], json!([{"name": "http", "port": 80, "nodePort": 30080}]));
    }

    #[test]
    fn of_duplicates_the_first_stays() {
        let item = path(&["f:env", r#"k:{"name":"A"}"#]);
        let mut builder =
            Builder::new(&json!({"env": [{"name": "A", "value": "1"}, {"name": "X"}, {"name": "A", "value": "2"}, {"name": "A"}]}));
        assert_eq!(builder.count(&item), 3);
        builder.keep_one(&item);
        assert_eq!(builder.result()["env"], json!([{"name": "A", "value": "1"}, {"name": "X"}]));
    }

    #[test]
    fn what_is_no_container_is_replaced_and_said() {
        for wrong in [json!(null), json!("text"), json!(5), json!([1])] {
            let mut builder = Builder::new(&json!({"spec": {"a": wrong}}));
            builder.set(&path(&["f:spec", "f:a", "f:b"]), Some(&json!(1)), &json!({}));
            builder.set(&path(&["f:spec", "f:a", "f:c"]), Some(&json!(2)), &json!({}));
            assert_eq!(builder.result(), &json!({"spec": {"a": {"b": 1, "c": 2}}}));
            assert_eq!(builder.finish().1, [path(&["f:spec", "f:a"])]);
        }
    }

    #[test]
    fn debug_shows_no_value() {
        assert_eq!(format!("{:?}", Op::Replace { path: "/data/p".into(), value: json!("hunter2") }), "replace /data/p");
    }
}
