//! The kinds of a cluster, searchable.

use std::{collections::HashMap, sync::Arc};

use holdfast_engine::object::{Gvk, Scope};

use crate::call::{Endpoint, EndpointError};

/// One kind at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Group, version and kind.
    pub gvk: Gvk,
    /// Name in paths, for example `deployments`.
    pub plural: String,
    /// Whether objects live in namespaces.
    pub scope: Scope,
    /// What can be done with objects.
    pub verbs: Verbs,
    /// Subresources by name, for example `status`.
    pub subresources: Vec<String>,
}

impl Resource {
    /// The collection over all namespaces.
    pub fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        Endpoint::new(&self.gvk.group, &self.gvk.version, &self.plural)
    }

    /// Whether objects can be listed and watched.
    pub fn watchable(&self) -> bool {
        self.verbs.has(Verb::List) && self.verbs.has(Verb::Watch)
    }

    /// Whether the kind has this subresource.
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresources.iter().any(|subresource| subresource == name)
    }
}

/// Something that can be done with objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read one.
    Get,
    /// Read many.
    List,
    /// Follow changes.
    Watch,
    /// Make one.
    Create,
    /// Replace one.
    Update,
    /// Change one.
    Patch,
    /// Remove one.
    Delete,
}

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verbs(u8);

impl Verbs {
    /// Whether the verb is in the set.
    pub fn has(self, verb: Verb) -> bool {
        self.0 & (1 << verb as u8) != 0
    }
}

impl<'a> FromIterator<&'a str> for Verbs {
    /// Verbs nobody here asks for are left out.
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let bits = names.into_iter().filter_map(|name| match name {
            "get" => Some(Verb::Get),
            "list" => Some(Verb::List),
            "watch" => Some(Verb::Watch),
            "create" => Some(Verb::Create),
            "update" => Some(Verb::Update),
            "patch" => Some(Verb::Patch),
            "delete" => Some(Verb::Delete),
            _ => None,
        });
        Self(bits.fold(0, |set, verb| set | 1 << verb as u8))
    }
}

/// Whether a kind is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It is.
    Served(Arc<Resource>),
    /// It is not: the group was answered for and does not have it.
    NotServed,
    /// Nobody can tell now: nothing was discovered yet, or the server could not reach the group's backend.
    Unknown,
}

impl Lookup {
    /// The resource, if the kind is known to be served.
    pub fn served(self) -> Option<Arc<Resource>> {
        match self {
            Self::Served(resource) => Some(resource),
            Self::NotServed | Self::Unknown => None,
        }
    }
}

/// The kinds one discovery document lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) groups: Vec<Group>,
}

impl Part {
    pub(super) fn versions(&self) -> impl Iterator<Item = &Version> {
        self.groups.iter().flat_map(|group| &group.versions)
    }
}

/// One group of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Empty for the core group.
    pub(super) name: String,
    /// In the server's order of preference.
    pub(super) versions: Vec<Version>,
}

/// One version of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) name: String,
    /// The server could not ask the backend: what is listed may be old or missing.
    pub(super) stale: bool,
    pub(super) resources: Vec<Arc<Resource>>,
}

impl Version {
    /// Whether it lists nothing, only because its backend could not be asked.
    pub(super) const fn is_empty_for_now(&self) -> bool {
        self.stale && self.resources.is_empty()
    }
}

/// The kinds of one cluster.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// `None` before the first successful discovery.
    groups: Option<HashMap<String, Vec<Version>>>,
}

impl Catalog {
    /// A catalog of which nothing is known: every lookup is [`Lookup::Unknown`].
    pub fn unknown() -> Self {
        Self::default()
    }

    pub(super) fn of<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Self {
        let mut groups: HashMap<String, Vec<Version>> = HashMap::new();
        for group in parts.into_iter().flat_map(|part| &part.groups) {
            groups.entry(group.name.clone()).or_default().extend(group.versions.iter().cloned());
        }
        Self { groups: Some(groups) }
    }

    /// Whether a kind is served at exactly this version.
    pub fn lookup(&self, gvk: &Gvk) -> Lookup {
        let Some(groups) = &self.groups else { return Lookup::Unknown };
        let Some(versions) = groups.get(gvk.group.as_str()) else { return Lookup::NotServed };
        let mut kinds = versions.iter().filter(|version| version.name == gvk.version).flat_map(|version| &version.resources);
        if let Some(resource) = kinds.find(|resource| resource.gvk.kind == gvk.kind) {
            // A stale version's list may be old, but it was true once, and a request will tell.
            return Lookup::Served(Arc::clone(resource));
        }
        // A stale version elsewhere in the group makes the group's whole list doubtful.
        if versions.iter().any(|version| version.stale) { Lookup::Unknown } else { Lookup::NotServed }
    }

    /// All kinds at all versions, in no particular order.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.iter().flatten().flat_map(|(_, versions)| versions).flat_map(|version| &version.resources)
    }
}
