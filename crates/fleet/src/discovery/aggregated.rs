//! Aggregated discovery: all groups in one document.

use std::{borrow::Cow, sync::Arc};

use holdfast_engine::object::{Gvk, Scope};
use serde::Deserialize;

use super::catalog::{Group, Part, Resource, Verbs, Version};

/// An `APIGroupDiscoveryList`.
#[derive(Deserialize)]
pub(super) struct Document<'a> {
    #[serde(borrow, default)]
    items: Vec<RawGroup<'a>>,
}

#[derive(Deserialize)]
struct RawGroup<'a> {
    #[serde(borrow, default)]
    metadata: Name<'a>,
    #[serde(borrow, default)]
    versions: Vec<RawVersion<'a>>,
}

#[derive(Default, Deserialize)]
struct Name<'a> {
    // Absent for the core group.
    #[serde(borrow, default)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct RawVersion<'a> {
    #[serde(borrow)]
    version: Cow<'a, str>,
    #[serde(borrow, default)]
    freshness: Cow<'a, str>,
    #[serde(borrow, default)]
    resources: Vec<RawResource<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResource<'a> {
    #[serde(borrow)]
    resource: Cow<'a, str>,
    // Absent where a path serves only subresources.
    #[serde(borrow, default)]
    response_kind: Option<RawKind<'a>>,
    #[serde(borrow, default)]
    scope: Cow<'a, str>,
    #[serde(borrow, default)]
    verbs: Vec<Cow<'a, str>>,
    #[serde(borrow, default)]
    subresources: Vec<RawSubresource<'a>>,
}

#[derive(Deserialize)]
struct RawKind<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct RawSubresource<'a> {
    #[serde(borrow)]
    subresource: Cow<'a, str>,
}

impl From<Document<'_>> for Part {
    fn from(document: Document<'_>) -> Self {
        Self { groups: document.items.into_iter().map(group).collect() }
    }
}

fn group(group: RawGroup<'_>) -> Group {
    let name = group.metadata.name.into_owned();
    let versions = group.versions.into_iter().map(|version| self::version(&name, version)).collect();
    Group { name, versions }
}

fn version(group: &str, version: RawVersion<'_>) -> Version {
    let name = version.version.into_owned();
    let resources = version
        .resources
        .into_iter()
        .filter_map(|resource| {
            let kind = resource.response_kind.filter(|kind| !kind.kind.is_empty())?;
            Some(Arc::new(Resource {
                // Group and version come from the parent: for the core group `responseKind` leaves them empty.
                gvk: Gvk { group: group.to_owned(), version: name.clone(), kind: kind.kind.into_owned() },
                plural: resource.resource.into_owned(),
                scope: if resource.scope == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
                verbs: resource.verbs.iter().map(AsRef::as_ref).collect::<Verbs>(),
                subresources: resource.subresources.into_iter().map(|sub| sub.subresource.into_owned()).collect(),
            }))
        })
        .collect();
    // `Current` is the only word that vouches for the list.
    Version { name, stale: version.freshness != "Current", resources }
}
