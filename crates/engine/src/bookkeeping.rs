//! What Kubernetes itself, its cloud providers and well-known controllers keep in objects that others declare. None of it is somebody's
//! edit: it is neither reported as a foreign field nor removed. The tables are closed; each line says whose it is.

use crate::{
    object::Gvk,
    path::{Path, Segment},
};

/// Field managers of the cluster's own components. A component writes under the name of its program.
const COMPONENTS: [&str; 6] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    // kubernetes: pkg/controller/clusterroleaggregation, which applies under its own name.
    "clusterrole-aggregation-controller",
    // OpenShift's part of the controller manager: pull secrets of ServiceAccounts, ranges of namespaces.
    "openshift-controller-manager",
];

/// Programs of cloud providers end so: `aws-cloud-controller-manager` and the like (kubernetes/cloud-provider).
const CLOUD_PROVIDER: &str = "cloud-controller-manager";

/// Entries that the server makes of writes whose author it does not know any more (apimachinery: `capmanagers`, `skipnonapplied`).
/// They may hold the release's own fields, so they prove nothing against anybody.
const NOBODY: [&str; 2] = ["before-first-apply", "ancient-changes"];

/// Domains of labels, annotations and finalizers that controllers write for themselves.
const DOMAINS: [&str; 25] = [
    // Deployment controller: revision, desired and most replicas.
    "deployment.kubernetes.io",
    // Binding and provisioning of volumes.
    "pv.kubernetes.io",
    "volume.kubernetes.io",
    "volume.beta.kubernetes.io",
    "snapshot.storage.kubernetes.io",
    // Leader election by annotation, and Endpoints.
    "control-plane.alpha.kubernetes.io",
    "endpoints.kubernetes.io",
    "endpointslice.kubernetes.io",
    // Job and autoscaling controllers.
    "batch.kubernetes.io",
    "autoscaling.alpha.kubernetes.io",
    // Service controller: its finalizer.
    "service.kubernetes.io",
    // Node lifecycle.
    "node.kubernetes.io",
    "node.alpha.kubernetes.io",
    // Google's ingress, load balancers and Autopilot.
    "cloud.google.com",
    "networking.gke.io",
    "autopilot.gke.io",
    "ingress.kubernetes.io",
    // Load balancers of AWS.
    "service.k8s.aws",
    "elbv2.k8s.aws",
    "ingress.k8s.aws",
    // Rancher.
    "field.cattle.io",
    "lifecycle.cattle.io",
    // Address announcement by kube-vip.
    "kube-vip.io",
    // Operators written with kopf keep their last state so.
    "kopf.zalando.org",
    // Stakater Reloader: a restart it asked for.
    "reloader.stakater.com",
];

/// Single names of the same kind, where others of their domain are everybody's.
const NAMES: [&str; 14] = [
    // `kubectl apply` and `kubectl rollout restart` keep these for themselves; removing the second restarts every pod once more.
    "kubectl.kubernetes.io/last-applied-configuration",
    "kubectl.kubernetes.io/restartedAt",
    "kubernetes.io/change-cause",
    // DaemonSet strategy of the server.
    "deprecated.daemonset.template.generation",
    // Labels that the server gives namespaces, Jobs' templates, and token Secrets.
    "kubernetes.io/metadata.name",
    "controller-uid",
    "job-name",
    "kubernetes.io/service-account.uid",
    "kubernetes.io/service-account.name",
    "cattle.io/status",
    // Differs from run to run of the same policy.
    "policies.kyverno.io/last-applied-patches",
    // Ranges that OpenShift assigns to a namespace.
    "openshift.io/sa.scc.uid-range",
    "openshift.io/sa.scc.supplemental-groups",
    "openshift.io/sa.scc.mcs",
];

/// Finalizers of the garbage collector and the namespace controller, which have no domain.
const FINALIZERS: [&str; 3] = ["foregroundDeletion", "orphan", "kubernetes"];

/// Fields that controllers fill, by group and kind. `*` is one segment.
const FIELDS: [(&str, &str, &[&str]); 21] = [
    // Allocation by the server, address announcement by load balancers.
    ("", "Service", &["spec", "clusterIP"]),
    ("", "Service", &["spec", "clusterIPs"]),
    ("", "Service", &["spec", "ipFamilies"]),
    ("", "Service", &["spec", "ipFamilyPolicy"]),
    ("", "Service", &["spec", "healthCheckNodePort"]),
    ("", "Service", &["spec", "loadBalancerIP"]),
    ("", "Service", &["spec", "ports", "*", "nodePort"]),
    // Binding.
    ("", "PersistentVolumeClaim", &["spec", "volumeName"]),
    ("", "PersistentVolume", &["spec", "claimRef"]),
    ("", "Pod", &["spec", "nodeName"]),
    ("", "Pod", &["spec", "ephemeralContainers"]),
    ("", "Namespace", &["spec", "finalizers"]),
    // Token and pull-secret controllers.
    ("", "ServiceAccount", &["secrets"]),
    ("", "ServiceAccount", &["imagePullSecrets"]),
    // Certificates that cert-manager, service-ca and webhooks' own start-up inject; without them nothing is admitted.
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", &["webhooks", "*", "clientConfig", "caBundle"]),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", &["webhooks", "*", "clientConfig", "caBundle"]),
    ("apiregistration.k8s.io", "APIService", &["spec", "caBundle"]),
    // An operator tells the server where it converts; without it no object of the kind can be read.
    ("apiextensions.k8s.io", "CustomResourceDefinition", &["spec", "conversion"]),
    // Bundles that OpenShift injects.
    ("", "ConfigMap", &["data", "service-ca.crt"]),
    ("", "ConfigMap", &["data", "ca-bundle.crt"]),
    // Who leads.
    ("coordination.k8s.io", "Lease", &["spec"]),
];

/// Kinds that controllers fill altogether.
const KINDS: [(&str, &str); 2] = [("", "Endpoints"), ("discovery.k8s.io", "EndpointSlice")];

/// Whether a field manager is a part of the cluster, or nobody in particular.
pub fn is_of_the_cluster(manager: &str) -> bool {
    COMPONENTS.contains(&manager) || manager.ends_with(CLOUD_PROVIDER) || is_unknown(manager)
}

/// Whether an entry of this name stands for writes whose author is not known any more.
pub fn is_unknown(manager: &str) -> bool {
    NOBODY.contains(&manager)
}

/// Whether a controller keeps the field for itself.
pub fn is_bookkeeping(gvk: &Gvk, path: &Path) -> bool {
    let segments = path.segments();
    match segments {
        [Segment::Field(first), ..] if &**first == "status" => return true,
        // Of the metadata only these are anybody's to set.
        [Segment::Field(first), Segment::Field(second), ..]
            if &**first == "metadata" && !["labels", "annotations", "finalizers", "ownerReferences"].contains(&&**second) =>
        {
            return true;
        }
        _ => {}
    }
    KINDS.iter().any(|(group, kind)| gvk.is(group, kind))
        || FIELDS.iter().any(|(group, kind, field)| gvk.is(group, kind) && lies_in(segments, field))
        || is_kept_name(segments)
}

fn lies_in(segments: &[Segment], field: &[&str]) -> bool {
    segments.len() >= field.len()
        && field.iter().zip(segments).all(|(wanted, segment)| match segment {
            Segment::Field(name) => *wanted == "*" || **name == **wanted,
            Segment::Key(_) | Segment::Item(_) => *wanted == "*",
            Segment::Order => false,
        })
}

/// A label, annotation or finalizer, also of a template; or an environment variable by which a controller restarts pods.
fn is_kept_name(segments: &[Segment]) -> bool {
    segments.windows(2).any(|pair| match pair {
        [Segment::Field(map), Segment::Field(name)] if ["labels", "annotations"].contains(&&**map) => is_kept(name),
        [Segment::Field(list), Segment::Item(item)] if &**list == "finalizers" => {
            item.as_str().is_some_and(|name| FINALIZERS.contains(&name) || is_kept(name) || is_of_kubernetes(name))
        }
        [Segment::Field(list), Segment::Key(keys)] if &**list == "env" => {
            keys.iter().any(|(_, name)| name.as_str().is_some_and(|name| name.starts_with("STAKATER_")))
        }
        _ => false,
    })
}

fn is_kept(name: &str) -> bool {
    let domain = name.split_once('/').map_or("", |(domain, _)| domain);
    NAMES.contains(&name) || DOMAINS.contains(&domain)
}

/// A finalizer of Kubernetes itself: `kubernetes.io/pvc-protection`, `external-attacher/…` of its storage drivers apart.
fn is_of_kubernetes(finalizer: &str) -> bool {
    let domain = finalizer.split_once('/').map_or(finalizer, |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"].iter().any(|own| domain == *own || domain.strip_suffix(own).is_some_and(|rest| rest.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(segments: &[&str]) -> Path {
        segments.iter().map(|text| Segment::from_fields_v1(text).unwrap_or_else(|| Segment::field(text))).collect()
    }

    #[test]
    fn the_cluster_itself_is_not_somebody() {
        for manager in [
            "kube-controller-manager",
            "cloud-controller-manager",
            "aws-cloud-controller-manager",
            "kubelet",
            "kube-scheduler",
            "ancient-changes",
        ] {
            assert!(is_of_the_cluster(manager), "{manager}");
        }
        for manager in ["kubectl-edit", "manager", "controller", "kube-controller-managers", "kubectl"] {
            assert!(!is_of_the_cluster(manager), "{manager}");
        }
    }

    #[test]
    fn what_controllers_keep_is_told_from_what_people_add() {
        let cases = [
            ("apps/v1", "Deployment", &["metadata", "annotations", "deployment.kubernetes.io/revision"][..], true),
            ("apps/v1", "Deployment", &["spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"], true),
            ("apps/v1", "Deployment", &["spec", "template", "metadata", "annotations", "sidecar.istio.io/inject"], false),
            ("apps/v1", "Deployment", &["metadata", "labels", "app.kubernetes.io/instance"], false),
            ("apps/v1", "Deployment", &["metadata", "labels", "deployment.kubernetes.io.example.com/x"], false),
            ("apps/v1", "Deployment", &["spec", "containers", r#"k:{"name":"c"}"#, "env", r#"k:{"name":"STAKATER_WEB"}"#], true),
            ("apps/v1", "Deployment", &["spec", "containers", r#"k:{"name":"c"}"#, "env", r#"k:{"name":"DEBUG"}"#], false),
            ("v1", "Service", &["spec", "ports", r#"k:{"port":80,"protocol":"TCP"}"#, "nodePort"], true),
            ("v1", "Service", &["spec", "ports", r#"k:{"port":81,"protocol":"TCP"}"#], false),
            ("v1", "Service", &["spec", "externalIPs"], false),
            ("v1", "Service", &["metadata", "finalizers", r#"v:"service.kubernetes.io/load-balancer-cleanup""#], true),
            ("v1", "Service", &["metadata", "finalizers", r#"v:"example.com/mine""#], false),
            ("v1", "PersistentVolumeClaim", &["metadata", "finalizers", r#"v:"kubernetes.io/pvc-protection""#], true),
            ("v1", "ConfigMap", &["metadata", "finalizers", r#"v:"evilk8s.io/x""#], false),
            ("v1", "ConfigMap", &["data", "ca-bundle.crt"], true),
            ("v1", "Secret", &["data", "ca-bundle.crt"], false),
            ("v1", "ConfigMap", &["metadata", "ownerReferences", r#"k:{"uid":"u"}"#], false),
            ("v1", "ConfigMap", &["metadata", "generateName"], true),
            ("test.example/v1", "Widget", &["status", "phase"], true),
            ("test.example/v1", "Widget", &["spec", "status"], false),
            ("coordination.k8s.io/v1", "Lease", &["spec", "holderIdentity"], true),
        ];
        for (version, kind, segments, kept) in cases {
            assert_eq!(is_bookkeeping(&Gvk::new(version, kind), &path(segments)), kept, "{kind} {segments:?}");
        }
    }
}
