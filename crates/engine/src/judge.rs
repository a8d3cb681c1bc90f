//! The judgement for controllers of other people: does an object still hold what was generated for it?
//!
//! A controller that compares what it generates with what is live writes for ever as soon as something rewrites its fields on the way
//! in: a webhook that redirects images, a default, another spelling of a quantity. One that compares only a hash in an annotation is
//! blind to everybody else's edits. [`judge`] needs neither: it compares what is live with what the API server itself would make of the
//! generated object, and only at the fields that this object claims.
//!
//! 1. Generate the object and read the live one. Where none is there, write.
//! 2. Where [`Judged::still_holds`] of the last judgement says so, stop: nothing that the object claims has changed. This is the
//!    usual end, and costs no call. Keep one [`Judged`] per object in memory, and forget it when the generated object changes.
//! 3. Send the generated object as a forced server-side apply with `dryRun=All` under the controller's field manager, and judge.
//! 4. [`Judged::is_in_sync`]: keep the judgement. Otherwise send the same request without `dryRun`, judge its answer in place of the
//!    live object, and keep that.
//!
//! After step 4 the same state is never written again, whatever admission made of it: its own write is what the object is compared with
//! from then on. `examples/keep_generated.rs` is a whole controller.
//!
//! ```
//! use holdfast_engine::judge::{Answered, Standing, judge};
//! use serde_json::json;
//!
//! let generated = json!({"spec": {"image": "web:1", "replicas": 2}});
//! let claims = json!([{"manager": "keeper", "operation": "Apply", "fieldsV1": {"f:spec": {"f:image": {}, "f:replicas": {}}}}]);
//! // A webhook redirects images, so this is what the server makes of the generated object.
//! let answer = json!({"metadata": {"managedFields": claims}, "spec": {"image": "mirror/web:1", "replicas": 2, "paused": false}});
//! let answered = Answered { object: &answer, manager: "keeper" };
//!
//! let live = json!({"spec": {"image": "mirror/web:1", "replicas": 2, "paused": true}});
//! let judged = judge(&generated, &live, &answered).unwrap();
//! assert!(judged.is_in_sync());
//! assert_eq!(judged.paths.len(), 1, "the image, which is accepted; `paused` is nothing that was generated");
//! assert_eq!(judged.paths[0].standing, Standing::Rewritten);
//!
//! let edited = json!({"spec": {"image": "mirror/web:1", "replicas": 5}});
//! assert!(!judged.still_holds(&edited));
//! let judged = judge(&generated, &edited, &answered).unwrap();
//! let drifted: Vec<String> = judged.drifted().map(ToString::to_string).collect();
//! assert_eq!(drifted, ["/spec/replicas"]);
//! ```

use serde_json::Value;

use crate::{
    canonical::Digest,
    manager::{self, Operation},
    owned::OwnedSet,
    path::Path,
    project,
    sorter::in_both,
};

/// The server's answer to a forced server-side apply of the desired object, dry-run or not.
#[derive(Clone, Copy)]
pub struct Answered<'a> {
    /// The object as it would be, `metadata.managedFields` included.
    pub object: &'a Value,
    /// The field manager of the request.
    pub manager: &'a str,
}

/// How a path stands at which the live object is not literally as desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The server makes this of the desired value: defaulting, another spelling, admission. Writing again would change nothing.
    Rewritten,
    /// Writing would change it.
    Drifted,
}

/// One such path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedPath {
    /// Where.
    pub path: Path,
    /// How it stands.
    pub standing: Standing,
}

/// What came out. Holds digests and paths, no values, so it may be printed; set items in paths are values, see
/// [`Path::without_items`].
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The paths that the desired object claims, as the server lists them.
    pub owned: OwnedSet,
    /// Digest of what the live object has at these paths.
    pub digest: Digest,
    /// The paths at which it is not literally as desired.
    pub paths: Vec<JudgedPath>,
}

impl Judged {
    /// Whether writing the desired object would change nothing that it claims.
    pub fn is_in_sync(&self) -> bool {
        self.drifted().next().is_none()
    }

    /// The paths that writing would change.
    pub fn drifted(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|judged| judged.standing == Standing::Drifted).map(|judged| &judged.path)
    }

    /// Whether a live object has at the claimed paths what the judged one had. Whatever else changed about it (status, labels of other
    /// people, its version) does not count.
    pub fn still_holds(&self, live: &Value) -> bool {
        digest(&self.owned, live) == self.digest
    }
}

/// Judges a live object by what the server makes of the desired one. `None` where the answer does not list `manager` as an applier, so
/// that it cannot be the answer to such a request.
///
/// Only the paths count that the desired object claims: fields that somebody added beside them do not, and removing a field from the
/// desired object is a change of it.
pub fn judge(desired: &Value, live: &Value, answer: &Answered<'_>) -> Option<Judged> {
    let is_own =
        |entry: &manager::Entry| entry.manager == answer.manager && entry.operation == Operation::Apply && entry.subresource.is_empty();
    let owned = manager::entries(answer.object).into_iter().find(is_own)?.fields;
    let drifted = |path: &Path| !project::find(answer.object, path).same(project::find(live, path));
    let standing = |drifted: bool| if drifted { Standing::Drifted } else { Standing::Rewritten };
    let mut paths: Vec<JudgedPath> = project::differences(&owned, live, desired)
        .into_iter()
        .map(|difference| JudgedPath { standing: standing(drifted(&difference.path)), path: difference.path })
        .collect();
    // As desired, but not as the server would have it: admission began to rewrite since.
    for difference in project::differences(&owned, live, answer.object) {
        if !paths.iter().any(|judged| judged.path == difference.path) {
            paths.push(JudgedPath { path: difference.path, standing: Standing::Drifted });
        }
    }
    let (found, wanted) = (project::orders(&owned, live), project::orders(&owned, answer.object));
    for (path, wanted) in wanted {
        let Some((_, found)) = found.iter().find(|(candidate, _)| *candidate == path) else { continue };
        if in_both(&wanted, found) != in_both(found, &wanted) {
            paths.push(JudgedPath { path, standing: Standing::Drifted });
        }
    }
    Some(Judged { digest: digest(&owned, live), owned, paths })
}

fn digest(owned: &OwnedSet, object: &Value) -> Digest {
    project::digest(&project::leaves(owned, object))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(object: Value) -> Value {
        let mut object = object;
        object["metadata"]["managedFields"] = json!([
            {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:data": {"f:b": {}}}},
            {"manager": "keeper", "operation": "Update", "fieldsV1": {"f:data": {"f:b": {}}}},
            {"manager": "keeper", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:data": {"f:b": {}}}},
            {"manager": "keeper", "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}, "f:spec": {"f:env":
                {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}}, "k:{\"name\":\"B\"}": {".": {}, "f:name": {}}}}}},
        ]);
        object
    }

    fn env(names: &[&str]) -> Value {
        json!({"env": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()})
    }

    #[test]
    fn only_what_writing_would_change_is_drift() {
        let desired = json!({"data": {"a": "1"}, "spec": env(&["A", "B"])});
        for (what, answered, live, paths) in [
            ("as desired", "1", json!({"data": {"a": "1"}, "spec": env(&["A", "B"])}), vec![]),
            ("somebody's field", "1", json!({"data": {"a": "1", "b": "x"}, "spec": env(&["A", "X", "B"])}), vec![]),
            ("rewritten", "2", json!({"data": {"a": "2"}, "spec": env(&["A", "B"])}), vec![("/data/a", Standing::Rewritten)]),
            ("edited", "1", json!({"data": {"a": "3"}, "spec": env(&["A", "B"])}), vec![("/data/a", Standing::Drifted)]),
            ("rewritten and edited", "2", json!({"data": {"a": "3"}, "spec": env(&["A", "B"])}), vec![("/data/a", Standing::Drifted)]),
            ("older than the webhook", "2", json!({"data": {"a": "1"}, "spec": env(&["A", "B"])}), vec![("/data/a", Standing::Drifted)]),
            ("gone", "1", json!({"spec": env(&["A", "B"])}), vec![("/data/a", Standing::Drifted)]),
            ("another type", "1", json!({"data": {"a": 1}, "spec": env(&["A", "B"])}), vec![("/data/a", Standing::Drifted)]),
            ("an item gone", "1", json!({"data": {"a": "1"}, "spec": env(&["A"])}), vec![("/spec/env/[name=B]", Standing::Drifted)]),
            ("reordered", "1", json!({"data": {"a": "1"}, "spec": env(&["B", "A"])}), vec![("/spec/env/[#order]", Standing::Drifted)]),
        ] {
            let answer = answer(json!({"data": {"a": answered}, "spec": env(&["A", "B"])}));
            let judged = judge(&desired, &live, &Answered { object: &answer, manager: "keeper" }).unwrap();
            let found: Vec<(String, Standing)> = judged.paths.iter().map(|judged| (judged.path.to_string(), judged.standing)).collect();
            let expected: Vec<(String, Standing)> = paths.into_iter().map(|(path, standing)| (path.to_owned(), standing)).collect();
            assert_eq!(found, expected, "{what}");
            // Whatever the verdict, a second look at the same object costs nothing.
            assert!(judged.still_holds(&live), "{what}");
        }
    }

    #[test]
    fn what_was_written_holds_until_it_changes() {
        let desired = json!({"data": {"a": "1"}});
        let written = answer(json!({"data": {"a": "mirrored", "b": "x"}, "spec": env(&["A", "B"])}));
        let judged = judge(&desired, &written, &Answered { object: &written, manager: "keeper" }).unwrap();
        assert!(judged.is_in_sync());
        let mut live = written.clone();
        live["data"]["b"] = json!("y");
        live["status"] = json!({"ready": true});
        assert!(judged.still_holds(&live), "nothing of it is claimed");
        for (pointer, value) in
            [("/data/a", json!("1")), ("/data/a", json!(null)), ("/spec/env", json!([])), ("/spec/env", env(&["B", "A"])["env"].clone())]
        {
            let mut live = written.clone();
            *live.pointer_mut(pointer).unwrap() = value;
            assert!(!judged.still_holds(&live), "{pointer}");
        }
    }

    #[test]
    fn the_answer_to_something_else_says_nothing() {
        let answer = answer(json!({}));
        assert_eq!(judge(&json!({}), &json!({}), &Answered { object: &answer, manager: "kubectl-edit" }), None);
        assert_eq!(judge(&json!({}), &json!({}), &Answered { object: &json!({}), manager: "keeper" }), None);
    }
}
