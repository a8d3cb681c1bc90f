//! The order in which Helm creates kinds.

/// Helm 4's install order. Helm 3's is the same without the two webhook configurations, which it creates last.
const INSTALL_ORDER: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Where `kind` stands in Helm's install order: a lower rank is created first. Kinds Helm does not know, custom
/// resources among them, share the last rank; Helm sorts those by kind, then as they stand in the manifest.
pub fn install_rank(kind: &str) -> usize {
    INSTALL_ORDER.iter().position(|known| *known == kind).unwrap_or(INSTALL_ORDER.len())
}

#[cfg(test)]
mod tests {
    use super::install_rank;

    #[test]
    fn dependencies_come_first() {
        let mut kinds = ["Widget", "Deployment", "ClusterRole", "CustomResourceDefinition", "Namespace", "ServiceAccount"];
        kinds.sort_by_key(|kind| install_rank(kind));
        assert_eq!(kinds, ["Namespace", "ServiceAccount", "CustomResourceDefinition", "ClusterRole", "Deployment", "Widget"]);
    }
}
