//! Discovery as servers without aggregated documents answer it: one document for the groups, one for each version.

use std::{borrow::Cow, sync::Arc};

use holdfast_engine::object::{Gvk, Scope};
use serde::Deserialize;

use super::catalog::{Resource, Verbs, Version};

/// `APIVersions`: the versions of the core group.
#[derive(Deserialize)]
pub(super) struct CoreVersions {
    pub(super) versions: Vec<String>,
}

/// `APIGroupList`: all other groups.
#[derive(Deserialize)]
pub(super) struct Groups {
    pub(super) groups: Vec<GroupEntry>,
}

/// A group and its versions.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupEntry {
    pub(super) name: String,
    versions: Vec<VersionEntry>,
    #[serde(default)]
    preferred_version: Option<VersionEntry>,
}

#[derive(Deserialize)]
struct VersionEntry {
    version: String,
}

impl GroupEntry {
    /// The group's versions, the preferred one first.
    pub(super) fn versions(&self) -> Vec<&str> {
        let preferred = self.preferred_version.as_ref().map(|entry| entry.version.as_str());
        let mut versions: Vec<_> = self.versions.iter().map(|entry| entry.version.as_str()).collect();
        versions.sort_by_key(|version| Some(*version) != preferred);
        versions
    }
}

/// `APIResourceList`: the kinds of one version.
#[derive(Deserialize)]
pub(super) struct ResourceList<'a> {
    #[serde(borrow)]
    resources: Vec<RawResource<'a>>,
}

#[derive(Deserialize)]
struct RawResource<'a> {
    /// `pods`, or `pods/status` for a subresource.
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    namespaced: bool,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    verbs: Vec<Cow<'a, str>>,
}

impl ResourceList<'_> {
    /// The kinds of version `version` of `group`.
    pub(super) fn into_version(self, group: &str, version: &str) -> Version {
        let (subresources, kinds): (Vec<_>, Vec<_>) = self.resources.into_iter().partition(|resource| resource.name.contains('/'));
        let resources = kinds
            .into_iter()
            .map(|resource| {
                let subresources = subresources
                    .iter()
                    .filter_map(|sub| sub.name.split_once('/').filter(|(parent, _)| *parent == resource.name))
                    .map(|(_, name)| name.to_owned())
                    .collect();
                Arc::new(Resource {
                    gvk: Gvk { group: group.to_owned(), version: version.to_owned(), kind: resource.kind.into_owned() },
                    scope: if resource.namespaced { Scope::Namespaced } else { Scope::Cluster },
                    verbs: resource.verbs.iter().map(AsRef::as_ref).collect::<Verbs>(),
                    plural: resource.name.into_owned(),
                    subresources,
                })
            })
            .collect();
        Version { name: version.to_owned(), stale: false, resources }
    }
}
