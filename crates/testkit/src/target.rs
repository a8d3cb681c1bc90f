//! Where one object is.

/// Group, version, plural, namespace and name of an object, perhaps one of its subresources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The resource's plural, as in URLs.
    pub plural: String,
    /// None for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// `scale`, `status`, … if not the object itself.
    pub subresource: Option<String>,
}

impl Target {
    /// A namespaced object of any kind.
    pub fn custom(group: &str, version: &str, plural: &str, namespace: &str, name: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::cluster_scoped(group, version, plural, name) }
    }

    /// A cluster-scoped object of any kind.
    pub fn cluster_scoped(group: &str, version: &str, plural: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            namespace: None,
            name: name.to_owned(),
            subresource: None,
        }
    }

    /// A `v1` ConfigMap.
    pub fn configmap(namespace: &str, name: &str) -> Self {
        Self::custom("", "v1", "configmaps", namespace, name)
    }

    /// A `v1` Secret.
    pub fn secret(namespace: &str, name: &str) -> Self {
        Self::custom("", "v1", "secrets", namespace, name)
    }

    /// A `v1` Service.
    pub fn service(namespace: &str, name: &str) -> Self {
        Self::custom("", "v1", "services", namespace, name)
    }

    /// A `v1` `ServiceAccount`.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::custom("", "v1", "serviceaccounts", namespace, name)
    }

    /// A `v1` Pod.
    pub fn pod(namespace: &str, name: &str) -> Self {
        Self::custom("", "v1", "pods", namespace, name)
    }

    /// An `apps/v1` Deployment.
    pub fn deployment(namespace: &str, name: &str) -> Self {
        Self::custom("apps", "v1", "deployments", namespace, name)
    }

    /// An `apps/v1` `StatefulSet`.
    pub fn statefulset(namespace: &str, name: &str) -> Self {
        Self::custom("apps", "v1", "statefulsets", namespace, name)
    }

    /// A `batch/v1` Job.
    pub fn job(namespace: &str, name: &str) -> Self {
        Self::custom("batch", "v1", "jobs", namespace, name)
    }

    /// An `autoscaling/v2` `HorizontalPodAutoscaler`.
    pub fn hpa(namespace: &str, name: &str) -> Self {
        Self::custom("autoscaling", "v2", "horizontalpodautoscalers", namespace, name)
    }

    /// A `coordination.k8s.io/v1` Lease.
    pub fn lease(namespace: &str, name: &str) -> Self {
        Self::custom("coordination.k8s.io", "v1", "leases", namespace, name)
    }

    /// A Role.
    pub fn role(namespace: &str, name: &str) -> Self {
        Self::custom("rbac.authorization.k8s.io", "v1", "roles", namespace, name)
    }

    /// A `RoleBinding`.
    pub fn role_binding(namespace: &str, name: &str) -> Self {
        Self::custom("rbac.authorization.k8s.io", "v1", "rolebindings", namespace, name)
    }

    /// A `ClusterRole`.
    pub fn clusterrole(name: &str) -> Self {
        Self::cluster_scoped("rbac.authorization.k8s.io", "v1", "clusterroles", name)
    }

    /// A `ClusterRoleBinding`.
    pub fn clusterrole_binding(name: &str) -> Self {
        Self::cluster_scoped("rbac.authorization.k8s.io", "v1", "clusterrolebindings", name)
    }

    /// A Namespace.
    pub fn namespace(name: &str) -> Self {
        Self::cluster_scoped("", "v1", "namespaces", name)
    }

    /// A `CustomResourceDefinition`.
    pub fn crd(name: &str) -> Self {
        Self::cluster_scoped("apiextensions.k8s.io", "v1", "customresourcedefinitions", name)
    }

    /// A `test.example/v1` Widget, the custom resource of the chart `mini10`.
    pub fn widget(namespace: &str, name: &str) -> Self {
        Self::custom("test.example", "v1", "widgets", namespace, name)
    }

    /// The object's scale.
    #[must_use]
    pub fn scale(&self) -> Self {
        self.subresource("scale")
    }

    /// The object's status.
    #[must_use]
    pub fn status(&self) -> Self {
        self.subresource("status")
    }

    /// Any other subresource.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Self {
        Self { subresource: Some(name.to_owned()), ..self.clone() }
    }

    /// `v1` or `group/version`, as in an object's `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The URL path of the kind in the object's namespace, for lists and creations.
    pub fn collection_path(&self) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        let namespace = self.namespace.as_ref().map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
        format!("/{root}/{}{namespace}/{}", self.api_version(), self.plural)
    }

    /// The URL path of the object or subresource.
    pub fn path(&self) -> String {
        let subresource = self.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        format!("{}/{}{subresource}", self.collection_path(), self.name)
    }
}
