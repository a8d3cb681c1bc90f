//! Declared fields that rightfully belong to somebody else (design §3.4). Pure predicates over what is declared, what is there and who
//! scales the object, evaluated before the server is asked anything.
//!
//! What makes a field somebody else's stands in the *declared* object, or in an autoscaler beside it; nothing that was put on the live
//! object counts, so nobody on the cluster can talk a field out of its guard.

mod account;
mod bundle;
mod once;
mod readiness;
mod replicas;
mod resources;
mod selector;
mod storage;

use std::collections::BTreeMap;

use serde_json::Value;

pub(crate) use bundle::is_placeholder;
pub(crate) use once::has_ended;
pub use replicas::Replicas;
pub use resources::{ContainerRule, Resources};

use crate::{
    case::Desired,
    manager::{Entry, Writer},
    path::{Path, Segment},
};

/// An autoscaler of an object: what it may set, as its own spec says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scaler {
    /// It sets the replicas.
    Replicas(Replicas),
    /// It sets what containers ask for.
    Resources(Resources),
}

/// What becomes of a declared field that is somebody else's.
#[derive(Clone, Debug, PartialEq)]
pub enum Yield {
    /// What stands there is theirs. One clause for people says whose.
    Theirs(String),
    /// What stands there is more than they may set: it goes to this value, which keeps what is theirs.
    Beyond(Value),
}

impl Yield {
    fn theirs(note: &str) -> Self {
        Self::Theirs(note.to_owned())
    }
}

/// One difference and what may explain it.
pub(crate) struct Question<'a> {
    /// The declared object.
    pub desired: &'a Desired,
    /// Its autoscalers.
    pub scalers: &'a [Scaler],
    /// Who holds what of the live object.
    pub entries: &'a [Entry],
    /// How the release writes, where that is known.
    pub writer: Option<&'a Writer>,
    /// Where the objects differ.
    pub path: &'a Path,
    /// What stands there.
    pub live: Option<&'a Value>,
    /// What is declared there.
    pub declared: Option<&'a Value>,
}

/// Each answers for a few fields of a few kinds.
const PREDICATES: [fn(&Question<'_>) -> Option<Yield>; 8] = [
    replicas::answer,
    resources::answer,
    bundle::answer,
    readiness::answer,
    selector::answer,
    account::answer,
    storage::answer,
    once::answer,
];

/// Whose the field is; `None` where it is the release's.
pub(crate) fn answer(question: &Question<'_>) -> Option<Yield> {
    PREDICATES.iter().find_map(|predicate| predicate(question))
}

impl Question<'_> {
    /// Whether the object is of this group and one of these kinds.
    fn is_any(&self, group: &str, kinds: &[&str]) -> bool {
        let gvk = &self.desired.key.gvk;
        gvk.group == group && kinds.contains(&gvk.kind.as_str())
    }

    /// An annotation as it is declared.
    fn annotation(&self, name: &str) -> Option<&str> {
        annotation(self.desired, name)
    }

    /// A label as it is declared.
    fn label(&self, name: &str) -> Option<&str> {
        self.desired.value.pointer("/metadata/labels")?.get(name)?.as_str()
    }

    /// Whether the path leads through these fields and no others.
    fn is_at(&self, fields: &[&str]) -> bool {
        is_at(self.path, fields)
    }
}

fn annotation<'a>(desired: &'a Desired, name: &str) -> Option<&'a str> {
    desired.value.pointer("/metadata/annotations")?.get(name)?.as_str()
}

fn is_at(path: &Path, fields: &[&str]) -> bool {
    let segments = path.segments();
    segments.len() == fields.len() && segments.iter().zip(fields).all(|(segment, field)| is_field(segment, field))
}

fn is_field(segment: &Segment, name: &str) -> bool {
    matches!(segment, Segment::Field(field) if **field == *name)
}

/// The field of a webhook that the path leads to, below `/webhooks/[name=…]`.
fn of_webhook<'a>(question: &Question<'a>) -> Option<&'a [Segment]> {
    if !question.is_any("admissionregistration.k8s.io", &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]) {
        return None;
    }
    match question.path.segments() {
        [list, Segment::Key(_), below @ ..] if is_field(list, "webhooks") => Some(below),
        _ => None,
    }
}

/// Compares a list whose order does not count: whether all declared items are there and beside them only such as may stand there, and
/// which those are.
fn beside<'a>(declared: &[Value], live: &'a [Value], may_stand: impl Fn(&Value) -> bool) -> (bool, Vec<&'a Value>) {
    let mut rest: Vec<&Value> = live.iter().collect();
    let mut is_complete = true;
    for item in declared {
        match rest.iter().position(|candidate| same_item(candidate, item)) {
            Some(place) => {
                rest.swap_remove(place);
            }
            None => is_complete = false,
        }
    }
    let is_clean = rest.iter().all(|extra| may_stand(extra));
    // In the order they have.
    let extras = live.iter().filter(|item| may_stand(item) && !declared.iter().any(|declared| same_item(item, declared))).collect();
    (is_complete && is_clean, extras)
}

/// Whether two list items say the same; the order of values inside an expression does not count.
fn same_item(a: &Value, b: &Value) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return a == b };
    let member = |members: &serde_json::Map<String, Value>| -> BTreeMap<String, Value> {
        members
            .iter()
            .map(|(name, value)| {
                let mut value = value.clone();
                if let Value::Array(items) = &mut value {
                    items.sort_by_cached_key(crate::canonical::canonical);
                }
                (name.clone(), value)
            })
            .collect()
    };
    member(a) == member(b)
}

#[cfg(test)]
mod tests;
