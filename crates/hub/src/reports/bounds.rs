//! How large a report may be. What is declared, and who else writes, decides about lengths and numbers of paths; none of it may make a
//! report that the management cluster cannot store, or that costs it more than a report is worth.
//!
//! An API server takes about 1.5 MiB. A report gets at most half of that: [`LISTS`] for each of its three lists, and little else.
//! What is left out of findings and deviations is counted, so a report never looks complete when it is not; of the corrections the
//! newest stay.

use holdfast_api::report::{Actor, CorrectionRecord, Deviation, DriftReportStatus, Finding, ObjectRef, PathFinding};
use serde::Serialize;

use crate::text::{cut, cut_middle};

/// Paths that a finding or a correction lists.
pub const PATHS: usize = 50;
/// Bytes of JSON that the findings take, the deviations, and the corrections.
const LISTS: usize = 256 * 1024;
/// Bytes of one path.
const PATH: usize = 512;
/// Bytes of one message.
const MESSAGE: usize = 1024;
/// Bytes of a name. The API server's own limit; manifests that it would refuse are reported too.
const NAME: usize = 253;
/// Others that an actor might have been.
const CANDIDATES: usize = 10;

/// The status as it may be stored. One that fits is left as it is.
pub fn fit(mut status: DriftReportStatus) -> DriftReportStatus {
    for condition in &mut status.conditions {
        shorten(&mut condition.message, MESSAGE, cut);
    }
    for finding in &mut status.findings {
        fit_finding(finding);
    }
    for Deviation { object, path, message, .. } in &mut status.deviations {
        fit_object(object);
        shorten(path, PATH, cut_middle);
        shorten(message, MESSAGE, cut);
    }
    for correction in &mut status.corrections {
        fit_correction(correction);
    }
    status.truncated += keep_first(&mut status.findings, LISTS);
    status.deviations_truncated += keep_first(&mut status.deviations, LISTS);
    // The last are the newest.
    status.corrections.reverse();
    keep_first(&mut status.corrections, LISTS);
    status.corrections.reverse();
    status
}

/// A finding with texts and paths within bounds.
pub fn fit_finding(finding: &mut Finding) {
    fit_object(&mut finding.object);
    shorten(&mut finding.message, MESSAGE, cut);
    finding.paths_truncated += leave_out(&mut finding.paths);
    for PathFinding { path, actor, .. } in &mut finding.paths {
        shorten(path, PATH, cut_middle);
        actor.iter_mut().for_each(fit_actor);
    }
}

/// A correction with texts and paths within bounds.
pub fn fit_correction(correction: &mut CorrectionRecord) {
    fit_object(&mut correction.object);
    correction.actor.iter_mut().for_each(fit_actor);
    correction.paths_truncated += leave_out(&mut correction.paths);
    for path in &mut correction.paths {
        shorten(path, PATH, cut_middle);
    }
}

fn fit_object(object: &mut ObjectRef) {
    let ObjectRef { api_version, kind, namespace, name, uid } = object;
    for text in [api_version, kind, namespace, name, uid] {
        shorten(text, NAME, cut);
    }
}

fn fit_actor(actor: &mut Actor) {
    let Actor { manager, operation, subresource, candidates, time: _ } = actor;
    candidates.truncate(CANDIDATES);
    for text in [manager, operation, subresource].into_iter().chain(candidates) {
        shorten(text, NAME, cut);
    }
}

fn shorten(text: &mut String, most: usize, how: impl Fn(&str, usize) -> String) {
    if text.len() > most {
        *text = how(text, most);
    }
}

/// Leaves [`PATHS`] of them; answers how many went.
fn leave_out<T>(paths: &mut Vec<T>) -> u64 {
    let more = paths.len().saturating_sub(PATHS) as u64;
    paths.truncate(PATHS);
    more
}

/// Leaves as many of the first as fit into `most` bytes; answers how many went.
fn keep_first<T: Serialize>(items: &mut Vec<T>, most: usize) -> u64 {
    let mut taken = 0;
    let kept = items.iter().take_while(|item| {
        taken += json_bytes(item);
        taken <= most
    });
    let kept = kept.count();
    let more = (items.len() - kept) as u64;
    items.truncate(kept);
    more
}

fn json_bytes(item: &impl Serialize) -> usize {
    let mut length = Length(0);
    // What cannot be written to JSON cannot be sent either; it counts for as far as it got.
    _ = serde_json::to_writer(&mut length, item).is_ok();
    length.0
}

/// Counts what is written to it.
struct Length(usize);

impl std::io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::{
        condition::{Condition, Truth},
        report::{Action, Change, DeviationReason, MAX_CORRECTIONS, MAX_LISTED, Outcome, Reason, Verdict},
    };
    use holdfast_engine::redact::SHOWN;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// A status with `listed` findings, every text and number in them `size` times what it may be, and values as long as the engine
    /// shows them.
    fn status(listed: usize, size: usize) -> DriftReportStatus {
        let text = |length: usize| "ä".repeat(length * size / 2);
        let object = ObjectRef { api_version: text(NAME), kind: text(NAME), namespace: text(NAME), name: text(NAME), uid: text(NAME) };
        let actor = Actor {
            manager: text(NAME),
            operation: text(NAME),
            subresource: text(NAME),
            time: Some(NOW),
            candidates: vec![text(NAME); CANDIDATES * size],
        };
        let value = Some(json!("\"".repeat((SHOWN - 2) / 2)));
        let path = PathFinding {
            path: text(PATH),
            change: Change::Changed,
            desired: value.clone(),
            accepted: value.clone(),
            live: value,
            actor: Some(actor.clone()),
        };
        let finding = Finding {
            object: object.clone(),
            verdict: Verdict::Drifted,
            action: Action::Corrected,
            reason: Reason::FieldChanged,
            message: text(MESSAGE),
            paths: vec![path; PATHS * size],
            paths_truncated: 0,
            first_seen: Some(NOW),
            last_seen: Some(NOW),
            count: u64::MAX,
        };
        let deviation =
            Deviation { object: object.clone(), path: text(PATH), reason: DeviationReason::Admission, since: NOW, message: text(MESSAGE) };
        let correction = CorrectionRecord {
            object,
            paths: vec![text(PATH); PATHS * size],
            paths_truncated: 0,
            actor: Some(actor),
            outcome: Outcome::Corrected,
            time: NOW,
        };
        DriftReportStatus {
            conditions: vec![Condition::new("InSync", Truth::False, "Drifted", text(MESSAGE), NOW); 4],
            findings: vec![finding; listed],
            deviations: vec![deviation; MAX_LISTED],
            corrections: vec![correction; MAX_CORRECTIONS],
            ..DriftReportStatus::default()
        }
    }

    #[test]
    fn the_worst_report_can_be_stored() {
        for (listed, size) in [(MAX_LISTED, 1), (2, 3)] {
            let wanted = status(listed, size);
            assert!(json_bytes(&wanted) > 3 << 20, "more than a server takes");
            let fitted = fit(wanted);
            let bytes = json_bytes(&fitted);
            assert!(bytes <= 3 * LISTS + 8 * 1024, "{bytes}");
            assert!(!fitted.findings.is_empty() && fitted.findings.len() as u64 + fitted.truncated == listed as u64);
            assert_eq!(fitted.deviations.len() as u64 + fitted.deviations_truncated, MAX_LISTED as u64);
            for finding in &fitted.findings {
                assert_eq!(finding.paths.len() as u64 + finding.paths_truncated, (PATHS * size) as u64);
            }
            assert!(!fitted.corrections.is_empty());
            assert_eq!(fit(fitted.clone()), fitted, "what fits stays");
        }
    }

    #[test]
    fn the_worst_findings_and_the_newest_corrections_stay() {
        let mut wanted = status(MAX_LISTED, 1);
        for (number, finding) in wanted.findings.iter_mut().enumerate() {
            finding.count = number as u64;
        }
        for (number, correction) in wanted.corrections.iter_mut().enumerate() {
            correction.time = Timestamp::from_second(i64::try_from(number).unwrap()).unwrap();
        }
        let fitted = fit(wanted);
        assert_eq!(fitted.findings[0].count, 0);
        assert_eq!(usize::try_from(fitted.corrections.last().unwrap().time.as_second()).unwrap(), MAX_CORRECTIONS - 1);
        assert!(fitted.corrections.is_sorted_by_key(|correction| correction.time));
    }

    #[test]
    fn an_ordinary_report_is_left_alone() {
        let mut ordinary = status(MAX_LISTED, 1);
        for finding in &mut ordinary.findings {
            finding.paths.truncate(1);
            finding.paths[0].actor = None;
        }
        ordinary.corrections.truncate(2);
        assert_eq!(fit(ordinary.clone()), ordinary);
    }
}
