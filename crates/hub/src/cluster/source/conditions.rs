//! The conditions of a release's report.

use holdfast_api::{
    condition::{Condition, Truth},
    report::{Action, Finding, Summary, Verdict},
};
use jiff::Timestamp;

use super::{Contact, Guardianship};
use crate::cluster::{book::Phase, identities::Claim, limiting::how_it_ends};

impl Guardianship {
    pub(super) fn conditions(&self, contact: &Contact, summary: &Summary, findings: &[Finding], now: Timestamp) -> Vec<Condition> {
        let (truth, reason, message) = self.in_sync(contact, summary, findings, now);
        let in_sync = Condition::new("InSync", truth, &reason, message, now);
        vec![self.ready(contact, now), in_sync, reachable(contact, now), fresh(contact, now)]
    }

    fn ready(&self, contact: &Contact, now: Timestamp) -> Condition {
        if self.loaded.is_none() || self.load_error.is_some() {
            return Condition::new("Ready", Truth::False, "NotLoaded", "the release record has not been read", now);
        }
        match self.judgeable() {
            Some(revision) if revision.deployed > 1 => {
                let message = format!(
                    "the release is guarded; {} of its revisions are marked deployed, the highest counts as it does for Helm",
                    revision.deployed
                );
                ready(contact, "SeveralDeployed", &message, now)
            }
            _ => ready(contact, "Guarded", "the release is guarded", now),
        }
    }

    fn all_as_declared(&self, summary: &Summary) -> String {
        let inexact = self.findings.values().filter(|listed| listed.finding.action == Action::Reported).count();
        match inexact {
            0 => format!("{} objects are as declared", summary.in_sync),
            _ => format!("{} objects are as declared, {inexact} of them as far as can be told", summary.in_sync),
        }
    }

    fn in_sync(&self, contact: &Contact, summary: &Summary, findings: &[Finding], now: Timestamp) -> (Truth, String, String) {
        let unknown = |reason: &str, message: String| (Truth::Unknown, reason.to_owned(), message);
        if let Some(reason) = contact.unreachable {
            return unknown("ClusterUnreachable", format!("the cluster cannot be reached: {reason}"));
        }
        if contact.stale {
            return unknown("Stale", "no watch and no audit backs the last verdict".to_owned());
        }
        match &self.phase {
            Phase::Pending(pending) => return unknown(pending.reason(now), pending.message(now)),
            Phase::Held { reason, message } => return unknown(reason, message.clone()),
            Phase::Gone(true) => return unknown("ReleaseUninstalled", "the release was uninstalled".to_owned()),
            Phase::Gone(false) => {
                return unknown("RecordsVanished", "the release records are gone although no uninstallation was seen".to_owned());
            }
            Phase::Failed { failed, deployed: None } => {
                return unknown("ReleaseFailed", format!("revision {failed} failed and none is deployed"));
            }
            Phase::Failed { failed, .. } if self.guard.on_failed == holdfast_api::policy::OnFailedRelease::Report => {
                return unknown("ReleaseFailed", format!("revision {failed} failed; findings are against the last deployed revision"));
            }
            Phase::Desired(_) | Phase::Failed { .. } => {}
        }
        if let Some(error) = &self.load_error {
            return unknown(error.reason(), error.to_string());
        }
        if summary.objects == 0 && self.was_not_empty {
            return unknown("DesiredEmpty", "the revision declares nothing, an earlier one did".to_owned());
        }
        if let Some(trip) = self.tripped() {
            let message = format!(
                "{} of {} objects drifted within a minute; nothing is written. {}",
                trip.drifted,
                summary.objects,
                how_it_ends(trip)
            );
            return unknown("BlastRadius", message);
        }
        if !self.is_judged() {
            return unknown("Stale", "not every object has been judged yet".to_owned());
        }
        match findings.iter().find(|finding| finding.verdict != Verdict::InSync) {
            None => (Truth::True, "AsDeclared".to_owned(), self.all_as_declared(summary)),
            Some(worst) if summary.drifted + summary.missing + summary.refused + summary.contested == 0 => {
                let truth = if worst.verdict == Verdict::Unknown { Truth::Unknown } else { Truth::False };
                // A document that names no object is named by its message.
                let object = format!("{} {}", worst.object.kind, worst.object.name);
                let message = if object == " " { worst.message.clone() } else { format!("{object}: {}", worst.message) };
                (truth, worst.reason.as_str(), message)
            }
            Some(worst) => {
                let message = format!(
                    "{} drifted, {} missing, {} refused, {} contested of {} objects",
                    summary.drifted, summary.missing, summary.refused, summary.contested, summary.objects
                );
                (Truth::False, worst.verdict.as_str().to_owned(), message)
            }
        }
    }
}

/// The condition `Ready` where nothing is wrong but, maybe, that the cluster has a second name.
pub fn ready(contact: &Contact, reason: &str, message: &str, now: Timestamp) -> Condition {
    let truth = if matches!(contact.claim, Claim::Yielded(_)) { Truth::False } else { Truth::True };
    match contact.claim.shared_with() {
        None => Condition::new("Ready", truth, reason, message, now),
        Some(others) => Condition::new("Ready", truth, "ClusterShared", format!("{message}; {others}"), now),
    }
}

/// The condition that every report of a cluster shares.
pub fn reachable(contact: &Contact, now: Timestamp) -> Condition {
    match contact.unreachable {
        None => Condition::new("Reachable", Truth::True, "Connected", "the cluster answers", now),
        Some(reason) => Condition::new("Reachable", Truth::False, reason, "the cluster cannot be reached", now),
    }
}

/// The condition that every report of a cluster shares.
pub fn fresh(contact: &Contact, now: Timestamp) -> Condition {
    if contact.stale || contact.unreachable.is_some() {
        Condition::new("Fresh", Truth::False, "Stale", "no watch and no audit backs the verdicts", now)
    } else {
        Condition::new("Fresh", Truth::True, "Watching", "watches back the verdicts", now)
    }
}
