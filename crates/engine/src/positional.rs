//! A JSON Patch of the drifted paths alone.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{
    assess::Drift,
    case::Case,
    foreign, items,
    manager::{self, Entry},
    owned::OwnedSet,
    patch::{Builder, Op},
    path::{Path, Segment},
    project,
    sorter::Sorter,
};

/// Lists in which an item beside the renamed one does harm: two containers run, two ports or devices claim one name. Elsewhere the
/// missing item comes back and the stranger is somebody's addition.
const RENAMED_IN_PLACE: [&str; 4] = ["containers", "initContainers", "ports", "volumeDevices"];

/// Items of a list up to which a rename is looked for: the search grows with the square of the list, and nobody renames one
/// container of hundreds.
const LONGEST_RENAMED: usize = 128;

/// Rounds of looking into items that were renamed or kept: as deep as lists of items lie in each other.
const ROUNDS: usize = 8;

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
        let mut repair = Repair { case, owned, live, builder: Builder::new(live), renamed_away: BTreeSet::new(), kept: Vec::new() };
        let (removals, restorations): (Vec<&Drift>, Vec<&Drift>) = drifts.iter().partition(|drift| foreign::is_removal(drift));
        for drift in restorations {
            repair.put_back(&drift.path, drift.target.as_ref());
        }
        for _ in 0..ROUNDS {
            for item in std::mem::take(&mut repair.kept) {
                repair.look_into(&item);
            }
        }
        let reordered = repair.put_in_order(drifts);
        let emptied = repair.take_away(live, &removals);
        let Repair { builder, renamed_away, .. } = repair;
        let (ops, replaced) = builder.finish();
        let replaced = replaced.into_iter().chain(emptied);
        let restored = drifts.iter().map(|drift| made_for(live, &drift.path));
        let touched =
            restored.chain(renamed_away.iter().cloned()).chain(replaced).chain(reordered).collect::<BTreeSet<Path>>().into_iter().collect();
        Self { ops, touched, renamed_away: renamed_away.into_iter().collect() }
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// What comes into being with a path: the uppermost thing above it that is missing, or the path itself. The server fills what is made
/// anew with its defaults, and nobody can have had anything there.
fn made_for(live: &Value, path: &Path) -> Path {
    let mut above = (1..path.segments().len()).map(|depth| path.segments().iter().take(depth).cloned().collect::<Path>());
    above.find(|prefix| !project::find(live, prefix).is_there()).unwrap_or_else(|| path.clone())
}

struct Repair<'a> {
    case: &'a Case<'a>,
    owned: &'a OwnedSet,
    live: &'a Value,
    builder: Builder,
    renamed_away: BTreeSet<Path>,
    /// Items that were renamed in place, or kept of several: their declared fields may differ too.
    kept: Vec<Path>,
}

impl Repair<'_> {
    /// Takes away what was added, and a container that somebody made for it and that holds nothing else. Answers which containers went.
    fn take_away(&mut self, live: &Value, removals: &[&Drift]) -> Vec<Path> {
        if removals.is_empty() {
            return Vec::new();
        }
        let entries = manager::entries(live);
        let mut emptied = Vec::new();
        for drift in removals {
            self.builder.take_away(&drift.path);
            let above = drift.path.parent();
            let holders: Vec<&Entry> = entries.iter().filter(|entry| entry.fields.has(&above)).collect();
            let by_one = matches!(holders.as_slice(), [holder] if holder.fields.node(&drift.path).is_some());
            if by_one && self.owned.node(&above).is_none() && project::lookup(self.builder.result(), &above).is_some_and(is_empty) {
                self.builder.take_away(&above);
                emptied.push(above);
            }
        }
        emptied
    }

    fn put_back(&mut self, path: &Path, target: Option<&Value>) {
        let desired = &self.case.desired.value;
        match path.segments().last() {
            Some(Segment::Order) => {
                let wanted = project::orders(self.owned, desired).into_iter().find(|(candidate, _)| candidate == path);
                self.builder.reorder(&path.parent(), &wanted.map(|(_, order)| order).unwrap_or_default());
            }
            Some(Segment::Key(_) | Segment::Item(_)) if self.builder.count(path) > 1 => {
                self.builder.keep_one(path);
                self.kept.push(path.clone());
            }
            Some(Segment::Key(keys)) => match renamed_item(desired, self.owned, self.builder.result(), path, keys) {
                Some(old) => {
                    let declared = project::lookup(desired, path);
                    let field = |name: &str| declared.and_then(|declared| declared.get(name));
                    let fields: Vec<(&str, &Value)> = keys.iter().map(|(name, value)| (&**name, field(name).unwrap_or(value))).collect();
                    self.builder.rename(&path.parent(), &old, &fields);
                    self.renamed_away.insert(path.parent().join(old));
                    self.kept.push(path.clone());
                }
                None => self.builder.set(path, target, desired),
            },
            _ => self.builder.set(path, target, desired),
        }
    }

    /// Puts back what differs inside an item. What a policy ignores, what is contested and what is rightfully somebody's stays.
    fn look_into(&mut self, item: &Path) {
        let desired = &self.case.desired.value;
        let inside = self.owned.below(item);
        let differences = project::differences(&inside, self.builder.result(), desired);
        let sorter = Sorter::new(self.case, self.live);
        let declared = differences.into_iter().filter(|difference| difference.declared.is_there());
        let targets: Vec<(Path, Value)> =
            declared.filter_map(|difference| Some((difference.path.clone(), sorter.target(&difference)?))).collect();
        let orders = project::orders(&inside, desired).into_iter().map(|(path, _)| (path, None));
        for (path, target) in targets.into_iter().map(|(path, target)| (path, Some(target))).chain(orders) {
            if self.may_write(&path) {
                self.put_back(&path, target.as_ref());
            }
        }
    }

    /// One item that was added and one that was renamed in place may have come in the wrong order.
    fn put_in_order(&mut self, drifts: &[Drift]) -> Vec<Path> {
        let lists: BTreeSet<Path> = drifts.iter().map(|drift| drift.path.parent()).collect();
        let mut reordered = Vec::new();
        for (path, wanted) in project::orders(self.owned, &self.case.desired.value) {
            let list = path.parent();
            if lists.contains(&list) && self.may_write(&path) && self.builder.reorder(&list, &wanted) {
                reordered.push(path);
            }
        }
        reordered
    }

    fn may_write(&self, path: &Path) -> bool {
        self.case.held_at(path).is_none() && !(self.case.ignored)(path, None)
    }
}

/// The item that a missing declared one is called now, where it was only renamed.
pub fn renamed_to(desired: &Value, owned: &OwnedSet, live: &Value, path: &Path) -> Option<Path> {
    let Some(Segment::Key(keys)) = path.segments().last() else { return None };
    if project::find(live, path).is_there() {
        return None;
    }
    Some(path.parent().join(renamed_item(desired, owned, live, path, keys)?))
}

/// The undeclared live item that a missing declared one was renamed to: the one that agrees in name or image, or the only
/// strange port in a list of the declared length, or one that lost its key. Such an item is changed back in place, so that a port keeps its nodePort and
/// a container is not doubled.
fn renamed_item(desired: &Value, owned: &OwnedSet, live: &Value, path: &Path, keys: &[(Box<str>, Value)]) -> Option<Segment> {
    let list = path.parent();
    let Some(Segment::Field(name)) = list.segments().last() else { return None };
    let declared_items = project::lookup(desired, &list)?.as_array()?;
    let declared = project::lookup(desired, path)?.as_object()?;
    let live_items = project::lookup(live, &list)?.as_array()?;
    if live_items.len().max(declared_items.len()) > LONGEST_RENAMED {
        return None;
    }
    let known: BTreeSet<usize> =
        owned.node(&list)?.children().iter().flat_map(|(segment, _)| items::positions(live_items, segment)).collect();
    let strangers: Vec<&Value> =
        live_items.iter().enumerate().filter(|(position, _)| !known.contains(position)).map(|(_, item)| item).collect();
    if let Some(nameless) = nameless_item(declared, &strangers, keys) {
        return Some(Segment::Item(nameless.clone()));
    }
    if !RENAMED_IN_PLACE.contains(&&**name) {
        return None;
    }
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
        // A port need not have a name. A container that agrees in neither is another container.
        ([], [only]) if &**name == "ports" && live_items.len() == declared_items.len() => only,
        _ => return None,
    };
    let old = keys.iter().map(|(key, _)| Some((key.clone(), renamed.get(&**key)?.clone()))).collect::<Option<Box<[_]>>>()?;
    Some(Segment::Key(old))
}

/// An item that lost its key, at best the one that agrees in everything else. It is nobody's addition: with it in the list the server
/// takes no apply at all, and forgets who holds what.
fn nameless_item<'a>(declared: &Map<String, Value>, strangers: &[&'a Value], keys: &[(Box<str>, Value)]) -> Option<&'a Value> {
    let is_key = |field: &str| keys.iter().any(|(key, _)| **key == *field);
    let is_nameless = |item: &Value| item.as_object().is_some_and(|members| !members.keys().any(|field| is_key(field)));
    let agrees = |item: &Value| declared.iter().all(|(field, value)| is_key(field) || item.get(field) == Some(value));
    let mut nameless = strangers.iter().copied().filter(|item| is_nameless(item));
    nameless.clone().find(|item| agrees(item)).or_else(|| nameless.next())
}
