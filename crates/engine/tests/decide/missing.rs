//! Objects that are gone: created again where the release may, reported where it may not.

use holdfast_api::report::Reason;
use holdfast_engine::{
    answer::Fence,
    case::{Permit, Word},
    contest::{Alternation, Ledger},
    manager::Operation::{Apply, Update},
    path::Path,
};
use serde_json::{Value, json};

use crate::world::*;

fn gone(manifest: &Value, operation: holdfast_engine::manager::Operation) -> World {
    let mut world = deployed(manifest, operation);
    world.live = None;
    world
}

fn binding() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "evil"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": [{"kind": "User", "name": "mallory"}]})
}

fn named(api_version: &str, kind: &str, namespace: Option<&str>) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

#[test]
fn it_comes_back_under_the_releases_way_of_writing() {
    plays(
        &gone(&deployment(), Update),
        r"
            read
            ask fence
            create as helm/Update
            InSync Recreated ObjectMissing: it was missing and was created again
        ",
    );
    plays(
        &gone(&deployment(), Apply),
        r"
            read
            ask fence
            create by apply as helm/Apply
            InSync Recreated ObjectMissing: it was missing and was created again
        ",
    );
}

#[test]
fn a_forged_record_creates_nothing_beyond_its_namespace() {
    for manifest in [
        binding(),
        named("rbac.authorization.k8s.io/v1", "ClusterRole", None),
        named("rbac.authorization.k8s.io/v1", "RoleBinding", Some("t")),
        named("rbac.authorization.k8s.io/v1beta1", "Role", Some("t")),
        named("v1", "ConfigMap", Some("kube-system")),
        named("v1", "Namespace", None),
        named("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", None),
        named("test.example/v1", "Widget", None),
    ] {
        let mut world = gone(&manifest, Update);
        world.seen = false;
        let (judgement, written) = world.judged();
        assert_eq!((judgement.reason, written), (Reason::NotOwned, None), "{manifest}");
        world.word = Word::Trusted;
        assert!(world.judged().1.is_some(), "{manifest}: the policy vouches for the release");
        (world.word, world.seen) = (Word::OwnNamespace, true);
        assert!(world.judged().1.is_some(), "{manifest}: it was there before");
    }
    let mut world = gone(&binding(), Update);
    world.seen = false;
    plays(
        &world,
        r"
            read
            Missing Reported NotOwned: it was never seen with this release's ownership metadata, and the policy does not trust the release to create it
        ",
    );
    let mut world = gone(&config_map(), Update);
    world.seen = false;
    assert!(world.judged().1.is_some(), "in its own namespace a release may");
    world.desired.release = None;
    assert!(world.judged().1.is_none(), "a plain manifest vouches for nothing");
}

/// Whoever may write ConfigMaps gets no more by a record in one.
#[test]
fn a_record_in_a_configmap_creates_nothing_but_configmaps() {
    for (manifest, may) in [(config_map(), true), (deployment(), false), (named("v1", "Secret", Some("t")), false)] {
        let mut world = gone(&manifest, Update);
        (world.seen, world.word) = (false, Word::ConfigMaps);
        assert_eq!(world.judged().1.is_some(), may, "{manifest}");
        world.seen = true;
        assert!(world.judged().1.is_some(), "{manifest}: it was there before");
        (world.seen, world.word) = (false, Word::Trusted);
        assert!(world.judged().1.is_some(), "{manifest}: the policy vouches for the release");
    }
}

#[test]
fn what_ran_once_is_not_run_again() {
    for (api_version, kind) in [("batch/v1", "Job"), ("v1", "Pod")] {
        let mut world = gone(&named(api_version, kind, Some("t")), Update);
        world.word = Word::Trusted;
        let (judgement, written) = world.judged();
        assert_eq!((judgement.reason, written), (Reason::RunOnce, None));
    }
    assert!(gone(&named("batch/v1", "CronJob", Some("t")), Update).judged().1.is_some());
}

#[test]
fn a_job_that_goes_by_itself_is_not_missed_whatever_the_mode() {
    for permit in [Permit::Write, Permit::Report(None), Permit::Report(Some(Reason::Suspended))] {
        let mut job = named("batch/v1", "Job", Some("t"));
        job["spec"]["ttlSecondsAfterFinished"] = json!(0);
        let mut world = gone(&job, Apply);
        world.permit = permit;
        assert_eq!(world.play(), "read\nInSync Yielded RunOnce: it ended, and a Job that ended is not kept");
        // Where nothing can be created nobody can tell whether it ever was.
        world.held = Some(Reason::NamespaceMissing);
        assert_eq!(world.judged().0.reason, Reason::NamespaceMissing);
    }
    for (api_version, kind) in [("batch/v1", "CronJob"), ("x.example/v1", "Job")] {
        let mut look_alike = named(api_version, kind, Some("t"));
        look_alike["spec"]["ttlSecondsAfterFinished"] = json!(0);
        assert!(gone(&look_alike, Apply).judged().1.is_some(), "{kind} of {api_version}");
    }
}

#[test]
fn without_a_writer_a_fence_or_a_permit_nothing_is_created() {
    let mut world = gone(&deployment(), Update);
    world.writer = None;
    plays(
        &world,
        r"
            read
            Missing Reported OwnerUnclear: no field manager of the release could be found, so nothing is created
        ",
    );
    let mut world = gone(&deployment(), Update);
    for (fence, reason) in [(Fence::Closed, Reason::ReleasePending), (Fence::Unknown, Reason::ServerError)] {
        world.fence = fence;
        let (judgement, written) = world.judged();
        assert_eq!((judgement.reason, written), (reason, None));
    }
    let mut world = gone(&deployment(), Update);
    world.permit = Permit::Report(None);
    plays(
        &world,
        r"
            read
            Missing Reported ObjectMissing: the object does not exist
        ",
    );
    world.permit = Permit::Report(Some(Reason::Suspended));
    assert_eq!(world.judged().0.reason, Reason::Suspended);
}

#[test]
fn somebody_keeps_deleting_it() {
    let mut world = gone(&deployment(), Update);
    let mut ledger = Ledger::default();
    for _ in 0..3 {
        ledger.record(&[(Path::root(), digest(&json!(null)))], world.now, Alternation::default());
    }
    world.ledger = Some(ledger);
    plays(
        &world,
        r"
            read
            Contested Reported Contested: somebody keeps deleting it; created again 3 times since 2026-01-02T00:00:01Z, next try at 2026-01-02T00:10:01Z
        ",
    );
}

#[test]
fn where_nothing_can_be_created_nothing_is_tried() {
    let places = [
        (Reason::NamespaceTerminating, "its namespace is being deleted"),
        (Reason::NamespaceMissing, "nor does its namespace"),
        (Reason::KindTerminating, "the definition of its kind is being deleted"),
    ];
    for (reason, why) in places {
        for (permit, action) in [(Permit::Write, "Deferred"), (Permit::Report(None), "Reported")] {
            let mut world = gone(&deployment(), Update);
            (world.held, world.permit) = (Some(reason), permit);
            let log = world.play();
            assert!(log.contains(&format!("Missing {action} {}: ", reason.as_str())) && log.contains(why), "{log}");
            assert!(!log.contains("create") && !log.contains("ask"), "{log}");
        }
    }
}

#[test]
fn unread_or_dying_is_not_missing() {
    let mut world = deployed(&deployment(), Update);
    world.unreadable = Some(refusal(Reason::ServerError));
    plays(
        &world,
        r"
            read
            Unknown Reported ServerError: the object could not be read
        ",
    );
    let mut world = deployed(&deployment(), Update);
    world.edit("kubectl", |live| live["metadata"]["deletionTimestamp"] = json!(LATER));
    plays(
        &world,
        r"
            read
            Terminating Reported ObjectTerminating: the object is being deleted
        ",
    );
}
