//! Fields that cannot stand beside each other: a probe has one handler, a volume one source, and `Recreate` no
//! `rollingUpdate`. Whoever swaps one for another leaves something that has to go before the declared one can come back.

use std::collections::BTreeSet;

use holdfast_api::report::Reason;
use serde_json::Value;

use crate::{
    answer::{Answer, Refusal},
    assess::Drift,
    bookkeeping,
    case::Case,
    foreign,
    manager::{self, Entry},
    owned::OwnedSet,
    path::{Path, Segment},
    project,
    sorter::Sorter,
};

/// What has to go so that the drifted paths can be put back, as drift of its own. `None` while the answer to the dry-run create is missing.
pub fn obstacles(case: &Case<'_>, owned: &OwnedSet, live: &Value, drifts: &[Drift]) -> Option<Vec<Drift>> {
    let paths = in_the_way(case, owned, live, drifts)?;
    if paths.is_empty() {
        return Some(Vec::new());
    }
    let entries = manager::entries(live);
    let gvk = &case.desired.key.gvk;
    Some(paths.iter().map(|path| foreign::drift(gvk, live, path, manager::holder(&entries, path), Reason::ForeignField)).collect())
}

/// Undeclared fields right beside the drifted ones, where the server says of that place that it takes no such combination, and that it does
/// not add itself when it creates the declared object.
fn in_the_way(case: &Case<'_>, owned: &OwnedSet, live: &Value, drifts: &[Drift]) -> Option<Vec<Path>> {
    let Answer::Refused(Refusal { reason: Reason::Invalid, fields }) = case.oracle else { return Some(Vec::new()) };
    let named: BTreeSet<Vec<&str>> = fields.iter().map(|field| named(field)).collect();
    let places: BTreeSet<&[&str]> = named.iter().filter_map(|names| names.split_last()).map(|(_, place)| place).collect();
    let beside: BTreeSet<Path> =
        drifts.iter().map(|drift| nearest(live, &drift.path)).filter(|at| places.contains(names(at).as_slice())).collect();
    let sorter = Sorter::new(case, live);
    let entries = manager::entries(live);
    let may_go = |path: &Path| {
        let holder = manager::holder(&entries, path).map(Entry::actor);
        owned.node(path).is_none()
            && !project::find(&case.desired.value, path).is_there()
            && !drifts.iter().any(|drift| drift.path == *path)
            && !(case.ignored)(path, holder.as_ref())
            && case.held_at(path).is_none()
            && !bookkeeping::is_bookkeeping(&case.desired.key.gvk, path)
            && !sorter.is_yielded(path)
    };
    let mut undeclared = Vec::new();
    for parent in &beside {
        let Some(Value::Object(members)) = project::lookup(live, parent) else { continue };
        let paths: Vec<Path> = members.keys().map(|name| parent.join(Segment::field(name))).filter(|path| may_go(path)).collect();
        let is_named = |path: &Path| named.contains(&names(path));
        // Of two that exclude each other the server may name the declared one. Where an object has all its fields side by side that would
        // make everything undeclared an obstacle.
        let is_union = names(parent).len() > 1 && !paths.iter().any(is_named);
        undeclared.extend(paths.into_iter().filter(|path| is_union || is_named(path)));
    }
    match case.create {
        _ if undeclared.is_empty() => Some(undeclared),
        Answer::NotAsked => None,
        // Without it a default could be taken for what is in the way.
        Answer::Refused(_) => Some(Vec::new()),
        Answer::Given(created) => {
            undeclared.retain(|path| !project::find(created, path).is_there());
            Some(undeclared)
        }
    }
}

/// The names that lead to a field: the server counts list items in the object it was asked about, which tells nothing here.
fn named(field: &str) -> Vec<&str> {
    field.split('.').map(|name| name.split_once('[').map_or(name, |(name, _)| name)).collect()
}

fn names(path: &Path) -> Vec<&str> {
    let fields = path.segments().iter();
    fields
        .filter_map(|segment| match segment {
            Segment::Field(name) => Some(&**name),
            _ => None,
        })
        .collect()
}

/// The closest map above a path that is there.
fn nearest(live: &Value, path: &Path) -> Path {
    let mut at = path.parent();
    while !at.segments().is_empty() && !project::find(live, &at).is_there() {
        at = at.parent();
    }
    at
}
