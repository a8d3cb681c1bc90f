//! The management-cluster side on real control planes, with the rights that `manifests/rbac` gives and no others.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "clippy allows it in test functions, not in their helpers")]

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use holdfast_api::report::{DriftReportStatus, Summary};
use holdfast_fleet::{
    clock::{Clock, SystemClock},
    kubeconfig::{Rejection, ServerPolicy},
    supervisor::{Stopped, Supervisor, Task},
    watch::WatchStats,
};
use holdfast_hub::{
    events::{EventReason, Events, Happening, Regarding},
    fleet_view::{ClusterName, Credential, FleetReceivers, FleetView, FleetWatch, Gate, Options},
    leadership::{self, Keeper},
    metrics::Metrics,
    policy::{
        DefaultMode,
        status::PolicyStatusWriter,
        tally::{ClusterTally, Tallies, Tally},
    },
    reports::{ReportKey, ReportWriter, Reports, SourceId},
};
use holdfast_testkit::{
    ControlPlane, Options as PlaneOptions, Target, Writer, eventually,
    management::{CapiVersion, KubeconfigSecret},
    status_code,
};
use kube::Client;
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::timeout};

const SOON: Duration = Duration::from_secs(10);
/// Cluster API is looked for every 15 s while it is not installed.
const DISCOVERED: Duration = Duration::from_secs(30);
const HUB: &str = "system:serviceaccount:holdfast-system:holdfast";

static PLANES: OnceCell<Vec<ControlPlane>> = OnceCell::const_new();

/// The management cluster, and a workload cluster.
async fn planes() -> (&'static ControlPlane, &'static ControlPlane) {
    let planes = PLANES
        .get_or_init(|| async {
            ControlPlane::start_many(vec![PlaneOptions::named("hub-mgmt"), PlaneOptions::named("hub-work")]).await.unwrap()
        })
        .await;
    (planes.first().unwrap(), planes.last().unwrap())
}

fn manifest(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

struct Hub {
    supervisor: Supervisor,
    fleet: FleetReceivers,
    reports: Reports,
    events: Events,
    tallies: Tallies,
}

impl Hub {
    fn start(client: &Client, namespace: Option<&str>) -> Self {
        let supervisor = Supervisor::root("hub");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let metrics = Arc::new(Metrics::new(Arc::new(WatchStats::default())).unwrap());
        let servers = ServerPolicy::new(vec!["127.0.0.1".parse().unwrap()], Vec::new());
        let is_restricted = namespace.is_some();
        let namespace = namespace.map(str::to_owned);
        let (watch, fleet) =
            FleetWatch::new(client.clone(), Options { namespace: namespace.clone(), default_mode: DefaultMode::Off, servers });
        let reports = Reports::default();
        let writer = Arc::new(ReportWriter::new(client.clone(), reports.clone(), fleet.view.clone(), namespace));
        let (events, event_writer) = Events::new(client.clone(), reports.clone(), "hub-0", metrics, Arc::clone(&clock));
        let tallies = Tallies::default();
        let statuses = Arc::new(PolicyStatusWriter::new(client.clone(), fleet.clone(), tallies.clone(), clock, is_restricted));
        let (watch, event_writer) = (Arc::new(watch), Arc::new(event_writer));
        supervisor.spawn(Task::new("fleet"), move |_| {
            let watch = Arc::clone(&watch);
            async move { Err(watch.run().await) }
        });
        supervisor.spawn(Task::new("statuses"), move |_| {
            let statuses = Arc::clone(&statuses);
            async move { Err(statuses.run().await) }
        });
        supervisor.spawn(Task::new("reports").finishes(), move |token| {
            let writer = Arc::clone(&writer);
            async move {
                writer.run(token).await;
                Ok::<_, std::convert::Infallible>(())
            }
        });
        supervisor.spawn(Task::new("events"), move |token| {
            let writer = Arc::clone(&event_writer);
            async move {
                writer.run(token).await;
                Ok::<_, std::convert::Infallible>(())
            }
        });
        Self { supervisor, fleet, reports, events, tallies }
    }

    async fn sees(&self, what: &str, within: Duration, holds: impl Fn(&FleetView) -> bool) -> Arc<FleetView> {
        let mut view = self.fleet.view.clone();
        let seen = tokio::time::timeout(within, view.wait_for(|view| holds(view))).await;
        match seen {
            Ok(Ok(view)) => Arc::clone(&view),
            _ => panic!("{what}: not within {within:?}; last seen: {:?}", self.fleet.view.borrow()),
        }
    }
}

fn policy(name: &str) -> Target {
    Target::custom("holdfast.dev", "v1alpha1", "driftpolicies", "fleet", name)
}

async fn make_policy(writer: &Writer, name: &str, spec: Value) {
    let object = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": name}, "spec": spec});
    writer.create(&policy(name), &object).await.unwrap();
}

async fn policy_says(writer: &Writer, name: &str, expected: (&str, &str), counts: (Value, Value)) {
    eventually("the policy's status", SOON, async || {
        let object = writer.get(&policy(name)).await?;
        let condition = &object["status"]["conditions"][0];
        let said = (condition["status"].as_str().unwrap_or_default(), condition["reason"].as_str().unwrap_or_default());
        ensure!(said == expected, "{}", object["status"]);
        ensure!((&object["status"]["clusters"], &object["status"]["releases"]) == (&counts.0, &counts.1), "{}", object["status"]);
        ensure!(condition["observedGeneration"] == object["metadata"]["generation"], "{}", object["status"]);
        Ok(())
    })
    .await
    .unwrap();
}

fn name(cluster: &str) -> ClusterName {
    ClusterName::new("fleet", cluster)
}

fn credential<'a>(view: &'a FleetView, cluster: &str) -> Option<&'a Credential> {
    view.clusters.get(&name(cluster)).map(|entry| &entry.credential)
}

fn gate(view: &FleetView, cluster: &str) -> Option<Gate> {
    view.clusters.get(&name(cluster)).map(|entry| entry.gate)
}

/// A management cluster through its life, by an account with the rights of `rbac/management.yaml`.
#[tokio::test]
async fn a_fleet_is_seen_and_reported() {
    let (mgmt, work) = planes().await;
    for file in [
        "base/namespace.yaml",
        "base/service-account.yaml",
        "base/service.yaml",
        "base/deployment.yaml",
        "rbac/management.yaml",
        "crds/clusterdriftpolicies.holdfast.dev.yaml",
        "crds/driftpolicies.holdfast.dev.yaml",
        "crds/driftreports.holdfast.dev.yaml",
    ] {
        mgmt.apply_yaml("test", &manifest(file)).await.unwrap();
    }
    mgmt.namespace("fleet").await.unwrap();
    let somebody = mgmt.writer("somebody").unwrap();
    let client = mgmt.service_account("holdfast-system", "holdfast").await.unwrap().client().unwrap();
    let kubeconfig = work.admin_kubeconfig().unwrap();

    // Without Cluster API: labelled Secrets only.
    let labelled = |name, text| KubeconfigSecret {
        namespace: "fleet",
        name,
        secret_type: "Opaque",
        labels: &[("holdfast.dev/kubeconfig", "true"), ("env", "edge")],
        key: "kubeconfig",
        text,
    };
    mgmt.kubeconfig_secret(&labelled("edge", &kubeconfig)).await.unwrap();
    mgmt.kubeconfig_secret(&labelled("broken", "apiVersion: [")).await.unwrap();
    let hub = Hub::start(&client, None);
    let view = hub.sees("labelled Secrets", SOON, |view| view.complete).await;
    assert_eq!(view.clusters.len(), 2);
    assert!(matches!(credential(&view, "edge"), Some(Credential::Ready(_))), "{:?}", credential(&view, "edge"));
    assert!(matches!(credential(&view, "broken"), Some(Credential::Rejected(Rejection::NotYaml))));

    policies_get_a_status(&hub, &somebody).await;
    the_lease_goes_from_hand_to_hand(&client, &somebody).await;

    // Cluster API arrives in one version.
    mgmt.install_cluster_api_crd().await.unwrap();
    mgmt.capi_cluster("fleet", "prod", work, CapiVersion::V1Beta2, false, &[("env", "prod")]).await.unwrap();
    hub.sees("a Cluster", DISCOVERED, |view| gate(view, "prod") == Some(Gate::NotInitialised)).await;
    mgmt.set_capi_initialised("fleet", "prod", CapiVersion::V1Beta2, true).await.unwrap();
    let view = hub.sees("initialised", SOON, |view| gate(view, "prod") == Some(Gate::Open)).await;
    assert!(matches!(credential(&view, "prod"), Some(Credential::Ready(_))), "{:?}", credential(&view, "prod"));
    assert_eq!(&*view.clusters[&name("prod")].owner.api_version, "cluster.x-k8s.io/v1beta2");
    let cluster = CapiVersion::V1Beta2.target("fleet", "prod");
    somebody.merge_patch(&cluster, &json!({"spec": {"paused": true}})).await.unwrap();
    hub.sees("paused", SOON, |view| gate(view, "prod") == Some(Gate::Paused)).await;
    somebody.merge_patch(&cluster, &json!({"spec": {"paused": false}})).await.unwrap();
    hub.sees("not paused", SOON, |view| gate(view, "prod") == Some(Gate::Open)).await;
    somebody.delete(&Target::secret("fleet", "prod-kubeconfig")).await.unwrap();
    hub.sees("the Secret is gone", SOON, |view| matches!(credential(view, "prod"), Some(Credential::Missing))).await;

    reports_and_events_are_written(mgmt, &hub, &somebody).await;
    nothing_moves_at_rest(mgmt, &hub).await;

    // A cluster that goes takes its reports along.
    somebody.delete(&cluster).await.unwrap();
    eventually("the reports are gone", SOON, async || {
        let left = hub.reports.known(&name("prod"));
        ensure!(left.is_empty(), "{left:?}");
        let report = ReportKey::cluster(&name("prod")).object_name();
        ensure!(somebody.find(&report_target(&report.name)).await?.is_none(), "still stored");
        Ok(())
    })
    .await
    .unwrap();
    assert!(hub.fleet.view.borrow().clusters.contains_key(&name("edge")), "the others stay");
    hub.supervisor.stop(Duration::from_secs(5)).await;

    // A hub restricted to a namespace sees only that.
    let client = mgmt.service_account("holdfast-system", "holdfast").await.unwrap().client().unwrap();
    let elsewhere = Hub::start(&client, Some("default"));
    let view = elsewhere.sees("an empty namespace", SOON, |view| view.complete).await;
    assert!(view.clusters.is_empty() && view.policies.acceptance().is_empty());
    elsewhere.supervisor.stop(Duration::from_secs(5)).await;
}

/// Two keepers with the rights of the manifests. The longer story, with deaths, is told by the tests of the program.
async fn the_lease_goes_from_hand_to_hand(client: &Client, somebody: &Writer) {
    let supervisor = Supervisor::root("keepers");
    let candidate = |id: &str| {
        let options = leadership::Options { namespace: "holdfast-system".to_owned(), id: id.to_owned(), elect: true };
        let (keeper, leadership) = Keeper::new(client.clone(), &options, Arc::new(SystemClock));
        let keeper = Arc::new(keeper);
        supervisor.spawn(Task::new(id.to_owned()).finishes(), move |token| {
            let keeper = Arc::clone(&keeper);
            async move {
                keeper.run(token).await;
                Ok::<_, std::convert::Infallible>(())
            }
        });
        leadership
    };
    let mut first = candidate("first");
    let term = timeout(SOON, first.begins()).await.unwrap();
    assert!(term.holds());
    let mut second = candidate("second");
    // Somebody's label is no reason to stop, and somebody else in the Lease is one.
    let lease = Target::lease("holdfast-system", "holdfast");
    let before = somebody.merge_patch(&lease, &json!({"metadata": {"labels": {"seen": "yes"}}})).await.unwrap();
    eventually("it is renewed", SOON, async || {
        let lease = somebody.get(&lease).await?;
        ensure!(lease["spec"]["renewTime"] != before["spec"]["renewTime"] && lease["metadata"]["labels"]["seen"] == "yes", "{lease}");
        Ok(())
    })
    .await
    .unwrap();
    assert!(term.holds() && second.subscribe().borrow().is_none());
    somebody.merge_patch(&lease, &json!({"spec": {"holderIdentity": null}})).await.unwrap();
    timeout(SOON, first.ends(&term)).await.unwrap();
    assert!(!term.holds());
    // Either of them takes it, once.
    let (term, leader, other) = tokio::select! {
        term = first.begins() => (term, first, second),
        term = second.begins() => (term, second, first),
    };
    assert!(term.holds() && other.subscribe().borrow().is_none());
    // A hub of which something may still be under way does not give it back.
    other.finish(true);
    leader.finish(false);
    assert_eq!(supervisor.stop(SOON).await, Stopped::Clean);
    assert!(somebody.get(&lease).await.unwrap()["spec"]["holderIdentity"].is_string());
}

async fn policies_get_a_status(hub: &Hub, somebody: &Writer) {
    make_policy(somebody, "all", json!({"clusterSelector": {}})).await;
    make_policy(somebody, "wrong", json!({"clusterSelector": {"matchLabels": {"a b": "c"}}})).await;
    policy_says(somebody, "all", ("True", "Accepted"), (json!(2), json!(0))).await;
    policy_says(somebody, "wrong", ("False", "Invalid"), (Value::Null, Value::Null)).await;
    let all = holdfast_hub::policy::PolicyName::new("fleet", "all");
    hub.tallies.set(&name("edge"), ClusterTally { policies: [(all, Tally { decides: 3, ..Tally::default() })].into(), is_judged: true });
    policy_says(somebody, "all", ("True", "Accepted"), (json!(2), json!(3))).await;
    somebody.merge_patch(&policy("all"), &json!({"spec": {"clusterSelector": {"matchLabels": {"env": "none"}}}})).await.unwrap();
    policy_says(somebody, "all", ("True", "Accepted"), (json!(0), json!(3))).await;
    somebody.merge_patch(&policy("all"), &json!({"spec": {"enforce": [{"paths": ["spec"]}]}})).await.unwrap();
    policy_says(somebody, "all", ("False", "Invalid"), (Value::Null, Value::Null)).await;
    somebody.merge_patch(&policy("all"), &json!({"spec": {"enforce": null, "clusterSelector": {"matchLabels": null}}})).await.unwrap();
    policy_says(somebody, "all", ("True", "Accepted"), (json!(2), json!(3))).await;
}

fn report_target(name: &str) -> Target {
    Target::custom("holdfast.dev", "v1alpha1", "driftreports", "fleet", name)
}

async fn reports_and_events_are_written(mgmt: &ControlPlane, hub: &Hub, somebody: &Writer) {
    let owner = hub.fleet.view.borrow().clusters[&name("prod")].owner.clone();
    let status =
        |drifted| DriftReportStatus { summary: Summary { objects: 3, drifted, ..Summary::default() }, ..DriftReportStatus::default() };
    let key = ReportKey { cluster: name("prod"), source: SourceId::helm("shop", "web") };
    hub.reports.publish(key.clone(), owner.clone(), status(1));
    hub.reports.publish(ReportKey::cluster(&name("prod")), owner.clone(), status(1));
    for _ in 0..3 {
        let note = "/spec/replicas was changed by kubectl-edit".to_owned();
        let object = Some("Deployment shop/web".to_owned());
        hub.events.emit(Happening { regarding: Regarding::Report(key.clone()), reason: EventReason::DriftDetected, object, note });
    }
    let note = "the selected user has an exec plugin".to_owned();
    let regarding = Regarding::Owner { namespace: "fleet".into(), owner: owner.clone() };
    hub.events.emit(Happening { regarding, reason: EventReason::KubeconfigRejected, object: None, note });

    let target = report_target(&key.object_name().name);
    let stored = eventually("the report is stored", SOON, async || {
        let stored = somebody.get(&target).await?;
        ensure!(stored["status"]["summary"]["drifted"] == 1, "{stored}");
        Ok(stored)
    })
    .await
    .unwrap();
    assert_eq!(stored["metadata"]["ownerReferences"][0]["uid"], json!(*owner.uid));

    let events = eventually("the Events are stored", SOON, async || {
        let request = http::Request::get("/apis/events.k8s.io/v1/namespaces/fleet/events").body(Vec::new())?;
        let events: Value = somebody.client().request(request).await?;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        ensure!(events.len() == 2, "{} Events", events.len());
        Ok(events)
    })
    .await
    .unwrap();
    let of = |reason: &str| events.iter().find(|event| event["reason"] == reason).unwrap();
    let drift = of("DriftDetected");
    assert_eq!((&drift["regarding"]["uid"], &drift["type"]), (&stored["metadata"]["uid"], &json!("Warning")));
    assert_eq!(of("KubeconfigRejected")["regarding"]["kind"], "Cluster");

    // Edited by somebody, and put back at the next word about it.
    somebody.merge_patch(&target.clone().status(), &json!({"status": {"summary": {"drifted": 0}}})).await.unwrap();
    eventually("the edit is undone", SOON, async || {
        hub.reports.publish(key.clone(), owner.clone(), status(1));
        let stored = somebody.get(&target).await?;
        ensure!(stored["status"]["summary"]["drifted"] == 1, "{stored}");
        Ok(())
    })
    .await
    .unwrap();
    somebody.delete(&target).await.unwrap();
    eventually("it is made again", SOON, async || {
        hub.reports.publish(key.clone(), owner.clone(), status(1));
        let stored = somebody.get(&target).await?;
        ensure!(stored["status"]["summary"]["drifted"] == 1, "{stored}");
        Ok(())
    })
    .await
    .unwrap();
    assert!(mgmt.audit().await.unwrap().by_user(HUB).filter(|call| call.code == Some(403)).is_empty(), "the rights suffice");
}

/// Statuses of the hub's own, of others, and equal reports: no request at all but discovery's.
async fn nothing_moves_at_rest(mgmt: &ControlPlane, hub: &Hub) {
    let owner = hub.fleet.view.borrow().clusters[&name("prod")].owner.clone();
    let others = mgmt.writer("manager").unwrap();
    // Writes under way, and what they wake, come to rest first.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mark = mgmt.audit_mark().await.unwrap();
    let view = hub.fleet.view.clone();
    let before = Arc::clone(&view.borrow());
    for round in 0..20 {
        let status = json!({"status": {"phase": if round % 2 == 0 { "Provisioned" } else { "Pending" }}});
        others.merge_patch(&CapiVersion::V1Beta2.target("fleet", "prod").status(), &status).await.unwrap();
        let status = DriftReportStatus {
            summary: Summary { objects: 3, drifted: 1, ..Summary::default() },
            observed_at: Some(SystemClock.now()),
            ..DriftReportStatus::default()
        };
        hub.reports.publish(ReportKey::cluster(&name("prod")), owner.clone(), status);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let calls = mgmt.audit_since(mark).await.unwrap().by_user(HUB).filter(|call| call.verb != "watch");
    assert_eq!(calls.writes().len(), 0, "{calls:?}");
    assert_eq!(calls.reads().len(), 0, "{calls:?}");
    assert!(Arc::ptr_eq(&before, &view.borrow()), "nobody was woken");
}

fn code_of(outcome: Result<Value>) -> u16 {
    match outcome {
        Ok(_) => 200,
        Err(error) => status_code(&error).unwrap_or_else(|| panic!("{error:#}")),
    }
}

/// A server-side apply, as a dry-run or not.
async fn apply(client: &Client, target: &Target, object: &Value, dry_run: bool) -> u16 {
    let dry_run = if dry_run { "&dryRun=All" } else { "" };
    let uri = format!("{}?fieldManager=holdfast&force=true{dry_run}", target.path());
    let request =
        http::Request::patch(uri).header("content-type", "application/apply-patch+yaml").body(serde_json::to_vec(object).unwrap()).unwrap();
    code_of(client.request::<Value>(request).await.map_err(Into::into))
}

/// What the accounts of `rbac/workload-*.yaml` may do, and above all what they may not.
#[tokio::test]
async fn a_workload_cluster_gives_the_rights_each_mode_needs() {
    let (_, work) = planes().await;
    work.apply_yaml("test", &manifest("rbac/workload-warn.yaml")).await.unwrap();
    work.namespace("shop").await.unwrap();
    let admin = work.writer("helm").unwrap();
    let here = Target::configmap("shop", "here");
    let config =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": {"a": "1"}});
    admin.create(&here, &config("here")).await.unwrap();
    let role = Target::role("shop", "reader");
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["deletecollection"]}]);
    let role_object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader", "namespace": "shop"}, "rules": rules});
    admin.create(&role, &role_object).await.unwrap();

    let client = work.service_account("holdfast-system", "holdfast").await.unwrap().client().unwrap();
    let holdfast = Writer::new(client.clone(), "holdfast");
    let missing = Target::configmap("shop", "missing");
    // The admission policy takes a moment to be in force; until then this would be written, so it is tried on its own object.
    let probe = Target::configmap("shop", "probe");
    eventually("the policy is in force", Duration::from_secs(30), async || {
        let code = apply(&client, &probe, &config("probe"), false).await;
        ensure!(code == 403, "{code}");
        Ok(())
    })
    .await
    .unwrap();
    let mark = work.audit_mark().await.unwrap();
    assert_eq!(apply(&client, &here, &config("here"), true).await, 200, "a dry-run over an object");
    assert_eq!(apply(&client, &missing, &config("missing"), true).await, 200, "a dry-run of a missing one");
    assert_eq!(apply(&client, &here, &config("here"), false).await, 403);
    assert_eq!(apply(&client, &missing, &config("missing"), false).await, 403);
    assert_eq!(code_of(holdfast.json_patch(&here, &json!([{"op": "replace", "path": "/data/a", "value": "2"}])).await), 403);
    assert_eq!(code_of(holdfast.create(&missing, &config("missing")).await), 403);
    assert_eq!(code_of(holdfast.delete(&here).await), 403);
    assert_eq!(apply(&client, &role, &role_object, true).await, 403, "rights one does not have cannot even be tried");
    for target in [Target::secret("shop", "none"), Target::configmap("shop", "none")] {
        assert_eq!(code_of(holdfast.get(&target).await), 404, "reading is allowed");
    }
    assert_eq!(code_of(holdfast.get(&role).await), 200);
    assert!(work.audit_since(mark).await.unwrap().by_user(HUB).writes().filter(|call| call.code.is_none_or(|code| code < 300)).is_empty());

    for plural in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/holdfast-writes-nothing");
        admin.client().request::<Value>(http::Request::delete(path).body(Vec::new()).unwrap()).await.unwrap();
    }
    work.apply_yaml("test", &manifest("rbac/workload-correct.yaml")).await.unwrap();
    eventually("corrections are allowed", Duration::from_secs(30), async || {
        let code = apply(&client, &here, &config("here"), false).await;
        ensure!(code == 200, "{code}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(code_of(holdfast.json_patch(&here, &json!([{"op": "replace", "path": "/data/a", "value": "2"}])).await), 200);
    assert_eq!(code_of(holdfast.create(&missing, &config("missing")).await), 200);
    assert_eq!(apply(&client, &role, &role_object, false).await, 200);
    assert_eq!(code_of(holdfast.delete(&here).await), 403, "nothing is deleted");
    let status = Target::custom("apps", "v1", "deployments", "shop", "none").status();
    assert_eq!(code_of(holdfast.merge_patch(&status, &json!({"status": {}})).await), 403, "no status is written");
}
