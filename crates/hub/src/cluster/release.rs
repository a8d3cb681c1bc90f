//! From a release record to the objects it declares.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_api::report::{Action, Finding, ObjectRef, Reason, Verdict};
use holdfast_engine::{
    canonical::{Digest, Digester},
    manager::Operation,
    normalise::Release,
    object::{Gvk, Scope},
};
use holdfast_fleet::{
    call::{ApiClient, CallError, Shape},
    discovery::{Catalog, Lookup},
    meta::Meta,
};
use holdfast_helm::{ApplyMethod, Limits, Problem, Record, RecordError, RecordMeta, Store, decode, objects};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::{
    book::same_record,
    guarded::Guarded,
    records::{RecordSight, record_place},
};

/// Why a release could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The record Secret could not be read.
    #[error("the release record could not be read: {0}")]
    Read(CallError),
    /// It is another one by now, or in another status: what is seen of it next tells.
    #[error("the release record changed while it was read")]
    Overtaken,
    /// The record is not what Helm writes.
    #[error("the release record cannot be used: {0}")]
    Record(RecordError),
}

impl LoadError {
    /// The reason word for the `InSync` condition.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Read(_) | Self::Overtaken => "Stale",
            Self::Record(_) => "RecordInvalid",
        }
    }
}

/// What a revision of a release declares.
#[derive(Clone, Debug)]
pub struct Declared {
    /// When Helm began the revision, by the clock of whoever ran it.
    pub begun: Option<Timestamp>,
    /// How the record says it was applied.
    pub prefer: Operation,
    /// Objects that can be judged.
    pub objects: Vec<Guarded>,
    /// What of the manifest cannot be judged.
    pub problems: Vec<Finding>,
    /// A kind was not served, or nobody could tell: to be read again when discovery changes.
    pub incomplete: bool,
    /// Digest of all declared objects.
    pub hash: Digest,
}

/// Records decoded at the same time in the whole process. Each may take tens of megabytes for a moment, whoever wrote it.
static DECODING: Semaphore = Semaphore::const_new(4);

/// Reads a record and what it declares. Decoding is left to the runtime's threads for blocking work: a large record takes a while.
pub async fn load(client: &ApiClient, catalog: &Arc<Catalog>, meta: &RecordMeta) -> Result<Declared, LoadError> {
    let stored = record_place(meta.store)
        .and_then(|place| place.in_namespace(&meta.namespace)?.named(&meta.stored_name))
        .map_err(|_| LoadError::Read(CallError::BadPath))?;
    let answer = client.get(&stored, Shape::Full).await.map_err(LoadError::Read)?;
    let permit = DECODING.acquire().await;
    let (catalog, meta) = (Arc::clone(catalog), meta.clone());
    let declared = spawn_blocking(move || read(answer.bytes(), &catalog, &meta)).await;
    drop(permit);
    declared.unwrap_or(Err(LoadError::Read(CallError::BadAnswer)))
}

fn read(stored: &[u8], catalog: &Catalog, meta: &RecordMeta) -> Result<Declared, LoadError> {
    let found = Meta::of_object(stored).ok().and_then(|found| RecordSight::of(meta.store, &found)?.meta.ok());
    if !found.is_some_and(|found| same_record(&found, meta)) {
        return Err(LoadError::Overtaken);
    }
    let record = record_of(stored, meta.store).map_err(LoadError::Record)?;
    record.confirm(meta).map_err(LoadError::Record)?;
    let release = Release { namespace: record.namespace.clone(), name: record.name.clone() };
    Ok(declared(&record, catalog, Some(release)))
}

/// Decodes the record in the JSON of the object it is kept in.
pub fn record_of(stored: &[u8], store: Store) -> Result<Record, RecordError> {
    #[derive(Deserialize)]
    struct Stored<'a> {
        #[serde(borrow, default)]
        data: HashMap<Cow<'a, str>, Cow<'a, str>>,
    }
    let stored: Stored<'_> = serde_json::from_slice(stored).map_err(|_| RecordError::NoData)?;
    let data = stored.data.get("release").ok_or(RecordError::NoData)?;
    match store {
        Store::Secrets => decode(&STANDARD.decode(data.as_bytes()).map_err(|_| RecordError::BadBase64)?, &Limits::default()),
        Store::ConfigMaps => decode(data.as_bytes(), &Limits::default()),
    }
}

/// The objects a record declares, as this cluster serves them. Without a release they are plain manifests and carry no ownership metadata.
pub fn declared(record: &Record, catalog: &Catalog, release: Option<Release>) -> Declared {
    let scope_of = |gvk: &Gvk| -> Option<Scope> { catalog.lookup(gvk).served().map(|resource| resource.scope) };
    let read = objects(record, &scope_of);
    let release = release.map(Arc::new);
    let mut problems: Vec<Finding> = read
        .problems
        .iter()
        .filter(|problem| problem.cause != holdfast_helm::Cause::Duplicate)
        .map(|problem| finding(problem, catalog))
        .collect();
    let mut guarded = Vec::with_capacity(read.objects.len());
    let mut digester = Digester::new();
    for object in read.objects {
        if let Lookup::Served(resource) = catalog.lookup(&object.key.gvk) {
            let object = Guarded::new(object.key, object.value, resource, release.clone());
            digester.add(object.hash.bytes());
            guarded.push(object);
        }
    }
    let incomplete = problems.iter().any(|problem| matches!(problem.reason, Reason::KindNotServed | Reason::DiscoveryIncomplete));
    problems.truncate(1000);
    Declared {
        begun: record.last_deployed,
        prefer: if record.apply_method == ApplyMethod::ServerSide { Operation::Apply } else { Operation::Update },
        objects: guarded,
        problems,
        incomplete,
        hash: digester.finish(),
    }
}

fn finding(problem: &Problem, catalog: &Catalog) -> Finding {
    let object = problem.object.as_ref();
    let reason = match problem.cause {
        // Discovery that is not complete is no proof that the kind is gone.
        holdfast_helm::Cause::KindNotServed if object.is_some_and(|object| catalog.lookup(&object.gvk) == Lookup::Unknown) => {
            Reason::DiscoveryIncomplete
        }
        holdfast_helm::Cause::KindNotServed => Reason::KindNotServed,
        _ => Reason::ManifestInvalid,
    };
    Finding {
        object: ObjectRef {
            api_version: object.map(|object| object.gvk.api_version()).unwrap_or_default(),
            kind: object.map(|object| object.gvk.kind.clone()).unwrap_or_default(),
            namespace: object.and_then(|object| object.namespace.clone()).unwrap_or_default(),
            name: object.and_then(|object| object.name.clone()).unwrap_or_default(),
            uid: String::new(),
        },
        verdict: Verdict::Unknown,
        action: Action::Reported,
        reason,
        message: match reason {
            Reason::DiscoveryIncomplete => format!("document {} of the manifest: discovery of the kind's group failed", problem.document),
            _ => format!("document {} of the manifest: {}", problem.document, problem.cause),
        },
        paths: Vec::new(),
        paths_truncated: 0,
        first_seen: None,
        last_seen: None,
        count: 1,
    }
}
