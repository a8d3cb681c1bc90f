//! Which revision is desired, over the histories Helm leaves behind, and the fence before a write.

use holdfast_helm::{Fence, Judged, RecordMeta, State, Status, Store, fence, select};

use Status::{Deployed, Failed, PendingInstall, PendingRollback, PendingUpgrade, Superseded, Uninstalled, Uninstalling, Unknown};

fn record(version: u64, status: Status) -> RecordMeta {
    RecordMeta {
        store: Store::Secrets,
        stored_name: format!("sh.helm.release.v1.web.v{version}"),
        name: "web".to_owned(),
        namespace: "t".to_owned(),
        version,
        status,
        uid: format!("uid-{version}"),
        resource_version: "1".to_owned(),
        created: None,
        modified: None,
    }
}

fn history(statuses: &[(u64, Status)]) -> Vec<RecordMeta> {
    statuses.iter().map(|(version, status)| record(*version, *status)).collect()
}

/// What a state is called, the revision it names, and the last deployed one.
type Told = (&'static str, u64, Option<u64>);

fn told(state: &State<'_>) -> Told {
    let (name, version) = match state {
        State::Absent => ("absent", 0),
        State::Deployed(record) => ("deployed", record.version),
        State::Pending { pending, .. } => ("pending", pending.version),
        State::Uninstalling(record) => ("uninstalling", record.version),
        State::Uninstalled(record) => ("uninstalled", record.version),
        State::Failed { failed, .. } => ("failed", failed.version),
        State::Between(record) => ("between", record.version),
        State::Unclear(record) => ("unclear", record.version),
    };
    (name, version, state.last_deployed().map(|record| record.version))
}

/// A history, what its state is, and the reason that goes with it.
type Row<'a> = (&'a str, &'a [(u64, Status)], Told, Option<&'a str>);

#[test]
fn histories() {
    let table: &[Row<'_>] = &[
        ("none", &[], ("absent", 0, None), Some("RecordsVanished")),
        ("installed", &[(1, Deployed)], ("deployed", 1, Some(1)), None),
        ("upgraded", &[(1, Superseded), (2, Superseded), (3, Deployed)], ("deployed", 3, Some(3)), None),
        ("any order", &[(3, Deployed), (1, Superseded), (2, Superseded)], ("deployed", 3, Some(3)), None),
        ("10 after 9", &[(9, Superseded), (10, Deployed)], ("deployed", 10, Some(10)), None),
        ("D17 b8: two deployed", &[(1, Deployed), (2, Deployed)], ("deployed", 2, Some(2)), None),
        ("installing", &[(1, PendingInstall)], ("pending", 1, None), Some("ReleasePending")),
        ("D12: upgrading", &[(3, Deployed), (4, PendingUpgrade)], ("pending", 4, Some(3)), Some("ReleasePending")),
        ("rolling back", &[(3, Deployed), (4, Failed), (5, PendingRollback)], ("pending", 5, Some(3)), Some("ReleasePending")),
        ("upgrading, old one flipped", &[(3, Superseded), (4, PendingUpgrade)], ("pending", 4, None), Some("ReleasePending")),
        ("nothing deployed, no successor seen", &[(3, Superseded)], ("between", 3, None), Some("ReleasePending")),
        ("successor of the deployed one superseded", &[(3, Deployed), (4, Superseded)], ("between", 4, None), Some("ReleasePending")),
        ("killed upgrade, rolled back since", &[(2, Superseded), (3, PendingUpgrade), (4, Deployed)], ("deployed", 4, Some(4)), None),
        ("killed uninstall, installed since", &[(2, Uninstalling), (3, Deployed)], ("deployed", 3, Some(3)), None),
        (
            "killed upgrade, then a failed one",
            &[(3, Deployed), (4, PendingUpgrade), (5, Failed)],
            ("pending", 4, Some(3)),
            Some("ReleasePending"),
        ),
        ("failed install", &[(1, Failed)], ("failed", 1, None), Some("ReleaseFailed")),
        ("failed upgrade", &[(3, Deployed), (4, Failed)], ("failed", 4, Some(3)), Some("ReleaseFailed")),
        ("failed upgrades", &[(3, Deployed), (4, Failed), (5, Failed)], ("failed", 5, Some(3)), Some("ReleaseFailed")),
        ("failed rollback", &[(3, Superseded), (4, Failed)], ("failed", 4, None), Some("ReleaseFailed")),
        ("failed before", &[(3, Failed), (4, Deployed)], ("deployed", 4, Some(4)), None),
        ("uninstalling", &[(2, Superseded), (3, Uninstalling)], ("uninstalling", 3, None), Some("ReleaseUninstalling")),
        ("uninstalling after a failure", &[(3, Deployed), (4, Uninstalling)], ("uninstalling", 4, None), Some("ReleaseUninstalling")),
        ("uninstalled, history kept", &[(2, Superseded), (3, Uninstalled)], ("uninstalled", 3, None), Some("ReleaseUninstalled")),
        ("status unknown", &[(3, Deployed), (4, Unknown)], ("unclear", 4, None), Some("RecordInvalid")),
    ];
    for (name, statuses, expected, reason) in table {
        let records = history(statuses);
        let selection = select(&records);
        assert_eq!(told(&selection.state), *expected, "{name}");
        assert_eq!(selection.state.reason(), *reason, "{name}");
        assert_eq!(selection.state.desired().is_some(), reason.is_none(), "{name}");
        assert_eq!(selection.newest, statuses.iter().map(|(version, _)| *version).max().unwrap_or(0), "{name}");
    }
    assert_eq!(select(&history(&[(1, Deployed), (2, Deployed)])).deployed, 2);
}

#[test]
fn fences() {
    let before = history(&[(2, Superseded), (3, Deployed)]);
    let judged = Judged::of(&select(&before)).unwrap();
    assert_eq!(judged, Judged { version: 3, uid: "uid-3".to_owned(), newest: 3 });
    let replaced = RecordMeta { uid: "other".to_owned(), ..record(3, Deployed) };
    let table: Vec<(&str, Vec<RecordMeta>, Fence)> = vec![
        ("unchanged", before, Fence::Clear),
        ("old ones pruned", history(&[(3, Deployed)]), Fence::Clear),
        ("an upgrade began", history(&[(3, Deployed), (4, PendingUpgrade)]), Fence::Pending),
        ("an upgrade is about to end", history(&[(3, Superseded), (4, PendingUpgrade)]), Fence::Pending),
        ("an upgrade ended", history(&[(3, Superseded), (4, Deployed)]), Fence::Newer),
        ("an upgrade failed", history(&[(3, Deployed), (4, Failed)]), Fence::Newer),
        ("a rollback after a failure", history(&[(3, Deployed), (4, Failed), (5, PendingRollback)]), Fence::Pending),
        ("being removed", history(&[(3, Uninstalling)]), Fence::Gone),
        ("removed, history kept", history(&[(3, Uninstalled)]), Fence::Gone),
        ("removed", vec![], Fence::Gone),
        ("superseded, successor not visible", history(&[(3, Superseded)]), Fence::Gone),
        ("removed and installed anew", vec![replaced], Fence::Gone),
        ("removed and upgraded anew", history(&[(1, PendingInstall)]), Fence::Gone),
    ];
    for (name, records, expected) in table {
        assert_eq!(fence(&judged, &records), expected, "{name}");
    }
}

#[test]
fn fence_towards_the_last_deployed() {
    let before = history(&[(3, Deployed), (4, Failed)]);
    let judged = Judged::of(&select(&before)).unwrap();
    assert_eq!((judged.version, judged.newest), (3, 4));
    assert_eq!(fence(&judged, &before), Fence::Clear, "the failed revision was known");
    assert_eq!(fence(&judged, &history(&[(3, Deployed), (4, Failed), (5, Failed)])), Fence::Newer);
    assert_eq!(fence(&judged, &history(&[(3, Deployed), (4, Failed), (5, PendingUpgrade)])), Fence::Pending);
    assert_eq!(fence(&judged, &history(&[(3, Deployed), (4, Uninstalling)])), Fence::Newer);
    assert_eq!(fence(&judged, &history(&[(3, Superseded), (4, Deployed)])), Fence::Newer, "edited by hand");
    assert_eq!(Judged::of(&select(&history(&[(1, PendingInstall)]))), None);
}

/// A history, and the revisions in force.
type InForce<'a> = (&'a str, &'a [(u64, Status)], &'a [u64]);

#[test]
fn what_may_stand_on_the_cluster() {
    let table: &[InForce<'_>] = &[
        ("none", &[], &[]),
        ("deployed", &[(1, Superseded), (2, Deployed)], &[2]),
        ("several deployed", &[(1, Deployed), (2, Deployed)], &[2]),
        ("the first install", &[(1, PendingInstall)], &[1]),
        ("an upgrade", &[(1, Superseded), (2, Deployed), (3, PendingUpgrade)], &[2, 3]),
        ("a failed one", &[(2, Deployed), (3, Failed)], &[2, 3]),
        ("nothing but failures", &[(1, Failed), (2, Failed)], &[2]),
        ("a leftover below", &[(1, PendingUpgrade), (2, Deployed)], &[2]),
        ("being removed", &[(2, Deployed), (3, Uninstalling)], &[2, 3]),
        ("superseded only", &[(1, Superseded), (2, Superseded)], &[2]),
        ("superseded above", &[(3, Deployed), (4, Superseded)], &[3, 4]),
        ("nobody knows", &[(3, Deployed), (4, Unknown)], &[3, 4]),
        ("uninstalled", &[(1, Superseded), (2, Uninstalled)], &[]),
    ];
    for (what, history_of, wanted) in table {
        let records = history(history_of);
        let versions: Vec<u64> = select(&records).in_force().map(|record| record.version).collect();
        assert_eq!(versions, *wanted, "{what}");
    }
}
