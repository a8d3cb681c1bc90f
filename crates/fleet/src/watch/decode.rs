//! From an object's text to what the consumer keeps of it.

use serde_json::value::RawValue;

use super::target::WatchKey;
use crate::meta::{Meta, MetaError};

/// A decoded object and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<T> {
    /// `metadata.resourceVersion`.
    pub version: String,
    /// What is kept of the object.
    pub item: T,
}

/// Decodes objects. A plain function of this shape is one.
pub trait Decode: Send + Sync + 'static {
    /// What is kept of an object.
    type Item: Send + 'static;

    /// Decodes the JSON text of one object of the watch `key`.
    fn decode(&self, key: &WatchKey, object: &RawValue) -> Result<Versioned<Self::Item>, MetaError>;
}

impl<T, F> Decode for F
where
    T: Send + 'static,
    F: Fn(&WatchKey, &RawValue) -> Result<Versioned<T>, MetaError> + Send + Sync + 'static,
{
    type Item = T;

    fn decode(&self, key: &WatchKey, object: &RawValue) -> Result<Versioned<T>, MetaError> {
        self(key, object)
    }
}

/// Decodes the metadata and keeps what `keep` takes from it.
pub fn metadata<T>(object: &RawValue, keep: impl FnOnce(&Meta<'_>) -> T) -> Result<Versioned<T>, MetaError> {
    let meta = Meta::of_object(object.get().as_bytes())?;
    let item = keep(&meta);
    Ok(Versioned { version: meta.resource_version.into_owned(), item })
}
