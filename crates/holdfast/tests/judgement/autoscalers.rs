//! Replicas belong to an autoscaler within its bounds, and go to the nearest bound, never to the manifest's (D05).

use anyhow::ensure;
use holdfast_testkit::{Target, Writer};
use serde_json::{Value, json};

use crate::{
    case::{Case, RELEASES},
    support::{finding, live, path_of},
};

const MANAGER: &str = "kube-controller-manager";

/// One scaled object of the chart, which declares 2 replicas of everything.
struct Scaled {
    what: &'static str,
    kind: &'static str,
    name: &'static str,
    /// Fields of the autoscaler's spec; `None` for no autoscaler.
    hpa: Option<Value>,
    /// The autoscaler stands in another namespace.
    elsewhere: bool,
    /// Set by the controller, and what must become of it.
    steps: &'static [(i64, i64)],
}

fn rows() -> Vec<Scaled> {
    let bounds = |api: &str, kind: &str, name: &str| json!({"minReplicas": 2, "maxReplicas": 6, "scaleTargetRef": {"apiVersion": api, "kind": kind, "name": name}});
    let row = |what, kind, name, hpa, steps| Scaled { what, kind, name, hpa, elsewhere: false, steps };
    vec![
        row("within and above the bounds", "Deployment", "web", Some(bounds("apps/v1", "Deployment", "web")), &[(5, 5), (9, 6), (1, 2)]),
        row(
            "no minimum means one",
            "StatefulSet",
            "db",
            Some(json!({"maxReplicas": 6, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}})),
            &[(1, 1), (7, 6)],
        ),
        row("a ReplicaSet", "ReplicaSet", "rs", Some(bounds("apps/v1", "ReplicaSet", "rs")), &[(4, 4), (8, 6)]),
        row("an older version of the kind", "Deployment", "older", Some(bounds("apps/v1beta2", "Deployment", "older")), &[(5, 5)]),
        row("no autoscaler", "Deployment", "alone", None, &[(5, 2)]),
        row("another kind of that name", "Deployment", "kind", Some(bounds("apps/v1", "StatefulSet", "kind")), &[(5, 2)]),
        row("another group", "Deployment", "group", Some(bounds("example.com/v1", "Deployment", "group")), &[(5, 2)]),
        row("another name", "StatefulSet", "name", Some(bounds("apps/v1", "StatefulSet", "other")), &[(5, 2)]),
        Scaled {
            elsewhere: true,
            ..row("another namespace", "Deployment", "place", Some(bounds("apps/v1", "Deployment", "place")), &[(5, 2)])
        },
    ]
}

impl Scaled {
    fn target(&self, namespace: &str, release: &str) -> Target {
        let plural = format!("{}s", self.kind.to_lowercase());
        Target::custom("apps", "v1", &plural, namespace, &format!("{release}-{}", self.name))
    }

    fn manifest(&self) -> String {
        let name = format!("{{{{ .Release.Name }}}}-{}", self.name);
        let service = if self.kind == "StatefulSet" { "serviceName: x, " } else { "" };
        let mut text = format!(
            "---\napiVersion: apps/v1\nkind: {}\nmetadata: {{name: \"{name}\"}}\nspec: {{{service}replicas: 2, selector: {{matchLabels: {{app: \"{name}\"}}}}, template: {{metadata: {{labels: {{app: \"{name}\"}}}}, spec: {{containers: [{{name: c, image: \"img:1\"}}]}}}}}}\n",
            self.kind
        );
        if let (Some(hpa), false) = (&self.hpa, self.elsewhere) {
            let spec = hpa.to_string().replace(
                &format!("\"name\":\"{}\"", hpa["scaleTargetRef"]["name"].as_str().unwrap()),
                &format!("\"name\":\"{{{{ .Release.Name }}}}-{}\"", hpa["scaleTargetRef"]["name"].as_str().unwrap()),
            );
            let scaler =
                format!("---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{name: \"{name}\"}}\nspec: {spec}\n");
            text.push_str(&scaler);
        }
        text
    }
}

async fn scale(writer: &Writer, target: &Target, replicas: i64) {
    writer.merge_patch(&target.scale(), &json!({"spec": {"replicas": replicas}})).await.unwrap();
}

#[tokio::test]
async fn d05_replicas_under_an_autoscaler() {
    let rows = rows();
    let chart: String = rows.iter().map(Scaled::manifest).collect();
    let world = Case::install("d05", &chart).await;
    world.workload.namespace("d05-other").await.unwrap();
    let controller = world.writer(MANAGER);
    for row in rows.iter().filter(|row| row.elsewhere) {
        for (_, release) in RELEASES {
            let name = format!("{release}-{}", row.name);
            let mut spec = row.hpa.clone().unwrap();
            spec["scaleTargetRef"]["name"] = json!(name);
            let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name, "namespace": "d05-other"}, "spec": spec});
            controller.create(&Target::hpa("d05-other", &name), &hpa).await.unwrap();
        }
    }
    let mut case = Case::guard(world).await;
    for (_, release) in RELEASES {
        case.world.wait_in_sync(release).await;
    }
    for step in 0.. {
        let due: Vec<&Scaled> = rows.iter().filter(|row| row.steps.len() > step).collect();
        if due.is_empty() {
            break;
        }
        for (_, release) in RELEASES {
            for row in &due {
                scale(&controller, &row.target(case.namespace(), release), row.steps[step].0).await;
            }
        }
        for (_, release) in RELEASES {
            for row in &due {
                let target = row.target(case.namespace(), release);
                let (set, wanted) = row.steps[step];
                let what = format!("{} ({release}): {set} becomes {wanted}", row.what);
                case.world
                    .wait(&what, async || {
                        let replicas = live(&controller, &target, "/spec/replicas").await;
                        ensure!(replicas == wanted, "{replicas}");
                        Ok(())
                    })
                    .await;
                let report = case
                    .world
                    .wait_report(Some(release), &what, |status| {
                        let yielded = status["deviations"].as_array().into_iter().flatten().any(|deviation| {
                            deviation["object"]["name"] == target.name
                                && deviation["object"]["kind"] == row.kind
                                && deviation["path"] == "/spec/replicas"
                                && deviation["reason"] == "Yielded"
                        });
                        // The manifest's own number is no deviation.
                        let found = finding(status, row.kind, &target.name).and_then(|found| path_of(found, "/spec/replicas"));
                        if set == wanted { yielded } else { yielded == (wanted != 2) && found.is_some_and(|path| path["live"] == set) }
                    })
                    .await;
                if set != wanted {
                    let path = path_of(finding(&report["status"], row.kind, &target.name).unwrap(), "/spec/replicas").unwrap();
                    assert_eq!(path["actor"]["manager"], MANAGER, "{what}: {path:#}");
                }
            }
        }
        case.stays_quiet().await;
    }
    for (helm, release) in RELEASES {
        for row in &rows {
            let target = row.target(case.namespace(), release);
            let corrections = row.steps.iter().filter(|(set, wanted)| set != wanted).count();
            let writes = case.writes_to(&target).await;
            // A bound is not what the manifest says, so a server-side release takes a patch and its ownership.
            let most = row
                .steps
                .iter()
                .filter(|(set, wanted)| set != wanted)
                .map(|(_, wanted)| 1 + usize::from(*wanted != 2 && helm == holdfast_testkit::Helm::V4))
                .sum::<usize>();
            assert!(writes.len() >= corrections && writes.len() <= most + corrections, "{} ({release}): {most}\n{writes}", row.what);
        }
    }

    // An autoscaler that comes later takes over, one that goes gives back.
    for (_, release) in RELEASES {
        let target = Target::deployment(case.namespace(), &format!("{release}-alone"));
        let hpa = Target::hpa(case.namespace(), &format!("{release}-late"));
        let spec = json!({"minReplicas": 2, "maxReplicas": 6, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target.name}});
        let object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": hpa.name, "namespace": case.namespace()}, "spec": spec});
        controller.create(&hpa, &object).await.unwrap();
    }
    case.stays_quiet().await;
    for (_, release) in RELEASES {
        scale(&controller, &Target::deployment(case.namespace(), &format!("{release}-alone")), 4).await;
    }
    case.stays_quiet().await;
    for (_, release) in RELEASES {
        let target = Target::deployment(case.namespace(), &format!("{release}-alone"));
        assert_eq!(live(&controller, &target, "/spec/replicas").await, 4);
        controller.delete(&Target::hpa(case.namespace(), &format!("{release}-late"))).await.unwrap();
        case.world
            .wait("the manifest's number is back", async || {
                let replicas = live(&controller, &target, "/spec/replicas").await;
                ensure!(replicas == 2, "{replicas}");
                Ok(())
            })
            .await;
    }
}
