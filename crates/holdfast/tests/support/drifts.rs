//! What somebody does to a release of chart `mini10`, and what the report says about it.

use holdfast_testkit::{Target, Writer};
use serde_json::{Value, json};

pub use super::edit::Edit;

/// Whom the report names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The editor.
    Editor,
    /// Nobody, and the editor is not among the candidates: the edit left no entry.
    Nobody,
    /// Nobody, with the editor among the candidates: it holds something else of the object.
    Candidate,
    /// The editor made the whole object: it is named where something stands, and is a candidate where something is missing.
    Creator,
}

/// One drift.
pub struct Drift {
    /// Field manager of the edit, unique in the table.
    pub editor: &'static str,
    /// Kind of the object.
    pub kind: &'static str,
    /// Its name.
    pub object: &'static str,
    /// What happens to it.
    pub edit: Edit,
    /// Every path the report names.
    pub paths: &'static [&'static str],
    /// Whom it blames for all of them.
    pub named: Named,
    /// Desired and live value of the first path; none are shown of Secrets and of missing objects.
    pub shown: Option<(Value, Value)>,
    /// Calls of one correction on a client-side and on a server-side release.
    pub calls: [usize; 2],
}

/// GET, oracle, record list, write.
const USUAL: [usize; 2] = [4, 4];
/// The oracle does not prove a positional patch of a server-side release clean, and ownership moves in a second write.
const POSITIONAL: [usize; 2] = [4, 6];
/// No oracle can be asked: a server-side apply cannot express the repair at all.
const UNANSWERED: [usize; 2] = [5, 6];
/// GET, record list, create.
const CREATION: [usize; 2] = [3, 3];

impl Drift {
    /// Where the object is.
    pub fn target(&self, namespace: &str) -> Target {
        target(self.kind, namespace, self.object)
    }

    /// Whether the object goes, so that nothing of it is left to name a path in.
    pub fn deletes(&self) -> bool {
        matches!(self.edit, Edit::Delete)
    }

    /// Does it.
    pub async fn make(&self, writer: &Writer, namespace: &str) {
        self.edit.make(writer, &self.target(namespace)).await;
    }
}

/// The drifts in as few groups as keep those of one object apart and in order.
pub fn waves(drifts: impl Iterator<Item = Drift>) -> Vec<Vec<Drift>> {
    let mut waves: Vec<Vec<Drift>> = Vec::new();
    for drift in drifts {
        let is_of_object = |wave: &Vec<Drift>| wave.iter().any(|other| (other.kind, other.object) == (drift.kind, drift.object));
        let next = waves.iter().rposition(is_of_object).map_or(0, |last| last + 1);
        if next == waves.len() {
            waves.push(Vec::new());
        }
        waves[next].push(drift);
    }
    waves
}

/// An object of the chart.
pub fn target(kind: &str, namespace: &str, name: &str) -> Target {
    match kind {
        "ConfigMap" => Target::configmap(namespace, name),
        "Deployment" => Target::deployment(namespace, name),
        "Role" => Target::role(namespace, name),
        "RoleBinding" => Target::role_binding(namespace, name),
        "Secret" => Target::secret(namespace, name),
        "Service" => Target::service(namespace, name),
        "ServiceAccount" => Target::service_account(namespace, name),
        "Widget" => Target::widget(namespace, name),
        other => panic!("no {other} in the chart"),
    }
}

fn drift(editor: &'static str, (kind, object): (&'static str, &'static str), edit: Edit, paths: &'static [&'static str]) -> Drift {
    Drift { editor, kind, object, edit, paths, named: Named::Editor, shown: None, calls: USUAL }
}

impl Drift {
    fn shown(mut self, desired: Value, live: Value) -> Self {
        self.shown = Some((desired, live));
        self
    }

    fn named(mut self, named: Named) -> Self {
        self.named = named;
        self
    }

    fn calls(mut self, calls: [usize; 2]) -> Self {
        self.calls = calls;
        self
    }
}

const SETTINGS: (&str, &str) = ("ConfigMap", "web-settings");
const FEATURES: (&str, &str) = ("ConfigMap", "web-features");
const PAGE: (&str, &str) = ("ConfigMap", "web-page");
const EXTRA: (&str, &str) = ("ConfigMap", "web-extra");
const DEPLOYMENT: (&str, &str) = ("Deployment", "web-web");
const ROLE: (&str, &str) = ("Role", "web-web");
const BINDING: (&str, &str) = ("RoleBinding", "web-web");
const ACCOUNT: (&str, &str) = ("ServiceAccount", "web-web");
const SECRET: (&str, &str) = ("Secret", "web-auth");
const SERVICE: (&str, &str) = ("Service", "web-web");
const WIDGET: (&str, &str) = ("Widget", "web-main");

fn container(fields: &Value) -> Edit {
    let mut container = json!({"name": "web"});
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Edit::Strategic(json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
}

fn replace(pointer: &str, value: &Value) -> Edit {
    Edit::Json(json!([{"op": "replace", "path": pointer, "value": value}]))
}

fn remove(pointer: &str) -> Edit {
    Edit::Json(json!([{"op": "remove", "path": pointer}]))
}

fn without_label(label: &str) -> Edit {
    Edit::Merge(json!({"metadata": {"labels": {label: null}}}))
}

fn without_annotation(annotation: &str) -> Edit {
    Edit::Merge(json!({"metadata": {"annotations": {annotation: null}}}))
}

const IMAGE: &str = "/spec/template/spec/containers/[name=web]/image";
const MANAGED_BY: &str = "/metadata/labels/app.kubernetes.io~1managed-by";
const RELEASE_NAME: &str = "/metadata/annotations/meta.helm.sh~1release-name";
const RELEASE_NAMESPACE: &str = "/metadata/annotations/meta.helm.sh~1release-namespace";

/// Fields of a Deployment and of other objects with a spec.
pub fn fields() -> Vec<Drift> {
    vec![
        drift("replicas", DEPLOYMENT, Edit::Merge(json!({"spec": {"replicas": 5}})), &["/spec/replicas"]).shown(json!(2), json!(5)),
        drift("scale", DEPLOYMENT, Edit::Scale(7), &["/spec/replicas"]).shown(json!(2), json!(7)),
        drift("image", DEPLOYMENT, container(&json!({"image": "evil:1"})), &[IMAGE])
            .shown(json!("registry.example/web:1.0"), json!("evil:1")),
        drift("args", DEPLOYMENT, container(&json!({"args": ["--debug"]})), &["/spec/template/spec/containers/[name=web]/args"])
            .shown(json!(["--listen", ":8080"]), json!(["--debug"])),
        drift(
            "env",
            DEPLOYMENT,
            container(&json!({"env": [{"name": "LOG_LEVEL", "value": "debug"}]})),
            &["/spec/template/spec/containers/[name=web]/env/[name=LOG_LEVEL]/value"],
        )
        .shown(json!("info"), json!("debug")),
        drift("widget-size", WIDGET, Edit::Merge(json!({"spec": {"size": 9}})), &["/spec/size"]).shown(json!(3), json!(9)),
        drift("widget-tags", WIDGET, Edit::Merge(json!({"spec": {"tags": ["red"]}})), &["/spec/tags"])
            .shown(json!(["red", "green"]), json!(["red"])),
        drift("widget-quota", WIDGET, Edit::Merge(json!({"spec": {"quota": 5}})), &["/spec/quota"]).shown(json!("10%"), json!(5)),
        drift("role", ROLE, replace("/rules/0/verbs", &json!(["*"])), &["/rules"]),
        drift("role-rule", ROLE, remove("/rules/1"), &["/rules"]),
        drift(
            "subjects",
            BINDING,
            Edit::Merge(json!({"subjects": [{"kind": "ServiceAccount", "name": "evil", "namespace": "default"}]})),
            &["/subjects"],
        ),
        drift("config", SETTINGS, Edit::Merge(json!({"data": {"color": "red"}})), &["/data/color"]).shown(json!("blue"), json!("red")),
        drift(
            "annotation",
            PAGE,
            Edit::Merge(json!({"metadata": {"annotations": {"test.example/owner": "me"}}})),
            &["/metadata/annotations/test.example~1owner"],
        )
        .shown(json!("web"), json!("me")),
        drift("selector", SERVICE, Edit::Merge(json!({"spec": {"selector": {"app": "evil"}}})), &["/spec/selector"]),
        // What the record declares as `stringData` lives in `data`, which an apply of the manifest would not own.
        drift("password", SECRET, Edit::Merge(json!({"data": {"password": "c3RvbGVu"}})), &["/data/password"]).calls(POSITIONAL),
        drift("token", SECRET, Edit::Merge(json!({"data": {"token": "c3RvbGVu"}})), &["/data/token"]).calls(POSITIONAL),
    ]
}

/// Keys of lists, and what is taken away.
pub fn keys_and_removals() -> Vec<Drift> {
    vec![
        drift("port", SERVICE, replace("/spec/ports/0/port", &json!(81)), &["/spec/ports/[port=80,protocol=TCP]"])
            .named(Named::Candidate)
            .calls(UNANSWERED),
        drift(
            "container-port",
            DEPLOYMENT,
            replace("/spec/template/spec/containers/0/ports/0/containerPort", &json!(8081)),
            &["/spec/template/spec/containers/[name=web]/ports/[containerPort=8080,protocol=TCP]"],
        )
        .named(Named::Candidate)
        .calls(UNANSWERED),
        drift(
            "container",
            DEPLOYMENT,
            replace("/spec/template/spec/containers/0/name", &json!("web2")),
            &["/spec/template/spec/containers/[name=web]"],
        )
        .named(Named::Candidate)
        .calls(POSITIONAL),
        drift(
            "lost-port",
            DEPLOYMENT,
            remove("/spec/template/spec/containers/0/ports/1"),
            &["/spec/template/spec/containers/[name=web]/ports/[containerPort=9090,protocol=TCP]"],
        )
        .named(Named::Nobody),
        drift(
            "lost-env",
            DEPLOYMENT,
            remove("/spec/template/spec/containers/0/env/0"),
            &["/spec/template/spec/containers/[name=web]/env/[name=LOG_LEVEL]"],
        )
        .named(Named::Nobody),
        drift(
            "lost-mount",
            DEPLOYMENT,
            remove("/spec/template/spec/containers/0/volumeMounts/0"),
            &["/spec/template/spec/containers/[name=web]/volumeMounts/[mountPath=~1etc~1web]"],
        )
        .named(Named::Nobody),
        drift(
            "lost-probe",
            DEPLOYMENT,
            container(&json!({"readinessProbe": null})),
            &[
                "/spec/template/spec/containers/[name=web]/readinessProbe/httpGet/path",
                "/spec/template/spec/containers/[name=web]/readinessProbe/httpGet/port",
                "/spec/template/spec/containers/[name=web]/readinessProbe/periodSeconds",
            ],
        )
        .named(Named::Nobody),
        drift("lost-key", SETTINGS, Edit::Merge(json!({"data": {"settings.ini": null}})), &["/data/settings.ini"]).named(Named::Nobody),
        drift("lost-secret", SECRET, Edit::Merge(json!({"data": {"token": null}})), &["/data/token"])
            .named(Named::Nobody)
            .calls(POSITIONAL),
        drift("lost-app", DEPLOYMENT, without_label("app"), &["/metadata/labels/app"])
            .named(Named::Nobody)
            .shown(json!("web"), Value::Null),
        drift("lost-manager", FEATURES, without_label("app.kubernetes.io/managed-by"), &[MANAGED_BY])
            .named(Named::Nobody)
            .shown(json!("Helm"), Value::Null),
        drift(
            "other-manager",
            SERVICE,
            Edit::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Me"}}})),
            &[MANAGED_BY],
        )
        .shown(json!("Helm"), json!("Me")),
        drift("lost-widget-manager", WIDGET, without_label("app.kubernetes.io/managed-by"), &[MANAGED_BY]).named(Named::Nobody),
        drift("lost-release", BINDING, without_annotation("meta.helm.sh/release-name"), &[RELEASE_NAME]).named(Named::Nobody),
        drift("lost-namespace", ACCOUNT, without_annotation("meta.helm.sh/release-namespace"), &[RELEASE_NAMESPACE]).named(Named::Nobody),
    ]
}

/// Whole objects that go.
pub fn deletions() -> Vec<Drift> {
    [
        ("deleted-config", EXTRA),
        ("deleted-deployment", DEPLOYMENT),
        ("deleted-secret", SECRET),
        ("deleted-widget", WIDGET),
        ("deleted-service", SERVICE),
        ("deleted-role", ROLE),
        ("deleted-account", ACCOUNT),
    ]
    .into_iter()
    .map(|(editor, object)| drift(editor, object, Edit::Delete, &[]).named(Named::Nobody).calls(CREATION))
    .collect()
}

/// Whole objects that somebody else makes anew.
pub fn replacements() -> Vec<Drift> {
    let ours = |labels: &Value| {
        let mut labels = labels.clone();
        labels["app.kubernetes.io/managed-by"] = json!("Helm");
        json!({"labels": labels, "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "NAMESPACE"}})
    };
    let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": ours(&json!({"app": "web", "team": "red"})), "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web", "release": "web"}},
        "template": {"metadata": {"labels": {"app": "web", "release": "web"}}, "spec": {"containers": [{"name": "web", "image": "evil:2"}]}},
    }});
    deployment["metadata"]["name"] = json!("web-web");
    let mut widget = json!({"apiVersion": "test.example/v1", "kind": "Widget", "metadata": ours(&json!({})),
        "spec": {"size": 1, "mode": "slow", "quota": "10%", "tags": ["red", "green"]}});
    widget["metadata"]["name"] = json!("web-main");
    let mut secret =
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": ours(&json!({})), "data": {"token": "c3RvbGVu"}});
    secret["metadata"]["name"] = json!("web-auth");
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web-page"}, "data": {"index.html": "<h1>Evil</h1>"}});
    vec![
        drift(
            "new-deployment",
            DEPLOYMENT,
            Edit::Recreate(deployment),
            &[
                "/spec/replicas",
                IMAGE,
                "/spec/template/spec/containers/[name=web]/args",
                "/spec/template/spec/containers/[name=web]/env/[name=EXTRA]",
                "/spec/template/spec/containers/[name=web]/env/[name=LOG_LEVEL]",
                "/spec/template/spec/containers/[name=web]/env/[name=PASSWORD]",
                "/spec/template/spec/containers/[name=web]/ports/[containerPort=8080,protocol=TCP]",
                "/spec/template/spec/containers/[name=web]/ports/[containerPort=9090,protocol=TCP]",
                "/spec/template/spec/containers/[name=web]/readinessProbe/httpGet/path",
                "/spec/template/spec/containers/[name=web]/readinessProbe/httpGet/port",
                "/spec/template/spec/containers/[name=web]/readinessProbe/periodSeconds",
                "/spec/template/spec/containers/[name=web]/resources/requests/cpu",
                "/spec/template/spec/containers/[name=web]/resources/requests/memory",
                "/spec/template/spec/containers/[name=web]/volumeMounts/[mountPath=~1etc~1web]",
                "/spec/template/spec/serviceAccountName",
                "/spec/template/spec/volumes/[name=settings]",
            ],
        )
        .named(Named::Creator),
        drift("new-widget", WIDGET, Edit::Recreate(widget), &["/spec/mode", "/spec/size"]),
        drift("new-secret", SECRET, Edit::Recreate(secret), &["/data/password", "/data/token"]).named(Named::Creator),
        // Without the release's metadata: the watch does not show it.
        drift(
            "new-config",
            PAGE,
            Edit::Recreate(config),
            &[MANAGED_BY, RELEASE_NAME, RELEASE_NAMESPACE, "/metadata/annotations/test.example~1owner", "/data/index.html"],
        )
        .named(Named::Creator),
    ]
}
