//! The writer against an API server in memory, on paused time, counting requests.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use holdfast_api::{
    condition::{Condition, Truth},
    report::{DriftReportStatus, Summary},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{desk::Desk, fake_server::Server, *};
use crate::{
    fleet_view::{ClusterEntry, Credential, FleetView, Gate, ObjectName},
    policy::{DefaultMode, PolicySet},
};

struct Fixture {
    server: Arc<Server>,
    reports: Reports,
    fleet: watch::Sender<Arc<FleetView>>,
    token: CancellationToken,
}

fn owner() -> OwnerRef {
    OwnerRef { api_version: "cluster.x-k8s.io/v1beta2".into(), kind: "Cluster".into(), name: "one".into(), uid: "uid-cluster".into() }
}

fn fleet(clusters: &[&str]) -> Arc<FleetView> {
    let entries = clusters.iter().map(|name| {
        let name = ClusterName::new("fleet", name);
        let entry = ClusterEntry {
            name: name.clone(),
            labels: Arc::default(),
            namespace_labels: None,
            owner: owner(),
            created: jiff::Timestamp::UNIX_EPOCH,
            gate: Gate::Open,
            secret: None,
            credential: Credential::Missing,
        };
        (name, Arc::new(entry))
    });
    let policies = Arc::new(PolicySet::compile([], DefaultMode::Warn));
    Arc::new(FleetView { complete: true, clusters: entries.collect(), policies })
}

#[expect(clippy::disallowed_methods, reason = "the test awaits the task itself")]
fn start_on(server: Arc<Server>, view: Arc<FleetView>) -> (Fixture, tokio::task::JoinHandle<()>) {
    let reports = Reports::default();
    let fleet = watch::Sender::new(view);
    let token = CancellationToken::new();
    let writer = ReportWriter::new(server.client(), reports.clone(), fleet.subscribe(), None);
    let stop = token.clone();
    let task = tokio::spawn(async move { writer.run(stop).await });
    (Fixture { server, reports, fleet, token }, task)
}

async fn start() -> Fixture {
    let (fixture, _) = start_on(Arc::default(), fleet(&["one"]));
    fixture.reports.learned().await;
    fixture
}

fn key(release: &str) -> ReportKey {
    ReportKey { cluster: ClusterName::new("fleet", "one"), source: SourceId::helm("shop", release) }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn status(drifted: u64, seconds: i64) -> DriftReportStatus {
    let truth = if drifted == 0 { Truth::True } else { Truth::False };
    DriftReportStatus {
        conditions: vec![Condition::new("InSync", truth, "X", "x", at(seconds))],
        observed_at: Some(at(seconds)),
        summary: Summary { objects: 3, drifted, ..Summary::default() },
        ..DriftReportStatus::default()
    }
}

async fn pass(seconds: u64) {
    // Small steps let the tasks run in between.
    for _ in 0..seconds * 4 {
        sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_status_is_written_at_once_and_an_equal_one_never() {
    let fixture = start().await;
    fixture.reports.publish(key("web"), owner(), status(0, 1));
    sleep(Duration::from_millis(10)).await;
    assert_eq!(fixture.server.requests(), ["POST ", "PUT status"]);
    let stored = fixture.server.stored(&key("web")).unwrap();
    assert_eq!(stored["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"], "one");
    assert_eq!(stored["metadata"]["labels"]["holdfast.dev/source"], "HelmRelease.shop.web");
    assert_eq!(stored["metadata"]["ownerReferences"][0]["uid"], "uid-cluster");
    assert_eq!(stored["spec"], json!({"cluster": "one", "source": "HelmRelease shop/web"}));
    assert_eq!(fixture.reports.uid(&key("web")).as_deref(), stored["metadata"]["uid"].as_str());

    for second in 2..300 {
        fixture.reports.publish(key("web"), owner(), status(0, second));
        pass(1).await;
    }
    assert_eq!(fixture.server.requests(), [""; 0], "only times differ, and our own writes wake nobody");
}

#[tokio::test(start_paused = true)]
async fn changes_are_gathered_for_a_second_and_only_the_newest_is_written() {
    let fixture = start().await;
    for drifted in 0..10 {
        fixture.reports.publish(key("web"), owner(), status(drifted, 1));
    }
    sleep(Duration::from_millis(10)).await;
    assert_eq!(fixture.server.requests(), ["POST ", "PUT status"]);
    for drifted in 10..20 {
        fixture.reports.publish(key("web"), owner(), status(drifted, 2));
    }
    sleep(Duration::from_millis(900)).await;
    assert_eq!(fixture.server.requests(), [""; 0]);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(fixture.server.requests(), ["PUT status"]);
    assert_eq!(fixture.server.stored(&key("web")).unwrap()["status"]["summary"]["drifted"], 19);
}

#[tokio::test(start_paused = true)]
async fn conditions_keep_the_time_of_their_last_change() {
    let fixture = start().await;
    for (drifted, seconds) in [(1, 1), (2, 10), (0, 20)] {
        fixture.reports.publish(key("web"), owner(), status(drifted, seconds));
        pass(2).await;
    }
    let stored = fixture.server.stored(&key("web")).unwrap();
    assert_eq!(stored["status"]["conditions"][0]["lastTransitionTime"], at(20).to_string());
    fixture.reports.publish(key("web"), owner(), DriftReportStatus { truncated: 1, ..status(0, 30) });
    pass(2).await;
    let stored = fixture.server.stored(&key("web")).unwrap();
    assert_eq!(stored["status"]["conditions"][0]["lastTransitionTime"], at(20).to_string());
    assert_eq!(stored["status"]["observedAt"], at(30).to_string());
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_nothing_new_writes_nothing() {
    let fixture = start().await;
    fixture.reports.publish(key("web"), owner(), status(1, 1));
    pass(2).await;
    fixture.token.cancel();
    fixture.server.requests();
    let (again, _) = start_on(Arc::clone(&fixture.server), fleet(&["one"]));
    again.reports.publish(key("web"), owner(), status(1, 500));
    pass(120).await;
    assert_eq!(again.server.requests(), [""; 0]);
    assert_eq!(again.reports.known(&key("web").cluster), [key("web")]);
    assert_eq!(again.reports.stored(&key("web")).unwrap().summary.drifted, 1);
}

type Edit = fn(&mut Value);

#[tokio::test(start_paused = true)]
async fn what_somebody_edits_or_deletes_is_written_again() {
    let fixture = start().await;
    fixture.reports.publish(key("web"), owner(), status(1, 1));
    pass(2).await;
    fixture.server.requests();
    let edits: [(Edit, &[&str]); 4] = [
        (|object| object["status"]["summary"]["drifted"] = json!(0), &["PUT status"]),
        (|object| object["metadata"]["labels"] = json!({"holdfast.dev/source": "x"}), &["PATCH ", "PUT status"]),
        (|object| object["spec"]["source"] = json!("nonsense"), &["PATCH ", "PUT status"]),
        (|object| object["status"] = json!("not a status"), &["PUT status"]),
    ];
    for (edit, expected) in edits {
        fixture.server.edit(&key("web"), edit);
        pass(5).await;
        assert_eq!(fixture.server.requests(), [""; 0], "not at once: somebody may do it over and over");
        pass(30).await;
        assert_eq!(fixture.server.requests(), expected);
        let stored = fixture.server.stored(&key("web")).unwrap();
        assert_eq!((&stored["status"]["summary"]["drifted"], &stored["spec"]["source"]), (&json!(1), &json!("HelmRelease shop/web")));
    }
    fixture.server.remove(&key("web"));
    pass(40).await;
    assert_eq!(fixture.server.requests(), ["POST ", "PUT status"]);

    fixture.server.remove(&key("web"));
    pass(1).await;
    fixture.reports.publish(key("web"), owner(), status(1, 900));
    pass(1).await;
    assert_eq!(fixture.server.requests(), ["POST ", "PUT status"], "at the next publish, equal or not");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_meets_a_conflict_is_made_again_from_what_there_is() {
    let fixture = start().await;
    fixture.reports.publish(key("web"), owner(), status(1, 1));
    pass(2).await;
    fixture.server.requests();
    // An edit whose event has not arrived yet.
    let watches = std::mem::take(&mut fixture.server.state.lock().watches);
    fixture.server.edit(&key("web"), |object| object["metadata"]["labels"]["mine"] = json!("1"));
    fixture.server.state.lock().watches = watches;
    fixture.reports.publish(key("web"), owner(), status(2, 2));
    pass(5).await;
    assert_eq!(fixture.server.requests(), ["PUT status", "GET ", "PUT status"]);
    assert_eq!(fixture.server.stored(&key("web")).unwrap()["metadata"]["labels"]["mine"], "1");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_asked_less_and_less() {
    let fixture = start().await;
    fixture.server.broken.store(true, Ordering::Relaxed);
    for drifted in 0..600 {
        fixture.reports.publish(key("web"), owner(), status(drifted, 1));
        pass(1).await;
    }
    let tries = fixture.server.requests().len();
    assert!((10..60).contains(&tries), "{tries} tries in ten minutes");
    fixture.server.broken.store(false, Ordering::Relaxed);
    pass(61).await;
    assert_eq!(fixture.server.stored(&key("web")).unwrap()["status"]["summary"]["drifted"], 599);
}

#[tokio::test(start_paused = true)]
async fn reports_go_with_their_release_and_their_cluster() {
    let (fixture, _) = start_on(Arc::default(), fleet(&["one", "two"]));
    let two = ReportKey { cluster: ClusterName::new("fleet", "two"), source: SourceId::helm("shop", "web") };
    let about_two = ReportKey::cluster(&two.cluster);
    for key in [key("web"), key("db"), two.clone(), about_two.clone()] {
        fixture.reports.publish(key, owner(), status(0, 1));
    }
    pass(2).await;
    fixture.server.requests();
    fixture.reports.retire(&key("db"));
    fixture.reports.retire(&key("never-was"));
    pass(2).await;
    assert_eq!(fixture.server.requests(), ["DELETE "]);
    assert_eq!(fixture.reports.known(&key("web").cluster), [key("web")]);

    fixture.fleet.send_replace(Arc::new(FleetView::default()));
    pass(120).await;
    assert_eq!(fixture.server.requests(), [""; 0], "an incomplete view removes nothing");
    fixture.fleet.send_replace(fleet(&["one"]));
    pass(1).await;
    assert_eq!(fixture.server.requests(), ["DELETE ", "DELETE "]);
    assert!(fixture.server.stored(&two).is_none() && fixture.server.stored(&about_two).is_none());
    assert!(fixture.server.stored(&key("web")).is_some());

    // A late publish about a cluster that is gone does not stay.
    fixture.reports.publish(two.clone(), owner(), status(0, 2));
    pass(60).await;
    assert!(fixture.server.stored(&two).is_none());

    // A hub that starts later deletes what it missed.
    fixture.token.cancel();
    let (later, _) = start_on(Arc::clone(&fixture.server), fleet(&[]));
    pass(60).await;
    assert!(later.server.stored(&key("web")).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_report_can_come_back_while_it_is_deleted() {
    let fixture = start().await;
    fixture.reports.publish(key("web"), owner(), status(0, 1));
    pass(2).await;
    fixture.reports.retire(&key("web"));
    fixture.reports.publish(key("web"), owner(), status(4, 2));
    pass(5).await;
    assert_eq!(fixture.server.stored(&key("web")).unwrap()["status"]["summary"]["drifted"], 4);
    fixture.reports.retire_cluster(&key("web").cluster);
    pass(2).await;
    assert!(fixture.server.stored(&key("web")).is_none());
    fixture.reports.publish(key("web"), owner(), status(5, 3));
    pass(2).await;
    assert_eq!(fixture.server.stored(&key("web")).unwrap()["status"]["summary"]["drifted"], 5);
}

#[tokio::test(start_paused = true)]
async fn the_last_words_are_written_when_the_hub_ends() {
    let (fixture, task) = start_on(Arc::default(), fleet(&["one"]));
    fixture.reports.learned().await;
    fixture.reports.publish(key("web"), owner(), status(0, 1));
    pass(1).await;
    fixture.reports.publish(key("web"), owner(), status(1, 2));
    fixture.token.cancel();
    task.await.unwrap();
    assert_eq!(fixture.server.stored(&key("web")).unwrap()["status"]["summary"]["drifted"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stores_something_else_is_not_asked_for_ever() {
    let now = Instant::now();
    let mut desk = Desk::default();
    desk.list_ended(now);
    desk.publish(key("web"), owner(), Arc::new(status(1, 1)), now);
    let [job] = desk.take_due(now, 8).try_into().unwrap();
    // For example a definition of an older version, which drops a field.
    let stored = super::wire::Live {
        key: Some(key("web")),
        uid: "u".to_owned(),
        version: "5".to_owned(),
        content: super::content::Content {
            labels: key("web").labels(),
            owners: vec!["uid-cluster".to_owned()],
            spec: Some(key("web").spec()),
            status: Some(DriftReportStatus::default()),
        },
    };
    desk.finished(&job, Ok(super::wire::Written::Stands(stored.clone())), now);
    desk.changed(&key("web").object_name(), super::wire::Live { version: "6".to_owned(), ..stored }, now);
    assert_eq!(desk.next_due(), None);
}

#[test]
fn names_are_short_safe_and_their_own() {
    let long = "x".repeat(250);
    let mut names = std::collections::BTreeSet::new();
    for (cluster, namespace, name) in [
        ("one", "shop", "web"),
        ("one", "shop-web", ""),
        ("one-shop", "", "web"),
        ("one", "sho", "pweb"),
        ("one", "shop", "web.v1"),
        ("one", "shop", "WEB"),
        ("c.with.dots", "shop", "web"),
        (long.as_str(), "shop", "web"),
        ("one", long.as_str(), "web"),
        ("one", "shop", long.as_str()),
        ("---", "shop", "..."),
    ] {
        let key = ReportKey { cluster: ClusterName::new("fleet", cluster), source: SourceId::helm(namespace, name) };
        let ObjectName { name: object, .. } = key.object_name();
        assert!(object.len() <= 63 && object.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()), "{object}");
        assert!(object.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{object}");
        assert!(names.insert(object.clone()), "{object}");
        for value in key.labels().into_values() {
            assert!(value.len() <= 63 && value.ends_with(|c: char| c.is_ascii_alphanumeric()), "{value}");
        }
        assert_eq!(ReportKey::of_stored(&key.object_name(), &key.spec()), Some(key));
    }
    let about = ReportKey::cluster(&ClusterName::new("fleet", "one"));
    assert_eq!(ReportKey::of_stored(&about.object_name(), &about.spec()), Some(about));
    let foreign = ObjectName { namespace: Arc::from("fleet"), name: Arc::from("somebody-elses") };
    assert_eq!(ReportKey::of_stored(&foreign, &key("web").spec()), None);
}
