//! Fields that cannot stand beside each other: somebody swaps one for another, and the declared one comes back alone.

use anyhow::ensure;
use holdfast_testkit::{Helm, Target};
use serde_json::{Value, json};

use crate::support::{
    World,
    alike::{comparable, same},
    edit::Edit,
    finding, path_of,
    twin::HELM_AT_WORK,
};

const CHART: &str = r#"
{{- range list "strategy" "probe" "volume" "env" "both" }}
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ . }}}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: {{ . }}}}
  template:
    metadata: {labels: {app: {{ . }}}}
    spec:
      volumes: [{name: data, configMap: {name: settings}}]
      containers:
      - name: web
        image: "img:1"
        env: [{name: COLOR, value: blue}]
        livenessProbe: {httpGet: {path: /alive, port: 80}, periodSeconds: 7}
---
{{- end }}
"#;

/// Name of the object, how it is edited, and what the report names.
fn swaps() -> Vec<(&'static str, Target, Edit, Vec<&'static str>)> {
    const POD: &str = "/spec/template/spec";
    let deployment = |name| Target::deployment("", name);
    let probe = json!({"httpGet": null, "exec": {"command": ["true"]}});
    let container = |mut with: Value| {
        with["name"] = json!("web");
        json!({"spec": {"template": {"spec": {"containers": [with]}}}})
    };
    let rolling = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3}}}});
    let sourced = json!({"name": "COLOR", "value": null, "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}});
    vec![
        ("strategy", deployment("strategy"), Edit::Merge(rolling.clone()), vec!["/spec/strategy/type", "/spec/strategy/rollingUpdate"]),
        (
            "probe",
            deployment("probe"),
            Edit::Strategic(container(json!({"livenessProbe": probe}))),
            vec!["/spec/template/spec/containers/[name=web]/livenessProbe/exec"],
        ),
        (
            "volume",
            deployment("volume"),
            Edit::Json(json!([{"op": "replace", "path": format!("{POD}/volumes/0"), "value": {"name": "data", "emptyDir": {}}}])),
            vec!["/spec/template/spec/volumes/[name=data]/emptyDir"],
        ),
        (
            "env",
            deployment("env"),
            Edit::Strategic(container(json!({"env": [sourced]}))),
            vec![
                "/spec/template/spec/containers/[name=web]/env/[name=COLOR]/value",
                "/spec/template/spec/containers/[name=web]/env/[name=COLOR]/valueFrom",
            ],
        ),
        (
            "both",
            deployment("both"),
            Edit::Json(json!([
                {"op": "replace", "path": "/spec/strategy", "value": rolling["spec"]["strategy"]},
                {"op": "replace", "path": format!("{POD}/volumes/0"), "value": {"name": "data", "emptyDir": {}}},
            ])),
            vec!["/spec/strategy/type", "/spec/strategy/rollingUpdate", "/spec/template/spec/volumes/[name=data]/emptyDir"],
        ),
    ]
}

#[tokio::test]
async fn what_helm_3_declared_comes_back_in_the_place_of_what_cannot_stand_beside_it() {
    comes_back("coupled3", Helm::V3).await;
}

#[tokio::test]
async fn what_helm_4_declared_comes_back_in_the_place_of_what_cannot_stand_beside_it() {
    comes_back("coupled4", Helm::V4).await;
}

async fn comes_back(namespace: &str, helm: Helm) {
    let mut world = World::new(namespace).await;
    let twin = format!("{namespace}-twin");
    let chart = world.chart_of_text("web", CHART);
    {
        let _at_work = HELM_AT_WORK.write().await;
        world.workload.namespace(&twin).await.unwrap();
        for namespace in [namespace, &twin] {
            helm.install(world.workload, "web", namespace, &chart, &[]).await.unwrap();
        }
    }
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    world.wait_in_sync("web").await;
    let editor = world.writer("kubectl-edit");
    let at = |target: &Target, namespace: &str| Target { namespace: Some(namespace.to_owned()), ..target.clone() };
    for (name, target, edit, paths) in swaps() {
        edit.make(&editor, &at(&target, namespace)).await;
        let is_corrected = |status: &Value| {
            finding(status, "Deployment", name)
                .is_some_and(|finding| finding["action"] == "Corrected" && paths.iter().all(|path| path_of(finding, path).is_some()))
        };
        world.wait_report(Some("web"), name, is_corrected).await;
    }
    world
        .wait("as the twin", async || {
            for (name, target, ..) in swaps() {
                let (ours, theirs) = (editor.get(&at(&target, namespace)).await?, editor.get(&at(&target, &twin)).await?);
                ensure!(ours["metadata"]["uid"] != theirs["metadata"]["uid"], "two objects");
                same(name, &comparable(ours, namespace, helm), &comparable(theirs, &twin, helm))?;
            }
            Ok(())
        })
        .await;
}
