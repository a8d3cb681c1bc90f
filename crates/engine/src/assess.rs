//! Sorts the owned paths of a live object: as declared, accepted, drifted, held or unverified (design §3.4–§3.6).

use holdfast_api::report::{Actor, Change, DeviationReason, PathFinding, Reason};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    canonical::Digest,
    case::{Accepted, Case},
    contest::Held,
    equivalence::equivalent,
    manager::{self, Entry, Operation, Writer},
    owned::OwnedSet,
    path::{Path, Segment},
    project::{self, Found, Leaf},
    redact,
};

/// A path that differs and is not accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// Where.
    pub path: Path,
    /// What a correction writes there: the declared value, or an autoscaler's bound. `None` takes the field away.
    pub target: Option<Value>,
    /// Digest of what stands there now, for contests.
    pub theirs: Digest,
    /// As a report shows it.
    pub finding: PathFinding,
    /// The reason word for this path alone.
    pub reason: Reason,
}

/// A difference that counts as in sync.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedPath {
    /// Where.
    pub path: Path,
    /// Why.
    pub reason: DeviationReason,
    /// What stands there.
    pub value: Digest,
    /// One clause for people, without values.
    pub note: String,
}

impl AcceptedPath {
    /// The form that is remembered.
    pub fn remembered(&self) -> Accepted {
        Accepted::new(&self.path, self.reason, self.value)
    }
}

/// What is still to be asked before every path can be sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The forced dry-run of the declared object.
    pub oracle: bool,
    /// The dry-run create under a throw-away name.
    pub create: bool,
}

/// All owned paths, sorted.
#[derive(Debug, Default)]
pub struct Assessment {
    /// Accepted differences.
    pub accepted: Vec<AcceptedPath>,
    /// Drift that may be corrected.
    pub drifts: Vec<Drift>,
    /// Drift that somebody keeps making.
    pub held: Vec<(Drift, Held)>,
    /// Differences nobody can vouch for.
    pub unverified: Vec<(Drift, Reason)>,
    /// Open questions; the lists are incomplete while there are any.
    pub needs: Needs,
}

/// Sorts the owned paths of `live`.
pub fn assess(case: &Case<'_>, owned: &OwnedSet, live: &Value) -> Assessment {
    let sorter = Sorter { case, live, entries: manager::entries(live), first_sight: case.baseline.is_none() };
    let mut assessment = Assessment::default();
    for leaf in project::leaves(owned, live) {
        let declared = found_at(owned, &case.desired.value, &leaf.path);
        if !same(declared, leaf.found) {
            sorter.sort(&mut assessment, leaf, declared);
        }
    }
    sorter.sort_orders(&mut assessment, owned);
    assessment
}

struct Sorter<'a> {
    case: &'a Case<'a>,
    live: &'a Value,
    entries: Vec<Entry>,
    first_sight: bool,
}

impl Sorter<'_> {
    fn sort(&self, out: &mut Assessment, leaf: Leaf<'_>, declared: Found<'_>) {
        let value = leaf.found.digest();
        let accept = |reason, note: &str| AcceptedPath { path: leaf.path.clone(), reason, value, note: note.to_owned() };
        let actor = self.actor(&leaf);
        if let Some(reason) = self.case.baseline.and_then(|baseline| baseline.accepts(&leaf.path, value)) {
            out.accepted.push(accept(reason, "accepted before"));
            return;
        }
        if (self.case.ignored)(&leaf.path, actor.as_ref()) {
            out.accepted.push(accept(DeviationReason::Ignored, "a policy ignores it"));
            return;
        }
        let mut bound = None;
        if let (Some(scaler), Some(replicas)) = (self.case.scaler, self.replicas(&leaf)) {
            match scaler.clamp(replicas) {
                within if within == replicas => {
                    out.accepted.push(accept(DeviationReason::Yielded, &format!("{} scales it", scaler.by)));
                    return;
                }
                clamped => bound = Some(json!(clamped)),
            }
        }
        let answered = match self.case.oracle {
            Answer::NotAsked if bound.is_none() => {
                out.needs.oracle = true;
                return;
            }
            Answer::Given(answer) => Some(found_at_exactly(answer, &leaf.path)),
            _ => None,
        };
        if bound.is_none() && answered.is_some_and(|answered| same(answered, leaf.found)) {
            let reason = if equivalent(declared.value(), leaf.found.value()) { DeviationReason::Normalized } else { DeviationReason::Admission };
            out.accepted.push(accept(reason, "the server makes this of the declared value"));
            return;
        }
        if self.first_sight && bound.is_none() {
            match self.first_sight(&leaf) {
                FirstSight::Drifted => {}
                FirstSight::Admission(note) => {
                    out.accepted.push(accept(DeviationReason::Admission, note));
                    return;
                }
                FirstSight::AskCreate => {
                    out.needs.create = true;
                    return;
                }
                FirstSight::Unverified(reason) => {
                    out.unverified.push((self.drift(&leaf, declared, answered, None, actor), reason));
                    return;
                }
            }
        }
        let drift = self.drift(&leaf, declared, answered, bound, actor);
        match self.case.ledger.and_then(|ledger| ledger.held(&leaf.path, self.case.now)) {
            Some(held) => out.held.push((drift, held)),
            None => out.drifts.push(drift),
        }
    }

    /// Without a baseline only the server and `managedFields` can tell drift from what admission did at creation.
    fn first_sight(&self, leaf: &Leaf<'_>) -> FirstSight {
        match self.case.create {
            Answer::NotAsked => return FirstSight::AskCreate,
            Answer::Given(answer) if same(found_at_exactly(answer, &leaf.path), leaf.found) => {
                return FirstSight::Admission("the server makes this of the declared value when the object is created");
            }
            Answer::Refused(refusal) if matches!(self.case.oracle, Answer::Refused(_)) => return FirstSight::Unverified(refusal.reason),
            _ => {}
        }
        let Some(writer) = self.writer() else { return FirstSight::Drifted };
        let mut wanted = OwnedSet::default();
        wanted.insert_path(&leaf.path);
        let is_release = |entry: &&Entry| entry.manager == writer.manager && entry.operation == writer.operation && entry.subresource.is_empty();
        let holders: Vec<&Entry> = self.entries.iter().filter(|entry| entry.fields.intersects(&wanted)).collect();
        if !leaf.found.is_there() {
            return if holders.iter().any(is_release) { FirstSight::Admission("gone, yet the release still holds it") } else { FirstSight::Drifted };
        }
        if holders.iter().any(|entry| !is_release(entry)) {
            return FirstSight::Drifted;
        }
        match holders.iter().find(|entry| is_release(entry)) {
            Some(entry) if not_after(entry.time, self.case.deployed_at) => FirstSight::Admission("it was there when the release was deployed"),
            _ => FirstSight::Unverified(Reason::Unverified),
        }
    }

    fn writer(&self) -> Option<Writer> {
        manager::release_writer(&self.entries, self.case.prefer).or_else(|| self.case.writer.cloned())
    }

    fn actor(&self, leaf: &Leaf<'_>) -> Option<Actor> {
        if !leaf.found.is_there() {
            return None;
        }
        let writer = self.writer();
        // A value that the release itself holds was changed by admission, which leaves no trace.
        manager::actor(&self.entries, &leaf.path).filter(|actor| {
            writer.as_ref().is_none_or(|writer| writer.manager != actor.manager || writer.operation.as_str() != actor.operation)
        })
    }

    fn replicas(&self, leaf: &Leaf<'_>) -> Option<i64> {
        match leaf.path.segments() {
            [Segment::Field(spec), Segment::Field(replicas)] if &**spec == "spec" && &**replicas == "replicas" => leaf.found.value()?.as_i64(),
            _ => None,
        }
    }

    fn drift(&self, leaf: &Leaf<'_>, declared: Found<'_>, answered: Option<Found<'_>>, bound: Option<Value>, actor: Option<Actor>) -> Drift {
        let gvk = &self.case.desired.key.gvk;
        let wanted = declared.value();
        let accepted = bound.clone().or_else(|| answered.and_then(Found::value).filter(|value| Some(*value) != wanted).cloned());
        let gone = !leaf.found.is_there();
        let finding = PathFinding {
            path: leaf.path.to_string(),
            change: if gone { Change::Removed } else { Change::Changed },
            desired: redact::shown(gvk, &leaf.path, wanted),
            accepted: redact::shown(gvk, &leaf.path, accepted.as_ref()),
            live: redact::shown(gvk, &leaf.path, leaf.found.value()),
            actor: Some(actor.unwrap_or_else(|| Actor::unattributed(Vec::new()))),
        };
        let item = || project::lookup(&self.case.desired.value, &leaf.path).cloned();
        Drift {
            path: leaf.path.clone(),
            target: bound.or_else(|| wanted.cloned()).or_else(|| if declared.is_there() { item() } else { None }),
            theirs: leaf.found.digest(),
            finding,
            reason: if gone { Reason::FieldRemoved } else { Reason::FieldChanged },
        }
    }

    fn sort_orders(&self, out: &mut Assessment, owned: &OwnedSet) {
        let live_orders = project::orders(owned, self.live);
        for (path, wanted) in project::orders(owned, &self.case.desired.value) {
            let Some((_, found)) = live_orders.iter().find(|(candidate, _)| *candidate == path) else { continue };
            let both = |order: &[Segment], other: &[Segment]| order.iter().filter(|item| other.contains(item)).cloned().collect::<Vec<_>>();
            let (wanted, found) = (both(&wanted, found), both(found, &wanted));
            if wanted == found {
                continue;
            }
            let names = |order: &[Segment]| json!(order.iter().map(ToString::to_string).collect::<Vec<_>>());
            let theirs = Digest::of(&names(&found));
            if let Some(reason) = self.case.baseline.and_then(|baseline| baseline.accepts(&path, theirs)) {
                out.accepted.push(AcceptedPath { path, reason, value: theirs, note: "accepted before".to_owned() });
                continue;
            }
            if (self.case.ignored)(&path, None) {
                out.accepted.push(AcceptedPath { path, reason: DeviationReason::Ignored, value: theirs, note: "a policy ignores it".to_owned() });
                continue;
            }
            match self.case.oracle {
                Answer::NotAsked => {
                    out.needs.oracle = true;
                    continue;
                }
                Answer::Given(answer) => {
                    let answered = project::orders(owned, answer).into_iter().find(|(candidate, _)| *candidate == path).map(|(_, order)| both(&order, &wanted));
                    if answered.as_deref() == Some(&found) {
                        out.accepted.push(AcceptedPath { path, reason: DeviationReason::Admission, value: theirs, note: "the server orders it so".to_owned() });
                        continue;
                    }
                }
                Answer::Refused(_) => {}
            }
            let finding = PathFinding {
                path: path.to_string(),
                change: Change::Changed,
                desired: Some(names(&wanted)),
                accepted: None,
                live: Some(names(&found)),
                actor: Some(Actor::unattributed(Vec::new())),
            };
            let drift = Drift { path: path.clone(), target: None, theirs, finding, reason: Reason::OrderChanged };
            match self.case.ledger.and_then(|ledger| ledger.held(&path, self.case.now)) {
                Some(held) => out.held.push((drift, held)),
                None => out.drifts.push(drift),
            }
        }
    }
}

enum FirstSight {
    Drifted,
    Admission(&'static str),
    AskCreate,
    Unverified(Reason),
}

fn not_after(time: Option<Timestamp>, limit: Option<Timestamp>) -> bool {
    matches!((time, limit), (Some(time), Some(limit)) if time <= limit)
}

/// What the declared object has at an owned path. List items count as present however few of their keys are written.
fn found_at<'a>(owned: &OwnedSet, object: &'a Value, path: &Path) -> Found<'a> {
    let is_leaf = owned_leaf(owned, path);
    found_in(object, path, is_leaf)
}

fn found_at_exactly<'a>(object: &'a Value, path: &Path) -> Found<'a> {
    // A presence-only path shows as a value here; `same` treats it as presence.
    found_in(object, path, true)
}

fn found_in<'a>(object: &'a Value, path: &Path, is_leaf: bool) -> Found<'a> {
    let mut at = vec![object];
    for segment in path.segments() {
        let [one] = at.as_slice() else { return Found::Absent };
        at = project::step(Some(one), segment);
    }
    match at.as_slice() {
        [] => Found::Absent,
        [value] if is_leaf => Found::Value(value),
        [_] => Found::Present,
        _ => Found::Duplicate,
    }
}

fn owned_leaf(owned: &OwnedSet, path: &Path) -> bool {
    let mut node = owned.root();
    for segment in path.segments() {
        match node.child(segment) {
            Some(next) => node = next,
            None => return true,
        }
    }
    node.is_leaf()
}

fn same(a: Found<'_>, b: Found<'_>) -> bool {
    match (a, b) {
        (Found::Absent, Found::Absent) | (Found::Present, Found::Present | Found::Value(_)) | (Found::Value(_), Found::Present) => true,
        (Found::Value(a), Found::Value(b)) => a == b,
        _ => false,
    }
}

/// The operation a record's `apply_method` asks to prefer.
pub const fn preferred(server_side: bool) -> Operation {
    if server_side { Operation::Apply } else { Operation::Update }
}
