//! What a contest is called: both sides, the two values, and how often.

use holdfast_api::report::{Change, PathFinding};
use serde_json::Value;

use super::Held;
use crate::assess::Drift;

/// Characters shown of a value: a message is one sentence.
const SHOWN: usize = 48;

/// What is said of paths that somebody keeps changing. Values stand there as far as reports may show them.
pub(crate) fn fought(ours: &str, held: &[(Drift, Held)]) -> String {
    let Some((Drift { finding, target, .. }, fight)) = held.first() else { return String::new() };
    let theirs = finding.actor.as_ref().map_or("somebody", |actor| actor.manager.as_str());
    let wanted = value(finding.desired.as_ref(), target.is_none() && finding.desired.is_none());
    let more = match held.len() - 1 {
        0 => String::new(),
        more => format!(", and so for {more} more"),
    };
    let Held { corrections, since, until, enforced } = *fight;
    let path = if finding.path.is_empty() { "the object" } else { &finding.path };
    let then = if enforced { "enforced, next write at" } else { "next try at" };
    format!("{path}: {ours} wants {wanted}, {theirs} {}; put back {corrections} times since {since}, {then} {until}{more}", found(finding))
}

/// What is said of an object that somebody keeps deleting.
pub(crate) fn deleted(held: Held) -> String {
    let Held { corrections, since, until, .. } = held;
    format!("somebody keeps deleting it; created again {corrections} times since {since}, next try at {until}")
}

fn found(finding: &PathFinding) -> String {
    match finding.change {
        Change::Removed => "removes it".to_owned(),
        Change::Changed | Change::Added => format!("wants {}", value(finding.live.as_ref(), false)),
    }
}

fn value(shown: Option<&Value>, is_absent: bool) -> String {
    let Some(shown) = shown else { return if is_absent { "none" } else { "a hidden value" }.to_owned() };
    let text = shown.to_string();
    if text.chars().count() <= SHOWN {
        return text;
    }
    let mut head: String = text.chars().take(SHOWN).collect();
    head.push('…');
    head
}
