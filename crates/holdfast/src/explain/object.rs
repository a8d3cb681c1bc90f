//! The object somebody asks about, in the words of a command line.

use std::fmt;

use anyhow::bail;
use holdfast_hub::cluster::guarded::Guarded;

/// What people type for kinds, as kubectl knows them.
const SHORT: [(&str, &str); 22] = [
    ("cj", "cronjobs"),
    ("cm", "configmaps"),
    ("crd", "customresourcedefinitions"),
    ("deploy", "deployments"),
    ("ds", "daemonsets"),
    ("ep", "endpoints"),
    ("hpa", "horizontalpodautoscalers"),
    ("ing", "ingresses"),
    ("limits", "limitranges"),
    ("netpol", "networkpolicies"),
    ("ns", "namespaces"),
    ("pc", "priorityclasses"),
    ("pdb", "poddisruptionbudgets"),
    ("po", "pods"),
    ("pv", "persistentvolumes"),
    ("pvc", "persistentvolumeclaims"),
    ("quota", "resourcequotas"),
    ("rs", "replicasets"),
    ("sa", "serviceaccounts"),
    ("sc", "storageclasses"),
    ("sts", "statefulsets"),
    ("svc", "services"),
];

/// Kind and name as typed: `Deployment/web`, `deployments.apps/web`, `deploy/web`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    kind: String,
    group: Option<String>,
    name: String,
    namespace: Option<String>,
}

impl Named {
    /// Reads `KIND[.GROUP]/NAME`.
    pub fn parse(text: &str, namespace: Option<&str>) -> anyhow::Result<Self> {
        let Some((kind, name)) = text.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty()) else {
            bail!("{text} is not KIND/NAME, such as deployment/web");
        };
        let kind = kind.to_ascii_lowercase();
        let (kind, group) = kind.split_once('.').map_or((kind.as_str(), None), |(kind, group)| (kind, Some(group.to_owned())));
        let long = SHORT.iter().find(|(short, _)| *short == kind).map_or(kind, |(_, long)| long);
        Ok(Self { kind: long.to_owned(), group, name: name.to_owned(), namespace: namespace.map(str::to_owned) })
    }

    /// Whether a declared object is meant.
    pub fn is(&self, guarded: &Guarded) -> bool {
        let key = &guarded.key;
        (key.gvk.kind.eq_ignore_ascii_case(&self.kind) || guarded.resource.plural == self.kind)
            && self.group.as_ref().is_none_or(|group| key.gvk.group == *group)
            && *key.name == *self.name
            && self.namespace.as_ref().is_none_or(|namespace| key.namespace.as_deref() == Some(namespace.as_str()))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)?;
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_people_type_them() {
        for (text, kind, group) in [
            ("Deployment/web", "deployment", None),
            ("deploy/web", "deployments", None),
            ("deployments.apps/web", "deployments", Some("apps")),
            ("widgets.test.example/web", "widgets", Some("test.example")),
        ] {
            let named = Named::parse(text, None).unwrap();
            assert_eq!((named.kind.as_str(), named.group.as_deref(), named.name.as_str()), (kind, group, "web"), "{text}");
        }
        for text in ["web", "/web", "deploy/", ""] {
            assert!(Named::parse(text, None).unwrap_err().to_string().contains("KIND/NAME"), "{text}");
        }
    }
}
