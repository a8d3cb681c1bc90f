//! The objects of a release: what its manifest wants on the cluster.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::Arc,
};

use holdfast_engine::object::{Gvk, ObjectKey, Scope};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::{
    documents::documents,
    identity::{is_api_version, is_kind, is_name, is_namespace},
    limits::Limits,
    record::Record,
    yaml::YamlError,
};

/// Annotation that makes a document a hook: run by Helm, not kept by it.
const HOOK_ANNOTATION: &str = "helm.sh/hook";

/// What a release wants, and what of its manifest cannot be wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    /// The objects in manifest order, each identity once.
    pub objects: Vec<ReleaseObject>,
    /// What is wrong with the manifest, in its order.
    pub problems: Vec<Problem>,
}

/// One object of a release.
#[derive(Clone, PartialEq)]
pub struct ReleaseObject {
    /// What it is called.
    pub key: ObjectKey,
    /// The object as the manifest has it, with its namespace settled and nothing else changed. May be a Secret.
    pub value: Value,
}

impl fmt::Debug for ReleaseObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseObject").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Something in a manifest that is not, or not simply, an object to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Number of the document, from 1, as in [`Document::number`](crate::Document::number).
    pub document: usize,
    /// The object, as far as it is named.
    pub object: Option<Named>,
    /// What is wrong.
    pub cause: Cause,
}

impl Problem {
    /// The reason of the finding: `ManifestInvalid` or `KindNotServed`.
    pub fn reason(&self) -> &'static str {
        self.cause.reason()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "document {}", self.document)?;
        if let Some(object) = &self.object {
            write!(f, " ({object})")?;
        }
        write!(f, ": {}", self.cause)
    }
}

/// An object as far as a manifest names it. Every part is checked to be one that an object can have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    /// Group, version and kind.
    pub gvk: Gvk,
    /// The namespace written on it.
    pub namespace: Option<String>,
    /// Its name.
    pub name: Option<String>,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.gvk.kind)?;
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, " {namespace}/{name}"),
            (None, Some(name)) => write!(f, " {name}"),
            (_, None) => Ok(()),
        }
    }
}

/// What is wrong with a part of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Cause {
    /// The document cannot be read.
    #[error("{0}")]
    Yaml(YamlError),
    /// The document or list item is no mapping.
    #[error("not an object")]
    NotAnObject,
    /// `items` is there, so the document is a list, but it holds no list.
    #[error("a list whose items are no list")]
    BadList,
    /// `kind` is missing or cannot be one.
    #[error("no usable kind")]
    BadKind,
    /// `apiVersion` is missing or cannot be one.
    #[error("no usable apiVersion")]
    BadApiVersion,
    /// `metadata.name` is missing or cannot be one.
    #[error("no usable name")]
    BadName,
    /// Only `metadata.generateName` is there: such an object is another one each time.
    #[error("a generated name")]
    GeneratedName,
    /// `metadata.namespace` cannot be one.
    #[error("no usable namespace")]
    BadNamespace,
    /// The same object stands in the manifest again; the last one counts.
    #[error("the same object stands in the manifest more than once")]
    Duplicate,
    /// The cluster does not serve this kind.
    #[error("the cluster does not serve this kind")]
    KindNotServed,
}

impl Cause {
    /// The reason of the finding: `ManifestInvalid` or `KindNotServed`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::KindNotServed => "KindNotServed",
            _ => "ManifestInvalid",
        }
    }
}

/// Reads the manifest of `record`, whose body must have been [confirmed](Record::confirm) against its Secret.
///
/// `scope_of` answers from the cluster's discovery: `None` for a kind that is not served, which is never to be read as
/// "not found". Lists are flattened, hooks left out. Namespaced objects without a namespace get the release's, those
/// with one keep it, cluster-scoped ones lose theirs. Ownership metadata is not added.
pub fn objects(record: &Record, scope_of: &dyn Fn(&Gvk) -> Option<Scope>) -> Objects {
    let mut reader = Reader {
        namespace: &record.namespace,
        scope_of,
        kept: Vec::new(),
        seen: HashMap::new(),
        kinds: HashMap::new(),
        problems: Vec::new(),
    };
    for document in documents(&record.manifest, &Limits::default()) {
        match document.value {
            Ok(value) => reader.document(document.number, value),
            Err(error) => reader.problem(document.number, None, Cause::Yaml(error)),
        }
    }
    Objects { objects: reader.kept.into_iter().flatten().collect(), problems: reader.problems }
}

/// Group, kind, namespace and name.
type Identity = (String, String, Option<Arc<str>>, Arc<str>);

struct Reader<'a> {
    namespace: &'a str,
    scope_of: &'a dyn Fn(&Gvk) -> Option<Scope>,
    /// The objects so far; a hole where a later duplicate took over.
    kept: Vec<Option<ReleaseObject>>,
    /// Where each identity stands in `kept`, version left out.
    seen: HashMap<Identity, usize>,
    kinds: HashMap<Gvk, Arc<Gvk>>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn document(&mut self, number: usize, value: Value) {
        let Value::Object(mut object) = value else { return self.problem(number, None, Cause::NotAnObject) };
        if is_hook(&object) {
            return;
        }
        // As for Helm, `items` makes a list, not the kind.
        let Some(items) = object.remove("items") else { return self.object(number, object) };
        if text(&object, "kind").is_none_or(|kind| !is_kind(kind)) {
            return self.problem(number, None, Cause::BadKind);
        }
        match items {
            Value::Null => {}
            Value::Array(items) => self.list(number, &object, items),
            _ => self.problem(number, None, Cause::BadList),
        }
    }

    fn list(&mut self, number: usize, list: &Map<String, Value>, items: Vec<Value>) {
        let mut queue: VecDeque<Value> = items.into();
        let direct = queue.len();
        let mut taken = 0_usize;
        while let Some(item) = queue.pop_front() {
            taken += 1;
            let Value::Object(mut object) = item else {
                self.problem(number, None, Cause::NotAnObject);
                continue;
            };
            // Items of a typed list may leave their kind to it; those of a list inside it may not.
            if taken <= direct && text(&object, "kind").is_none() && text(&object, "apiVersion").is_none() {
                adopt(&mut object, list);
            }
            match object.remove("items") {
                Some(Value::Array(nested)) => queue.extend(nested),
                Some(other) => {
                    object.insert("items".to_owned(), other);
                    self.object(number, object);
                }
                None => self.object(number, object),
            }
        }
    }

    fn object(&mut self, number: usize, mut object: Map<String, Value>) {
        let gvk = match gvk(&object) {
            Ok(gvk) => gvk,
            Err(cause) => return self.problem(number, None, cause),
        };
        let metadata = object.get("metadata").and_then(Value::as_object);
        let (name, namespace) = (name(metadata), namespace(metadata));
        let named = Named { gvk, namespace: namespace.ok().flatten().map(str::to_owned), name: name.ok().map(str::to_owned) };
        let (name, namespace) = match (name, namespace) {
            (Ok(name), Ok(namespace)) => (name, namespace),
            (Err(cause), _) | (_, Err(cause)) => return self.problem(number, Some(named), cause),
        };
        let Some(scope) = (self.scope_of)(&named.gvk) else { return self.problem(number, Some(named), Cause::KindNotServed) };
        let namespace = match scope {
            Scope::Namespaced => Some(namespace.unwrap_or(self.namespace)),
            Scope::Cluster => None,
        };
        let gvk = self.kinds.entry(named.gvk.clone()).or_insert_with(|| Arc::new(named.gvk.clone()));
        let key = ObjectKey::new(Arc::clone(gvk), namespace, name);
        settle_namespace(&mut object, key.namespace.as_deref());
        self.keep(number, named, ReleaseObject { key, value: Value::Object(object) });
    }

    fn keep(&mut self, number: usize, named: Named, object: ReleaseObject) {
        let identity =
            (object.key.gvk.group.clone(), object.key.gvk.kind.clone(), object.key.namespace.clone(), Arc::clone(&object.key.name));
        if let Some(earlier) = self.seen.insert(identity, self.kept.len()) {
            if let Some(hole) = self.kept.get_mut(earlier) {
                *hole = None;
            }
            self.problem(number, Some(named), Cause::Duplicate);
        }
        self.kept.push(Some(object));
    }

    fn problem(&mut self, document: usize, object: Option<Named>, cause: Cause) {
        self.problems.push(Problem { document, object, cause });
    }
}

/// A text field that is there and not empty.
fn text<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn is_hook(object: &Map<String, Value>) -> bool {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"))
        .and_then(Value::as_object)
        .is_some_and(|annotations| annotations.contains_key(HOOK_ANNOTATION))
}

fn adopt(item: &mut Map<String, Value>, list: &Map<String, Value>) {
    let kind = text(list, "kind").unwrap_or_default();
    item.insert("kind".to_owned(), kind.strip_suffix("List").unwrap_or(kind).into());
    item.insert("apiVersion".to_owned(), text(list, "apiVersion").unwrap_or_default().into());
}

fn gvk(object: &Map<String, Value>) -> Result<Gvk, Cause> {
    let kind = text(object, "kind").filter(|kind| is_kind(kind)).ok_or(Cause::BadKind)?;
    let api_version = text(object, "apiVersion").filter(|api_version| is_api_version(api_version)).ok_or(Cause::BadApiVersion)?;
    Ok(Gvk::new(api_version, kind))
}

fn name(metadata: Option<&Map<String, Value>>) -> Result<&str, Cause> {
    let metadata = metadata.ok_or(Cause::BadName)?;
    match text(metadata, "name") {
        Some(name) if is_name(name) => Ok(name),
        None if text(metadata, "generateName").is_some() => Err(Cause::GeneratedName),
        _ => Err(Cause::BadName),
    }
}

/// The namespace written on the object; an empty or null one is none.
fn namespace(metadata: Option<&Map<String, Value>>) -> Result<Option<&str>, Cause> {
    match metadata.and_then(|metadata| metadata.get("namespace")) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if is_namespace(text) => Ok(Some(text)),
        Some(_) => Err(Cause::BadNamespace),
    }
}

fn settle_namespace(object: &mut Map<String, Value>, namespace: Option<&str>) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    match namespace {
        Some(namespace) => metadata.insert("namespace".to_owned(), namespace.into()),
        None => metadata.remove("namespace"),
    };
}
