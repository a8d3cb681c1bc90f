//! What comes next, and what whoever is on call can do about it.

use holdfast_api::{
    policy::Mode,
    report::{Finding, Reason, Verdict},
};
use holdfast_engine::{case::Permit, decide::Judgement};
use holdfast_hub::policy::Guard;

use super::account::is_settled;

/// What decides about the next step.
pub struct Situation<'a> {
    /// The judgement.
    pub judgement: &'a Judgement,
    /// There is a write that would correct it.
    pub proposed: bool,
    /// What policy and release permit.
    pub permit: Permit,
    /// What the policy says.
    pub guard: &'a Guard,
    /// The cluster was found through the management cluster.
    pub is_managed: bool,
    /// Cluster API paused it.
    pub is_paused: bool,
    /// The hub says that somebody undoes its corrections.
    pub contested: Option<&'a Finding>,
}

/// One or two sentences.
pub fn next(situation: &Situation<'_>) -> String {
    let Situation { judgement, guard, .. } = situation;
    if is_settled(judgement) {
        let text = if judgement.accepted.is_empty() { "it is as declared" } else { "every difference is accepted" };
        return format!("nothing to do: {text}");
    }
    if !situation.proposed {
        return format!("nothing is written: {}", reason(judgement));
    }
    if let Some(finding) = situation.contested {
        return format!("the hub leaves it alone for now: {}", finding.message);
    }
    if !situation.is_managed {
        return "holdfast fix writes this after asking; a hub does it by itself where a policy says mode: Correct".to_owned();
    }
    let held = match (situation.permit, guard.mode) {
        _ if guard.policy.is_none() => "no policy selects the release",
        (_, Mode::Off | Mode::Warn) => "the policy only reports; with mode: Correct the hub would write this",
        (Permit::Report(Some(Reason::Forbidden)), _) => "autoscalers may not be listed, and the replicas could be one's",
        (Permit::Report(_), _) => "the release is not in a state that is corrected towards",
        _ if guard.suspend => "the policy is suspended",
        _ if situation.is_paused => "the cluster is paused",
        _ => return "the hub writes this as soon as it has seen it".to_owned(),
    };
    format!("nothing is written: {held}")
}

/// Why there is no write that would help, and what would.
fn reason(judgement: &Judgement) -> String {
    let text = match judgement.reason {
        Reason::NotOwned => "the release never proved that the object is its own; put its ownership metadata back, or trust the release",
        Reason::Unverified => {
            "nobody can tell drift from the cluster's own doing; helm upgrade, or an edit back to the declared value, settles it"
        }
        Reason::OwnerUnclear => "under which name the release writes cannot be told; helm upgrade settles it",
        Reason::SelfConflict => "two releases declare it; take it out of one of them",
        Reason::RunOnce => "it ran once and is not run again",
        Reason::ReleasePending => "Helm is at work; look again when it has finished",
        Reason::NamespaceMissing => "its namespace does not exist; create it",
        Reason::NamespaceTerminating => "its namespace is being deleted",
        Reason::KindNotServed | Reason::KindTerminating => "the cluster does not serve its kind; install the definition",
        Reason::ManifestInvalid => "the server does not understand the manifest; correct it in the chart",
        Reason::AdmissionUnstable => "a correction would change more than what drifted; look at the cluster's admission webhooks",
        Reason::Immutable => "the field cannot be changed in place; delete the object, and it is created as declared",
        Reason::AdmissionDenied => "admission denies it; look at the cluster's policies and webhooks",
        Reason::QuotaExceeded => "a quota is used up",
        Reason::Forbidden => "the credentials may not ask or write this",
        Reason::ServerError => "the server did not answer; try again",
        _ if judgement.verdict == Verdict::InSync => "nothing differs as far as can be told",
        _ => return judgement.message.clone(),
    };
    text.to_owned()
}
