//! Drift written by another field manager, whatever its way of writing, is found and its ownership of declared fields ends (D08).

use holdfast_testkit::{Helm, Target};
use serde_json::{Value, json};

use crate::{
    case::{Case, Edit, RELEASES, Row},
    support::live,
};

const CHART: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}-web"}
spec:
  replicas: 2
  selector: {matchLabels: {app: "{{ .Release.Name }}-web"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-web"}}
    spec: {containers: [{name: c, image: "img:{{ .Values.tag | default 1 }}"}]}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-s"}
spec: {selector: {app: "web{{ .Values.tag | default 1 }}"}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-cm"}
data: {a: "{{ .Values.tag | default 1 }}", b: "2"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: "{{ .Release.Name }}-role"}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, "{{ if .Values.tag }}watch{{ else }}list{{ end }}"]}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: "{{ .Release.Name }}-db"}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: "{{ .Release.Name }}-db"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-db"}}
    spec: {containers: [{name: c, image: "img:{{ .Values.tag | default 1 }}"}]}
"#;

#[tokio::test]
async fn d08_edits_by_other_managers() {
    let mut case = Case::start("d08", CHART).await;
    let container = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    case.corrects(&[
        Row::new(
            "kubectl edit of an image",
            Target::deployment,
            "Deployment",
            "web",
            Edit::Json(json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil:1"}])),
        )
        .drifts(&["/spec/template/spec/containers/[name=c]/image"])
        .restores(&["/spec"]),
        Row::new(
            "kubectl edit of an atomic map",
            Target::service,
            "Service",
            "s",
            Edit::Json(json!([{"op": "replace", "path": "/spec/selector", "value": {"app": "x"}}])),
        )
        .drifts(&["/spec/selector"])
        .restores(&["/spec"]),
        Row::new("forced apply of a key", Target::configmap, "ConfigMap", "cm", Edit::Apply(json!({"data": {"a": "9"}, "metadata": {}})))
            .by("argocd-controller")
            .drifts(&["/data/a"])
            .restores(&["/data"]),
        Row::new(
            "forced apply of rules",
            Target::role,
            "Role",
            "role",
            Edit::Apply(json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}], "metadata": {}})),
        )
        .by("kustomize-controller")
        .drifts(&["/rules"])
        .restores(&["/rules"]),
        Row::new(
            "forced apply of an image",
            Target::statefulset,
            "StatefulSet",
            "db",
            Edit::Apply({
                let mut fields = container("evil:1");
                fields["metadata"] = json!({});
                fields
            }),
        )
        .by("argocd-controller")
        .drifts(&["/spec/template/spec/containers/[name=c]/image"])
        .restores(&["/spec"]),
    ])
    .await;

    // No manager but the release's holds a declared field now, so the next upgrade meets no conflict.
    let reader = case.world.writer("kubectl");
    let objects: [(Target, &str); 2] =
        [(Target::deployment(case.namespace(), "h4-web"), "f:image"), (Target::service(case.namespace(), "h4-s"), "f:selector")];
    for (target, field) in &objects {
        let object = reader.get(target).await.unwrap();
        let holders: Vec<&Value> = object["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["fieldsV1"].to_string().contains(field))
            .collect();
        assert!(!holders.is_empty() && holders.iter().all(|entry| entry["manager"] == "helm"), "{holders:#?}");
    }
    for (helm, release) in RELEASES {
        let text =
            std::fs::read_to_string(case.world.workload.dir().join(format!("charts/{}-{release}/templates/all.yaml", case.namespace())))
                .unwrap();
        let chart = case.world.chart_of_text(release, &text);
        helm.upgrade(case.world.workload, release, case.namespace(), &chart, &["--set", "tag=7"]).await.unwrap();
        case.world
            .wait_report(Some(release), "the upgrade is judged", |status| {
                status["source"]["revision"] == 2 && crate::support::condition(status, "InSync") == "True"
            })
            .await;
        let image =
            live(&reader, &Target::statefulset(case.namespace(), &format!("{release}-db")), "/spec/template/spec/containers/0/image").await;
        assert_eq!(image, "img:7", "{helm:?}");
    }
    case.stays_quiet().await;
    let history = Helm::V4.history(case.world.workload, "h4", case.namespace()).await.unwrap();
    assert_eq!(history.as_array().unwrap().len(), 2, "no revision but Helm's own: {history:#}");
}
