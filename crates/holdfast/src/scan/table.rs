//! The result as a table for people.

use std::fmt::Write as _;

use holdfast_api::{
    condition::{Condition, Truth},
    report::{Action, Actor, Change, DriftReportStatus, Finding, PathFinding, SourceKind, Verdict},
};
use jiff::Timestamp;
use serde_json::Value;

use super::paint::{Paint, Tone};

/// Longest value on a line, in characters.
const SHOWN: usize = 100;

/// Renders all statuses: one line a source, then what differs, then what to make of it.
pub fn render(statuses: &[DriftReportStatus], paint: Paint) -> String {
    let mut out = overview(statuses, paint);
    for status in statuses {
        let findings: Vec<&Finding> = status.findings.iter().filter(|finding| finding.verdict != Verdict::InSync).collect();
        let condition = in_sync(status).filter(|condition| condition.status == Truth::Unknown);
        if findings.is_empty() && condition.is_none() {
            continue;
        }
        // Writing to a String cannot fail.
        _ = writeln!(out, "\n{}", paint.tone(Tone::Strong, &name(status)));
        if let Some(condition) = condition.filter(|_| findings.iter().all(|finding| finding.verdict != Verdict::Unknown)) {
            _ = writeln!(out, "  {}: {}", paint.tone(Tone::Unclear, &format!("Unknown, {}", condition.reason)), condition.message);
        }
        for finding in findings {
            write_finding(&mut out, finding, status.observed_at, paint);
        }
        // Worst first: with one in sync among the listed, so are all that are left out.
        if status.truncated > 0 && inexact(status) == 0 {
            _ = writeln!(out, "  … and {} more", status.truncated);
        }
    }
    out.push('\n');
    out.push_str(&conclusion(statuses));
    out
}

fn overview(statuses: &[DriftReportStatus], paint: Paint) -> String {
    let mut rows =
        vec![["SOURCE", "REVISION", "OBJECTS", "IN SYNC", "DRIFTED", "MISSING", "UNKNOWN", "ACCEPTED", "VERDICT"].map(str::to_owned)];
    let mut tones = vec![Tone::Strong];
    for status in statuses {
        let summary = &status.summary;
        let (word, tone) = verdict(status);
        rows.push([
            name(status),
            status.source.as_ref().and_then(|source| source.revision).map_or_else(|| "-".to_owned(), |revision| revision.to_string()),
            summary.objects.to_string(),
            summary.in_sync.to_string(),
            (summary.drifted + summary.contested + summary.refused).to_string(),
            (summary.missing + summary.terminating).to_string(),
            summary.unknown.to_string(),
            summary.deviations.to_string(),
            word,
        ]);
        tones.push(tone);
    }
    let mut widths = [0; 9];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for (row, tone) in rows.iter().zip(tones) {
        let mut cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        // The last cell is not padded: colours must not hide trailing blanks.
        if let (Some(last), Some(word)) = (cells.last_mut(), row.last()) {
            *last = paint.tone(tone, word);
        }
        out.push_str(&cells.join("  "));
        out.push('\n');
    }
    out
}

fn name(status: &DriftReportStatus) -> String {
    match &status.source {
        Some(source) if source.kind == SourceKind::Manifests => "manifests".to_owned(),
        Some(source) if source.namespace.is_empty() => source.name.clone(),
        Some(source) => format!("{}/{}", source.namespace, source.name),
        None => String::new(),
    }
}

fn in_sync(status: &DriftReportStatus) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.kind == "InSync")
}

fn verdict(status: &DriftReportStatus) -> (String, Tone) {
    match in_sync(status) {
        Some(condition) if condition.status == Truth::True => ("InSync".to_owned(), Tone::Good),
        Some(condition) if condition.status == Truth::False => (condition.reason.clone(), Tone::Bad),
        Some(condition) => (format!("Unknown ({})", condition.reason), Tone::Unclear),
        None => ("Unknown".to_owned(), Tone::Unclear),
    }
}

/// One finding with its paths; `now` is when it was made, for how long ago something was written.
pub fn write_finding(out: &mut String, finding: &Finding, now: Option<Timestamp>, paint: Paint) {
    let object = &finding.object;
    let name = match (object.kind.as_str(), object.namespace.as_str()) {
        // A document that could not be read has no name.
        ("", _) => String::new(),
        (kind, "") => format!("{kind} {}  ", object.name),
        (kind, namespace) => format!("{kind} {namespace}/{}  ", object.name),
    };
    let tone = if finding.verdict == Verdict::Unknown { Tone::Unclear } else { Tone::Bad };
    _ = writeln!(out, "  {name}{}: {}", paint.tone(tone, finding.verdict.as_str()), finding.message);
    for path in &finding.paths {
        write_path(out, path, now, paint);
    }
    if finding.paths_truncated > 0 {
        _ = writeln!(out, "    … and {} more", finding.paths_truncated);
    }
}

/// One path with both values and who wrote it.
pub fn write_path(out: &mut String, path: &PathFinding, now: Option<Timestamp>, paint: Paint) {
    let values = match (path.change, &path.desired, &path.live) {
        (Change::Changed, None, None) => "changed (values not shown)".to_owned(),
        (Change::Removed, None, _) => "removed (value not shown)".to_owned(),
        (Change::Added, _, None) => "added (value not shown)".to_owned(),
        (Change::Removed, Some(desired), _) => format!("declared {}, gone", short(desired)),
        (Change::Added, _, Some(live)) => format!("not declared, live {}", short(live)),
        (Change::Changed, Some(desired), Some(live)) => {
            let (below, desired, live) = innermost(desired, live);
            let at = if below.is_empty() { String::new() } else { format!("at {below} ") };
            format!("{at}declared {}, live {}", short(desired), short(live))
        }
        (Change::Changed, desired, live) => {
            let word = |value: &Option<Value>| value.as_ref().map_or_else(|| "(not shown)".to_owned(), short);
            format!("declared {}, live {}", word(desired), word(live))
        }
    };
    let by = path.actor.as_ref().map(|actor| who(actor, now)).unwrap_or_default();
    _ = writeln!(out, "    {}\n      {values}{}", path.path, paint.tone(Tone::Faint, &by));
}

/// `, by kubectl-edit 5 min ago`.
fn who(actor: &Actor, now: Option<Timestamp>) -> String {
    if actor.manager == Actor::UNATTRIBUTED {
        return match actor.candidates.as_slice() {
            [] => String::new(),
            candidates => format!(", perhaps by {}", candidates.join(" or ")),
        };
    }
    let through = if actor.subresource.is_empty() { String::new() } else { format!(" through {}", actor.subresource) };
    let when = match (actor.time, now) {
        (Some(time), Some(now)) => format!(" {}", ago(now.as_second() - time.as_second())),
        _ => String::new(),
    };
    format!(", by {}{through}{when}", actor.manager)
}

fn ago(seconds: i64) -> String {
    match seconds {
        ..5 => "just now".to_owned(),
        5..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// The one place below at which two values differ, if it is one: of a long list only that is worth showing.
fn innermost<'a>(mut desired: &'a Value, mut live: &'a Value) -> (String, &'a Value, &'a Value) {
    let mut below = String::new();
    loop {
        let mut different: Vec<(String, &Value, &Value)> = match (desired, live) {
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                a.iter().zip(b).enumerate().filter(|(_, (a, b))| a != b).map(|(index, (a, b))| (index.to_string(), a, b)).collect()
            }
            (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
                a.iter().zip(b.values()).filter(|((_, a), b)| a != b).map(|((name, a), b)| (name.clone(), a, b)).collect()
            }
            _ => Vec::new(),
        };
        let (Some((name, a, b)), true) = (different.pop(), different.is_empty()) else { return (below, desired, live) };
        below.push('/');
        below.push_str(&name);
        (desired, live) = (a, b);
    }
}

/// A value, cut to what people read.
pub fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// What it comes to, and what to do next.
fn conclusion(statuses: &[DriftReportStatus]) -> String {
    let sum = |count: fn(&DriftReportStatus) -> u64| statuses.iter().map(count).sum::<u64>();
    let objects = sum(|status| status.summary.objects);
    let fine = sum(|status| status.summary.in_sync);
    let unknown = sum(|status| status.summary.unknown);
    let blind = statuses.iter().filter(|status| in_sync(status).is_none_or(|condition| condition.status == Truth::Unknown)).count();
    let inexact = sum(inexact);
    let mut out = if fine == objects && blind == 0 {
        format!("{objects} {} as declared.\n", are(objects))
    } else {
        let differ = objects.saturating_sub(fine + unknown);
        let mut text = format!("{objects} {}: {fine} as declared, {differ} not", if objects == 1 { "object" } else { "objects" });
        if unknown > 0 {
            _ = write!(text, ", {unknown} unknown");
        }
        text + ".\n"
    };
    if inexact > 0 {
        _ = writeln!(out, "{inexact} of these were compared without the server's dry-run; -o json says which and why.");
    }
    out
}

/// Objects in sync as far as can be told.
fn inexact(status: &DriftReportStatus) -> u64 {
    let listed =
        status.findings.iter().filter(|finding| finding.verdict == Verdict::InSync && finding.action == Action::Reported).count() as u64;
    if listed > 0 { listed + status.truncated } else { 0 }
}

const fn are(count: u64) -> &'static str {
    if count == 1 { "object is" } else { "objects are" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_place_that_differs_is_shown() {
        for (desired, live, below) in [
            (json!([{"verbs": ["get"]}]), json!([{"verbs": ["get", "list"]}]), "/0/verbs"),
            (json!([1, 2]), json!([1, 3]), "/1"),
            (json!([1, 2]), json!([3, 4]), ""),
            (json!({"a": 1}), json!({"b": 1}), ""),
            (json!("a"), json!("b"), ""),
        ] {
            assert_eq!(innermost(&desired, &live).0, below, "{desired} {live}");
        }
    }

    #[test]
    fn times_and_long_values_are_cut_to_what_people_read() {
        assert_eq!([0, 60, 600, 10_000, 200_000].map(ago), ["just now", "60 s ago", "10 min ago", "2 h ago", "2 days ago"]);
        assert_eq!(short(&json!("é".repeat(200))).chars().count(), SHOWN + 1);
    }

    #[test]
    fn colours_stay_outside_the_columns() {
        let status = DriftReportStatus::default();
        let plain = render(std::slice::from_ref(&status), Paint::fixed(false));
        let coloured = render(&[status], Paint::fixed(true));
        assert!(!plain.contains('\x1b') && coloured.contains("\x1b[33mUnknown\x1b[0m"), "{coloured:?}");
        let stripped: String = coloured
            .split('\x1b')
            .map(|part| part.split_once('m').filter(|(code, _)| code.starts_with('[')).map_or(part, |(_, rest)| rest))
            .collect();
        assert_eq!(stripped, plain);
    }
}
