//! What is nobody's addition, what is removed only in places, what comes back, and what a revision left behind.

use anyhow::ensure;
use holdfast_testkit::{Helm, MutatingWebhook, Rule, Target, WebhookOptions, Writer};
use serde_json::{Value, json};

use crate::{
    define,
    support::{World, condition, finding, live, path_of},
};

/// The releases of a test: each template names its objects after its release.
const RELEASES: [(Helm, &str); 2] = [(Helm::V3, "h3"), (Helm::V4, "h4")];

const CHART: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}-web"}
spec:
  selector: {matchLabels: {app: "{{ .Release.Name }}-web"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-web"}}
    spec: {containers: [{name: c, image: "img:1"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-settings"}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-auth"}
stringData: {password: one{{ if not .Values.dropped }}, token: two{{ end }}}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-web"}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: "{{ .Release.Name }}-web"}
---
apiVersion: peers.example/v1
kind: Gadget
metadata: {name: "{{ .Release.Name }}-gadget"}
spec: {size: 1}
"#;

async fn installed(name: &str) -> World {
    let world = World::new(name).await;
    define(&world).await;
    for (helm, release) in RELEASES {
        world.install_text(helm, release, CHART, &[]).await;
    }
    world
}

fn gadget(namespace: &str, release: &str) -> Target {
    Target::custom("peers.example", "v1", "gadgets", namespace, &format!("{release}-gadget"))
}

fn deployment(namespace: &str, release: &str) -> Target {
    Target::deployment(namespace, &format!("{release}-web"))
}

fn settings(namespace: &str, release: &str) -> Target {
    Target::configmap(namespace, &format!("{release}-settings"))
}

async fn merge(writer: &Writer, target: &Target, patch: &Value) {
    writer.merge_patch(target, patch).await.unwrap();
}

/// Drift of a ConfigMap is corrected: the hub is alive and has seen what came before.
async fn beacon(world: &World, value: &str) {
    let somebody = world.writer("beacon");
    for (_, release) in RELEASES {
        merge(&somebody, &settings(&world.namespace, release), &json!({"data": {"color": value}})).await;
    }
    for (_, release) in RELEASES {
        let target = settings(&world.namespace, release);
        world
            .wait("the beacon is corrected", async || {
                let color = live(&somebody, &target, "/data/color").await;
                ensure!(color == "blue", "{color}");
                Ok(())
            })
            .await;
    }
}

/// Writes of the hub to anything but the beacons.
async fn writes(world: &World, mark: holdfast_testkit::Mark) -> holdfast_testkit::Audit {
    let calls = world.of_hub(&world.workload.audit_since(mark).await.unwrap()).writes();
    calls.filter(|call| !call.name.ends_with("-settings"))
}

#[tokio::test]
async fn what_admission_injects_is_nobodys() {
    let name = "peers-injected";
    let mut world = World::new(name).await;
    define(&world).await;
    let rules = vec![
        Rule { groups: vec!["apps".to_owned()], resources: vec!["deployments".to_owned()] },
        Rule { groups: vec![String::new()], resources: vec!["configmaps".to_owned()] },
    ];
    let inject = |object: &mut Value, _: &_| {
        object["metadata"]["annotations"]["injector.example.com/status"] = json!("injected");
        if let Some(containers) = object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut)
            && containers.iter().all(|container| container["name"] != "sidecar")
        {
            containers.push(json!({"name": "sidecar", "image": "sidecar:1"}));
        }
    };
    let webhook = MutatingWebhook::start(world.workload, WebhookOptions::new(name, name, rules), inject).await.unwrap();
    for (helm, release) in RELEASES {
        world.install_text(helm, release, CHART, &[]).await;
    }
    let mark = world.workload.audit_mark().await.unwrap();
    world.policy("Correct", json!({"foreign": "Remove"})).await;
    world.start_hub(&[]);
    for (_, release) in RELEASES {
        world.wait_in_sync(release).await;
    }
    beacon(&world, "red").await;
    for (_, release) in RELEASES {
        let report = world.wait_in_sync(release).await;
        assert_eq!(report["status"]["summary"]["foreign"], 0, "{report:#}");
    }
    assert!(writes(&world, mark).await.is_empty(), "a sidecar injector is not fought:\n{}", writes(&world, mark).await);

    // Somebody adds a container beside it: that one goes, the injected one stays.
    let somebody = world.writer("kubectl-edit");
    for (_, release) in RELEASES {
        let target = deployment(name, release);
        let added = json!([{"op": "add", "path": "/spec/template/spec/containers/0", "value": {"name": "miner", "image": "x:1"}}]);
        somebody.json_patch(&target, &added).await.unwrap();
        world
            .wait("the added container is gone", async || {
                let containers = live(&somebody, &target, "/spec/template/spec/containers").await;
                let names: Vec<&str> = containers.as_array().unwrap().iter().filter_map(|container| container["name"].as_str()).collect();
                ensure!(names == ["c", "sidecar"], "{names:?}");
                Ok(())
            })
            .await;
    }
    beacon(&world, "green").await;
    assert_eq!(writes(&world, mark).await.len(), RELEASES.len(), "one write for each added container:\n{}", writes(&world, mark).await);
    webhook.stop().await.unwrap();
}

#[tokio::test]
async fn the_bookkeeping_of_controllers_stays() {
    let name = "peers-bookkeeping";
    let mut world = installed(name).await;
    let mark = world.workload.audit_mark().await.unwrap();
    world.policy("Correct", json!({"foreign": "Remove"})).await;
    world.start_hub(&[]);
    for (_, release) in RELEASES {
        world.wait_in_sync(release).await;
        keep_books(&world, release).await;
    }
    beacon(&world, "red").await;
    for (_, release) in RELEASES {
        let report = world.wait_in_sync(release).await;
        assert_eq!(report["status"]["summary"]["foreign"], 0, "{report:#}");
    }
    assert!(writes(&world, mark).await.is_empty(), "{}", writes(&world, mark).await);
}

/// Everything that controllers write into objects of a release that runs.
async fn keep_books(world: &World, release: &str) {
    let name = &world.namespace;
    let (web, service, gadget) = (deployment(name, release), Target::service(name, &format!("{release}-web")), gadget(name, release));
    let annotate = |annotation: &str| json!({"metadata": {"annotations": {annotation: "1"}}});
    let in_template = |annotation: &str| json!({"spec": {"template": {"metadata": {"annotations": {annotation: "now"}}}}});
    for (manager, target, patch) in [
        ("kube-controller-manager", &web, annotate("deployment.kubernetes.io/revision")),
        ("kube-controller-manager", &web, annotate("anything.example.com/by-the-controller-manager")),
        ("kubectl-rollout", &web, in_template("kubectl.kubernetes.io/restartedAt")),
        ("reloader", &web, in_template("reloader.stakater.com/last-reloaded-from")),
        ("kubectl-client-side-apply", &web, annotate("kubectl.kubernetes.io/last-applied-configuration")),
        ("gke-neg", &service, annotate("cloud.google.com/neg-status")),
        ("service-lb-controller", &service, json!({"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})),
        ("aws-cloud-controller-manager", &service, json!({"spec": {"externalTrafficPolicy": "Local"}})),
        ("kube-vip-cloud-provider", &service, json!({"spec": {"loadBalancerIP": "10.0.0.9"}})),
        ("gadget-operator", &gadget, json!({"metadata": {"annotations": {"kopf.zalando.org/last-handled-configuration": "{}"}}})),
    ] {
        merge(&world.writer(manager), target, &patch).await;
    }
    let account = Target::service_account(name, &format!("{release}-web"));
    merge(&world.writer("tokens"), &account, &json!({"secrets": [{"name": "web-token"}]})).await;
    // Whoever scales what declares no replicas.
    merge(&world.writer("kubectl"), &web.scale(), &json!({"spec": {"replicas": 3}})).await;
    merge(&world.writer("kubelet"), &web.status(), &json!({"status": {"observedGeneration": 1}})).await;
}

#[tokio::test]
async fn exclusive_places_tolerate_nothing() {
    let name = "peers-exclusive";
    let mut world = installed(name).await;
    let containers = json!({"target": {"kind": "Deployment"}, "paths": ["/spec/template/spec/containers"]});
    world.policy("Correct", json!({"exclusive": [containers]})).await;
    world.start_hub(&[]);
    let somebody = world.writer("kubectl-edit");
    for (_, release) in RELEASES {
        world.wait_in_sync(release).await;
        let target = deployment(name, release);
        let edit = json!({"metadata": {"labels": {"extra": "x"}}, "spec": {"template": {"spec": {"containers": [
            {"name": "miner", "image": "x:1"}, {"name": "c", "env": [{"name": "EXTRA", "value": "x"}]}]}}}});
        somebody.strategic_patch(&target, &edit).await.unwrap();
    }
    for (_, release) in RELEASES {
        let report = world
            .wait_report(Some(release), "removed in the one place, reported in the other", |status| {
                finding(status, "Deployment", &format!("{release}-web")).is_some_and(|found| {
                    found["action"] == "Corrected"
                        && path_of(found, "/metadata/labels/extra").is_some()
                        && path_of(found, "/spec/template/spec/containers/[name=miner]").is_some()
                        && path_of(found, "/spec/template/spec/containers/[name=c]/env/[name=EXTRA]").is_some()
                })
            })
            .await;
        assert_eq!(report["status"]["summary"]["foreign"], 1, "the label: {report:#}");
        let object = somebody.get(&deployment(name, release)).await.unwrap();
        assert_eq!(object["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
        assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["env"], Value::Null);
        assert_eq!(object["metadata"]["labels"]["extra"], "x");
    }
    // Another policy, another answer; and what goes is listed no more.
    world.policy("Correct", json!({"foreign": "Ignore"})).await;
    for (_, release) in RELEASES {
        world.wait_report(Some(release), "nothing is told", |status| status["summary"]["foreign"] == 0).await;
    }
    world.policy("Warn", json!({"foreign": "Remove"})).await;
    for (_, release) in RELEASES {
        let report = world.wait_report(Some(release), "drift", |status| condition(status, "InSync") == "False").await;
        let found = finding(&report["status"], "Deployment", &format!("{release}-web")).unwrap();
        assert_eq!(
            (&found["verdict"], &found["reason"], &found["action"]),
            (&json!("Drifted"), &json!("ForeignField"), &json!("Reported"))
        );
        merge(&somebody, &deployment(name, release), &json!({"metadata": {"labels": {"extra": null}}})).await;
        world.wait_in_sync(release).await;
    }
}

#[tokio::test]
async fn an_addition_is_listed_until_it_goes_and_told_once() {
    let name = "peers-listed";
    let mut world = installed(name).await;
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    for (_, release) in RELEASES {
        world.wait_in_sync(release).await;
    }
    let somebody = world.writer("kubectl-edit");
    for (_, release) in RELEASES {
        merge(&somebody, &settings(name, release), &json!({"data": {"extra": "x"}})).await;
        // A default that somebody changes and changes back is a default.
        merge(&somebody, &gadget(name, release), &json!({"spec": {"mode": "slow"}})).await;
        merge(&somebody, &gadget(name, release), &json!({"spec": {"mode": "fast"}})).await;
    }
    let is_listed = |status: &Value, release: &str| {
        finding(status, "ConfigMap", &format!("{release}-settings"))
            .and_then(|found| path_of(found, "/data/extra"))
            .is_some_and(|path| path["actor"]["manager"] == "kubectl-edit" && path["change"] == "Added")
    };
    for (_, release) in RELEASES {
        world.wait_report(Some(release), "listed", |status| is_listed(status, release) && status["summary"]["foreign"] == 1).await;
    }
    // Drift beside it is corrected, and it stays listed.
    beacon(&world, "red").await;
    for (_, release) in RELEASES {
        let report = world
            .wait_report(Some(release), "listed beside a correction", |status| {
                is_listed(status, release)
                    && finding(status, "ConfigMap", &format!("{release}-settings")).is_some_and(|found| found["action"] == "Corrected")
            })
            .await;
        assert_eq!((condition(&report["status"], "InSync"), &report["status"]["summary"]["foreign"]), ("True", &json!(1)));
        merge(&somebody, &settings(name, release), &json!({"data": {"extra": null}})).await;
        world.wait_report(Some(release), "gone", |status| !is_listed(status, release) && status["summary"]["foreign"] == 0).await;
    }
    let page = world.metrics().await;
    let count = page.lines().find(|line| line.starts_with("holdfast_drift_detected_total{change=\"Added\",kind=\"ConfigMap\"}"));
    assert_eq!(count.and_then(|line| line.rsplit(' ').next()), Some("2"), "once for each release: {page}");
    world
        .wait("an Event", async || {
            let events = world.mgmt.kubectl(&["get", "events.events.k8s.io", "-n", name, "-o", "json"]).await?;
            ensure!(events.contains("/data/extra (kubectl-edit)"), "{events}");
            Ok(())
        })
        .await;
}

#[tokio::test]
async fn who_adds_again_and_again_is_left_alone() {
    let name = "peers-again";
    let mut world = installed(name).await;
    world.policy("Correct", json!({"foreign": "Remove"})).await;
    world.start_hub(&[]);
    for (_, release) in RELEASES {
        world.wait_in_sync(release).await;
    }
    let mark = world.workload.audit_mark().await.unwrap();
    let somebody = world.writer("operator");
    for (_, release) in RELEASES {
        let target = deployment(name, release);
        world
            .wait("contested", async || {
                if live(&somebody, &target, "/metadata/labels/extra").await.is_null() {
                    merge(&somebody, &target, &json!({"metadata": {"labels": {"extra": "x"}}})).await;
                }
                let report = world.report(Some(release)).await.unwrap();
                let found = finding(&report["status"], "Deployment", &target.name);
                ensure!(found.is_some_and(|found| found["verdict"] == "Contested"), "{found:?}");
                Ok(())
            })
            .await;
        // Its siblings are removed as before.
        merge(&somebody, &target, &json!({"metadata": {"labels": {"other": "x"}}})).await;
        world
            .wait("the sibling is removed", async || {
                let labels = live(&somebody, &target, "/metadata/labels").await;
                ensure!(labels["other"].is_null() && labels["extra"] == "x", "{labels}");
                Ok(())
            })
            .await;
        let calls = writes(&world, mark).await.filter(|call| call.name == target.name);
        assert!(calls.len() <= 7, "bounded: {calls}");
    }
}

#[tokio::test]
async fn what_the_last_revision_dropped_is_left_over() {
    let name = "peers-leftover";
    let mut world = installed(name).await;
    world.policy("Warn", json!({})).await;
    world.start_hub(&[]);
    for (helm, release) in RELEASES {
        world.wait_in_sync(release).await;
        let chart = world.chart_of_text(release, CHART);
        helm.upgrade(world.workload, release, name, &chart, &["--set", "dropped=true"]).await.unwrap();
    }
    let somebody = world.writer("reader");
    for (_, release) in RELEASES {
        let secret = Target::secret(name, &format!("{release}-auth"));
        assert!(live(&somebody, &secret, "/data/token").await.is_string(), "Helm leaves it behind");
        let report = world
            .wait_report(Some(release), "left over", |status| {
                status["source"]["revision"] == 2
                    && finding(status, "Secret", &secret.name)
                        .is_some_and(|found| found["reason"] == "LeftOver" && found["verdict"] == "Drifted")
            })
            .await;
        let found = finding(&report["status"], "Secret", &secret.name).unwrap();
        assert_eq!(found["paths"].as_array().unwrap().len(), 1, "{found:#}");
        assert!(path_of(found, "/data/token").is_some(), "{found:#}");
    }
    world.policy("Correct", json!({})).await;
    for (_, release) in RELEASES {
        let secret = Target::secret(name, &format!("{release}-auth"));
        world
            .wait("taken away", async || {
                let data = live(&somebody, &secret, "/data").await;
                ensure!(
                    data["token"].is_null() && data["password"].is_string(),
                    "{:?}",
                    data.as_object().map(|data| data.keys().collect::<Vec<_>>())
                );
                Ok(())
            })
            .await;
        world.wait_in_sync(release).await;
    }
}

#[tokio::test]
async fn the_defaults_of_what_somebody_made_first_are_no_additions() {
    let name = "peers-adopted";
    let mut world = World::new(name).await;
    define(&world).await;
    let maker = world.writer("kubectl-create");
    for (helm, release) in RELEASES {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("{release}-web"), "labels": {"made": "by-hand"}},
            "spec": {"selector": {"matchLabels": {"app": format!("{release}-web")}}, "template": {
                "metadata": {"labels": {"app": format!("{release}-web")}},
                "spec": {"containers": [{"name": "c", "image": "img:1", "env": [{"name": "HAND", "value": "made"}]}]}}}});
        maker.create(&deployment(name, release), &object).await.unwrap();
        world.install_text(helm, release, CHART, &["--take-ownership"]).await;
    }
    world.policy("Warn", json!({})).await;
    world.start_hub(&[]);
    for (_, release) in RELEASES {
        let report =
            world.wait_report(Some(release), "what was made by hand", |status| status["summary"]["foreign"].as_u64() > Some(0)).await;
        let found = finding(&report["status"], "Deployment", &format!("{release}-web")).unwrap();
        let paths: Vec<&str> = found["paths"].as_array().unwrap().iter().filter_map(|path| path["path"].as_str()).collect();
        assert_eq!(paths, ["/metadata/labels/made", "/spec/template/spec/containers/[name=c]/env/[name=HAND]"], "{found:#}");
        assert_eq!(condition(&report["status"], "InSync"), "True");
    }
}
