//! What others fell into while they were measured: a rewriting webhook that comes later, a writer under an autoscaler, and one drift that
//! cannot be corrected.

use anyhow::ensure;
use holdfast_testkit::{Helm, MutatingWebhook, Rule, Target, WebhookOptions, mutate};
use serde_json::json;

use crate::support::{World, finding, live};

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
spec: {minReplicas: 2, maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: "{{ .Release.Name }}-web"}}
---
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-frozen"}
immutable: true
stringData: {password: one}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-settings"}
data: {color: blue}
"#;

const RELEASES: [(Helm, &str); 2] = [(Helm::V3, "h3"), (Helm::V4, "h4")];

#[tokio::test]
async fn the_traps_of_others() {
    let name = "peers-traps";
    let mut world = World::new(name).await;
    for (helm, release) in RELEASES {
        world.install_text(helm, release, CHART, &[]).await;
    }
    let mark = world.workload.audit_mark().await.unwrap();
    world.policy("Correct", json!({"foreign": "Remove"})).await;
    world.start_hub(&[]);
    for (_, release) in RELEASES {
        world.wait_in_sync(release).await;
    }
    // Nothing can put this back: the new object is immutable too.
    let somebody = world.writer("kubectl-edit");
    for (_, release) in RELEASES {
        let frozen = Target::secret(name, &format!("{release}-frozen"));
        let mut object = somebody.get(&frozen).await.unwrap();
        object["data"]["password"] = json!("ZXZpbA==");
        for server in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            object["metadata"].as_object_mut().unwrap().remove(server);
        }
        somebody.delete(&frozen).await.unwrap();
        somebody.create(&frozen, &object).await.unwrap();
    }
    for (_, release) in RELEASES {
        let frozen = format!("{release}-frozen");
        world
            .wait_report(Some(release), "refused", |status| {
                finding(status, "Secret", &frozen).is_some_and(|found| found["verdict"] == "Refused")
            })
            .await;
    }
    let rules = vec![Rule { groups: vec!["apps".to_owned()], resources: vec!["deployments".to_owned()] }];
    let webhook = MutatingWebhook::start(world.workload, WebhookOptions::new(name, name, rules), mutate::mirror_images).await.unwrap();
    let scaler = world.writer("kube-controller-manager");
    for round in 0..5 {
        for (_, release) in RELEASES {
            // The autoscaler at work, within its bounds.
            let web = Target::deployment(name, &format!("{release}-web"));
            scaler.merge_patch(&web.scale(), &json!({"spec": {"replicas": 5 + round % 3}})).await.unwrap();
            // A drift beside the one that cannot be corrected. Never the same twice: that would be a contest.
            let settings = Target::configmap(name, &format!("{release}-settings"));
            somebody
                .merge_patch(&settings, &json!({"data": {"color": format!("red {round}"), "extra": format!("x {round}")}}))
                .await
                .unwrap();
            world
                .wait("corrected although another drift is not", async || {
                    let data = live(&somebody, &settings, "/data").await;
                    ensure!(data == json!({"color": "blue"}), "{data}");
                    Ok(())
                })
                .await;
        }
    }
    for (helm, release) in RELEASES {
        let web = Target::deployment(name, &format!("{release}-web"));
        // Any drift once the webhook is there: corrected once, whatever the webhook makes of the image.
        somebody.merge_patch(&web, &json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Me"}}})).await.unwrap();
        world
            .wait("corrected under the webhook", async || {
                let label = live(&somebody, &web, "/metadata/labels/app.kubernetes.io~1managed-by").await;
                ensure!(label == "Helm", "{label}");
                Ok(())
            })
            .await;
        world
            .wait_report(Some(release), "settled", |status| {
                finding(status, "Deployment", &web.name).is_some_and(|found| found["verdict"] == "InSync" && found["action"] == "Corrected")
            })
            .await;
        assert_eq!(live(&somebody, &web, "/spec/replicas").await, json!(6), "the autoscaler's");
        assert_eq!(live(&somebody, &web, "/spec/template/spec/containers/0/image").await, json!("mirror.local/img:1"));
        let history = helm.history(world.workload, release, name).await.unwrap();
        assert_eq!(history.as_array().map(Vec::len), Some(1), "no revision: {history}");
        let writes = world.of_hub(&world.workload.audit_since(mark).await.unwrap()).writes();
        let of = |object: &str| writes.filter(|call| call.name == object);
        assert!(of(&web.name).len() <= 2, "{}", of(&web.name));
        // A few tries, ever more rarely.
        assert!(of(&format!("{release}-frozen")).len() <= 4, "{}", of(&format!("{release}-frozen")));
    }
    webhook.stop().await.unwrap();
}
