//! The test kit against itself: one control plane and one management plane serve all tests of this file.

#![allow(clippy::unwrap_used, reason = "clippy allows it in test functions, not in their helpers")]

use holdfast_testkit::{
    ControlPlane, Helm, MutatingWebhook, Options, Rule, Target, WebhookOptions, managed_fields_without_times,
    management::{CapiVersion, HUB_USER, KubeconfigSecret},
    mutate, programs, release, status_code,
};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

static PLANES: OnceCell<Vec<ControlPlane>> = OnceCell::const_new();

/// The first is the workload cluster, the second the management cluster.
async fn planes() -> (&'static ControlPlane, &'static ControlPlane) {
    let planes = PLANES
        .get_or_init(|| async { ControlPlane::start_many(vec![Options::named("workload"), Options::named("mgmt")]).await.unwrap() })
        .await;
    (planes.first().unwrap(), planes.last().unwrap())
}

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "img:1"}]}
"#;

fn deployment(namespace: &str) -> String {
    DEPLOYMENT.replace("NAMESPACE", namespace)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[tokio::test]
async fn the_audit_tells_dry_runs_from_writes_and_users_apart() {
    let (plane, _) = planes().await;
    plane.namespace("audit").await.unwrap();
    let target = Target::configmap("audit", "c");
    let ann = plane.writer("ann").unwrap();
    let bob = plane.writer("bob").unwrap();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}});
    let before = plane.audit_mark().await.unwrap();

    ann.create(&target, &object).await.unwrap();
    bob.get(&target).await.unwrap();
    bob.merge_patch(&target, &json!({"data": {"k": "w"}})).await.unwrap();
    let watch = http::Request::get("/api/v1/namespaces/audit/configmaps?watch=true").body(Vec::new()).unwrap();
    let events = bob.client().request_events::<Value>(watch).await.unwrap();
    let dry_run = http::Request::delete(format!("{}?dryRun=All", target.path())).body(Vec::new()).unwrap();
    bob.client().request::<Value>(dry_run).await.unwrap();

    let audit = plane.audit_since(before).await.unwrap().in_namespace("audit");
    let (ann, bob) = (audit.by_user("ann"), audit.by_user("bob"));
    assert_eq!((ann.writes().len(), ann.reads().len(), ann.dry_runs().len()), (1, 0, 0), "{audit}");
    assert_eq!((bob.writes().len(), bob.gets().len(), bob.dry_runs().len()), (1, 1, 1), "{audit}");
    assert_eq!((bob.watches().len(), bob.reads().len()), (1, 2), "an open watch counts: {audit}");
    drop(events);
    let patch = bob.writes().iter().next().unwrap().clone();
    assert_eq!((patch.verb.as_str(), patch.resource.as_str(), patch.name.as_str(), patch.code), ("patch", "configmaps", "c", Some(200)));
    assert!(plane.audit_since(plane.audit_mark().await.unwrap()).await.unwrap().by_user("bob").is_empty());
    assert!(!plane.audit().await.unwrap().by_user("ann").writes().is_empty());
}

#[tokio::test]
async fn rights_are_what_rbac_grants() {
    let (plane, _) = planes().await;
    plane.namespace("rbac").await.unwrap();
    plane
        .apply_yaml(
            "setup",
            "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: rbac}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: rbac}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}
- {kind: ServiceAccount, name: robot, namespace: rbac}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: rbac}
",
        )
        .await
        .unwrap();

    let nobody = plane.access("eve", &["others"]).unwrap();
    let member = plane.access("eve", &["others", "readers"]).unwrap();
    let robot = plane.service_account("rbac", "robot").await.unwrap();

    assert_eq!(list_configmaps(nobody.client().unwrap()).await, Some(403));
    assert_eq!(list_configmaps(member.client().unwrap()).await, None);
    assert_eq!(list_configmaps(robot.client().unwrap()).await, None);
    for kubeconfig in [member.kubeconfig(), robot.kubeconfig()] {
        assert_eq!(list_configmaps(client_of(&kubeconfig).await).await, None);
    }
}

/// The status of a failed list in the namespace `rbac`.
async fn list_configmaps(client: Client) -> Option<u16> {
    let request = http::Request::get("/api/v1/namespaces/rbac/configmaps").body(Vec::new()).unwrap();
    client.request::<Value>(request).await.err().and_then(|error| status_code(&error.into()))
}

async fn client_of(kubeconfig: &str) -> Client {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn writers_are_field_managers_also_of_scale_and_status() {
    let (plane, _) = planes().await;
    plane.namespace("writers").await.unwrap();
    plane.create_yaml("helm", &deployment("writers")).await.unwrap();
    let target = Target::deployment("writers", "web");
    let hpa = plane.writer("kube-controller-manager").unwrap();

    hpa.update(&target.scale(), |scale| scale["spec"]["replicas"] = 5.into()).await.unwrap();
    hpa.merge_patch(&target.status(), &json!({"status": {"replicas": 1}})).await.unwrap();
    let kubectl = plane.writer("kubectl-edit").unwrap();
    kubectl.json_patch(&target, &json!([{"op": "replace", "path": "/spec/paused", "value": true}])).await.unwrap();
    let container = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "img:2"}]}}}});
    kubectl.strategic_patch(&target, &container).await.unwrap();

    let live = hpa.get(&target).await.unwrap();
    assert_eq!((&live["spec"]["replicas"], &live["status"]["replicas"]), (&json!(5), &json!(1)));
    assert_eq!(text(&live, "/spec/template/spec/containers/0/image"), "img:2");
    let managers: Vec<_> = managed_fields_without_times(&live)
        .iter()
        .map(|entry| (text(entry, "/manager").to_owned(), text(entry, "/subresource").to_owned()))
        .collect();
    for (manager, subresource) in
        [("helm", ""), ("kubectl-edit", ""), ("kube-controller-manager", "scale"), ("kube-controller-manager", "status")]
    {
        assert!(managers.contains(&(manager.to_owned(), subresource.to_owned())), "{managers:?}");
    }

    kubectl.delete(&target).await.unwrap();
    assert!(kubectl.find(&target).await.unwrap().is_none());
}

#[tokio::test]
async fn yaml_may_define_a_kind_and_use_it() {
    let (plane, _) = planes().await;
    let text = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.test.example}
spec:
  group: test.example
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
---
apiVersion: test.example/v1
kind: Gadget
metadata: {name: first}
spec: {size: 1}
";

    let written = plane.apply_yaml("ann", text).await.unwrap();

    assert_eq!(written.len(), 2);
    let gadget = Target::custom("test.example", "v1", "gadgets", "default", "first");
    let live = plane.writer("ann").unwrap().get(&gadget).await.unwrap();
    assert_eq!(text_of_manager(&live), "ann/Apply");
}

fn text_of_manager(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/managedFields/0/manager"), text(object, "/metadata/managedFields/0/operation"))
}

#[tokio::test]
async fn both_helms_install_upgrade_and_roll_back() {
    let (plane, _) = planes().await;
    let chart = programs::chart("mini10").unwrap();
    let reader = plane.writer("ann").unwrap();
    // One after the other: the first makes the CRD that both charts bring.
    for (helm, namespace) in [(Helm::V3, "with-helm3"), (Helm::V4, "with-helm4")] {
        helm.install(plane, "shop", namespace, &chart, &["--set", "replicas=3"]).await.unwrap();
        helm.upgrade(plane, "shop", namespace, &chart, &["--set", "image.tag=2.0,extraConfigMap=true"]).await.unwrap();

        let deployment = reader.get(&Target::deployment(namespace, "shop-web")).await.unwrap();
        assert_eq!(text(&deployment, "/spec/template/spec/containers/0/image"), "registry.example/web:2.0");
        assert!(reader.find(&Target::configmap(namespace, "shop-extra")).await.unwrap().is_some());
        assert!(reader.find(&Target::widget(namespace, "shop-main")).await.unwrap().is_some());
        assert_eq!(helm.manifest(plane, "shop", namespace).await.unwrap().matches("\nkind: ").count(), 11);

        helm.rollback(plane, "shop", namespace, 1).await.unwrap();
        assert!(reader.find(&Target::configmap(namespace, "shop-extra")).await.unwrap().is_none());
        let history = helm.history(plane, "shop", namespace).await.unwrap();
        let statuses: Vec<_> = history.as_array().unwrap().iter().map(|revision| text(revision, "/status")).collect();
        assert_eq!(statuses, ["superseded", "superseded", "deployed"]);
        let record = reader.get(&release::target(namespace, "shop", 3)).await.unwrap();
        assert_eq!(text(&record, "/metadata/labels/status"), "deployed");
    }
    assert!(Helm::V3.install(plane, "shop", "with-helm3", &chart, &[]).await.unwrap_err().to_string().contains("name"));
    Helm::V4.uninstall(plane, "shop", "with-helm4", &[]).await.unwrap();
    assert!(reader.find(&Target::deployment("with-helm4", "shop-web")).await.unwrap().is_none());
}

#[tokio::test]
async fn every_other_chart_installs() {
    let (plane, _) = planes().await;
    for (helm, chart, args) in
        [(Helm::V3, "shop", ""), (Helm::V4, "cache", ""), (Helm::V3, "bulk", "count=7,deployments=2"), (Helm::V4, "bulk", "count=5,keys=1")]
    {
        let namespace = format!("{chart}-{helm:?}").to_lowercase();
        helm.install(plane, chart, &namespace, &programs::chart(chart).unwrap(), &["--set", args]).await.unwrap();
    }
    let bulk = plane.kubectl(&["get", "configmaps,deployments", "--namespace", "bulk-v3", "--output", "name"]).await.unwrap();
    assert_eq!(bulk.lines().count(), 9, "{bulk}");
}

#[tokio::test]
async fn helm_reads_records_made_by_hand() {
    let (plane, _) = planes().await;
    plane.namespace("records").await.unwrap();
    let extra = json!({"info": {"description": "forged"}});
    plane.put_release(&release::secret("web", "records", 3, "deployed", &deployment("records"), &extra).unwrap()).await.unwrap();
    plane.put_release(&release::secret_of_bytes("broken", "records", 1, "deployed", b"no gzip")).await.unwrap();
    // A second time: as Helm changes a record's status.
    plane.put_release(&release::secret("web", "records", 3, "superseded", "", &json!({})).unwrap()).await.unwrap();
    plane.put_release(&release::secret("web", "records", 4, "deployed", &deployment("records"), &extra).unwrap()).await.unwrap();

    for helm in Helm::ALL {
        let history = helm.history(plane, "web", "records").await.unwrap();
        assert_eq!(text(&history, "/1/description"), "forged");
        assert_eq!((text(&history, "/0/status"), text(&history, "/1/status")), ("superseded", "deployed"));
        assert!(helm.manifest(plane, "web", "records").await.unwrap().contains("kind: Deployment"));
    }
}

#[tokio::test]
async fn a_webhook_rewrites_objects_until_it_is_stopped() {
    let (plane, _) = planes().await;
    for namespace in ["hooked", "unhooked"] {
        plane.namespace(namespace).await.unwrap();
    }
    let once = MutatingWebhook::start(plane, WebhookOptions::new("mirror", "hooked", vec![Rule::deployments()]), mutate::mirror_images)
        .await
        .unwrap();
    let label = MutatingWebhook::start(
        plane,
        WebhookOptions::new("labels", "hooked", vec![Rule::of("", "configmaps")]),
        mutate::on_create(mutate::label("test.example/team", "web")),
    )
    .await
    .unwrap();

    plane.apply_yaml("ann", &deployment("hooked")).await.unwrap();
    plane.apply_yaml("ann", &deployment("unhooked")).await.unwrap();
    plane.apply_yaml("ann", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: hooked}}").await.unwrap();

    let ann = plane.writer("ann").unwrap();
    let image = async |namespace: &str| {
        let live = ann.get(&Target::deployment(namespace, "web")).await.unwrap();
        text(&live, "/spec/template/spec/containers/0/image").to_owned()
    };
    assert_eq!(image("hooked").await, "mirror.local/img:1");
    assert_eq!(image("unhooked").await, "img:1");
    assert_eq!((once.calls(), once.dry_run_calls(), label.calls()), (1, 0, 1));
    let configmap = ann.get(&Target::configmap("hooked", "c")).await.unwrap();
    assert_eq!(configmap["metadata"]["labels"], json!({"test.example/team": "web"}));

    once.stop().await.unwrap();
    let blindly =
        MutatingWebhook::start(plane, WebhookOptions::new("mirror", "hooked", vec![Rule::deployments()]), mutate::mirror_images_blindly)
            .await
            .unwrap();
    ann.merge_patch(&Target::deployment("hooked", "web"), &json!({"spec": {"replicas": 3}})).await.unwrap();
    assert_eq!(image("hooked").await, "mirror.local/mirror.local/img:1");
    blindly.stop().await.unwrap();
    label.stop().await.unwrap();
    ann.merge_patch(&Target::deployment("hooked", "web"), &json!({"spec": {"replicas": 4}})).await.unwrap();
    assert_eq!(image("hooked").await, "mirror.local/mirror.local/img:1");
}

#[tokio::test]
async fn a_management_cluster_has_clusters_of_both_versions() {
    let (plane, mgmt) = planes().await;
    mgmt.install_cluster_api_crd().await.unwrap();
    mgmt.namespace("fleet").await.unwrap();
    let reader = mgmt.writer("ann").unwrap();

    for (name, version) in [("old", CapiVersion::V1Beta1), ("new", CapiVersion::V1Beta2)] {
        let cluster = mgmt.capi_cluster("fleet", name, plane, version, false, &[("env", "prod")]).await.unwrap();
        assert_eq!(text(&cluster, "/metadata/labels/env"), "prod");
        assert_eq!(cluster["status"]["initialization"]["controlPlaneInitialized"], false);
        mgmt.set_capi_initialised("fleet", name, version, true).await.unwrap();
        for version in [CapiVersion::V1Beta1, CapiVersion::V1Beta2] {
            let read = reader.get(&version.target("fleet", name)).await.unwrap();
            assert_eq!(read["status"]["initialization"]["controlPlaneInitialized"], true, "{read}");
            assert_eq!(read["status"]["controlPlaneReady"], true);
            assert_eq!(read["spec"]["controlPlaneEndpoint"]["host"], "127.0.0.1");
        }
        let secret = reader.get(&Target::secret("fleet", &format!("{name}-kubeconfig"))).await.unwrap();
        assert_eq!(text(&secret, "/type"), "cluster.x-k8s.io/secret");
        let config: k8s_openapi::api::core::v1::Secret = serde_json::from_value(secret).unwrap();
        let kubeconfig = String::from_utf8(config.data.unwrap()["value"].0.clone()).unwrap();
        client_of(&kubeconfig).await.apiserver_version().await.unwrap();
    }
    assert!(!plane.audit().await.unwrap().by_user(HUB_USER).is_empty());

    // The workload cluster stands in for an older management cluster.
    plane.install_cluster_api_crd_only(CapiVersion::V1Beta1).await.unwrap();
    let old = plane.capi_cluster("default", "old", plane, CapiVersion::V1Beta1, true, &[]).await.unwrap();
    assert_eq!((&old["status"]["controlPlaneReady"], &old["status"]["initialization"]), (&json!(true), &Value::Null));

    let odd = KubeconfigSecret {
        namespace: "fleet",
        name: "odd",
        secret_type: "Opaque",
        labels: &[("holdfast.dev/kubeconfig", "true")],
        key: "config",
        text: "not a kubeconfig",
    };
    let secret = mgmt.kubeconfig_secret(&odd).await.unwrap();
    assert_eq!(text(&secret, "/metadata/labels/holdfast.dev~1kubeconfig"), "true");
}
