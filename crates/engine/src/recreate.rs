//! Deleting an object and creating it anew, where a field that cannot be changed has drifted and the policy allows that: what is never
//! deleted, and what must be known first.

use std::collections::BTreeSet;

use holdfast_api::report::{Action, DeviationReason, Reason, Verdict};
use serde_json::Value;

use crate::{
    answer::{Answer, Fence, Live},
    assess::{AcceptedPath, Drift, assess},
    case::{Case, Permit},
    decide::{self, Judgement},
    manager,
    object::ObjectKey,
    owned::OwnedSet,
    plan::{self, Correction},
};

/// API groups of the kinds that are known well enough: nobody can tell what goes with a custom resource.
const GROUPS: [&str; 12] = [
    "",
    "admissionregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "coordination.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];
/// Kinds that hold data, or what other objects live in.
const HOLDERS: [&str; 3] = ["Namespace", "PersistentVolume", "PersistentVolumeClaim"];

/// What to do about a field that cannot be changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Ask what the server makes of a creation.
    AskCreate,
    /// Delete the object, and send this.
    Replace(Box<Correction>),
    /// Leave it: why.
    Leave(&'static str),
}

/// What to do about an object whose correction the server refused because a field cannot be changed, under a policy that allows to make
/// objects anew.
pub fn next(case: &Case<'_>) -> Next {
    let Live::Present(live) = case.live else { return Next::Leave("the object could not be read") };
    if let Some(why) = must_stay(&case.desired.key, live) {
        return Next::Leave(why);
    }
    // Once it is gone nothing but this tells that it was there.
    let may_be_created = case.seen || case.takes_the_records_word();
    if case.permit != Permit::Write || case.fence != Fence::Clear || !case.is_ours(live) || !may_be_created {
        return Next::Leave("it may not be created by the word of the release alone");
    }
    if let Some(why) = case.owned.and_then(|owned| would_lose(case, owned, live)) {
        return Next::Leave(why);
    }
    match case.create {
        Answer::NotAsked => Next::AskCreate,
        Answer::Refused(_) => Next::Leave("the server would not take it anew"),
        Answer::Given(_) => match case.release_writer(&manager::entries(live)) {
            Some(writer) => Next::Replace(Box::new(plan::create(case.desired, &writer))),
            None => Next::Leave("no field manager of the release could be found"),
        },
    }
}

/// What a new object would not have again: what is somebody else's by right, what a policy lets stand, what nobody can vouch for, what is
/// fought over, and data that nobody declares.
fn would_lose(case: &Case<'_>, owned: &OwnedSet, live: &Value) -> Option<&'static str> {
    let assessment = assess(case, owned, live);
    let is_let = |accepted: &AcceptedPath| matches!(accepted.reason, DeviationReason::Yielded | DeviationReason::Ignored);
    if assessment.accepted.iter().any(is_let) || !assessment.unverified.is_empty() || !assessment.held.is_empty() {
        return Some("fields that are not the release's to set would be set");
    }
    let keys = |object: &Value, field: &str| -> BTreeSet<String> {
        object.get(field).and_then(Value::as_object).into_iter().flat_map(|members| members.keys().cloned()).collect()
    };
    let has_more = |field: &&str| !keys(live, field).is_subset(&keys(&case.desired.value, field));
    let holds_data = case.desired.key.gvk.is("", "Secret") || case.desired.key.gvk.is("", "ConfigMap");
    (holds_data && ["data", "binaryData"].iter().any(has_more)).then_some("data that nobody declares would be deleted with it")
}

/// Why an object is never deleted.
fn must_stay(key: &ObjectKey, live: &Value) -> Option<&'static str> {
    let (group, kind) = (&*key.gvk.group, &*key.gvk.kind);
    let is_there = |pointer: &str| live.pointer(pointer).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let deletes_volumes =
        || live.pointer("/spec/persistentVolumeClaimRetentionPolicy/whenDeleted").and_then(Value::as_str) == Some("Delete");
    if !GROUPS.contains(&group) {
        return Some("nobody can tell what would be deleted with it");
    }
    if group.is_empty() && HOLDERS.contains(&kind) {
        return Some("what it holds would be deleted with it");
    }
    if key.gvk.is("batch", "Job") || key.gvk.is("", "Pod") {
        return Some("it ran once and is not run again");
    }
    if key.gvk.is("apps", "StatefulSet") && deletes_volumes() {
        return Some("its volumes would be deleted with it");
    }
    is_there("/metadata/finalizers").then_some("it has finalizers, so its deletion might not end")
}

/// The judgement that stays `Refused`, with why it was not made anew.
#[must_use]
pub fn left(mut judgement: Judgement, why: &str) -> Judgement {
    judgement.message = format!("{}, and it is not made anew: {why}", judgement.message);
    judgement
}

/// The judgement after an object was deleted and created anew.
pub fn replaced(case: &Case<'_>, owned: Option<&OwnedSet>, drifts: Vec<Drift>, answer: &Value) -> Judgement {
    let mut judgement = decide::recreated(case, owned, answer);
    judgement.reason = Reason::Immutable;
    "a field that cannot be changed had drifted, so it was deleted and created again".clone_into(&mut judgement.message);
    judgement.paths = drifts.into_iter().map(|drift| drift.finding).collect();
    judgement
}

/// The judgement after an object was deleted and not created. It is created like every missing object.
pub fn half_done(reason: Reason) -> Judgement {
    let message = "it was deleted to be created again, which has not succeeded yet";
    Judgement::plain(Verdict::Missing, Action::Deferred, reason, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Gvk;

    #[test]
    fn what_holds_data_is_never_deleted() {
        let plain = json!({});
        let with_finalizer = json!({"metadata": {"finalizers": ["example.com/wait"]}});
        let keeps = json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}});
        let deletes = json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}});
        let table = [
            ("v1", "ConfigMap", &plain, true),
            ("v1", "ConfigMap", &with_finalizer, false),
            ("v1", "Service", &plain, true),
            ("apps/v1", "Deployment", &plain, true),
            ("apps/v1", "StatefulSet", &plain, true),
            ("apps/v1", "StatefulSet", &keeps, true),
            ("apps/v1", "StatefulSet", &deletes, false),
            ("rbac.authorization.k8s.io/v1", "RoleBinding", &plain, true),
            ("v1", "PersistentVolumeClaim", &plain, false),
            ("v1", "PersistentVolume", &plain, false),
            ("v1", "Namespace", &plain, false),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", &plain, false),
            ("snapshot.storage.k8s.io/v1", "VolumeSnapshot", &plain, false),
            ("example.com/v1", "Database", &plain, false),
            ("batch/v1", "Job", &plain, false),
            ("batch/v1", "CronJob", &plain, true),
            ("v1", "Pod", &plain, false),
        ];
        for (api_version, kind, live, may_go) in table {
            let key = ObjectKey::new(Gvk::new(api_version, kind).into(), Some("shop"), "x");
            assert_eq!(must_stay(&key, live).is_none(), may_go, "{kind} {live}");
        }
    }
}
