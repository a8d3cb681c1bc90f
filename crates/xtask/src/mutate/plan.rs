//! What is done to an object: every change, removal and addition at every field its release owns.

use std::{collections::BTreeMap, fmt};

use holdfast_testkit::mutation::{Place, escape, other_types, others, pointers};
use serde_json::{Map, Value, json};

/// Corrections of one path of one object: below what a policy calls a contest at the strictest.
const PER_PATH: u8 = 4;
/// Corrections of one object: below the writes after which all of it is held, whatever the policy.
const PER_OBJECT: usize = 15;
/// Lists whose order counts although their items are told apart by keys.
const ORDERED: [&str; 2] = ["env", "initContainers"];
/// Fields that take a number or a text.
const INT_OR_STRING: [&str; 6] = ["targetPort", "port", "maxSurge", "maxUnavailable", "minAvailable", "intOrString"];
/// Maps that take any name.
const OPEN_MAPS: [&str; 7] = ["labels", "annotations", "data", "matchLabels", "nodeSelector", "limits", "requests"];
/// Where controllers put things, so that additions are theirs: kind, and everything from this pointer on.
const OF_CONTROLLERS: [(&str, &str); 3] = [("Endpoints", ""), ("EndpointSlice", ""), ("ServiceAccount", "/secrets")];
/// Another release's name here hands the object over to that release (`helm --take-ownership`), which is no drift.
const HAND_OVER: &str = "/metadata/annotations/meta.helm.sh~1";

/// The sorts of mutations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// Another value of the same type.
    Change,
    /// A number where a text was, or the other way round.
    Retype,
    /// Something else in the place of what cannot stand beside it: another handler of a probe, another source of a volume.
    Instead,
    /// Taken away.
    Delete,
    /// Something put into a list or map that is owned as a whole.
    Add,
    /// Something put beside what is owned.
    Beside,
    /// The items of a list turned round.
    Reorder,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Change => "change",
            Self::Retype => "retype",
            Self::Instead => "replace",
            Self::Delete => "delete",
            Self::Add => "add",
            Self::Beside => "add beside",
            Self::Reorder => "reorder",
        })
    }
}

/// One mutation.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// Its sort.
    pub how: How,
    /// The owned path that it is at.
    pub path: String,
    /// Where exactly, as a JSON pointer.
    pub at: String,
    /// JSON patches, of which the first that the server takes is meant.
    pub tries: Vec<Value>,
    /// Owned paths that it changes, by their place in the list.
    touches: Vec<usize>,
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.how, self.at)
    }
}

/// Every mutation of `object` at these places.
pub fn mutations(places: &[Place], object: &Value) -> Vec<Mutation> {
    let mut plan = Plan { places, object, mutations: Vec::new() };
    for (index, place) in places.iter().enumerate() {
        plan.instead(place);
        match (place.is_leaf, object.pointer(&place.pointer)) {
            (true, Some(Value::Object(_) | Value::Array(_))) => plan.whole(index, place),
            (true, Some(value)) => plan.single(index, place, value),
            (true, None) => plan.absent(index, place),
            (false, Some(value)) => plan.container(index, place, value),
            (false, None) => {}
        }
    }
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let is_of_controllers = |at: &str| OF_CONTROLLERS.iter().any(|(of, from)| kind == *of && at.starts_with(from));
    plan.mutations.retain(|mutation| mutation.how != How::Beside || !is_of_controllers(&mutation.at));
    plan.mutations
}

struct Plan<'a> {
    places: &'a [Place],
    object: &'a Value,
    mutations: Vec<Mutation>,
}

impl Plan<'_> {
    fn push(&mut self, how: How, place: &Place, at: &str, tries: Vec<Value>, touches: Vec<usize>) {
        if !tries.is_empty() {
            self.mutations.push(Mutation { how, path: place.path.clone(), at: at.to_owned(), tries, touches });
        }
    }

    fn below(&self, place: &Place) -> Vec<usize> {
        self.places.iter().enumerate().filter(|(_, other)| place.covers(other)).map(|(index, _)| index).collect()
    }

    /// What may stand there instead.
    fn instead(&mut self, place: &Place) {
        let (Some((parent, name)), true) = (place.pointer.rsplit_once('/'), self.object.pointer(&place.pointer).is_some()) else { return };
        let tries = instead_of(name).into_iter().map(|(other, value)| {
            json!([{"op": "remove", "path": place.pointer}, {"op": "add", "path": format!("{parent}/{other}"), "value": value}])
        });
        self.push(How::Instead, place, &place.pointer, tries.collect(), self.below(place));
    }

    /// A single value of its own.
    fn single(&mut self, index: usize, place: &Place, value: &Value) {
        let touches = self.item_of_key(place).map_or_else(|| vec![index], |item| self.below(item));
        if !place.path.starts_with(HAND_OVER) {
            self.push(How::Change, place, &place.pointer, replacements(&place.pointer, others(&place.pointer, value)), touches.clone());
        }
        if INT_OR_STRING.contains(&last(&place.pointer)) {
            self.push(How::Retype, place, &place.pointer, replacements(&place.pointer, other_types(value)), touches.clone());
        }
        self.push(How::Delete, place, &place.pointer, vec![removal(&place.pointer)], touches);
    }

    /// The list item that this field tells from others.
    fn item_of_key(&self, place: &Place) -> Option<&Place> {
        let (item, field) = place.pointer.rsplit_once('/')?;
        let (list, _) = item.rsplit_once('/')?;
        let is_key = self.places.iter().any(|other| other.pointer == list && other.keys.iter().any(|key| key == field));
        self.places.iter().find(|other| is_key && other.is_item && other.pointer == item)
    }

    /// A list or map that counts as a whole: everything in it, one by one.
    fn whole(&mut self, index: usize, place: &Place) {
        self.push(How::Delete, place, &place.pointer, vec![removal(&place.pointer)], vec![index]);
        let Some(whole) = self.object.pointer(&place.pointer) else { return };
        if whole.as_object().is_some_and(Map::is_empty) {
            // Whether it is owned as a whole or what comes into it is somebody's own, only the schema knows.
            self.beside(place, &place.pointer);
            return;
        }
        for pointer in pointers(whole) {
            let at = format!("{}{pointer}", place.pointer);
            let Some(value) = whole.pointer(&pointer) else { continue };
            match value {
                Value::Object(members) => {
                    if members.values().all(Value::is_string) {
                        let added = json!([{"op": "add", "path": format!("{at}/mutated"), "value": "x"}]);
                        self.push(How::Add, place, &format!("{at}/mutated"), vec![added], vec![index]);
                    }
                }
                Value::Array(items) => {
                    self.push(How::Add, place, &format!("{at}/-"), additions(&at, items, &[]), vec![index]);
                    self.reorder(place, &at, items, index);
                }
                single => self.push(How::Change, place, &at, replacements(&at, others(&at, single)), vec![index]),
            }
            if !pointer.is_empty() {
                self.push(How::Delete, place, &at, vec![removal(&at)], vec![index]);
            }
        }
    }

    fn reorder(&mut self, place: &Place, at: &str, items: &[Value], index: usize) {
        let reversed: Vec<&Value> = items.iter().rev().collect();
        if items.iter().zip(&reversed).any(|(one, other)| one != *other) {
            self.push(How::Reorder, place, at, vec![json!([{"op": "replace", "path": at, "value": reversed}])], vec![index]);
        }
    }

    /// Declared, and yet the server keeps nothing there: an empty list, a null.
    fn absent(&mut self, index: usize, place: &Place) {
        let values = [json!("x"), json!(7), json!(true), json!({"x": "x"}), json!(["x"]), json!([{"name": "x"}]), json!({"key": "x"})];
        let tries = values.into_iter().map(|value| json!([{"op": "add", "path": place.pointer, "value": value}])).collect();
        self.push(How::Add, place, &place.pointer, tries, vec![index]);
    }

    /// What holds owned fields of their own.
    fn container(&mut self, index: usize, place: &Place, value: &Value) {
        self.push(How::Delete, place, &place.pointer, vec![removal(&place.pointer)], self.below(place));
        let name = last(&place.pointer);
        if let Value::Array(items) = value {
            if ORDERED.contains(&name) {
                self.reorder(place, &place.pointer, items, index);
            }
            if !place.keys.is_empty() {
                let tries = additions(&place.pointer, items, &place.keys);
                self.push(How::Beside, place, &format!("{}/-", place.pointer), tries, Vec::new());
            }
        } else if OPEN_MAPS.contains(&name) {
            self.beside(place, &place.pointer);
        }
    }

    /// Something in a map beside what is owned.
    fn beside(&mut self, place: &Place, map: &str) {
        let at = format!("{map}/{}", escape("mutated.example/key"));
        let plain = format!("{map}/mutated");
        let tries = [(&at, "x"), (&plain, "eA=="), (&plain, "1")].map(|(at, value)| json!([{"op": "add", "path": at, "value": value}]));
        self.push(How::Beside, place, &at, tries.to_vec(), Vec::new());
    }
}

/// The copy of the object on which each mutation is done, so that none corrects a path or an object too often.
pub fn copies<'a>(mutations: impl IntoIterator<Item = &'a Mutation>) -> Vec<usize> {
    let mut used: Vec<(usize, BTreeMap<usize, u8>)> = Vec::new();
    let place = |mutation: &Mutation| {
        let is_free = |(all, counts): &(usize, BTreeMap<usize, u8>)| {
            *all < PER_OBJECT && mutation.touches.iter().all(|path| counts.get(path).is_none_or(|count| *count < PER_PATH))
        };
        let copy = used.iter().position(is_free).unwrap_or(used.len());
        if copy == used.len() {
            used.push((0, BTreeMap::new()));
        }
        if let Some((all, counts)) = used.get_mut(copy) {
            *all += 1;
            mutation.touches.iter().for_each(|path| *counts.entry(*path).or_default() += 1);
        }
        copy
    };
    mutations.into_iter().map(place).collect()
}

/// Another item at the end of a list: one of its own with another value, or two where one does not do.
fn additions(at: &str, items: &[Value], keys: &[String]) -> Vec<Value> {
    let addition = |item: Value| json!([{"op": "add", "path": format!("{at}/-"), "value": item}]);
    let Some(like) = items.last() else {
        return [json!("x"), json!({"name": "x"}), json!(1)].map(addition).to_vec();
    };
    if !like.is_object() && !like.is_array() {
        return others(at, like).into_iter().map(addition).collect();
    }
    let fields = pointers(like).into_iter().filter(|pointer| keys.is_empty() || keys.iter().any(|key| *pointer == format!("/{key}")));
    let changed = fields.filter_map(|field| {
        let value = like.pointer(&field).filter(|value| !value.is_object() && !value.is_array())?;
        let candidates = others(&format!("{at}{field}"), value).into_iter().take(3);
        Some(
            candidates
                .filter_map(|other| {
                    let mut item = like.clone();
                    *item.pointer_mut(&field)? = other;
                    Some(addition(item))
                })
                .collect::<Vec<_>>(),
        )
    });
    changed.flatten().chain([addition(like.clone())]).collect()
}

/// Fields that cannot stand beside this one.
fn instead_of(name: &str) -> Vec<(&'static str, Value)> {
    match name {
        "httpGet" | "tcpSocket" | "grpc" | "sleep" => vec![("exec", json!({"command": ["x"]}))],
        "exec" => vec![("tcpSocket", json!({"port": 1}))],
        "configMap"
        | "secret"
        | "projected"
        | "hostPath"
        | "downwardAPI"
        | "csi"
        | "ephemeral"
        | "nfs"
        | "iscsi"
        | "image"
        | "persistentVolumeClaim" => vec![("emptyDir", json!({}))],
        "emptyDir" => vec![("hostPath", json!({"path": "/x"}))],
        "valueFrom" => vec![("value", json!("x"))],
        "value" => vec![("valueFrom", json!({"fieldRef": {"fieldPath": "metadata.name"}}))],
        "rollingUpdate" => vec![("type", json!("Recreate")), ("type", json!("OnDelete"))],
        "minAvailable" => vec![("maxUnavailable", json!(1))],
        "maxUnavailable" => vec![("minAvailable", json!(1))],
        "service" => vec![("url", json!("https://x.mutate.example/"))],
        "url" => vec![("service", json!({"name": "x", "namespace": "x"}))],
        _ => Vec::new(),
    }
}

fn replacements(at: &str, values: Vec<Value>) -> Vec<Value> {
    values.into_iter().map(|value| json!([{"op": "replace", "path": at, "value": value}])).collect()
}

fn removal(at: &str) -> Value {
    json!([{"op": "remove", "path": at}])
}

fn last(pointer: &str) -> &str {
    pointer.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, pointer: &str, is_leaf: bool, is_item: bool, keys: &[&str]) -> Place {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Place { path: path.to_owned(), pointer: pointer.to_owned(), is_leaf, is_item, keys }
    }

    #[test]
    fn every_place_is_mutated() {
        let object = json!({"spec": {"replicas": 2, "selector": {"app": "x"}, "ports": [{"port": 80}]}});
        let places = [
            place("/spec", "/spec", false, false, &[]),
            place("/spec/ports", "/spec/ports", false, false, &["port"]),
            place("/spec/ports/[port=80]", "/spec/ports/0", false, true, &[]),
            place("/spec/ports/[port=80]/port", "/spec/ports/0/port", true, false, &[]),
            place("/spec/replicas", "/spec/replicas", true, false, &[]),
            place("/spec/selector", "/spec/selector", true, false, &[]),
        ];
        let shown: Vec<String> = mutations(&places, &object).iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "delete /spec",
                "delete /spec/ports",
                "add beside /spec/ports/-",
                "delete /spec/ports/0",
                "change /spec/ports/0/port",
                "retype /spec/ports/0/port",
                "delete /spec/ports/0/port",
                "change /spec/replicas",
                "delete /spec/replicas",
                "delete /spec/selector",
                "add /spec/selector/mutated",
                "change /spec/selector/app",
                "delete /spec/selector/app",
            ]
        );
        let kept = json!({"kind": "Endpoints", "spec": object["spec"]});
        assert!(mutations(&places, &kept).iter().all(|mutation| mutation.how != How::Beside));
    }

    #[test]
    fn no_path_is_corrected_too_often_on_one_copy() {
        let mutation = |touches: &[usize]| Mutation {
            how: How::Change,
            path: String::new(),
            at: String::new(),
            tries: Vec::new(),
            touches: touches.to_vec(),
        };
        let mutations = [mutation(&[0, 1]), mutation(&[0]), mutation(&[0]), mutation(&[0]), mutation(&[0, 1]), mutation(&[1])];
        assert_eq!(copies(&mutations), [0, 0, 0, 0, 1, 0]);
    }
}
