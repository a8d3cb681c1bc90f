//! Asks a cluster what it serves, and asks cheaply the next time.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    aggregated,
    catalog::{Catalog, Group, Part, Version},
    plain,
};
use crate::watch::SourceError;

/// How long one document may take. The server asks slow backends itself, with limits of its own below this.
const DEADLINE: Duration = Duration::from_secs(30);

/// Aggregated documents, the current form first; v2beta1 is what servers from 1.27 to 1.29 speak, plain JSON what older ones do.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                      application/json";

const PLAIN: &str = "application/json";

/// Reads documents of one cluster.
pub trait Fetch: Send + Sync {
    /// Reads a path. With `etag`, the server may answer that nothing changed since.
    fn fetch(&self, path: &str, accept: &str, etag: Option<&str>) -> impl Future<Output = Result<Fetched, SourceError>> + Send;
}

/// A document, or the word that it is the one we have.
#[derive(Clone, Debug)]
pub enum Fetched {
    /// Nothing changed (304).
    NotModified,
    /// The document.
    Document {
        /// Its text.
        body: Bytes,
        /// Its version, if the server gave one.
        etag: Option<String>,
    },
}

/// Discovery failed; what was known before still stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// A document could not be read.
    #[error("discovery document {path} could not be read")]
    Unread {
        /// The document.
        path: &'static str,
        /// Why.
        source: SourceError,
    },
    /// A document is not what the API promises.
    #[error("discovery document {path} cannot be understood")]
    Malformed {
        /// The document.
        path: &'static str,
    },
}

impl DiscoveryError {
    /// A stable word for metrics and reports.
    pub fn category(self) -> &'static str {
        match self {
            Self::Unread { source, .. } => source.category(),
            Self::Malformed { .. } => SourceError::BadAnswer.category(),
        }
    }
}

/// What a refresh found.
#[derive(Clone, Debug)]
pub enum Refreshed {
    /// The same kinds as before.
    Unchanged,
    /// Other kinds; the catalog is the new one.
    Changed(Arc<Catalog>),
}

/// The discovery of one cluster.
#[derive(Debug, Default)]
pub struct Discovery {
    core: Known,
    groups: Known,
    catalog: Arc<Catalog>,
}

/// The last answer for one document.
#[derive(Debug, Default)]
struct Known {
    etag: Option<String>,
    part: Option<Arc<Part>>,
}

impl Discovery {
    /// The catalog of the last successful refresh; before, one of which nothing is known.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog)
    }

    /// Asks the cluster: two requests, answered without a body while nothing changes. A server without aggregated documents costs one
    /// request a group version each time.
    ///
    /// After an error the catalog is still the last good one.
    pub async fn refresh<F: Fetch>(&mut self, from: &F) -> Result<Refreshed, DiscoveryError> {
        let core = ask(from, "/api", &self.core).await?;
        let groups = ask(from, "/apis", &self.groups).await?;
        let mut changed = false;
        for (known, answer) in [(&mut self.core, core), (&mut self.groups, groups)] {
            if let Some(answer) = answer {
                let part = answer.part.map(|part| carried(part, known.part.as_deref()));
                changed |= known.part != part;
                *known = Known { part, ..answer };
            }
        }
        if !changed {
            return Ok(Refreshed::Unchanged);
        }
        self.catalog = Arc::new(Catalog::of([&self.core.part, &self.groups.part].into_iter().flatten().map(AsRef::as_ref)));
        Ok(Refreshed::Changed(self.catalog()))
    }
}

/// A version whose backend could not be asked lists what it listed before: that was true once, and a request will tell.
fn carried(mut part: Arc<Part>, before: Option<&Part>) -> Arc<Part> {
    let Some(before) = before.filter(|_| part.versions().any(Version::is_empty_for_now)) else { return part };
    let listed = |group: &str, name: &str| {
        let mut groups = before.groups.iter().filter(|known| known.name == group).flat_map(|known| &known.versions);
        groups.find(|known| known.name == name).map(|known| known.resources.clone())
    };
    for group in &mut Arc::make_mut(&mut part).groups {
        for version in group.versions.iter_mut().filter(|version| version.is_empty_for_now()) {
            version.resources = listed(&group.name, &version.name).unwrap_or_default();
        }
    }
    part
}

/// Asks for one document; `None` means that the server vouches for the one we have.
async fn ask<F: Fetch>(from: &F, path: &'static str, known: &Known) -> Result<Option<Known>, DiscoveryError> {
    let etag = known.etag.as_deref().filter(|_| known.part.is_some());
    let (body, etag) = match read(from, path, ACCEPT, etag).await {
        Ok(Fetched::NotModified) => return Ok(None),
        Ok(Fetched::Document { body, etag }) => (body, etag),
        Err(source) => return Err(DiscoveryError::Unread { path, source }),
    };
    let malformed = |_| DiscoveryError::Malformed { path };
    let (part, etag) = match document_kind(&body).map_err(malformed)?.as_str() {
        "APIGroupDiscoveryList" => {
            let document: aggregated::Document<'_> = serde_json::from_slice(&body).map_err(malformed)?;
            (Part::from(document), etag)
        }
        // The groups' own documents can change without this one, so its version proves nothing.
        "APIVersions" => {
            let core: plain::CoreVersions = serde_json::from_slice(&body).map_err(malformed)?;
            let mut versions = Vec::new();
            for version in &core.versions {
                versions.push(version_of(from, "", version).await);
            }
            (Part { groups: vec![Group { name: String::new(), versions }] }, None)
        }
        "APIGroupList" => {
            let list: plain::Groups = serde_json::from_slice(&body).map_err(malformed)?;
            let mut groups = Vec::new();
            for group in &list.groups {
                let mut versions = Vec::new();
                for version in group.versions() {
                    versions.push(version_of(from, &group.name, version).await);
                }
                groups.push(Group { name: group.name.clone(), versions });
            }
            (Part { groups }, None)
        }
        _ => return Err(DiscoveryError::Malformed { path }),
    };
    Ok(Some(Known { etag, part: Some(Arc::new(part)) }))
}

/// Reads one version's own document. Whatever goes wrong makes it stale, not absent.
async fn version_of<F: Fetch>(from: &F, group: &str, version: &str) -> Version {
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let stale = Version { name: version.to_owned(), stale: true, resources: Vec::new() };
    let Ok(Fetched::Document { body, .. }) = read(from, &path, PLAIN, None).await else { return stale };
    match serde_json::from_slice::<plain::ResourceList<'_>>(&body) {
        Ok(list) => list.into_version(group, version),
        Err(_) => stale,
    }
}

async fn read<F: Fetch>(from: &F, path: &str, accept: &str, etag: Option<&str>) -> Result<Fetched, SourceError> {
    timeout(DEADLINE, from.fetch(path, accept, etag)).await.unwrap_or(Err(SourceError::Timeout))
}

fn document_kind(body: &[u8]) -> Result<String, serde_json::Error> {
    #[derive(Deserialize)]
    struct Kind {
        kind: String,
    }
    serde_json::from_slice::<Kind>(body).map(|document| document.kind)
}
