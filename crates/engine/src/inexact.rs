//! Judges an object whose claimed paths the server does not tell: it finds the manifest unfit for its kind, or the credentials allow
//! no dry-run. The paths are guessed ([`reduced`]), so what is found is reported and never written, and the finding stays listed with
//! the reason why it is inexact even where nothing differs.

use holdfast_api::report::{Action, Reason, Verdict};
use serde_json::Value;

use crate::{
    answer::{Answer, Refusal},
    assess::assess_guess,
    case::Case,
    decide::{Judgement, Step, differ, not_owned},
    reduced,
};

/// Whether a guess is better than nothing after this refusal of the dry-run: it concerns the question, not the object.
pub(crate) fn applies(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::ManifestInvalid | Reason::Forbidden | Reason::Unverified)
}

/// The next step for such an object.
pub(crate) fn decide(case: &Case<'_>, live: &Value, refusal: &Refusal) -> Step {
    // The server merges what it will not apply: it drops unknown fields and takes duplicate keys.
    if refusal.reason == Reason::ManifestInvalid {
        match case.merged {
            Answer::NotAsked => return Step::Merge,
            // What it neither applies nor merges no object can hold, so nothing is as declared.
            Answer::Refused(Refusal { reason: Reason::ManifestInvalid | Reason::Invalid, .. }) => {
                return Step::Done(Box::new(Judgement::plain(Verdict::Unknown, Action::Reported, refusal.reason, why(refusal))));
            }
            Answer::Refused(_) | Answer::Given(_) => {}
        }
    }
    let guess = reduced::owned(&case.desired.key.gvk, &case.desired.value);
    let assessment = assess_guess(case, &guess, live);
    let why = why(refusal);
    let (verdict, message) = match (assessment.drifts.len() + assessment.held.len(), assessment.unverified.len()) {
        (0, 0) => (Verdict::InSync, format!("as declared, as far as can be told: {why}")),
        _ if !case.is_ours(live) => return Step::Done(Box::new(not_owned(assessment))),
        (0, _) => (Verdict::Unknown, format!("nothing tells whether it was so when the release was deployed: {why}")),
        (count, _) => (Verdict::Drifted, format!("{}, as far as can be told: {why}", differ(count))),
    };
    let judgement = Judgement::plain(verdict, Action::Reported, refusal.reason, message).about(assessment);
    // A guess is no baseline.
    Step::Done(Box::new(Judgement { settled: false, ..judgement }))
}

fn why(refusal: &Refusal) -> String {
    match refusal.reason {
        Reason::Forbidden => "these credentials allow no dry-run".to_owned(),
        Reason::Unverified => "a webhook allows no dry-run".to_owned(),
        _ if refusal.fields.is_empty() => "the server refuses the manifest in a dry-run".to_owned(),
        _ => format!("the server refuses the manifest in a dry-run at {}", refusal.fields.join(", ")),
    }
}
