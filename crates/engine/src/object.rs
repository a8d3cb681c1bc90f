//! What an object is called: group, version, kind, namespace and name.

use std::{fmt, sync::Arc};

/// Group, version and kind of an object, as in its `apiVersion` and `kind`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvk {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group, for example `v1`.
    pub version: String,
    /// Kind, for example `Deployment`.
    pub kind: String,
}

impl Gvk {
    /// Splits an `apiVersion` such as `apps/v1` or `v1`.
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// The `apiVersion` text: `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether group and kind are these, whatever the version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Kind={}", self.api_version(), self.kind)
    }
}

/// Whether objects of a kind live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Objects live in a namespace.
    Namespaced,
    /// Objects belong to the whole cluster; a namespace written on them is ignored, as the API server does.
    Cluster,
}

/// One object of one cluster. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Kind and the version it is read and written at.
    pub gvk: Arc<Gvk>,
    /// Namespace; `None` for cluster-scoped kinds.
    pub namespace: Option<Arc<str>>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key from its parts.
    pub fn new(gvk: Arc<Gvk>, namespace: Option<&str>, name: &str) -> Self {
        Self { gvk, namespace: namespace.map(Arc::from), name: Arc::from(name) }
    }

    /// Identity without the version: two versions of one kind are the same object.
    pub fn identity(&self) -> (&str, &str, Option<&str>, &str) {
        (&self.gvk.group, &self.gvk.kind, self.namespace.as_deref(), &self.name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.gvk.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
