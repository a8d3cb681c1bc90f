//! What runs once: Jobs that a queue holds back, and Jobs that ended and are gone.

use serde_json::Value;

use super::{Question, Yield, annotation};
use crate::case::Case;

/// Label that hands a workload to a queue of Kueue, which suspends and resumes it.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// Annotation that lets Kueue start a Job with fewer Pods than declared.
const LEAST: &str = "kueue.x-k8s.io/job-min-parallelism";

pub(super) fn answer(question: &Question<'_>) -> Option<Yield> {
    question.label(QUEUE).filter(|queue| !queue.is_empty())?;
    if question.is_at(&["spec", "suspend"]) && question.live.is_some_and(Value::is_boolean) {
        return Some(Yield::theirs("Kueue suspends and resumes it"));
    }
    if question.is_any("batch", &["Job"]) && question.is_at(&["spec", "parallelism"]) {
        let least: i64 = annotation(question.desired, LEAST)?.parse().ok()?;
        let (live, declared) = (question.live?.as_i64()?, question.declared?.as_i64()?);
        return (least..declared).contains(&live).then(|| Yield::theirs("Kueue admitted a part of it"));
    }
    None
}

/// Whether a Job that is missing is one that ended: it says itself that it goes then.
pub(crate) fn has_ended(case: &Case<'_>) -> bool {
    let desired = case.desired;
    desired.key.gvk.is("batch", "Job") && desired.value.pointer("/spec/ttlSecondsAfterFinished").is_some_and(Value::is_number)
}
