//! At rest the hub writes nothing, asks nothing and reads next to nothing, however much others write (issue §5.2, D15).

use std::time::Duration;

use anyhow::ensure;
use holdfast_testkit::{Audit, Target, Writer, eventually};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    case::{Case, RELEASES},
    support::{World, condition},
};

/// How long two audits take at most, with an interval of 30 s and a tenth of jitter, and a little more.
const TWO_AUDITS: Duration = Duration::from_secs(72);
const BEAT: Duration = Duration::from_secs(1);

const CHART: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}-web"}
spec:
  replicas: 2
  selector: {matchLabels: {app: "{{ .Release.Name }}-web"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-web"}}
    spec: {containers: [{name: c, image: "img:1"}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: "{{ .Release.Name }}-web"}
spec: {minReplicas: 2, maxReplicas: 6, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: "{{ .Release.Name }}-web"}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: "{{ .Release.Name }}-lease"}
spec: {leaseDurationSeconds: 15}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-leader"}
data: {k: v}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: "{{ .Release.Name }}-web"}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-web"}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: "{{ .Release.Name }}-once"}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "img:1"}]}}}
"#;

/// Everybody who writes beside the declared fields, about once a second.
fn churn(namespace: &str, plane: &'static holdfast_testkit::ControlPlane) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (_, release) in RELEASES {
        let target = |make: fn(&str, &str) -> Target, name: &str| make(namespace, &format!("{release}-{name}"));
        let writer = |manager: &str| plane.writer(manager).unwrap();
        tasks.spawn(beat(
            writer("kube-controller-manager"),
            target(Target::hpa, "web").status(),
            |n| json!({"status": {"currentReplicas": n % 3, "desiredReplicas": 2}}),
        ));
        tasks.spawn(beat(
            writer("kube-controller-manager"),
            target(Target::deployment, "web").status(),
            |n| json!({"status": {"observedGeneration": n}}),
        ));
        tasks.spawn(beat(writer("kube-controller-manager"), target(Target::job, "once").status(), |n| json!({"status": {"active": n}})));
        tasks.spawn(beat(
            writer("controller"),
            target(Target::lease, "lease"),
            |n| json!({"spec": {"holderIdentity": format!("pod-{n}"), "leaseTransitions": n}}),
        ));
        tasks.spawn(beat(
            writer("controller"),
            target(Target::configmap, "leader"),
            |n| json!({"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": format!("{{\"n\":{n}}}")}}}),
        ));
    }
    tasks
}

async fn beat(writer: Writer, target: Target, patch: fn(u32) -> Value) {
    for n in 1.. {
        writer.merge_patch(&target, &patch(n)).await.unwrap();
        sleep(BEAT).await;
    }
}

/// Lists of workload objects so far, audits and the start of watches alike.
async fn lists(world: &World) -> u64 {
    let page = world.metrics().await;
    let counts = page.lines().filter(|line| line.starts_with("holdfast_workload_requests_total{") && line.contains("verb=\"list\""));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Status and resource version of every report.
async fn reports(case: &Case) -> Vec<(Value, Value)> {
    let list = case.world.mgmt.kubectl(&["get", "driftreports", "-n", case.namespace(), "-o", "json"]).await.unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|report| (report["status"].clone(), report["metadata"]["resourceVersion"].clone()))
        .collect()
}

#[tokio::test]
async fn d15_at_rest_among_busy_neighbours() {
    let mut case = Case::start("rest", CHART).await;
    // The cluster's own report follows those of its releases, at most a second later.
    case.world.wait_report(None, "the cluster in sync", |status| condition(status, "InSync") == "True").await;
    let settled = lists(&case.world).await;
    let mark = case.world.workload.audit_mark().await.unwrap();
    let reports_before = reports(&case).await;
    assert_eq!(reports_before.len(), RELEASES.len() + 1);
    let mut churn = churn(case.namespace(), case.world.workload);

    // Kinds of the chart, the beacons' included: each is listed once an audit.
    let kinds = 7;
    eventually("two audits of every kind", TWO_AUDITS, async || {
        let listed = lists(&case.world).await - settled;
        ensure!(listed >= 2 * kinds, "{listed} lists");
        Ok(())
    })
    .await
    .unwrap();
    assert!(churn.try_join_next().is_none(), "a writer failed");
    churn.shutdown().await;

    let calls = case.world.of_hub(&case.world.workload.audit_since(mark).await.unwrap());
    assert!(calls.writes().is_empty(), "{}", calls.writes());
    assert!(calls.dry_runs().is_empty(), "{}", calls.dry_runs());
    // Every hub on this API server reads every release's record: two releases may declare one object.
    for call in &calls.gets().filter(|call| call.resource != "secrets") {
        assert!(
            call.name.ends_with("-leader") || call.name.ends_with("-lease"),
            "a write to the status or to nothing was read: {}",
            call.uri
        );
    }
    for (_, release) in RELEASES {
        for name in ["leader", "lease"] {
            let gets = calls.gets().filter(|call| call.name == format!("{release}-{name}"));
            // One a minute, and the first one may come at once.
            assert!(gets.len() <= 2, "{gets}");
        }
    }
    assert_eq!(reports(&case).await, reports_before, "a report was written although nothing changed");

    // Still judging, and a restart finds everything as it was.
    case.stays_quiet().await;
    let reports_before = reports(&case).await;
    let calls = restart(&mut case).await;
    let gets = calls.gets().filter(|call| call.resource != "secrets");
    // Somebody wrote beside these, which is looked at once a minute.
    assert!(gets.iter().all(|call| call.name.ends_with("-leader") || call.name.ends_with("-lease")), "{gets}");
    // A report that is to be written is written within a second.
    sleep(2 * BEAT).await;
    assert_eq!(reports(&case).await, reports_before, "a report was written although nothing changed");
    case.stays_quiet().await;
}

/// A hub that starts anew writes and asks nothing. Answers with the calls it made.
pub async fn restart(case: &mut Case) -> Audit {
    case.world.stop_hub();
    let before = case.versions().await;
    let mark = case.world.workload.audit_mark().await.unwrap();
    case.world.start_hub(&[]);
    let objects = before.len() + RELEASES.len();
    eventually("the new hub has judged every object", crate::support::SOON, async || {
        let page = case.world.try_metrics().await?;
        let in_sync =
            page.lines().find_map(|line| line.strip_prefix("holdfast_objects{verdict=\"InSync\"} ")).and_then(|count| count.parse().ok());
        ensure!(in_sync == Some(objects), "{in_sync:?} of {objects}");
        Ok(())
    })
    .await
    .unwrap();
    let calls = case.world.of_hub(&case.world.workload.audit_since(mark).await.unwrap());
    assert!(calls.writes().is_empty(), "{}", calls.writes());
    assert!(calls.dry_runs().is_empty(), "{}", calls.dry_runs());
    assert_eq!(case.versions().await, before);
    calls
}
