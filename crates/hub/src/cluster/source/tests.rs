//! One revision after the other.

use holdfast_helm::{Judged, RecordMeta, Status, Store};

use super::*;
use crate::cluster::state::ClusterId;

fn revision(version: u64) -> Revision {
    let meta = RecordMeta {
        store: Store::Secrets,
        stored_name: format!("v{version}"),
        name: "web".into(),
        namespace: "t".into(),
        version,
        status: Status::Deployed,
        uid: format!("u{version}"),
        resource_version: "1".into(),
        created: None,
        modified: None,
    };
    Revision { judged: Judged { version, uid: meta.uid.clone(), newest: version }, meta, deployed_at: None, deployed: 1 }
}

fn loaded(version: u64, objects: &[StateId]) -> Loaded {
    Loaded {
        revision: revision(version),
        prefer: Operation::Apply,
        objects: objects.to_vec(),
        problems: Vec::new(),
        incomplete: false,
        hash: String::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn no_verdict_of_one_revision_counts_for_the_next() {
    let id = |name| StateId::new(ClusterId(0), "", "ConfigMap", Some("t"), name);
    let key = ObjectKey::new(Arc::new(holdfast_engine::object::Gvk::new("v1", "ConfigMap")), Some("t"), "x");
    let (same, changed) = (id("same"), id("changed"));
    let name = ReleaseName { namespace: "t".into(), name: "web".into() };
    let guard = Arc::new(Guard::default_warn());
    let mut web = Guardianship::new(name, Arc::clone(&guard), Phase::Desired(revision(1)));
    assert!(web.withheld_until(Instant::now()).is_some(), "the stored report stays until its objects are judged");
    web.load(loaded(1, &[same, changed]));
    let in_sync = Judgement::unchanged(Digest::of_bytes(b"x"), 2);
    for id in [same, changed] {
        web.judged(id, &key, "", &in_sync, Timestamp::UNIX_EPOCH);
    }
    assert!(web.is_judged() && web.withheld_until(Instant::now()).is_none());

    tokio::time::advance(Duration::from_hours(1)).await;
    assert!(web.moves(guard, Phase::Desired(revision(2))));
    assert!(!web.is_judged() && web.withheld_until(Instant::now()).is_some(), "its record is not read yet");
    web.forget(&[changed]);
    web.load(loaded(2, &[same, changed]));
    assert_eq!((web.verdict(same), web.verdict(changed)), (Some(Verdict::InSync), None));
    let until = web.withheld_until(Instant::now());
    assert_eq!(until, Some(Instant::now() + JUDGED_WITHIN));
    tokio::time::advance(JUDGED_WITHIN).await;
    assert_eq!(web.withheld_until(Instant::now()), None, "at the latest");
    assert_eq!((web.summary().in_sync, web.summary().unknown), (1, 1));
}
