//! Revisions that Helm is at work on, or died over.

use holdfast_fleet::clock::{Clock, SystemClock};
use holdfast_testkit::{Target, release};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{
    fixture::{Marker, Release, Style, configmap, hub_writes, is_conflict, lines, wait_live, writes_to},
    support::{World, condition, live, message, reason},
};

/// A release whose newest revision does not get anywhere.
struct Row {
    name: &'static str,
    /// What is deployed below it.
    deployed: bool,
    status: &'static str,
    /// `info.last_deployed`, from the time the test runs.
    begun: Begun,
    reason: &'static str,
    /// Part of the condition's message.
    told: &'static str,
}

enum Begun {
    /// Long ago.
    LongAgo,
    /// Right now.
    Now,
    /// It will be stuck in some seconds.
    AlmostLongAgo,
    /// The body does not say; Helm 3 writes such times as empty texts.
    Unsaid,
    /// The body cannot be read.
    Unreadable,
    /// By a clock that is a day fast.
    Tomorrow,
}

const STUCK: &str = "for more than";

fn rows() -> [Row; 9] {
    let row = |name, deployed, status, begun, reason, told| Row { name, deployed, status, begun, reason, told };
    [
        row("upgrade", true, "pending-upgrade", Begun::LongAgo, "ReleaseStuck", "revision 2 is pending-upgrade for more than"),
        row("rollback", true, "pending-rollback", Begun::LongAgo, "ReleaseStuck", "revision 2 is pending-rollback for more than"),
        row("install", false, "pending-install", Begun::LongAgo, "ReleaseStuck", "revision 2 is pending-install for more than"),
        row("aging", true, "pending-upgrade", Begun::AlmostLongAgo, "ReleasePending", "revision 2 is pending-upgrade"),
        row("running", true, "pending-upgrade", Begun::Now, "ReleasePending", "revision 2 is pending-upgrade"),
        row("undated", true, "pending-upgrade", Begun::Unsaid, "ReleasePending", "revision 2 is pending-upgrade"),
        row("garbled", true, "pending-upgrade", Begun::Unreadable, "ReleasePending", "revision 2 is pending-upgrade"),
        row("fast-clock", true, "pending-upgrade", Begun::Tomorrow, "ReleasePending", "revision 2 is pending-upgrade"),
        row("uninstall", true, "uninstalling", Begun::LongAgo, "ReleaseUninstalling", "revision 2 is uninstalling"),
    ]
}

impl Row {
    /// The pending revision declares another color.
    async fn begin(&self, world: &World, objects: &[Value]) {
        let now = SystemClock.now();
        let at = |seconds| json!(now + SignedDuration::from_secs(seconds));
        let last_deployed = match self.begun {
            Begun::LongAgo => at(-3 * 3600),
            Begun::Now | Begun::Unreadable => at(0),
            Begun::AlmostLongAgo => at(-15 * 60 + 5),
            Begun::Unsaid => json!(""),
            Begun::Tomorrow => at(24 * 3600),
        };
        let manifest = objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n");
        let extra = json!({"info": {"last_deployed": last_deployed}});
        let record = match self.begun {
            Begun::Unreadable => release::secret_of_bytes(self.name, &world.namespace, 2, self.status, b"no record"),
            _ => release::secret(self.name, &world.namespace, 2, self.status, &manifest, &extra).unwrap(),
        };
        world.workload.put_release(&record).await.unwrap();
    }
}

#[tokio::test]
async fn a_release_that_is_pending_for_ever_is_stuck_and_left_alone() {
    let namespace = "stuck";
    let mut world = World::new(namespace).await;
    let marker = Marker::install(&world).await;
    let objects = |name: &str, color: &str| [configmap(namespace, name, "color", color)];
    for row in rows() {
        let release = Release::new(&world, row.name, Style::ClientSide);
        release.write(&objects(row.name, "blue")[0]).await;
        if row.deployed {
            release.record(1, "deployed", &objects(row.name, "blue")).await;
        }
    }
    world.policy("Correct", json!({})).await;
    // Half of them before the hub starts.
    for row in rows().iter().step_by(2) {
        row.begin(&world, &objects(row.name, "green")).await;
    }
    world.start_hub(&[]);
    for row in rows().iter().skip(1).step_by(2) {
        if row.deployed {
            world.wait_in_sync(row.name).await;
        }
        row.begin(&world, &objects(row.name, "green")).await;
    }
    let mark = world.workload.audit_mark().await.unwrap();
    let kubectl = world.writer("kubectl-edit");
    for row in rows() {
        let report = world
            .wait_report(Some(row.name), row.reason, |status| {
                condition(status, "InSync") == "Unknown"
                    && reason(status, "InSync") == row.reason
                    && message(status, "InSync").contains(row.told)
            })
            .await;
        let is_stuck = message(&report["status"], "InSync").contains(STUCK);
        assert_eq!(is_stuck, row.reason == "ReleaseStuck", "{}", row.name);
        kubectl.merge_patch(&Target::configmap(namespace, row.name), &json!({"data": {"color": "red"}})).await.unwrap();
    }
    // Nothing happens to it any more, but time passes.
    world
        .wait_report(Some("aging"), "stuck by time alone", |status| {
            reason(status, "InSync") == "ReleaseStuck" && message(status, "InSync").contains("for more than 15 minutes, since 20")
        })
        .await;
    marker.pass(&world).await;
    for row in rows() {
        let target = Target::configmap(namespace, row.name);
        let writes = writes_to(world.workload, mark, &target).await.filter(|call| call.name == row.name);
        assert!(writes.is_empty(), "{}: {:?}", row.name, lines(&writes));
        assert_eq!(live(&kubectl, &target, "/data/color").await, json!("red"), "{}", row.name);
    }
    // Somebody deletes the record, which is how one gets out of it; or it gets there after all.
    for row in rows() {
        let release = Release::new(&world, row.name, Style::ClientSide);
        let color = if row.deployed {
            release.forget(2).await;
            "blue"
        } else {
            release.record(2, "deployed", &objects(row.name, "green")).await;
            "green"
        };
        wait_live(&world, &kubectl, &Target::configmap(namespace, row.name), "/data/color", &json!(color)).await;
        world.wait_in_sync(row.name).await;
    }
}

/// What another release is on its way to declares an object of ours: nobody knows whose value counts.
#[tokio::test]
async fn what_a_pending_or_failed_revision_declares_is_claimed() {
    // The status, whether a revision is deployed below it, and whether it is there before the hub.
    let rows = [
        ("pending-upgrade", true, false),
        ("pending-rollback", true, true),
        ("pending-install", false, true),
        ("failed", true, false),
        ("failed", false, true),
        ("uninstalling", false, true),
    ];
    for (number, (status, below, first)) in rows.into_iter().enumerate() {
        let namespace = &format!("pending-claim-{number}");
        let mut world = World::new(namespace).await;
        let marker = Marker::install(&world).await;
        let one = Release::new(&world, "one", Style::ClientSide);
        let shared = configmap(namespace, "shared", "color", "blue");
        one.install(&[shared.clone(), configmap(namespace, "own", "color", "blue")]).await;
        // No policy selects the other release.
        let two = Release::new(&world, "two", Style::ServerSide);
        let of_two = configmap(namespace, "of-two", "color", "blue");
        if below {
            two.install(std::slice::from_ref(&of_two)).await;
        }
        let revision = if below { 2 } else { 1 };
        let wanted = [of_two, configmap(namespace, "shared", "color", "green")];
        world
            .policy("Correct", json!({"releases": [{"namespace": namespace, "name": "one"}, {"namespace": namespace, "name": "marker"}]}))
            .await;
        if first {
            two.record(revision, status, &wanted).await;
            world.start_hub(&[]);
        } else {
            world.start_hub(&[]);
            world.wait_in_sync("one").await;
            two.record(revision, status, &wanted).await;
        }
        world.wait_report(Some("one"), "conflict", |report| is_conflict(report, &format!("{namespace}/two"))).await;
        let mark = world.workload.audit_mark().await.unwrap();
        let kubectl = world.writer("kubectl-edit");
        for name in ["shared", "own"] {
            kubectl.merge_patch(&Target::configmap(namespace, name), &json!({"data": {"color": "red"}})).await.unwrap();
        }
        wait_live(&world, &kubectl, &Target::configmap(namespace, "own"), "/data/color", &json!("blue")).await;
        marker.pass(&world).await;
        let writes = hub_writes(world.workload, mark).await.in_namespace(namespace).filter(|call| call.name == "shared");
        assert!(writes.is_empty(), "{status}: {:?}", lines(&writes));
        // It is given up, and the object has one owner again.
        two.forget(revision).await;
        wait_live(&world, &kubectl, &Target::configmap(namespace, "shared"), "/data/color", &json!("blue")).await;
        world.wait_in_sync("one").await;
    }
}
