//! Plans the smallest write that restores drifted paths (design §4).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    answer::Answer,
    assess::{Assessment, Drift},
    case::{Case, Desired},
    collateral,
    fields::Move,
    manager::{self, Operation, Writer},
    owned::OwnedSet,
    patch::{self, Builder, Op, matches_item},
    path::{Path, Segment},
    project,
};

/// The request a correction sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// JSON Patch; the first operation guards the resource version.
    JsonPatch(Vec<Op>),
    /// Forced server-side apply of the manifest, with uid and resource version of the judged object.
    Apply(Value),
    /// Creation by POST.
    Create(Value),
    /// Creation by server-side apply without force: where somebody created the object meanwhile, this conflicts.
    CreateByApply(Value),
}

/// One planned write.
#[derive(Clone, Debug, PartialEq)]
pub struct Correction {
    /// What to send.
    pub request: Request,
    /// Field manager to send it under.
    pub writer: Writer,
    /// Paths it restores; empty when it creates the object.
    pub paths: Vec<Path>,
    /// Paths it may change: the restored ones and items that it renames away.
    pub touched: Vec<Path>,
    /// Ownership to move by a second patch once the first has been accepted.
    pub then: Option<Move>,
}

/// Whether the plan is already known to change nothing else.
#[derive(Clone, Debug, PartialEq)]
pub enum Planned {
    /// Proven by the oracle: write.
    Proven(Correction),
    /// The very request must be dry-run first.
    Unproven(Correction),
    /// No patch can be built, for example for an item that occurs twice.
    Impossible,
}

/// Plans the correction of `assessment`'s drift.
pub fn plan(case: &Case<'_>, owned: &OwnedSet, live: &Value, assessment: &Assessment) -> Option<Planned> {
    let entries = manager::entries(live);
    let writer = manager::release_writer(&entries, case.prefer).or_else(|| case.writer.cloned())?;
    let mut positional = Positional::build(case.desired, owned, live, &assessment.drifts);
    if positional.ops.is_empty() {
        return Some(Planned::Impossible);
    }
    let clean = matches!(case.oracle, Answer::Given(oracle) if collateral::only_changes(oracle, live, &positional.touched));
    // Somebody deleted and re-created the object: its creator holds every field the release used to hold.
    let taken_over = !entries.iter().any(|entry| entry.manager == writer.manager && entry.operation == writer.operation && entry.subresource.is_empty());
    let paths: Vec<Path> = assessment.drifts.iter().map(|drift| drift.path.clone()).collect();
    let then = |set: OwnedSet, gone: Vec<Path>| Some(Move { to: writer.clone(), paths: set, gone });
    let declared_values = assessment.drifts.iter().all(|drift| drift.target.is_none() || drift.target.as_ref() == project::lookup(&case.desired.value, &drift.path));
    if writer.operation == Operation::Apply && clean && declared_values && !manager::claims_more(&entries, &writer, owned) {
        let request = Request::Apply(apply_body(case.desired, live)?);
        let then = if taken_over { then(owned.clone(), Vec::new()) } else { None };
        return Some(Planned::Proven(Correction { request, writer: writer.clone(), touched: paths.clone(), paths, then }));
    }
    let then = match (writer.operation, taken_over) {
        (_, true) => then(all_but(owned, assessment), positional.renamed_away.clone()),
        (Operation::Apply, false) => then(below(owned, &paths), positional.renamed_away.clone()),
        (Operation::Update, false) => None,
    };
    let version = live.pointer("/metadata/resourceVersion").and_then(Value::as_str)?;
    positional.ops.insert(0, patch::version_guard(version));
    let correction = Correction { request: Request::JsonPatch(positional.ops), writer: writer.clone(), paths, touched: positional.touched, then };
    Some(if clean && writer.operation == Operation::Update { Planned::Proven(correction) } else { Planned::Unproven(correction) })
}

/// Plans the creation of a missing object under the release's way of writing.
pub fn create(desired: &Desired, writer: &Writer) -> Correction {
    let body = desired.value.clone();
    let request = match writer.operation {
        Operation::Apply => Request::CreateByApply(body),
        Operation::Update => Request::Create(body),
    };
    Correction { request, writer: writer.clone(), paths: Vec::new(), touched: Vec::new(), then: None }
}

/// The manifest with the identity of the judged object: the uid stops a re-creation, the version a lost update.
fn apply_body(desired: &Desired, live: &Value) -> Option<Value> {
    let mut body = desired.value.clone();
    let metadata = body.get_mut("metadata")?.as_object_mut()?;
    for guard in ["uid", "resourceVersion"] {
        metadata.insert(guard.to_owned(), live.pointer("/metadata")?.get(guard)?.clone());
    }
    Some(body)
}

fn below(owned: &OwnedSet, paths: &[Path]) -> OwnedSet {
    let mut set = OwnedSet::default();
    for path in paths {
        set.extend(&owned.below(path));
    }
    set
}

/// Every owned path except those that belong to somebody else with good reason.
fn all_but(owned: &OwnedSet, assessment: &Assessment) -> OwnedSet {
    let mut set = owned.clone();
    let others = assessment.accepted.iter().map(|accepted| &accepted.path).chain(assessment.held.iter().map(|(drift, _)| &drift.path));
    for path in others.chain(assessment.unverified.iter().map(|(drift, _)| &drift.path)) {
        set.remove_tree(path);
    }
    set
}

/// A JSON Patch of the drifted paths alone.
struct Positional {
    ops: Vec<Op>,
    touched: Vec<Path>,
    renamed_away: Vec<Path>,
}

impl Positional {
    fn build(desired: &Desired, owned: &OwnedSet, live: &Value, drifts: &[Drift]) -> Self {
        let mut builder = Builder::new(live);
        let mut renamed_away = Vec::new();
        let mut taken: BTreeSet<Path> = BTreeSet::new();
        for drift in drifts {
            match drift.path.segments().last() {
                Some(Segment::Order) => {
                    let wanted = project::orders(owned, &desired.value).into_iter().find(|(path, _)| *path == drift.path);
                    builder.reorder(&drift.path.parent(), &wanted.map(|(_, order)| order).unwrap_or_default());
                }
                Some(item @ Segment::Key(keys)) => match renamed_item(desired, owned, live, &drift.path, item, &taken) {
                    Some((position, old)) => {
                        let declared = project::lookup(&desired.value, &drift.path);
                        for (name, value) in keys {
                            let wanted = declared.and_then(|declared| declared.get(&**name)).unwrap_or(value);
                            builder.rename(&drift.path.parent(), position, name, Some(wanted));
                        }
                        taken.insert(old.clone());
                        renamed_away.push(old);
                        restore_fields(&mut builder, desired, owned, &drift.path);
                    }
                    None => builder.set(&drift.path, drift.target.as_ref(), &desired.value),
                },
                _ => builder.set(&drift.path, drift.target.as_ref(), &desired.value),
            }
        }
        let touched = drifts.iter().map(|drift| drift.path.clone()).chain(renamed_away.iter().cloned()).collect();
        Self { ops: builder.finish(), touched, renamed_away }
    }
}

/// After a rename in place the item's other declared fields may differ too.
fn restore_fields(builder: &mut Builder, desired: &Desired, owned: &OwnedSet, item: &Path) {
    for path in owned.below(item).paths() {
        if path != *item
            && let Some(value) = project::lookup(&desired.value, &path)
        {
            let is_leaf = !owned.paths().iter().any(|other| *other != path && path.contains(other));
            if is_leaf {
                builder.set(&path, Some(value), &desired.value);
            }
        }
    }
}

/// The undeclared live item that a missing declared one was renamed to: all its other declared fields are there, or it
/// is the only stranger in a list of the declared length. Such an item is changed back in place, so that a port keeps
/// its nodePort and a container is not doubled.
fn renamed_item(desired: &Desired, owned: &OwnedSet, live: &Value, path: &Path, item: &Segment, taken: &BTreeSet<Path>) -> Option<(usize, Path)> {
    let list = path.parent();
    let Segment::Key(keys) = item else { return None };
    let declared_items = project::lookup(&desired.value, &list)?.as_array()?;
    let declared = declared_items.iter().find(|candidate| matches_item(candidate, item))?.as_object()?;
    let live_items = project::lookup(live, &list)?.as_array()?;
    let owned_items: Vec<&Segment> = owned_children(owned, &list);
    let strangers: Vec<(usize, &Value)> =
        live_items.iter().enumerate().filter(|(_, candidate)| !owned_items.iter().any(|segment| matches_item(candidate, segment))).collect();
    let is_key = |name: &str| keys.iter().any(|(key, _)| **key == *name);
    let others: Vec<(&String, &Value)> = declared.iter().filter(|(name, _)| !is_key(name)).collect();
    let alike = strangers.iter().find(|(_, candidate)| {
        others.iter().any(|(name, _)| matches!(name.as_str(), "name" | "image")) && others.iter().filter(|(name, _)| matches!(name.as_str(), "name" | "image")).all(|(name, value)| candidate.get(name.as_str()) == Some(*value))
    });
    let only = if strangers.len() == 1 && live_items.len() == declared_items.len() { strangers.first() } else { None };
    let (position, stranger) = alike.or(only)?;
    let old: Vec<(Box<str>, Value)> = keys.iter().map(|(name, _)| (name.clone(), stranger.get(&**name).cloned().unwrap_or(json!(null)))).collect();
    let old = list.join(Segment::Key(old.into()));
    (!taken.contains(&old)).then_some((*position, old))
}

fn owned_children<'a>(owned: &'a OwnedSet, list: &Path) -> Vec<&'a Segment> {
    let mut node = owned.root();
    for segment in list.segments() {
        match node.child(segment) {
            Some(next) => node = next,
            None => return Vec::new(),
        }
    }
    node.children().iter().map(|(segment, _)| segment).collect()
}
