//! The result as a table for people.

use std::fmt::Write as _;

use holdfast_api::{
    condition::Truth,
    report::{DriftReportStatus, Finding, PathFinding, Verdict},
};
use serde_json::Value;

/// Renders all statuses: one line a source, then what differs.
pub fn render(statuses: &[DriftReportStatus]) -> String {
    let mut rows = vec![["SOURCE", "REVISION", "OBJECTS", "IN SYNC", "DRIFTED", "MISSING", "UNKNOWN", "ACCEPTED", "VERDICT"].map(str::to_owned)];
    for status in statuses {
        let source = status.source.as_ref();
        let name = source.map(|source| if source.namespace.is_empty() { source.name.clone() } else { format!("{}/{}", source.namespace, source.name) });
        let summary = &status.summary;
        rows.push([
            name.unwrap_or_default(),
            source.and_then(|source| source.revision).map_or_else(|| "-".to_owned(), |revision| revision.to_string()),
            summary.objects.to_string(),
            summary.in_sync.to_string(),
            (summary.drifted + summary.contested + summary.refused).to_string(),
            (summary.missing + summary.terminating).to_string(),
            summary.unknown.to_string(),
            summary.deviations.to_string(),
            verdict(status),
        ]);
    }
    let mut out = aligned(&rows);
    for status in statuses {
        for finding in status.findings.iter().filter(|finding| finding.verdict != Verdict::InSync) {
            write_finding(&mut out, finding);
        }
        if status.truncated > 0 {
            // Writing to a String cannot fail.
            _ = writeln!(out, "\n… and {} more findings", status.truncated);
        }
    }
    out
}

fn verdict(status: &DriftReportStatus) -> String {
    let condition = status.conditions.iter().find(|condition| condition.kind == "InSync");
    match condition {
        Some(condition) if condition.status == Truth::True => "InSync".to_owned(),
        Some(condition) if condition.status == Truth::Unknown => format!("Unknown ({})", condition.reason),
        Some(condition) => condition.reason.clone(),
        None => "Unknown".to_owned(),
    }
}

fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            _ = write!(line, "{cell:<width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn write_finding(out: &mut String, finding: &Finding) {
    let object = &finding.object;
    let name = if object.namespace.is_empty() { object.name.clone() } else { format!("{}/{}", object.namespace, object.name) };
    _ = writeln!(out, "\n{} {name}: {} ({})", object.kind, finding.verdict.as_str(), finding.message);
    for path in &finding.paths {
        write_path(out, path);
    }
}

fn write_path(out: &mut String, path: &PathFinding) {
    _ = writeln!(out, "  {}", path.path);
    let values = match (&path.desired, &path.live) {
        (None, None) => format!("{} (values not shown)", path.change.as_str().to_lowercase()),
        (desired, live) => format!("declared {}, live {}", short(desired.as_ref()), short(live.as_ref())),
    };
    let actor = path.actor.as_ref().map(|actor| match (actor.subresource.as_str(), actor.time) {
        ("", Some(time)) => format!("by {} at {time}", actor.manager),
        (subresource, Some(time)) => format!("by {} through {subresource} at {time}", actor.manager),
        (_, None) => format!("by {}", actor.manager),
    });
    _ = writeln!(out, "    {values} {}", actor.unwrap_or_default());
}

fn short(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), ToString::to_string)
}
