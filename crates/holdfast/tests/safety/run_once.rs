//! What ran once is not run again.

use holdfast_testkit::Target;
use serde_json::json;

use crate::{
    fixture::{Release, Style, configmap, hub_writes, lines, wait_live, writes_to},
    support::{World, condition, finding},
};

#[tokio::test]
async fn a_missing_job_or_pod_is_reported_and_not_run_again() {
    for style in Style::BOTH {
        let namespace = &format!("once-{}", style.word());
        let mut world = World::new(namespace).await;
        let admin = world.writer("platform");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
        admin.create(&Target::service_account(namespace, "default"), &account).await.unwrap();
        let pod = json!({"restartPolicy": "Never", "automountServiceAccountToken": false, "containers": [{"name": "run", "image": "registry.example/migrate:1"}]});
        let meta = |name: &str| json!({"name": name, "namespace": namespace});
        let objects = [
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta("migrate"), "spec": {"template": {"spec": pod}}}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta("probe"), "spec": pod}),
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta("nightly"), "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}}}),
            configmap(namespace, "settings", "color", "blue"),
        ];
        Release::new(&world, "web", style).install(&objects).await;
        world.policy("Correct", json!({})).await;
        world.start_hub(&[]);
        world.wait_in_sync("web").await;
        let mark = world.workload.audit_mark().await.unwrap();

        let (job, pod, cron) = (
            Target::job(namespace, "migrate"),
            Target::pod(namespace, "probe"),
            Target::custom("batch", "v1", "cronjobs", namespace, "nightly"),
        );
        let settings = Target::configmap(namespace, "settings");
        // A Job is kept for its dependents unless told otherwise; there is nobody here to remove them.
        let once = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
        for target in [&job, &pod, &cron, &settings] {
            admin.delete(target).await.unwrap();
            if let Some(left) = admin.find(target).await.unwrap()
                && left["metadata"]["finalizers"].is_array()
            {
                admin.json_patch(target, &once).await.unwrap();
            }
        }
        // What may run again comes back.
        wait_live(&world, &admin, &settings, "/data/color", &json!("blue")).await;
        wait_live(&world, &admin, &cron, "/spec/schedule", &json!("0 3 * * *")).await;
        let report = world
            .wait_report(Some("web"), "both missing", |status| status["summary"]["missing"] == 2 && condition(status, "InSync") == "False")
            .await;
        for (kind, target) in [("Job", &job), ("Pod", &pod)] {
            let found = finding(&report["status"], kind, &target.name).unwrap();
            assert_eq!(
                (&found["verdict"], &found["action"], &found["reason"]),
                (&json!("Missing"), &json!("Reported"), &json!("RunOnce")),
                "{found}"
            );
            let writes = writes_to(world.workload, mark, target).await;
            assert!(writes.is_empty(), "{:?}", lines(&writes));
            assert!(admin.find(target).await.unwrap().is_none(), "{kind}");
        }
        let writes = hub_writes(world.workload, mark).await.in_namespace(namespace);
        assert_eq!(writes.len(), 2, "the CronJob and the ConfigMap: {:?}", lines(&writes));
    }
}
