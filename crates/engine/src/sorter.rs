//! Decides about one difference: what the server makes of the declared value, what a policy or an autoscaler allows,
//! and what neither explains.

use holdfast_api::report::{Actor, Change, DeviationReason, PathFinding, Reason};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    assess::{AcceptedPath, Assessment, Drift},
    canonical::Digest,
    case::Case,
    equivalence::equivalent,
    ignore,
    manager::{self, Entry, Writer},
    owned::OwnedSet,
    path::{Path, Segment},
    project::{self, Difference},
    redact,
};

/// Most managers named where none can be blamed.
const CANDIDATES: usize = 5;

/// Sorts the differences of one live object.
pub struct Sorter<'a> {
    case: &'a Case<'a>,
    live: &'a Value,
    entries: Vec<Entry>,
    writer: Option<Writer>,
    /// The paths are a guess: nothing but a dry-run merge and `managedFields` can be asked.
    guessing: bool,
}

/// What becomes of one difference.
enum Sorted {
    /// It counts as in sync.
    Accepted(DeviationReason, String),
    /// It is to be put back: to the declared value, or to this one.
    Drifted(Option<Value>),
    /// Nobody can vouch for it.
    Unverified(Reason),
    /// The server must be asked for the dry-run of the declared object.
    AskOracle,
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
            Sorted::Accepted(reason, note) => out.accepted.push(AcceptedPath { path: path.clone(), reason, value: live.digest(), note }),
            Sorted::Drifted(bound) => self.place(out, self.drift(difference, bound, actor)),
            Sorted::Unverified(reason) => out.unverified.push((self.drift(difference, None, actor), reason)),
            Sorted::AskOracle => out.needs.oracle = true,
            Sorted::AskCreate => out.needs.create = true,
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
        if let Some(known) = self.known(path, live.digest(), actor) {
            return known;
        }
        if let Some(scaled) = self.scaled(difference) {
            return scaled;
        }
        if self.guessing {
            return self.guess(difference);
        }
        let answered = match self.case.oracle {
            Answer::NotAsked => return Sorted::AskOracle,
            Answer::Given(answer) => Some(project::find(answer, path)),
            // A question that got lost is no answer. A refusal is: the declared value cannot be what stands there.
            Answer::Refused(refusal) if refusal.reason == Reason::ServerError => return Sorted::Unverified(refusal.reason),
            Answer::Refused(_) => None,
        };
        if answered.is_some_and(|answered| answered.same(*live)) {
            let respelt = equivalent(declared.value(), live.value());
            let reason = if respelt { DeviationReason::Normalized } else { DeviationReason::Admission };
            return Sorted::Accepted(reason, "the server makes this of the declared value".to_owned());
        }
        if !declared.is_there() {
            // The server says that the object claims the path, yet nothing is declared there: there is nothing to write.
            return Sorted::Unverified(Reason::Unverified);
        }
        if self.case.baseline.is_none() { self.first_sight(difference) } else { Sorted::Drifted(None) }
    }

    /// What earlier judgements or the policy say of this value.
    fn known(&self, path: &Path, value: Digest, actor: Option<&Actor>) -> Option<Sorted> {
        if let Some(reason) = self.case.baseline.and_then(|baseline| baseline.accepts(path, value)) {
            return Some(Sorted::Accepted(reason, "accepted before".to_owned()));
        }
        (self.case.ignored)(path, actor).then(|| Sorted::Accepted(DeviationReason::Ignored, "a policy ignores it".to_owned()))
    }

    /// Replicas under an autoscaler: any number within its bounds is its own; one outside goes to the nearest bound, never
    /// to the manifest's, which could be an outage under load.
    fn scaled(&self, difference: &Difference<'_>) -> Option<Sorted> {
        let scaler = self.case.scaler?;
        let [Segment::Field(spec), Segment::Field(replicas)] = difference.path.segments() else { return None };
        if &**spec != "spec" || &**replicas != "replicas" {
            return None;
        }
        let there = difference.live.value().and_then(Value::as_i64);
        let from = there.or_else(|| difference.declared.value().and_then(Value::as_i64))?;
        let within = scaler.clamp(from);
        Some(if there == Some(within) {
            Sorted::Accepted(DeviationReason::Yielded, format!("{} scales it", scaler.by))
        } else {
            Sorted::Drifted(Some(json!(within)))
        })
    }

    /// Without a baseline only the server and `managedFields` can tell drift from what admission did at creation.
    fn first_sight(&self, difference: &Difference<'_>) -> Sorted {
        let admission = |note: &str| Sorted::Accepted(DeviationReason::Admission, note.to_owned());
        match self.case.create {
            Answer::NotAsked => return Sorted::AskCreate,
            Answer::Given(answer) if project::find(answer, &difference.path).same(difference.live) => {
                return admission("the server makes this of the declared value when the object is created");
            }
            Answer::Refused(refusal) if refusal.reason == Reason::ServerError || matches!(self.case.oracle, Answer::Refused(_)) => {
                return Sorted::Unverified(refusal.reason);
            }
            Answer::Given(_) | Answer::Refused(_) => {}
        }
        self.by_traces(difference)
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
        let admission = |note: &str| Sorted::Accepted(DeviationReason::Admission, note.to_owned());
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
                admission("gone, yet the release still holds it")
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
                admission("it was there when the release was deployed")
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

    /// Removals and admission leave no trace at the path; who wrote the object since it was deployed may have been it.
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
        Drift { path: path.clone(), target, theirs: live.digest(), finding, reason }
    }

    fn place(&self, out: &mut Assessment, drift: Drift) {
        match self.case.ledger.and_then(|ledger| ledger.held(&drift.path, self.case.now)) {
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
        let sorted = match (self.known(&path, theirs, None), self.case.oracle) {
            (Some(known), _) => known,
            (None, Answer::NotAsked) => Sorted::AskOracle,
            (None, Answer::Refused(refusal)) if refusal.reason == Reason::ServerError => Sorted::Unverified(refusal.reason),
            (None, _) if answered.as_deref() == Some(found) => {
                Sorted::Accepted(DeviationReason::Admission, "the server orders it so".to_owned())
            }
            (None, _) => Sorted::Drifted(None),
        };
        let drift = |path: Path| {
            let finding = PathFinding {
                path: path.to_string(),
                change: Change::Changed,
                desired: Some(names(wanted)),
                accepted: None,
                live: Some(names(found)),
                actor: Some(self.unattributed()),
            };
            Drift { path, target: None, theirs, finding, reason: Reason::OrderChanged }
        };
        match sorted {
            Sorted::Accepted(reason, note) => out.accepted.push(AcceptedPath { path, reason, value: theirs, note }),
            Sorted::Drifted(_) => self.place(out, drift(path)),
            Sorted::Unverified(reason) => out.unverified.push((drift(path), reason)),
            Sorted::AskOracle => out.needs.oracle = true,
            Sorted::AskCreate => out.needs.create = true,
        }
    }
}

fn not_after(time: Option<Timestamp>, limit: Option<Timestamp>) -> bool {
    matches!((time, limit), (Some(time), Some(limit)) if time <= limit)
}

fn in_both(order: &[Segment], other: &[Segment]) -> Vec<Segment> {
    let other: std::collections::BTreeSet<&Segment> = other.iter().collect();
    order.iter().filter(|item| other.contains(item)).cloned().collect()
}

fn names(order: &[Segment]) -> Value {
    json!(order.iter().map(ToString::to_string).collect::<Vec<_>>())
}
