//! Plans the smallest write that restores drifted paths (design §4).

use std::fmt;

use holdfast_api::report::DeviationReason;
use serde_json::Value;

use crate::{
    answer::Answer,
    assess::Assessment,
    canonical::{Digest, Digester},
    case::{Case, Desired},
    collateral,
    fields::{self, Move},
    foreign,
    manager::{self, Entry, Operation, Writer},
    owned::OwnedSet,
    patch::{self, Op},
    path::Path,
    positional::Positional,
    project,
};

/// The request a correction sends. `Debug` hides the values: they may be a Secret's.
#[derive(Clone, PartialEq)]
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

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JsonPatch(ops) => f.debug_tuple("JsonPatch").field(ops).finish(),
            Self::Apply(_) => f.write_str("Apply"),
            Self::Create(_) => f.write_str("Create"),
            Self::CreateByApply(_) => f.write_str("CreateByApply"),
        }
    }
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

impl Correction {
    /// What it would do, whatever version of the object it meets: two corrections of one identity leave the same behind.
    pub fn identity(&self) -> Digest {
        let mut digester = Digester::new();
        digester.add(self.writer.manager.as_bytes());
        digester.add(self.writer.operation.as_str().as_bytes());
        match &self.request {
            Request::JsonPatch(ops) => {
                digester.add(b"JsonPatch");
                for op in ops.iter().filter(|op| !op.is_version_guard()) {
                    digester.add_value(serde_json::to_value(op).ok().as_ref());
                }
            }
            Request::Apply(body) => {
                digester.add(b"Apply");
                let mut body = body.clone();
                if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
                    // Of the two guards the uid stays: another incarnation is another object.
                    metadata.remove("resourceVersion");
                }
                digester.add_value(Some(&body));
            }
            Request::Create(body) | Request::CreateByApply(body) => {
                digester.add(b"Create");
                digester.add_value(Some(body));
            }
        }
        digester.finish()
    }
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

/// Plans the correction of `assessment`'s drift. `None` where no field manager of the release can be found.
pub fn plan(case: &Case<'_>, owned: &OwnedSet, live: &Value, assessment: &Assessment) -> Option<Planned> {
    let entries = manager::entries(live);
    let writer = case.release_writer(&entries)?;
    let Positional { mut ops, touched, renamed_away } = Positional::build(case, owned, live, &assessment.drifts);
    let version = live.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let (Some(version), false) = (version, ops.is_empty()) else { return Some(Planned::Impossible) };
    let removals: Vec<Path> = assessment.drifts.iter().filter(|drift| foreign::is_removal(drift)).map(|drift| drift.path.clone()).collect();
    let as_declared = assessment
        .drifts
        .iter()
        .all(|drift| drift.target.is_none() || drift.target.as_ref() == project::lookup(&case.desired.value, &drift.path));
    // The oracle says nothing about what nobody declares, nor about other values than the declared ones; and it does not outweigh the
    // dry-run of the very request.
    let clean = removals.is_empty()
        && as_declared
        && matches!(case.proof, Answer::NotAsked)
        && matches!(case.oracle, Answer::Given(oracle) if collateral::only_changes(oracle, live, &touched));
    let paths: Vec<Path> = assessment.drifts.iter().map(|drift| drift.path.clone()).collect();
    // Somebody deleted and re-created the object: its creator holds every field the release used to hold.
    let taken_over = is_taken_over(&entries, &writer);
    // What is taken away, nobody holds any more.
    let gone: Vec<Path> = renamed_away.iter().chain(&removals).cloned().collect();
    let takeover = || takeover(case, owned, assessment, (&entries, &writer), gone.clone());
    let is_apply = writer.operation == Operation::Apply;
    if is_apply
        && clean
        // An apply would leave the renamed item beside the restored one.
        && renamed_away.is_empty()
        && !manager::claims_more(&entries, &writer, owned)
        && let Some(body) = apply_body(case.desired, live)
    {
        let then = taken_over.then(takeover);
        return Some(Planned::Proven(Correction { request: Request::Apply(body), writer, paths, touched, then }));
    }
    let then = match (is_apply, taken_over) {
        (_, true) => Some(takeover()),
        // A removal leaves nothing behind that anybody could hold; see `settle` for what comes back.
        (true, false) if removals.len() == paths.len() => None,
        (true, false) => {
            let kept = fields::kept_by(&entries, &writer);
            Some(Move { to: writer.clone(), paths: below(owned, &paths), gone: gone.clone(), kept, released: OwnedSet::default() })
        }
        (false, false) => None,
    };
    ops.insert(0, patch::version_guard(version));
    let correction = Correction { request: Request::JsonPatch(ops), writer, paths, touched, then };
    // The oracle was asked with every declared value; a patch leaves rewritten ones in place, and admission may rewrite them again.
    let rewritten = assessment.accepted.iter().any(|accepted| accepted.reason == DeviationReason::Admission);
    Some(if clean && !is_apply && !rewritten { Planned::Proven(correction) } else { Planned::Unproven(correction) })
}

/// What a removal from the object of an applying release needs beside its first write, as the dry-run of that shows. Where the server puts a
/// default in the place of what was taken away, whoever wrote is given that default, and the release held nothing so before.
pub fn settle(correction: Correction, live: &Value, proof: &Value) -> Correction {
    if correction.writer.operation != Operation::Apply || correction.then.is_some() || !matches!(correction.request, Request::JsonPatch(_))
    {
        return correction;
    }
    let kept = fields::kept_by(&manager::entries(live), &correction.writer);
    if kept.covers(&fields::kept_by(&manager::entries(proof), &correction.writer)) {
        return correction;
    }
    let (to, paths, released) = (correction.writer.clone(), OwnedSet::default(), OwnedSet::default());
    let then = Move { to, paths, gone: correction.paths.clone(), kept, released };
    Correction { then: Some(then), ..correction }
}

fn is_taken_over(entries: &[Entry], writer: &Writer) -> bool {
    !entries.iter().any(|entry| writer.wrote(entry))
}

/// Whether the dry-run create is still needed to tell what the release gets back from whoever created the object anew.
pub fn needs_creation(case: &Case<'_>, live: &Value) -> bool {
    let entries = manager::entries(live);
    matches!(case.create, Answer::NotAsked) && case.release_writer(&entries).is_some_and(|writer| is_taken_over(&entries, &writer))
}

/// Plans the creation of a missing object under the release's way of writing.
pub fn create(desired: &Desired, writer: &Writer) -> Correction {
    let body = desired.written.as_ref().unwrap_or(&desired.value).clone();
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

/// Gives the release what it would hold had it created the object itself, except what belongs to somebody else with good
/// reason. The dry-run create tells what the server hands to a creator beyond the declared fields: a client-side release
/// holds these defaults, with a server-side one nobody does.
fn takeover(case: &Case<'_>, owned: &OwnedSet, assessment: &Assessment, (entries, writer): (&[Entry], &Writer), gone: Vec<Path>) -> Move {
    let mut paths = owned.clone();
    let mut released = match case.create {
        Answer::Given(created) => manager::entries(created)
            .into_iter()
            .find(|entry| entry.subresource.is_empty())
            .map(|entry: Entry| entry.fields)
            .unwrap_or_default(),
        Answer::NotAsked | Answer::Refused(_) => OwnedSet::default(),
    };
    if writer.operation == Operation::Update {
        paths.extend(&std::mem::take(&mut released));
    }
    let yielded =
        assessment.accepted.iter().filter(|accepted| !matches!(accepted.reason, DeviationReason::Admission | DeviationReason::Normalized));
    let others = yielded.map(|accepted| &accepted.path).chain(assessment.held.iter().map(|(drift, _)| &drift.path));
    for path in others.chain(assessment.unverified.iter().map(|(drift, _)| &drift.path)) {
        paths.remove_tree(path);
        released.remove_tree(path);
    }
    if writer.operation == Operation::Apply {
        name_as_written(case.desired, &mut paths, &mut released);
    }
    released.subtract(&paths);
    let kept = fields::kept_by(entries, writer);
    Move { to: writer.clone(), paths, gone, kept, released }
}

/// Who applies a Secret with `stringData` holds that name; nobody holds the `data` that the server makes of it.
fn name_as_written(desired: &Desired, paths: &mut OwnedSet, released: &mut OwnedSet) {
    let Some(Value::Object(texts)) = desired.written.as_ref().and_then(|written| written.get("stringData")) else { return };
    for name in texts.keys() {
        let data = Path::of_fields(&["data", name]);
        if paths.has(&data) {
            paths.remove_tree(&data);
            paths.insert_path(&Path::of_fields(&["stringData", name]));
            released.insert_path(&data);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn correction(request: Request) -> Correction {
        let writer = Writer { manager: "helm".into(), operation: Operation::Apply };
        Correction { request, writer, paths: Vec::new(), touched: Vec::new(), then: None }
    }

    #[test]
    fn a_correction_is_the_same_whatever_version_it_meets() {
        let patch = |version: &str, value: i64| {
            correction(Request::JsonPatch(vec![
                patch::version_guard(version),
                Op::Replace { path: "/spec/replicas".into(), value: json!(value) },
            ]))
        };
        let apply = |version: &str, uid: &str, value: i64| {
            correction(Request::Apply(json!({"metadata": {"resourceVersion": version, "uid": uid}, "spec": {"replicas": value}})))
        };
        assert_eq!(patch("7", 2).identity(), patch("8", 2).identity());
        assert_eq!(apply("7", "a", 2).identity(), apply("8", "a", 2).identity());
        let other_writer = Correction { writer: Writer { manager: "manager".into(), operation: Operation::Apply }, ..patch("7", 2) };
        let body = json!({"metadata": {"uid": "a"}, "spec": {"replicas": 2}});
        let all = [
            patch("7", 2).identity(),
            patch("7", 3).identity(),
            other_writer.identity(),
            correction(Request::JsonPatch(vec![Op::Add { path: "/spec/replicas".into(), value: json!(2) }])).identity(),
            apply("7", "a", 2).identity(),
            apply("7", "a", 3).identity(),
            apply("7", "b", 2).identity(),
            correction(Request::Create(body)).identity(),
        ];
        for (index, identity) in all.iter().enumerate() {
            assert!(!all[..index].contains(identity), "correction {index} looks like another");
        }
    }
}
