//! A JSON Patch of the drifted paths alone.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    assess::Drift,
    case::Case,
    items,
    owned::OwnedSet,
    patch::{Builder, Op},
    path::{Path, Segment},
    project,
};

/// Lists in which an item beside the renamed one does harm: two containers run, two ports claim one name. Elsewhere the
/// missing item comes back and the stranger is somebody's addition.
const RENAMED_IN_PLACE: [&str; 3] = ["containers", "initContainers", "ports"];

/// Operations that put drifted paths back, and what they touch.
pub struct Positional {
    /// The operations, without a version guard.
    pub ops: Vec<Op>,
    /// Paths they may change.
    pub touched: Vec<Path>,
    /// Items that they rename, as they are called now.
    pub renamed_away: Vec<Path>,
}

impl Positional {
    /// Builds the patch.
    pub fn build(case: &Case<'_>, owned: &OwnedSet, live: &Value, drifts: &[Drift]) -> Self {
        let desired = &case.desired.value;
        let mut builder = Builder::new(live);
        let mut renamed_away = BTreeSet::new();
        for drift in drifts {
            let path = &drift.path;
            match path.segments().last() {
                Some(Segment::Order) => {
                    let wanted = project::orders(owned, desired).into_iter().find(|(candidate, _)| candidate == path);
                    builder.reorder(&path.parent(), &wanted.map(|(_, order)| order).unwrap_or_default());
                }
                Some(Segment::Key(_) | Segment::Item(_)) if builder.count(path) > 1 => {
                    builder.keep_one(path, desired);
                    restore_fields(case, owned, &mut builder, path);
                }
                Some(Segment::Key(keys)) => match renamed_item(desired, owned, builder.result(), path, keys) {
                    Some(old) => {
                        let declared = project::lookup(desired, path);
                        let fields: Vec<(&str, &Value)> = keys
                            .iter()
                            .map(|(name, value)| (&**name, declared.and_then(|declared| declared.get(&**name)).unwrap_or(value)))
                            .collect();
                        builder.rename(&path.parent(), &old, &fields);
                        renamed_away.insert(path.parent().join(old));
                        restore_fields(case, owned, &mut builder, path);
                    }
                    None => builder.set(path, drift.target.as_ref(), desired),
                },
                _ => builder.set(path, drift.target.as_ref(), desired),
            }
        }
        let (ops, replaced) = builder.finish();
        let touched = drifts.iter().map(|drift| drift.path.clone()).chain(renamed_away.iter().cloned()).chain(replaced).collect();
        Self { ops, touched, renamed_away: renamed_away.into_iter().collect() }
    }
}

/// After an item was renamed in place, or one of its duplicates kept, its other declared fields may differ too. What a
/// policy ignores and what is contested stays.
fn restore_fields(case: &Case<'_>, owned: &OwnedSet, builder: &mut Builder, item: &Path) {
    let desired = &case.desired.value;
    for leaf in project::leaves(&owned.below(item), desired) {
        let is_held = case.ledger.is_some_and(|ledger| ledger.held(&leaf.path, case.now).is_some());
        if let Some(value) = leaf.found.value()
            && !is_held
            && !(case.ignored)(&leaf.path, None)
        {
            builder.set(&leaf.path, Some(value), desired);
        }
    }
}

/// The undeclared live item that a missing declared one was renamed to: the one that agrees in name or image, or the only
/// stranger in a list of the declared length. Such an item is changed back in place, so that a port keeps its nodePort and
/// a container is not doubled.
fn renamed_item(desired: &Value, owned: &OwnedSet, live: &Value, path: &Path, keys: &[(Box<str>, Value)]) -> Option<Segment> {
    let list = path.parent();
    let Some(Segment::Field(name)) = list.segments().last() else { return None };
    if !RENAMED_IN_PLACE.contains(&&**name) {
        return None;
    }
    let declared_items = project::lookup(desired, &list)?.as_array()?;
    let declared = project::lookup(desired, path)?.as_object()?;
    let live_items = project::lookup(live, &list)?.as_array()?;
    let known: BTreeSet<usize> =
        owned.node(&list)?.children().iter().flat_map(|(segment, _)| items::positions(live_items, segment)).collect();
    let strangers: Vec<&Value> =
        live_items.iter().enumerate().filter(|(position, _)| !known.contains(position)).map(|(_, item)| item).collect();
    let telling: Vec<(&str, &Value)> = ["name", "image"]
        .into_iter()
        .filter(|field| keys.iter().all(|(key, _)| **key != **field))
        .filter_map(|field| declared.get(field).map(|value| (field, value)))
        .collect();
    let alike: Vec<&Value> = strangers
        .iter()
        .copied()
        .filter(|item| !telling.is_empty() && telling.iter().all(|(field, value)| item.get(*field) == Some(*value)))
        .collect();
    let renamed = match (alike.as_slice(), strangers.as_slice()) {
        ([one], _) => one,
        ([], [only]) if live_items.len() == declared_items.len() => only,
        _ => return None,
    };
    let old = keys.iter().map(|(key, _)| Some((key.clone(), renamed.get(&**key)?.clone()))).collect::<Option<Box<[_]>>>()?;
    Some(Segment::Key(old))
}
