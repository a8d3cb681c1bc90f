//! Where one document ends and the next begins is for Helm to say (D16).

use holdfast_testkit::{Target, release};
use serde_json::{Value, json};

use crate::{
    case::{Case, Edit, RELEASES, Row},
    support::{World, finding, live},
};

const INSIDE: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-d"}
data:
  s.sh: |
    # --- ruler --------
    ---
    echo hi
  host: xn-----flckrvpb3h5b.xn--p1ai
  note: "a --- b"
---
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-pem"}
stringData:
  ca.crt: |
    -----BEGIN CERTIFICATE-----
    bm90IG9uZQ==
    -----END CERTIFICATE-----
---   
apiVersion: apps/v1
kind: Deployment
metadata:
  name: "{{ .Release.Name }}-d"
  annotations:
    note: |-
      ---
      first
      ...
spec:
  selector: {matchLabels: {app: "{{ .Release.Name }}-d"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-d"}}
    spec: {containers: [{name: c, image: "img:1", args: ["---", "--flag", "- ---"]}]}
--- # a comment
# nothing but a comment
---
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-d", annotations: {rule: "------"}}
spec: {selector: {app: d}, ports: [{port: 80}]}
"#;

#[tokio::test]
async fn d16_dashes_inside_values() {
    let mut case = Case::start("d16", INSIDE).await;
    for (_, release) in RELEASES {
        let report = case.world.report(Some(release)).await.unwrap();
        assert_eq!(report["status"]["summary"]["objects"], 5, "{report:#}");
    }
    let text = "# --- ruler --------\n---\necho hi\n";
    case.corrects(&[
        Row::new(
            "a script with a ruler",
            Target::configmap,
            "ConfigMap",
            "d",
            Edit::Merge(json!({"data": {"s.sh": "---\n", "host": "xn--p1ai", "note": "a"}})),
        )
        .drifts(&["/data/s.sh", "/data/host", "/data/note"])
        .restores(&["/data"]),
        Row::new("a certificate", Target::secret, "Secret", "pem", Edit::Merge(json!({"data": {"ca.crt": "LS0t"}})))
            .drifts(&["/data/ca.crt"])
            .restores(&["/data"])
            .by_position(),
        Row::new(
            "an annotation and arguments",
            Target::deployment,
            "Deployment",
            "d",
            Edit::Merge(json!({"metadata": {"annotations": {"note": "---"}}})),
        )
        .drifts(&["/metadata/annotations/note"])
        .restores(&["/spec", "/metadata/annotations/note"]),
        Row::new("the last document", Target::service, "Service", "d", Edit::Merge(json!({"spec": {"selector": {"app": "x"}}})))
            .drifts(&["/spec/selector"])
            .restores(&["/spec"]),
    ])
    .await;
    let reader = case.world.writer("kubectl");
    for (_, release) in RELEASES {
        assert_eq!(live(&reader, &Target::configmap(case.namespace(), &format!("{release}-d")), "/data/s.sh").await, text);
    }
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{k: v}}\n")
}

/// Spellings that Helm's own templates would not leave in a record, but other tools do.
#[tokio::test]
async fn d16_separators_of_all_kinds() {
    let mut world = World::new("d16-records").await;
    let rows: Vec<(&str, &str, String, &[&str])> = vec![
        ("leading", "a separator first", format!("---\n{}", config_map("leading-1")), &["leading-1"]),
        (
            "blanks",
            "blanks and comments after separators",
            format!("{}---   \n{}--- # next\n{}", config_map("blanks-1"), config_map("blanks-2"), config_map("blanks-3")),
            &["blanks-1", "blanks-2", "blanks-3"],
        ),
        ("bom", "a byte order mark", format!("\u{feff}{}", config_map("bom-1")), &["bom-1"]),
        ("empty", "empty documents", format!("---\n---\n# only a comment\n---\n\n---\n{}---\n", config_map("empty-1")), &["empty-1"]),
        (
            "glued",
            "text right after a separator",
            format!("{}---{}", config_map("glued-1"), config_map("glued-2")),
            &["glued-1", "glued-2"],
        ),
        ("ended", "an end without a new start", format!("{}...\n{}", config_map("ended-1"), config_map("ended-2")), &["ended-1"]),
        (
            "crlf",
            "line ends of another system",
            format!("{}---\r\n{}", config_map("crlf-1"), config_map("crlf-2")).replace('\n', "\r\n").replace("\r\r", "\r"),
            &["crlf-1", "crlf-2"],
        ),
    ];
    let helm = world.writer("helm");
    for (name, _, manifest, objects) in &rows {
        for object in *objects {
            let ownership = json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": world.namespace}});
            let mut object_metadata = ownership.clone();
            object_metadata["name"] = json!(object);
            let live: Value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": object_metadata, "data": {"k": "v"}});
            helm.create(&Target::configmap(&world.namespace, object), &live).await.unwrap();
        }
        let record = release::secret(name, &world.namespace, 1, "deployed", manifest, &json!({})).unwrap();
        world.workload.put_release(&record).await.unwrap();
    }
    let mark = world.workload.audit_mark().await.unwrap();
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    for (name, what, _, objects) in &rows {
        let report = world.wait_in_sync(name).await;
        assert_eq!(report["status"]["summary"]["objects"], objects.len(), "{what}: {report:#}");
        assert!(finding(&report["status"], "ConfigMap", "ended-2").is_none(), "{what}");
    }
    let writes = world.of_hub(&world.workload.audit_since(mark).await.unwrap()).writes();
    assert!(writes.is_empty(), "{writes}");
    assert!(helm.find(&Target::configmap(&world.namespace, "ended-2")).await.unwrap().is_none(), "never created");
}
