//! Values the server respells or fills in are no drift; a change of them is (D01, D02, D03, D06).

use holdfast_testkit::Target;
use serde_json::json;

use crate::{
    case::{Case, Edit, Place, RELEASES, Row},
    support::{finding, path_of, reason},
};

fn pod_disruption_budget(namespace: &str, name: &str) -> Target {
    Target::custom("policy", "v1", "poddisruptionbudgets", namespace, name)
}

fn resource_quota(namespace: &str, name: &str) -> Target {
    Target::custom("", "v1", "resourcequotas", namespace, name)
}

fn limit_range(namespace: &str, name: &str) -> Target {
    Target::custom("", "v1", "limitranges", namespace, name)
}

fn cron_job(namespace: &str, name: &str) -> Target {
    Target::custom("batch", "v1", "cronjobs", namespace, name)
}

fn daemon_set(namespace: &str, name: &str) -> Target {
    Target::custom("apps", "v1", "daemonsets", namespace, name)
}

fn network_policy(namespace: &str, name: &str) -> Target {
    Target::custom("networking.k8s.io", "v1", "networkpolicies", namespace, name)
}

const QUANTITIES: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: "{{ .Release.Name }}-q"}
spec:
  serviceName: q
  selector: {matchLabels: {app: "{{ .Release.Name }}-q"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-q"}}
    spec:
      containers:
      - name: c
        image: img:1
        resources: {requests: {cpu: 1000m, memory: 1000M}, limits: {cpu: 1, memory: 1.5Gi}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}-q"}
spec:
  selector: {matchLabels: {app: "{{ .Release.Name }}-q"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-q"}}
    spec:
      containers:
      - name: c
        image: img:1
        resources: {requests: {cpu: 0.1, ephemeral-storage: 0.5Gi}}
      volumes:
      - name: scratch
        emptyDir: {sizeLimit: 1024Mi}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: "{{ .Release.Name }}-q"}
spec: {hard: {requests.cpu: 2000000m, pods: "010000"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: "{{ .Release.Name }}-q"}
spec:
  limits:
  - {type: PersistentVolumeClaim, max: {storage: 2048Gi}, min: {storage: 0.001Gi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: "{{ .Release.Name }}-q"}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: "{{ .Release.Name }}-q"}
spec:
  schedule: "0 0 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: c
            image: img:1
            resources: {limits: {memory: 1048576Ki, cpu: "1e0"}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: "{{ .Release.Name }}-q"}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: q}}}
"#;

#[tokio::test]
async fn d01_quantities_spelled_another_way() {
    let mut case = Case::start("d01", QUANTITIES).await;
    case.stays_quiet().await;
    let limit = json!({"spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "2Ti"}, "min": {"storage": "1Gi"}}]}});
    case.corrects(&[
        Row::new(
            "a request of a StatefulSet",
            Target::statefulset,
            "StatefulSet",
            "q",
            Edit::Json(json!([{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "999m"}])),
        )
        .drifts(&["/spec/template/spec/containers/[name=c]/resources/requests/cpu"])
        .restores(&["/spec"]),
        Row::new(
            "a fraction in a Deployment",
            Target::deployment,
            "Deployment",
            "q",
            Edit::Json(json!([{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/ephemeral-storage", "value": "513Mi"}])),
        )
        .drifts(&["/spec/template/spec/containers/[name=c]/resources/requests/ephemeral-storage"])
        .restores(&["/spec"]),
        Row::new("a quota", resource_quota, "ResourceQuota", "q", Edit::Merge(json!({"spec": {"hard": {"requests.cpu": "2001"}}})))
            .drifts(&["/spec/hard/requests.cpu"])
            .restores(&["/spec"]),
        Row::new("limits in an atomic list", limit_range, "LimitRange", "q", Edit::Merge(limit)).drifts(&["/spec/limits"]).restores(&["/spec"]),
        Row::new(
            "a limit of a CronJob",
            cron_job,
            "CronJob",
            "q",
            Edit::Json(json!([{"op": "replace", "path": "/spec/jobTemplate/spec/template/spec/containers/0/resources/limits/cpu", "value": "2"}])),
        )
        .drifts(&["/spec/jobTemplate/spec/template/spec/containers/[name=c]/resources/limits/cpu"])
        .restores(&["/spec"]),
        Row::new("a number that may be a percentage", pod_disruption_budget, "PodDisruptionBudget", "q", Edit::Merge(json!({"spec": {"maxUnavailable": "1%"}})))
            .drifts(&["/spec/maxUnavailable"])
            .restores(&["/spec"]),
    ])
    .await;
}

const NULLS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}-nul", annotations: null}
spec:
  selector: {matchLabels: {app: "{{ .Release.Name }}-nul"}}
  strategy: {type: RollingUpdate, rollingUpdate: null}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-nul"}, creationTimestamp: null}
    spec:
      nodeSelector: null
      containers: [{name: c, image: "img:1", env: [{name: A, value: null}], resources: null}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: "{{ .Release.Name }}-nul"}
spec:
  serviceName: nul
  selector: {matchLabels: {app: "{{ .Release.Name }}-nul"}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: null}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-nul"}}
    spec: {containers: [{name: c, image: "img:1"}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: "{{ .Release.Name }}-nul"}
spec:
  selector: {matchLabels: {app: "{{ .Release.Name }}-nul"}}
  updateStrategy: null
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-nul"}}
    spec: {containers: [{name: c, image: "img:1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-nul"}
spec: {selector: {app: web}, sessionAffinityConfig: null, ipFamilies: null, ports: [{port: 80, targetPort: null}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-nul"}
binaryData: null
data: {a: b}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: "{{ .Release.Name }}-nul"}
spec: {podSelector: {}, ingress: null, egress: null, policyTypes: [Ingress]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: "{{ .Release.Name }}-nul"}
spec:
  schedule: "0 0 * * *"
  suspend: null
  successfulJobsHistoryLimit: null
  jobTemplate:
    spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "img:1"}]}}}
"#;

#[tokio::test]
async fn d03_null_for_a_defaulted_block() {
    let mut case = Case::start("d03", NULLS).await;
    case.stays_quiet().await;
    let image = |path: &str| Edit::Json(json!([{"op": "replace", "path": format!("{path}/containers/0/image"), "value": "evil:1"}]));
    case.corrects(&[
        Row::new("a Deployment keeps its default strategy", Target::deployment, "Deployment", "nul", image("/spec/template/spec"))
            .drifts(&["/spec/template/spec/containers/[name=c]/image"])
            .restores(&["/spec"]),
        Row::new("a StatefulSet keeps its default strategy", Target::statefulset, "StatefulSet", "nul", image("/spec/template/spec"))
            .drifts(&["/spec/template/spec/containers/[name=c]/image"])
            .restores(&["/spec"]),
        Row::new("a DaemonSet keeps its default strategy", daemon_set, "DaemonSet", "nul", image("/spec/template/spec"))
            .drifts(&["/spec/template/spec/containers/[name=c]/image"])
            .restores(&["/spec"]),
        Row::new(
            "a Service keeps its families",
            Target::service,
            "Service",
            "nul",
            Edit::Merge(json!({"spec": {"selector": {"app": "x"}}})),
        )
        .drifts(&["/spec/selector"])
        .restores(&["/spec"]),
        Row::new("a ConfigMap", Target::configmap, "ConfigMap", "nul", Edit::Merge(json!({"data": {"a": "c"}})))
            .drifts(&["/data/a"])
            .restores(&["/data"]),
        Row::new(
            "a NetworkPolicy",
            network_policy,
            "NetworkPolicy",
            "nul",
            Edit::Merge(json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}})),
        )
        .drifts(&["/spec/podSelector"])
        .restores(&["/spec"]),
        Row::new("a CronJob keeps its default limits", cron_job, "CronJob", "nul", Edit::Merge(json!({"spec": {"schedule": "1 1 * * *"}})))
            .drifts(&["/spec/schedule"])
            .restores(&["/spec"]),
    ])
    .await;
}

const SERVICES: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-s"}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-named"}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, nodePort: {{ if eq .Release.Name "h3" }}31083{{ else }}31084{{ end }}}]}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-dns"}
spec:
  selector: {app: dns}
  ports: [{name: tcp, port: 53, protocol: TCP}, {name: udp, port: 53, protocol: UDP}]
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-balanced"}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 443, targetPort: 8443}]}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-headless"}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-external"}
spec: {type: ExternalName, externalName: db.example.com}
---
apiVersion: batch/v1
kind: Job
metadata: {name: "{{ .Release.Name }}-once"}
spec:
  parallelism: 1
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: "img:1"}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: "{{ .Release.Name }}-bound"}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

#[tokio::test]
async fn d06_addresses_and_ports_the_server_chooses() {
    let mut case = Case::start("d06", SERVICES).await;
    // A volume is chosen for a claim long after it was made.
    for (_, release) in RELEASES {
        let claim = Target::custom("", "v1", "persistentvolumeclaims", case.namespace(), &format!("{release}-bound"));
        let binder = case.world.writer("kube-controller-manager");
        binder.merge_patch(&claim, &json!({"spec": {"volumeName": format!("pv-{release}")}})).await.unwrap();
    }
    case.stays_quiet().await;
    let selector = || Edit::Merge(json!({"spec": {"selector": {"app": "x"}}}));
    case.corrects(&[
        Row::new("a chosen node port survives", Target::service, "Service", "s", selector()).drifts(&["/spec/selector"]).restores(&["/spec"]),
        Row::new(
            "a declared node port comes back",
            Target::service,
            "Service",
            "named",
            Edit::For(|release| json!([{"op": "replace", "path": "/spec/ports/0/nodePort", "value": if release == "h3" { 31085 } else { 31086 }}])),
        )
        .drifts(&["/spec/ports/[port=80,protocol=TCP]/nodePort"])
        .restores(&["/spec"]),
        Row::new("one port of two protocols", Target::service, "Service", "dns", Edit::Json(json!([{"op": "replace", "path": "/spec/ports/1/name", "value": "dgram"}])))
            .drifts(&["/spec/ports/[port=53,protocol=UDP]/name"])
            .restores(&["/spec"]),
        Row::new("a balancer's chosen node port survives", Target::service, "Service", "balanced", Edit::Json(json!([{"op": "replace", "path": "/spec/ports/0/targetPort", "value": 9443}])))
            .drifts(&["/spec/ports/[port=443,protocol=TCP]/targetPort"])
            .restores(&["/spec"]),
        Row::new("no address stays no address", Target::service, "Service", "headless", selector()).drifts(&["/spec/selector"]).restores(&["/spec"]),
        Row::new("a name instead of an address", Target::service, "Service", "external", Edit::Merge(json!({"spec": {"externalName": "evil.example.com"}})))
            .drifts(&["/spec/externalName"])
            .restores(&["/spec"]),
        Row::new("a Job's chosen selector survives", Target::job, "Job", "once", Edit::Merge(json!({"spec": {"parallelism": 3}})))
            .drifts(&["/spec/parallelism"])
            .restores(&["/spec"]),
    ])
    .await;
}

const TEMPLATES: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: "{{ .Release.Name }}-db"}
spec:
  serviceName: db
  selector: {matchLabels: {app: "{{ .Release.Name }}-db"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-db"}}
    spec: {containers: [{name: c, image: "img:1"}]}
  volumeClaimTemplates:
  - metadata: {name: data, creationTimestamp: null}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: "{{ .Release.Name }}-respelt"}
spec:
  serviceName: respelt
  selector: {matchLabels: {app: "{{ .Release.Name }}-respelt"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-respelt"}}
    spec: {containers: [{name: c, image: "img:1"}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata: {name: logs, labels: {tier: cold}}
    spec: {accessModes: [ReadWriteOnce], volumeMode: Filesystem, resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}-ephemeral"}
spec:
  selector: {matchLabels: {app: "{{ .Release.Name }}-ephemeral"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}-ephemeral"}}
    spec:
      containers: [{name: c, image: "img:1"}]
      volumes:
      - name: scratch
        ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: "{{ .Release.Name }}-filled"}
spec:
  maxReplicas: 3
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: nobody}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
  behavior: {scaleDown: {policies: [{type: Percent, value: 10, periodSeconds: 60}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: "{{ .Release.Name }}-bound"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: default, namespace: "{{ .Release.Namespace }}"}]
---
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-sealed"}
immutable: true
stringData: {p: one}
"#;

#[tokio::test]
async fn d02_filled_in_templates_and_what_cannot_be_put_back() {
    let mut case = Case::start("d02", TEMPLATES).await;
    case.stays_quiet().await;
    let autoscaler = |path: &str, value| Edit::Json(json!([{"op": "replace", "path": path, "value": value}]));
    case.corrects(&[
        Row::new(
            "a claim template of a volume",
            Target::deployment,
            "Deployment",
            "ephemeral",
            Edit::Json(json!([{"op": "replace", "path": "/spec/template/spec/volumes/0/ephemeral/volumeClaimTemplate/spec/resources/requests/storage", "value": "2Gi"}])),
        )
        .drifts(&["/spec/template/spec/volumes/[name=scratch]/ephemeral/volumeClaimTemplate/spec/resources/requests/storage"])
        .restores(&["/spec"]),
        Row::new("an atomic list with filled-in policies", Target::hpa, "HorizontalPodAutoscaler", "filled", autoscaler("/spec/behavior/scaleDown/policies/0/value", 50))
            .drifts(&["/spec/behavior/scaleDown/policies"])
            .restores(&["/spec"]),
    ])
    .await;

    let cases: [(Place, &str, &str, &str, serde_json::Value); 3] = [
        (
            Target::statefulset,
            "StatefulSet",
            "db",
            "/spec/volumeClaimTemplates",
            json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}}]}}),
        ),
        (Target::role_binding, "RoleBinding", "bound", "/roleRef", json!({"roleRef": {"name": "admin"}})),
        (Target::secret, "Secret", "sealed", "/data/p", json!({"data": {"p": "dHdv"}})),
    ];
    // While the hub is away, which would create what is missing in between.
    case.world.stop_hub();
    let somebody = case.world.writer("kubectl-replace");
    let writes = case.calls().await.writes().len();
    for (_, release) in RELEASES {
        for (target, _, name, _, change) in &cases {
            let target = target(case.namespace(), &format!("{release}-{name}"));
            let mut object = somebody.get(&target).await.unwrap();
            for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"] {
                object["metadata"].as_object_mut().unwrap().remove(field);
            }
            object.as_object_mut().unwrap().remove("status");
            merge(&mut object, change);
            somebody.delete(&target).await.unwrap();
            somebody.create(&target, &object).await.unwrap();
        }
    }
    case.world.start_hub(&[]);
    for (_, release) in RELEASES {
        for (_, kind, name, path, _) in &cases {
            let name = format!("{release}-{name}");
            let report = case
                .world
                .wait_report(Some(release), &format!("{kind} {name} is refused"), |status| {
                    finding(status, kind, &name).is_some_and(|found| found["verdict"] == "Refused")
                })
                .await;
            let found = finding(&report["status"], kind, &name).unwrap();
            assert_eq!(found["reason"], "Immutable", "{found:#}");
            assert!(path_of(found, path).is_some(), "{found:#}");
            assert_eq!(reason(&report["status"], "InSync"), "Refused");
        }
    }
    // Nothing is deleted to force it, nothing is tried hot, and the rest is still looked after.
    case.stays_quiet().await;
    let calls = case.calls().await;
    assert!(calls.writes().filter(|call| call.verb == "delete" || call.verb == "create").is_empty(), "{}", calls.writes());
    assert!(calls.writes().len() - writes <= RELEASES.len() * (1 + cases.len()), "one try each at most:\n{}", calls.writes());
}

fn merge(base: &mut serde_json::Value, patch: &serde_json::Value) {
    let (Some(base), Some(patch)) = (base.as_object_mut(), patch.as_object()) else {
        *base = patch.clone();
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            base.remove(key);
        } else {
            merge(base.entry(key.clone()).or_insert(serde_json::Value::Null), value);
        }
    }
}
