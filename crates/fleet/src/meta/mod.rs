//! Object metadata, decoded without copying.
//!
//! A metadata watch delivers whole `ObjectMeta`, four fifths of it `managedFields`. Building those as a tree costs twelve times the
//! memory and five times the time of leaving them as text, so here they stay text: [`Meta`] borrows from the received line, and
//! whoever keeps something takes only that.

mod digest;
mod wire;

#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

pub use digest::{MetaDigest, meta_digest};
pub use wire::{ListPage, StatusError, WatchEvent, parse_event, parse_list};

/// A received text was not what the API promises. Carries no part of the text: it may hold secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is malformed near line {line}, column {column}")]
pub struct MetaError {
    what: &'static str,
    line: usize,
    column: usize,
}

impl MetaError {
    /// Keeps the place of a JSON error and drops its text, which quotes values.
    fn new(what: &'static str, error: &serde_json::Error) -> Self {
        Self { what, line: error.line(), column: error.column() }
    }
}

/// What may be known of an object from its metadata alone.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta<'a> {
    /// Name.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Namespace; `None` for cluster-scoped objects.
    #[serde(borrow, default, deserialize_with = "optional_text")]
    pub namespace: Option<Cow<'a, str>>,
    /// Identity of this incarnation: a re-created object has another one.
    #[serde(borrow, default)]
    pub uid: Cow<'a, str>,
    /// Opaque version, moved by every write that changes something.
    #[serde(borrow, default)]
    pub resource_version: Cow<'a, str>,
    /// Counts changes of the spec, for the kinds that have it.
    #[serde(default)]
    pub generation: Option<i64>,
    /// When the object was created, as the server wrote it.
    #[serde(borrow, default, deserialize_with = "optional_text")]
    pub creation_timestamp: Option<Cow<'a, str>>,
    /// Labels as JSON text.
    #[serde(borrow, default)]
    pub labels: Option<&'a RawValue>,
    /// Annotations as JSON text.
    #[serde(borrow, default)]
    pub annotations: Option<&'a RawValue>,
    /// Finalizers as JSON text.
    #[serde(borrow, default)]
    pub finalizers: Option<&'a RawValue>,
    /// Owner references as JSON text.
    #[serde(borrow, default)]
    pub owner_references: Option<&'a RawValue>,
    /// When deletion was asked for, as the server wrote it; `None` while the object is not being deleted.
    #[serde(borrow, default, deserialize_with = "optional_text")]
    pub deletion_timestamp: Option<Cow<'a, str>>,
    /// Who wrote which fields.
    #[serde(borrow, default, deserialize_with = "null_as_default")]
    pub managed_fields: Vec<ManagedEntry<'a>>,
}

/// One entry of `managedFields`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedEntry<'a> {
    /// Field manager.
    #[serde(borrow, default)]
    pub manager: Cow<'a, str>,
    /// How it wrote.
    #[serde(default)]
    pub operation: Operation,
    /// Through which subresource; `None` for the object itself.
    #[serde(borrow, default, deserialize_with = "optional_text")]
    pub subresource: Option<Cow<'a, str>>,
    /// The `apiVersion` the fields are named in.
    #[serde(borrow, default)]
    pub api_version: Cow<'a, str>,
    /// When the entry last changed, as the server wrote it.
    #[serde(borrow, default, deserialize_with = "optional_text")]
    pub time: Option<Cow<'a, str>>,
    /// `fieldsV1` as JSON text.
    #[serde(borrow, default, rename = "fieldsV1")]
    pub fields: Option<&'a RawValue>,
}

/// How a field manager wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Everything else: create, update, patch.
    Update,
    /// An operation this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl<'a> Meta<'a> {
    /// Decodes the metadata of one object: full, or a `PartialObjectMetadata`. Everything outside `metadata` is skipped.
    pub fn of_object(object: &'a [u8]) -> Result<Self, MetaError> {
        #[derive(Deserialize)]
        struct Object<'a> {
            #[serde(borrow)]
            metadata: Meta<'a>,
        }
        match serde_json::from_slice::<Object<'a>>(object) {
            Ok(object) => Ok(object.metadata),
            Err(error) => Err(MetaError::new("object metadata", &error)),
        }
    }

    /// When the object was created, by the API server's clock; `None` when the server gave no time that can be read.
    pub fn created(&self) -> Option<Timestamp> {
        self.creation_timestamp.as_deref()?.parse().ok()
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<Cow<'a, str>> {
        lookup(self.labels?, key)
    }

    /// The value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<Cow<'a, str>> {
        lookup(self.annotations?, key)
    }
}

impl ManagedEntry<'_> {
    /// When the entry last changed; `None` when the server gave no time that can be read.
    pub fn at(&self) -> Option<Timestamp> {
        self.time.as_deref()?.parse().ok()
    }
}

// Labels, annotations and field sets can carry values (a last-applied configuration is a whole object), so they stay out of Debug.
impl fmt::Debug for Meta<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meta")
            .field("name", &self.name)
            .field("namespace", &self.namespace)
            .field("uid", &self.uid)
            .field("resource_version", &self.resource_version)
            .field("generation", &self.generation)
            .field("deletion_timestamp", &self.deletion_timestamp)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ManagedEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagedEntry")
            .field("manager", &self.manager)
            .field("operation", &self.operation)
            .field("subresource", &self.subresource)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

/// Text that borrows where it can. Serde borrows a `Cow` only as a direct field, not inside an `Option` or a map.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn optional_text<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'a, str>>, D::Error> {
    Ok(Option::<Text<'a>>::deserialize(from)?.map(|text| text.0))
}

fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Finds one key of a JSON map of texts without building the map.
fn lookup<'a>(map: &'a RawValue, key: &str) -> Option<Cow<'a, str>> {
    struct Find<'k>(&'k str);

    impl<'de> de::Visitor<'de> for Find<'_> {
        type Value = Option<Cow<'de, str>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of texts")
        }

        fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(key) = map.next_key::<Text<'de>>()? {
                if key.0 == self.0 {
                    found = Some(map.next_value::<Text<'de>>()?.0);
                } else {
                    map.next_value::<de::IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }

    serde_json::Deserializer::from_str(map.get()).deserialize_map(Find(key)).ok()?
}
