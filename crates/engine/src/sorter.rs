//! Decides about one difference: what the server makes of the declared value, what a policy or a rightful writer allows,
//! and what neither explains.

use holdfast_api::report::{Actor, Change, DeviationReason, PathFinding, Reason};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    answer::Answer,
    assess::{AcceptedPath, Assessment, Drift},
    canonical::{Digest, Digester},
    case::{self, Case},
    equivalence::{equivalent, same_without_nulls},
    ignore,
    manager::{self, Entry, Writer},
    normalise::is_custom_group,
    object::Gvk,
    owned::OwnedSet,
    path::{Path, Segment},
    project::{self, Difference, Found},
    redact,
    yields::{self, Yield},
};

/// Most managers, and most webhooks and policies, named where none can be blamed.
const CANDIDATES: usize = 5;

/// Sorts the differences of one live object.
pub struct Sorter<'a> {
    pub(crate) case: &'a Case<'a>,
    pub(crate) live: &'a Value,
    pub(crate) entries: Vec<Entry>,
    pub(crate) writer: Option<Writer>,
    /// The paths are a guess: nothing but a dry-run merge and `managedFields` can be asked.
    guessing: bool,
}

/// What becomes of one difference.
enum Sorted {
    /// It counts as in sync.
    Accepted(DeviationReason, String),
    /// It is as declared; what is in it besides was added.
    AddedTo,
    /// It counted as in sync before.
    AcceptedBefore(DeviationReason, Digest),
    /// Admission gives another value each time.
    Volatile,
    /// It is to be put back: to the declared value, or to this one.
    Drifted(Option<Value>),
    /// Nobody can vouch for it.
    Unverified(Reason),
    /// The server must be asked for the dry-run of the declared object.
    AskOracle,
    /// The same question must be asked once more.
    AskAgain,
    /// The server must be asked for the dry-run create.
    AskCreate,
}

impl<'a> Sorter<'a> {
    /// A sorter for the differences of `live`.
    pub fn new(case: &'a Case<'a>, live: &'a Value) -> Self {
        let entries = manager::entries(live);
        let writer = case.release_writer(&entries);
        Self { case, live, entries, writer, guessing: false }
    }

    /// A sorter for differences at guessed paths.
    pub fn guessing(case: &'a Case<'a>, live: &'a Value) -> Self {
        Self { guessing: true, ..Self::new(case, live) }
    }

    /// Sorts one difference.
    pub fn sort(&self, out: &mut Assessment, difference: &Difference<'_>) {
        let Difference { path, live, .. } = difference;
        let actor = self.actor(difference);
        match self.judge_beside_ignored(difference, actor.as_ref()) {
            Sorted::Drifted(bound) => self.place(out, self.drift(difference, bound, actor)),
            Sorted::Unverified(reason) => out.unverified.push((self.drift(difference, None, actor), reason)),
            other => accept_or_ask(out, path, live.digest(), other),
        }
    }

    /// Where a policy ignores a part of a value, the rest of it counts, and what is written leaves that part alone.
    fn judge_beside_ignored(&self, difference: &Difference<'_>, actor: Option<&Actor>) -> Sorted {
        let ignored = |path: &Path| (self.case.ignored)(path, actor);
        let overlaid = match (difference.declared.value(), difference.live.value()) {
            (Some(declared), Some(live)) => ignore::overlaid(declared, live, &difference.path, &ignored),
            _ => None,
        };
        match overlaid {
            Some(wanted) if Some(&wanted) == difference.live.value() => {
                Sorted::Accepted(DeviationReason::Ignored, "a policy ignores what differs".to_owned())
            }
            Some(wanted) => match self.judge(difference, actor) {
                Sorted::Drifted(None) => Sorted::Drifted(Some(wanted)),
                sorted => sorted,
            },
            None => self.judge(difference, actor),
        }
    }

    fn judge(&self, difference: &Difference<'_>, actor: Option<&Actor>) -> Sorted {
        let Difference { path, live, declared } = difference;
        let is_traceless = actor.is_none() && live.is_there();
        if let Some(known) = self.known(path, live.digest(), actor, is_traceless) {
            return known;
        }
        if let Some(yielded) = self.yielded(difference) {
            return yielded;
        }
        if self.guessing {
            return self.guess(difference);
        }
        // It is not written whatever the server says.
        if self.case.held_at(path).is_some() {
            return Sorted::Drifted(None);
        }
        let answered = match self.case.oracle {
            Answer::NotAsked => return Sorted::AskOracle,
            Answer::Given(answer) => Some(project::find(answer, path)),
            // A question that got lost is no answer. A refusal is: the declared value cannot be what stands there.
            Answer::Refused(refusal) if refusal.reason == Reason::ServerError => return Sorted::Unverified(refusal.reason),
            Answer::Refused(_) => None,
        };
        if answered.is_some_and(|answered| answered.same(*live)) {
            if self.is_added_to(difference) {
                return Sorted::AddedTo;
            }
            let respelt = equivalent(declared.value(), live.value());
            let note = "the server makes this of the declared value";
            return if respelt { Sorted::Accepted(DeviationReason::Normalized, note.to_owned()) } else { self.admission(note) };
        }
        if is_traceless && let Some(sorted) = self.volatile(difference, answered) {
            return sorted;
        }
        if !declared.is_there() {
            // The server says that the object claims the path, yet nothing is declared there: there is nothing to write.
            return Sorted::Unverified(Reason::Unverified);
        }
        if self.case.baseline.is_none() { self.first_sight(difference) } else { Sorted::Drifted(None) }
    }

    /// What earlier judgements or the policy say of this value.
    fn known(&self, path: &Path, value: Digest, actor: Option<&Actor>, is_traceless: bool) -> Option<Sorted> {
        if let Some(accepted) = self.case.baseline.and_then(|baseline| baseline.accepts(path, value, is_traceless)) {
            return Some(Sorted::AcceptedBefore(accepted.reason, accepted.value));
        }
        (self.case.ignored)(path, actor).then(|| Sorted::Accepted(DeviationReason::Ignored, "a policy ignores it".to_owned()))
    }

    /// Whether the server rewrites the declared value, but not to what stands there: then it may give another one each time. Asked for
    /// only where nobody can be named for what stands there, so that a plain edit costs no question more.
    fn volatile(&self, difference: &Difference<'_>, answered: Option<Found<'_>>) -> Option<Sorted> {
        let answered = answered.filter(|answered| difference.declared.is_there() && answered.is_there())?;
        if equivalent(difference.declared.value(), answered.value()) {
            return None;
        }
        match self.case.oracle_again {
            Answer::NotAsked => Some(Sorted::AskAgain),
            Answer::Given(again) if !project::find(again, &difference.path).same(answered) => Some(Sorted::Volatile),
            Answer::Given(_) | Answer::Refused(_) => None,
        }
    }

    /// Fields that rightfully belong to somebody else, unless a policy enforces them.
    fn yielded(&self, difference: &Difference<'_>) -> Option<Sorted> {
        if (self.case.enforced)(&difference.path) {
            return None;
        }
        Some(match yields::answer(&self.question(difference))? {
            Yield::Theirs(note) => Sorted::Accepted(DeviationReason::Yielded, note),
            Yield::Beyond(value) => Sorted::Drifted(Some(value)),
        })
    }

    /// What is to stand where an object differs: the declared value or an autoscaler's bound; `None` where what stands there is rightfully
    /// somebody's.
    pub fn target(&self, difference: &Difference<'_>) -> Option<Value> {
        match self.yielded(difference) {
            Some(Sorted::Drifted(Some(bound))) => Some(bound),
            Some(_) => None,
            None => project::lookup(&self.case.desired.value, &difference.path).cloned(),
        }
    }

    fn question<'b>(&'b self, difference: &'b Difference<'_>) -> yields::Question<'b> {
        yields::Question {
            desired: self.case.desired,
            scalers: self.case.scalers,
            entries: &self.entries,
            writer: self.writer.as_ref(),
            path: &difference.path,
            live: difference.live.value(),
            declared: difference.declared.value(),
        }
    }

    /// Whether what nobody declares at `path` rightfully belongs to somebody, unless a policy enforces it.
    pub fn is_yielded(&self, path: &Path) -> bool {
        let difference = Difference { path: path.clone(), live: project::find(self.live, path), declared: Found::Absent };
        !(self.case.enforced)(path) && yields::answer(&self.question(&difference)).is_some()
    }

    /// What admission made of the declared value, with the webhooks and policies that may have been it.
    fn admission(&self, note: &str) -> Sorted {
        let suspects = self.suspects();
        let note = if suspects.is_empty() { note.to_owned() } else { format!("{note}, perhaps by {}", suspects.join(" or ")) };
        Sorted::Accepted(DeviationReason::Admission, note)
    }

    fn suspects(&self) -> Vec<String> {
        let mut suspects = (self.case.suspects)();
        suspects.truncate(CANDIDATES);
        suspects
    }

    /// Without a baseline only the server and `managedFields` can tell drift from what admission did at creation.
    fn first_sight(&self, difference: &Difference<'_>) -> Sorted {
        match self.case.create {
            Answer::NotAsked => return Sorted::AskCreate,
            Answer::Given(answer) if project::find(answer, &difference.path).same(difference.live) => {
                return self.admission("the server makes this of the declared value when the object is created");
            }
            Answer::Refused(refusal) if refusal.reason == Reason::ServerError || matches!(self.case.oracle, Answer::Refused(_)) => {
                return Sorted::Unverified(refusal.reason);
            }
            Answer::Given(_) | Answer::Refused(_) => {}
        }
        self.by_traces(difference)
    }

    /// Whether a map was declared empty and somebody holds what is in it now. In a map that is owned as a whole nobody can.
    fn is_added_to(&self, difference: &Difference<'_>) -> bool {
        let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
        let holds_inside = |entry: &Entry| entry.fields.node(&difference.path).is_some_and(|node| !node.is_leaf());
        difference.declared.value().is_some_and(is_empty) && self.entries.iter().any(holds_inside)
    }

    /// Whether a value is drift where the server does not tell what it makes of the manifest. What it might have made of the declared
    /// value itself is none.
    fn guess(&self, difference: &Difference<'_>) -> Sorted {
        let Difference { path, live, declared } = difference;
        let as_merged = matches!(self.case.merged, Answer::Given(merged) if project::find(merged, path).same(*live));
        let unset = |value: &Value| value.is_null() || value.as_str() == Some("");
        let respelt = declared.value().is_some_and(|value| unset(value) || equivalent(Some(value), live.value()));
        if as_merged || respelt {
            return Sorted::Accepted(DeviationReason::Normalized, "the server may make this of the declared value".to_owned());
        }
        self.by_traces(difference)
    }

    /// What `managedFields` tell about a difference that nothing else explains.
    fn by_traces(&self, difference: &Difference<'_>) -> Sorted {
        // What a release's manager holds proves something about this release's objects only.
        let Some(writer) = self.writer.as_ref().filter(|_| self.case.is_ours(self.live)) else { return Sorted::Drifted(None) };
        // Both kinds of the release's entries are the release's: a release that changed its way of applying has two.
        let is_release = |entry: &&Entry| entry.manager == writer.manager && entry.subresource.is_empty();
        let mut path = OwnedSet::default();
        path.insert_path(&difference.path);
        let (ours, others): (Vec<&Entry>, Vec<&Entry>) =
            self.entries.iter().filter(|entry| entry.fields.intersects(&path)).partition(is_release);
        if !difference.live.is_there() {
            // An entry that lost the last item of a list keeps the bare list, which says nothing about the items.
            return if ours.iter().any(|entry| entry.fields.node(&difference.path).is_some()) {
                self.admission("gone, yet the release still holds it")
            } else if difference.declared.value().is_some_and(|value| is_unset(&self.case.desired.key.gvk, &difference.path, value)) {
                // Whatever a webhook makes of it now: it was never stored.
                Sorted::Accepted(DeviationReason::Normalized, "the server stores nothing of what is declared empty".to_owned())
            } else if self.case.vouched || self.case.takes_the_records_word() {
                Sorted::Drifted(None)
            } else {
                // It may never have been there: a forged revision can declare it.
                Sorted::Unverified(Reason::Unverified)
            };
        }
        match (ours.is_empty(), others.is_empty()) {
            (_, false) => Sorted::Drifted(None),
            (false, true) if ours.iter().all(|entry| not_after(entry.time, self.case.deployed_at)) => {
                let declared = difference.declared.value().zip(difference.live.value());
                if declared.is_some_and(|(declared, live)| same_without_nulls(declared, live)) {
                    Sorted::Accepted(DeviationReason::Normalized, "the server keeps nulls of the declared value".to_owned())
                } else {
                    self.admission("it was there when the release was deployed")
                }
            }
            (_, true) => Sorted::Unverified(Reason::Unverified),
        }
    }

    fn actor(&self, difference: &Difference<'_>) -> Option<Actor> {
        if !difference.live.is_there() {
            return None;
        }
        // A value that the release itself holds was changed by admission, which leaves no trace.
        let holder = manager::holder(&self.entries, &difference.path)?;
        (!self.writer.as_ref().is_some_and(|writer| writer.wrote(holder))).then(|| holder.actor())
    }

    /// Removals and admission leave no trace at the path; who wrote the object since it was deployed may have been it, or a webhook or
    /// policy that acts on writes to it.
    fn unattributed(&self) -> Actor {
        let is_release = |entry: &Entry| self.writer.as_ref().is_some_and(|writer| writer.manager == entry.manager);
        let mut since: Vec<&Entry> = self
            .entries
            .iter()
            .filter(|entry| !is_release(entry) && entry.subresource != "status" && !not_after(entry.time, self.case.deployed_at))
            .collect();
        since.sort_by_key(|entry| std::cmp::Reverse(entry.time));
        let mut candidates: Vec<String> = Vec::new();
        for entry in since {
            if candidates.len() < CANDIDATES && !candidates.contains(&entry.manager) {
                candidates.push(entry.manager.clone());
            }
        }
        candidates.extend(self.suspects());
        Actor::unattributed(candidates)
    }

    fn drift(&self, difference: &Difference<'_>, bound: Option<Value>, actor: Option<Actor>) -> Drift {
        let Difference { path, live, declared } = difference;
        let answered = match self.case.oracle {
            Answer::Given(answer) => project::find(answer, path).value().filter(|value| Some(*value) != declared.value()),
            _ => None,
        };
        let accepted = bound.as_ref().or_else(|| answered.filter(|_| declared.value().is_some()));
        let gvk = &self.case.desired.key.gvk;
        let (change, reason) =
            if live.is_there() { (Change::Changed, Reason::FieldChanged) } else { (Change::Removed, Reason::FieldRemoved) };
        // Of an item that is missing, all that is declared comes back.
        let wanted = project::lookup(&self.case.desired.value, path);
        let finding = PathFinding {
            path: redact::path_text(gvk, path),
            change,
            desired: redact::shown(gvk, path, wanted),
            accepted: redact::shown(gvk, path, accepted),
            live: redact::shown(gvk, path, live.value()),
            actor: Some(actor.unwrap_or_else(|| self.unattributed())),
        };
        let target = bound.or_else(|| wanted.cloned());
        Drift { path: path.clone(), pair: pair(target.as_ref(), live.value()), target, finding, reason }
    }

    /// Takes drift in: it may be corrected, unless somebody keeps making it.
    pub(crate) fn place(&self, out: &mut Assessment, drift: Drift) {
        match self.case.held_at(&drift.path) {
            Some(held) => out.held.push((drift, held)),
            None => out.drifts.push(drift),
        }
    }

    /// Sorts the lists whose items' order matters.
    pub fn sort_orders(&self, out: &mut Assessment, owned: &OwnedSet) {
        let live = project::orders(owned, self.live);
        for (path, wanted) in project::orders(owned, &self.case.desired.value) {
            let Some((_, found)) = live.iter().find(|(candidate, _)| *candidate == path) else { continue };
            // Missing and foreign items are other findings.
            let (wanted, found) = (in_both(&wanted, found), in_both(found, &wanted));
            if wanted != found {
                self.sort_order(out, owned, path, &wanted, &found);
            }
        }
    }

    fn sort_order(&self, out: &mut Assessment, owned: &OwnedSet, path: Path, wanted: &[Segment], found: &[Segment]) {
        let theirs = Digest::of(&names(found));
        let answered = match self.case.oracle {
            Answer::Given(answer) => project::orders(owned, answer)
                .into_iter()
                .find(|(candidate, _)| *candidate == path)
                .map(|(_, order)| in_both(&order, wanted)),
            _ => None,
        };
        let sorted = match (self.known(&path, theirs, None, false), self.case.oracle) {
            (Some(known), _) => known,
            // It is not written whatever the server says.
            (None, _) if self.case.held_at(&path).is_some() => Sorted::Drifted(None),
            (None, Answer::NotAsked) => Sorted::AskOracle,
            (None, Answer::Refused(refusal)) if refusal.reason == Reason::ServerError => Sorted::Unverified(refusal.reason),
            (None, _) if answered.as_deref() == Some(found) => self.admission("the server orders it so"),
            (None, _) => Sorted::Drifted(None),
        };
        let gvk = &self.case.desired.key.gvk;
        let drift = |path: Path| {
            let finding = PathFinding {
                path: redact::path_text(gvk, &path),
                change: Change::Changed,
                desired: redact::shown(gvk, &path, Some(&names(wanted))),
                accepted: None,
                live: redact::shown(gvk, &path, Some(&names(found))),
                actor: Some(self.unattributed()),
            };
            Drift { path, target: None, pair: pair(Some(&names(wanted)), Some(&names(found))), finding, reason: Reason::OrderChanged }
        };
        match sorted {
            Sorted::Drifted(_) => self.place(out, drift(path)),
            Sorted::Unverified(reason) => out.unverified.push((drift(path), reason)),
            other => accept_or_ask(out, &path, theirs, other),
        }
    }
}

/// Notes what counts as in sync and what is still to be asked.
fn accept_or_ask(out: &mut Assessment, path: &Path, there: Digest, sorted: Sorted) {
    let (reason, value, is_new, note) = match sorted {
        Sorted::Accepted(reason, note) => (reason, there, true, note),
        Sorted::AcceptedBefore(reason, value) => (reason, value, false, "accepted before".to_owned()),
        Sorted::Volatile => (DeviationReason::Admission, case::ANY, true, "the server gives another value each time".to_owned()),
        Sorted::AskOracle => return out.needs.oracle = true,
        Sorted::AskAgain => return out.needs.again = true,
        Sorted::AskCreate => return out.needs.create = true,
        Sorted::AddedTo | Sorted::Drifted(_) | Sorted::Unverified(_) => return,
    };
    out.accepted.push(AcceptedPath { path: path.clone(), reason, value, is_new, note });
}

/// The two values that alternate in a fight, as one digest.
pub(crate) fn pair(ours: Option<&Value>, theirs: Option<&Value>) -> Digest {
    let mut digester = Digester::new();
    digester.add_value(ours);
    digester.add_value(theirs);
    digester.finish()
}

/// Maps of built-in kinds that the server stores only where they hold something. Other empty maps mean something: `emptyDir: {}`.
const MAPS: [&str; 9] = ["annotations", "binaryData", "data", "hard", "labels", "limits", "nodeSelector", "parameters", "requests"];

/// Whether the server stores nothing of a declared value: a null, or an empty list or map of a kind whose fields it knows.
fn is_unset(gvk: &Gvk, path: &Path, declared: &Value) -> bool {
    let is_map = || matches!(path.segments().last(), Some(Segment::Field(name)) if MAPS.contains(&&**name));
    match declared {
        Value::Null => true,
        Value::Array(items) => items.is_empty() && !is_custom_group(&gvk.group),
        Value::Object(members) => members.is_empty() && is_map() && !is_custom_group(&gvk.group),
        _ => false,
    }
}

fn not_after(time: Option<Timestamp>, limit: Option<Timestamp>) -> bool {
    matches!((time, limit), (Some(time), Some(limit)) if time <= limit)
}

/// The items of one order that are also in another.
pub fn in_both(order: &[Segment], other: &[Segment]) -> Vec<Segment> {
    let other: std::collections::BTreeSet<&Segment> = other.iter().collect();
    order.iter().filter(|item| other.contains(item)).cloned().collect()
}

fn names(order: &[Segment]) -> Value {
    json!(order.iter().map(ToString::to_string).collect::<Vec<_>>())
}
