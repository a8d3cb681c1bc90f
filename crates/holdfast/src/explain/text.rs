//! An account as people read it.

use std::fmt::Write as _;

use holdfast_api::report::{Change, PathFinding, Verdict};

use super::account::{Accepted, Account};
use crate::{
    fix::write_request,
    scan::{
        paint::{Paint, Tone},
        table,
    },
};

/// Longest list that is shown.
const LISTED: usize = 40;

/// All accounts, one after the other.
pub fn render(accounts: &[Account], paint: Paint) -> String {
    accounts.iter().map(|account| one(account, paint)).collect::<Vec<_>>().join("\n")
}

// Writing to a String cannot fail, so what it answers is dropped everywhere below.
fn one(account: &Account, paint: Paint) -> String {
    let mut out = String::new();
    let object = &account.object;
    let place = if object.namespace.is_empty() { object.name.clone() } else { format!("{}/{}", object.namespace, object.name) };
    let tone = match account.verdict {
        Verdict::InSync => Tone::Good,
        Verdict::Unknown => Tone::Unclear,
        _ => Tone::Bad,
    };
    let name = paint.tone(Tone::Strong, &format!("{} {place}", object.kind));
    _ = writeln!(out, "{name}  {}: {}", paint.tone(tone, account.verdict.as_str()), account.message);
    let mut line = |label: &str, text: &str| _ = writeln!(out, "  {label:<9} {text}");
    if let Some(cluster) = &account.cluster {
        line("cluster", cluster);
    }
    line("release", &release(account));
    line("policy", &policy(account));
    line("fields", &format!("{} claimed, {} literally as declared", account.fields.claimed, account.fields.as_declared));
    if !account.accepted.is_empty() {
        out.push_str("  accepted\n");
        for accepted in account.accepted.iter().take(LISTED) {
            write_accepted(&mut out, accepted, account, paint);
        }
        more(&mut out, account.accepted.len());
    }
    if !account.differs.is_empty() {
        out.push_str("  differs\n");
        for path in account.differs.iter().take(LISTED) {
            table::write_path(&mut out, path, Some(account.observed_at), paint);
        }
        more(&mut out, account.differs.len());
    }
    if let Some(write) = &account.would_write {
        write_request(&mut out, write, "  ");
    }
    if let Some(text) = reported(account) {
        _ = writeln!(out, "  {:<9} {text}", "hub");
    }
    _ = writeln!(out, "  {:<9} {}", "next", account.next);
    out
}

fn more(out: &mut String, count: usize) {
    if count > LISTED {
        _ = writeln!(out, "    … and {} more", count - LISTED);
    }
}

fn release(account: &Account) -> String {
    let source = &account.source;
    let mut text = source.release.clone();
    if let Some(revision) = source.revision {
        _ = write!(text, ", revision {revision}");
    }
    if let Some(at) = source.deployed_at {
        _ = write!(text, ", deployed {at}");
    }
    if let (Some(manager), Some(operation)) = (&source.manager, source.operation) {
        _ = write!(text, ", writes as {manager} ({operation})");
    }
    text
}

fn policy(account: &Account) -> String {
    let decider = &account.policy;
    match &decider.policy {
        Some(policy) if policy.namespace.is_empty() => format!("{} {}, mode {}: {}", policy.kind, policy.name, decider.mode, decider.why),
        Some(policy) => format!("{} {}/{}, mode {}: {}", policy.kind, policy.namespace, policy.name, decider.mode, decider.why),
        None => format!("none: {}", decider.why),
    }
}

fn write_accepted(out: &mut String, accepted: &Accepted, account: &Account, paint: Paint) {
    let path = PathFinding {
        path: accepted.path.clone(),
        change: Change::Changed,
        desired: accepted.declared.clone(),
        accepted: None,
        live: accepted.live.clone(),
        actor: accepted.actor.clone(),
    };
    table::write_path(out, &path, Some(account.observed_at), paint);
    let rule = accepted.rule.as_ref().map(|rule| format!(" ({rule})")).unwrap_or_default();
    _ = writeln!(out, "      {}: {}{rule}", accepted.reason.as_str(), accepted.note);
}

fn reported(account: &Account) -> Option<String> {
    let reported = account.reported.as_ref()?;
    let mut text = match &reported.finding {
        Some(finding) => {
            let since = finding.first_seen.map(|seen| format!(" since {seen}")).unwrap_or_default();
            let times = if finding.count == 1 { "once".to_owned() } else { format!("{} times", finding.count) };
            format!("reports {}, {:?}{since}, {times}", finding.verdict.as_str(), finding.action)
        }
        None => "reports it as declared".to_owned(),
    };
    if let Some(last) = reported.corrections.last() {
        let by = last.actor.as_ref().map(|actor| format!(" what {} did", actor.manager)).unwrap_or_default();
        _ = write!(text, "; last wrote {}: {}{by}", last.time, last.outcome.as_str());
    }
    Some(text)
}
