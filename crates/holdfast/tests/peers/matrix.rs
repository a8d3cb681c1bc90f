//! What somebody does, each to an object of its own: the drifts that other tools were measured by, and everything that can be added.

use holdfast_testkit::{Target, Writer};
use serde_json::{Value, json};

use crate::support::edit::Edit;

/// What the report says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A declared field has another value.
    Changed,
    /// A declared field is gone; nobody can be named.
    Removed,
    /// Something was added.
    Added,
    /// A declared field is gone, and another one was added in its place.
    Swapped,
    /// The object is gone.
    Missing,
}

/// One drift.
pub struct Drift {
    /// Its name, and that of its object.
    pub name: &'static str,
    /// Kind of the object.
    pub kind: &'static str,
    /// What somebody does.
    pub edit: Edit,
    /// What the report says.
    pub seen: Seen,
    /// The paths it names.
    pub paths: &'static [&'static str],
    /// The default of the best peer sees it and puts it back (measured).
    pub best_default: bool,
}

/// Who makes them.
pub const EDITOR: &str = "kubectl-edit";

/// A custom resource with a default and a list by key.
pub const DEFINITION: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.peers.example}
spec:
  group: peers.example
  scope: Namespaced
  names: {kind: Gadget, listKind: GadgetList, plural: gadgets, singular: gadget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              mode: {type: string, default: fast}
              notes: {type: array, items: {type: string}}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, weight: {type: integer, default: 1}}
";

/// An object for each drift, named after it.
pub const CHART: &str = r#"
{{- $tag := .Values.tag | default "1" }}
{{- range list "replicas" "image" "env-value" "arg-added" "label-value" "probe-gone" "label-gone" "container" "env" "pod-label" "host-network" "paused" "label" "gone-deployment" }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ . }}
  labels: {app: {{ . }}, tier: web, team: blue}
spec:
  replicas: 2
  selector: {matchLabels: {app: {{ . }}}}
  template:
    metadata: {labels: {app: {{ . }}}}
    spec:
      containers:
      - name: web
        image: "registry.example/web:{{ $tag }}"
        args: [serve]
        env: [{name: LEVEL, value: info}]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /ready, port: http}}
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, emptyDir: {}}]
{{- end }}
{{- range list "gone-config" "config-value" "config-key" }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ . }}}
data: {color: blue, tag: {{ $tag | quote }}}
{{- end }}
{{- range list "gone-secret" "secret-value" "secret-key" }}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ . }}}
stringData: {password: "one-{{ $tag }}"}
{{- end }}
{{- range list "role-rule" "role-verbs" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: {{ . }}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: subject}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: role-rule}
subjects: [{kind: ServiceAccount, name: web, namespace: {{ .Release.Namespace }}}]
{{- range list "port" "port-number" }}
---
apiVersion: v1
kind: Service
metadata: {name: {{ . }}}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: {{ if eq $tag "1" }}8080{{ else }}8081{{ end }}}]
{{- end }}
{{- range list "gone-gadget" "gadget-field" "gadget-item" "gadget-default" }}
---
apiVersion: peers.example/v1
kind: Gadget
metadata: {name: {{ . }}}
spec: {size: {{ if eq $tag "1" }}3{{ else }}4{{ end }}, parts: [{name: a, weight: 2}]}
{{- end }}
"#;

/// An object of the chart.
pub fn target(kind: &str, namespace: &str, name: &str) -> Target {
    match kind {
        "ConfigMap" => Target::configmap(namespace, name),
        "Deployment" => Target::deployment(namespace, name),
        "Role" => Target::role(namespace, name),
        "RoleBinding" => Target::role_binding(namespace, name),
        "Secret" => Target::secret(namespace, name),
        "Service" => Target::service(namespace, name),
        "CronJob" => Target::custom("batch", "v1", "cronjobs", namespace, name),
        "PodDisruptionBudget" => Target::custom("policy", "v1", "poddisruptionbudgets", namespace, name),
        "Gadget" => Target::custom("peers.example", "v1", "gadgets", namespace, name),
        other => panic!("no {other} in the chart"),
    }
}

impl Drift {
    /// Where its object is.
    pub fn target(&self, namespace: &str) -> Target {
        target(self.kind, namespace, self.name)
    }

    /// Does it.
    pub async fn make(&self, writer: &Writer, namespace: &str) {
        let target = self.target(namespace);
        self.edit.make(writer, &target).await;
    }
}

fn drift(name: &'static str, kind: &'static str, edit: Edit, seen: Seen, paths: &'static [&'static str]) -> Drift {
    Drift { name, kind, edit, seen, paths, best_default: seen != Seen::Added }
}

fn container(fields: &Value) -> Edit {
    let mut container = json!({"name": "web"});
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    template(&json!({"spec": {"containers": [container]}}))
}

fn template(fields: &Value) -> Edit {
    Edit::Strategic(json!({"spec": {"template": fields}}))
}

fn add(pointer: &str, value: &Value) -> Edit {
    Edit::Json(json!([{"op": "add", "path": pointer, "value": value}]))
}

/// What can be added to an object beside the drifts of [`measured`], and how it is called.
pub const ADDED_CHART: &str = r#"
{{- $tag := .Values.tag | default "1" }}
{{- range list "init" "volume" "annotation" "pod-annotation" "finalizer" "node-selector" "toleration" "pod-security" "security" "account" "host-pid" "container-port" "limits" "pull-secret" "strategy" "grace" "probe" "source" "from" "command" "affinity" "replicas-free" "owner" }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ . }}}
spec:
  selector: {matchLabels: {app: {{ . }}}}
  template:
    metadata: {labels: {app: {{ . }}}}
    spec:
      containers:
      - name: web
        image: "registry.example/web:{{ $tag }}"
        env: [{name: LEVEL, value: info}]
      volumes: [{name: data, emptyDir: {}}]
{{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: binary}
data: {tag: {{ $tag | quote }}}
---
apiVersion: v1
kind: Service
metadata: {name: external}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: affine}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: suspended}
spec: {schedule: "0 0 * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "img:{{ $tag }}"}]}}}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: eviction}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: peers.example/v1
kind: Gadget
metadata: {name: inside}
spec: {size: 1, parts: [{name: a}]}
---
apiVersion: peers.example/v1
kind: Gadget
metadata: {name: notes}
spec: {size: 1}
"#;

/// Everything else that somebody adds.
pub fn additions() -> Vec<Drift> {
    added_to_deployments().into_iter().chain(added_elsewhere()).collect()
}

fn added_to_deployments() -> Vec<Drift> {
    use Edit::Merge;
    let pod = |fields: Value| template(&json!({"spec": fields}));
    let deployment = |name, edit, paths| drift(name, "Deployment", edit, Seen::Added, paths);
    vec![
        deployment(
            "init",
            pod(json!({"initContainers": [{"name": "first", "image": "x:1"}]})),
            &["/spec/template/spec/initContainers/[name=first]"],
        ),
        deployment(
            "volume",
            pod(
                json!({"volumes": [{"name": "more", "emptyDir": {}}], "containers": [{"name": "web", "volumeMounts": [{"name": "more", "mountPath": "/more"}]}]}),
            ),
            &["/spec/template/spec/containers/[name=web]/volumeMounts/[mountPath=~1more]", "/spec/template/spec/volumes/[name=more]"],
        ),
        deployment(
            "annotation",
            Merge(json!({"metadata": {"annotations": {"example.com/note": "x"}}})),
            &["/metadata/annotations/example.com~1note"],
        ),
        deployment(
            "pod-annotation",
            template(&json!({"metadata": {"annotations": {"example.com/note": "x"}}})),
            &["/spec/template/metadata/annotations/example.com~1note"],
        ),
        deployment(
            "finalizer",
            Merge(json!({"metadata": {"finalizers": ["example.com/hold"]}})),
            &["/metadata/finalizers/[=example.com~1hold]"],
        ),
        deployment("node-selector", pod(json!({"nodeSelector": {"disk": "ssd"}})), &["/spec/template/spec/nodeSelector"]),
        deployment("toleration", pod(json!({"tolerations": [{"operator": "Exists"}]})), &["/spec/template/spec/tolerations"]),
        deployment("pod-security", pod(json!({"securityContext": {"runAsUser": 0}})), &["/spec/template/spec/securityContext/runAsUser"]),
        deployment(
            "security",
            container(&json!({"securityContext": {"privileged": true}})),
            &["/spec/template/spec/containers/[name=web]/securityContext"],
        ),
        deployment(
            "account",
            pod(json!({"serviceAccountName": "admin"})),
            &["/spec/template/spec/serviceAccount", "/spec/template/spec/serviceAccountName"],
        ),
        deployment("host-pid", pod(json!({"hostPID": true})), &["/spec/template/spec/hostPID"]),
        deployment(
            "container-port",
            container(&json!({"ports": [{"containerPort": 9}]})),
            &["/spec/template/spec/containers/[name=web]/ports/[containerPort=9,protocol=TCP]"],
        ),
        deployment(
            "limits",
            container(&json!({"resources": {"limits": {"cpu": "1"}}})),
            &["/spec/template/spec/containers/[name=web]/resources/limits"],
        ),
        deployment("pull-secret", pod(json!({"imagePullSecrets": [{"name": "x"}]})), &["/spec/template/spec/imagePullSecrets/[name=x]"]),
        deployment("strategy", Merge(json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}})), &["/spec/strategy/type"]),
        deployment("grace", pod(json!({"terminationGracePeriodSeconds": 5})), &["/spec/template/spec/terminationGracePeriodSeconds"]),
        deployment(
            "probe",
            container(&json!({"livenessProbe": {"exec": {"command": ["true"]}}})),
            &["/spec/template/spec/containers/[name=web]/livenessProbe"],
        ),
        deployment("command", container(&json!({"command": ["sleep"]})), &["/spec/template/spec/containers/[name=web]/command"]),
        deployment("affinity", pod(json!({"affinity": {"nodeAffinity": {}}})), &["/spec/template/spec/affinity"]),
        deployment("replicas-free", Merge(json!({"spec": {"replicas": 3}})), &["/spec/replicas"]),
    ]
}

fn added_elsewhere() -> Vec<Drift> {
    use Edit::Merge;
    use Seen::Added;
    let deployment = |name, edit, paths| drift(name, "Deployment", edit, Added, paths);
    vec![
        deployment(
            "owner",
            Merge(
                json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111-2222-3333-4444-555555555555"}]}}),
            ),
            &["/metadata/ownerReferences/[uid=11111111-2222-3333-4444-555555555555]"],
        ),
        // One member of a union goes for another, which nobody declares.
        Drift {
            seen: Seen::Swapped,
            ..deployment(
                "source",
                Edit::Json(
                    json!([{"op": "replace", "path": "/spec/template/spec/volumes/0", "value": {"name": "data", "hostPath": {"path": "/"}}}]),
                ),
                &["/spec/template/spec/volumes/[name=data]/emptyDir", "/spec/template/spec/volumes/[name=data]/hostPath"],
            )
        },
        Drift {
            seen: Seen::Swapped,
            ..deployment(
                "from",
                Edit::Json(
                    json!([{"op": "replace", "path": "/spec/template/spec/containers/0/env/0", "value": {"name": "LEVEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}}]),
                ),
                &[
                    "/spec/template/spec/containers/[name=web]/env/[name=LEVEL]/value",
                    "/spec/template/spec/containers/[name=web]/env/[name=LEVEL]/valueFrom",
                ],
            )
        },
        drift("binary", "ConfigMap", Merge(json!({"binaryData": {"blob": "AAA="}})), Added, &["/binaryData/blob"]),
        drift(
            "external",
            "Service",
            Merge(json!({"spec": {"externalIPs": ["10.9.8.7"]}})),
            Added,
            &["/spec/externalIPs", "/spec/externalTrafficPolicy"],
        ),
        drift(
            "affine",
            "Service",
            Merge(json!({"spec": {"sessionAffinity": "ClientIP"}})),
            Added,
            &["/spec/sessionAffinity", "/spec/sessionAffinityConfig"],
        ),
        drift("suspended", "CronJob", Merge(json!({"spec": {"suspend": true}})), Added, &["/spec/suspend"]),
        drift(
            "eviction",
            "PodDisruptionBudget",
            Merge(json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})),
            Added,
            &["/spec/unhealthyPodEvictionPolicy"],
        ),
        drift(
            "inside",
            "Gadget",
            Edit::Json(json!([{"op": "replace", "path": "/spec/parts/0/weight", "value": 7}])),
            Added,
            &["/spec/parts/[name=a]/weight"],
        ),
        drift("notes", "Gadget", Merge(json!({"spec": {"notes": ["a", "b"]}})), Added, &["/spec/notes"]),
    ]
}

/// All that was measured, in that order.
pub fn measured() -> Vec<Drift> {
    use Edit::{Delete, Merge};
    use Seen::{Added, Changed, Missing, Removed};
    let mut drifts = vec![
        drift("replicas", "Deployment", Merge(json!({"spec": {"replicas": 5}})), Changed, &["/spec/replicas"]),
        drift("image", "Deployment", container(&json!({"image": "evil:1"})), Changed, &["/spec/template/spec/containers/[name=web]/image"]),
        drift(
            "env-value",
            "Deployment",
            container(&json!({"env": [{"name": "LEVEL", "value": "debug"}]})),
            Changed,
            &["/spec/template/spec/containers/[name=web]/env/[name=LEVEL]/value"],
        ),
        drift(
            "arg-added",
            "Deployment",
            container(&json!({"args": ["serve", "--debug"]})),
            Changed,
            &["/spec/template/spec/containers/[name=web]/args"],
        ),
        drift("label-value", "Deployment", Merge(json!({"metadata": {"labels": {"tier": "x"}}})), Changed, &["/metadata/labels/tier"]),
        drift(
            "probe-gone",
            "Deployment",
            container(&json!({"readinessProbe": null})),
            Removed,
            &[
                "/spec/template/spec/containers/[name=web]/readinessProbe/httpGet/path",
                "/spec/template/spec/containers/[name=web]/readinessProbe/httpGet/port",
            ],
        ),
        drift("label-gone", "Deployment", Merge(json!({"metadata": {"labels": {"team": null}}})), Removed, &["/metadata/labels/team"]),
        drift(
            "container",
            "Deployment",
            template(&json!({"spec": {"containers": [{"name": "side", "image": "side:1"}]}})),
            Added,
            &["/spec/template/spec/containers/[name=side]"],
        ),
        drift(
            "env",
            "Deployment",
            container(&json!({"env": [{"name": "EXTRA", "value": "x"}]})),
            Added,
            &["/spec/template/spec/containers/[name=web]/env/[name=EXTRA]"],
        ),
        drift(
            "pod-label",
            "Deployment",
            template(&json!({"metadata": {"labels": {"extra": "x"}}})),
            Added,
            &["/spec/template/metadata/labels/extra"],
        ),
        drift("host-network", "Deployment", template(&json!({"spec": {"hostNetwork": true}})), Added, &["/spec/template/spec/hostNetwork"]),
        drift("paused", "Deployment", Merge(json!({"spec": {"paused": true}})), Added, &["/spec/paused"]),
        drift("label", "Deployment", Merge(json!({"metadata": {"labels": {"extra": "x"}}})), Added, &["/metadata/labels/extra"]),
        drift("gone-deployment", "Deployment", Delete, Missing, &[]),
        drift("gone-config", "ConfigMap", Delete, Missing, &[]),
        drift("gone-secret", "Secret", Delete, Missing, &[]),
        drift("gone-gadget", "Gadget", Delete, Missing, &[]),
        drift("config-value", "ConfigMap", Merge(json!({"data": {"color": "red"}})), Changed, &["/data/color"]),
        drift("config-key", "ConfigMap", Merge(json!({"data": {"extra": "x"}})), Added, &["/data/extra"]),
        drift("secret-key", "Secret", Merge(json!({"data": {"extra": "eA=="}})), Added, &["/data/extra"]),
        drift("secret-value", "Secret", Merge(json!({"data": {"password": "ZXZpbA=="}})), Changed, &["/data/password"]),
        drift(
            "role-rule",
            "Role",
            add("/rules/-", &json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})),
            Changed,
            &["/rules"],
        ),
        drift("role-verbs", "Role", add("/rules/0/verbs/-", &json!("delete")), Changed, &["/rules"]),
        drift(
            "subject",
            "RoleBinding",
            add("/subjects/-", &json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "evil"})),
            Changed,
            &["/subjects"],
        ),
        drift(
            "port",
            "Service",
            add("/spec/ports/-", &json!({"name": "extra", "port": 9999, "protocol": "TCP", "targetPort": 9999})),
            Added,
            &["/spec/ports/[port=9999,protocol=TCP]"],
        ),
        drift(
            "port-number",
            "Service",
            Edit::Json(json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 81}])),
            Removed,
            &["/spec/ports/[port=80,protocol=TCP]"],
        ),
        drift("gadget-field", "Gadget", Merge(json!({"spec": {"size": 9}})), Changed, &["/spec/size"]),
        drift("gadget-item", "Gadget", add("/spec/parts/-", &json!({"name": "b"})), Added, &["/spec/parts/[name=b]"]),
        drift("gadget-default", "Gadget", Merge(json!({"spec": {"mode": "slow"}})), Added, &["/spec/mode"]),
    ];
    // The best peer's default fails at these two.
    for drift in drifts.iter_mut().filter(|drift| ["secret-value", "port-number"].contains(&drift.name)) {
        drift.best_default = false;
    }
    drifts
}
