//! One declared object of one release on one cluster.

use std::sync::Arc;

use holdfast_api::{MODE_ANNOTATION, policy::Mode};
use holdfast_engine::{
    canonical::{Digest, canonical},
    case::Desired,
    normalise::{self, Release},
    object::{ObjectKey, Scope},
};
use holdfast_fleet::{
    call::{Endpoint, EndpointError},
    discovery::Resource,
};
use serde_json::Value;

/// A declared object, kept as text: most objects are in sync and never need the tree.
#[derive(Clone, Debug)]
pub struct Guarded {
    /// Which object.
    pub key: Arc<ObjectKey>,
    /// How the cluster serves its kind.
    pub resource: Arc<Resource>,
    /// Digest of the declared object.
    pub hash: Digest,
    /// The most that is done about its drift, whatever the policy says.
    pub most: Mode,
    declared: Declared,
    /// As its release creates it, where that is not the same.
    written: Option<Declared>,
    release: Option<Arc<Release>>,
}

/// Canonical JSON of a declared object. May hold Secret data, so it never prints.
#[derive(Clone)]
struct Declared(Arc<[u8]>);

impl std::fmt::Debug for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Declared({} bytes)", self.0.len())
    }
}

impl Guarded {
    /// A declared object, normalised for judging.
    pub fn new(key: ObjectKey, value: Value, resource: Arc<Resource>, release: Option<Arc<Release>>) -> Self {
        let most = most_done(&value);
        let written = normalise::is_owned_otherwise(&value, &key)
            .then(|| Declared(canonical(&normalise::as_written(value.clone(), &key, release.as_deref())).into()));
        let declared: Arc<[u8]> = canonical(&normalise::normalise(value, &key, release.as_deref())).into();
        Self { key: Arc::new(key), resource, hash: Digest::of_bytes(&declared), most, declared: Declared(declared), written, release }
    }

    /// The declared object as a tree. `Null` cannot happen: the text was written by this type.
    pub fn desired(&self) -> Desired {
        Desired {
            key: ObjectKey::clone(&self.key),
            value: serde_json::from_slice(&self.declared.0).unwrap_or_default(),
            written: self.written.as_ref().and_then(|written| serde_json::from_slice(&written.0).ok()),
            release: self.release.as_deref().cloned(),
        }
    }

    /// Whether a live object carries the ownership metadata of this object's release.
    pub fn owns(&self, live: &Value) -> bool {
        self.release.as_ref().is_some_and(|release| release.owns(live))
    }

    /// The declared object as text, as it is sent.
    pub fn text(&self) -> &[u8] {
        &self.declared.0
    }

    /// Where the object lives.
    pub fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        self.collection()?.named(&self.key.name)
    }

    /// Where objects of its kind and namespace are created.
    pub fn collection(&self) -> Result<Endpoint, EndpointError> {
        let gvk = &self.key.gvk;
        let endpoint = Endpoint::new(&gvk.group, &gvk.version, &self.resource.plural)?;
        match (&self.key.namespace, self.resource.scope) {
            (Some(namespace), Scope::Namespaced) => endpoint.in_namespace(namespace),
            _ => Ok(endpoint),
        }
    }
}

/// What the manifest lets be done about the object's drift. It takes nothing but less: whoever can write a release record could otherwise
/// make the hub write where the policy only looks. A word that is not known is taken for `Warn`.
fn most_done(declared: &Value) -> Mode {
    let annotations = declared.pointer("/metadata/annotations");
    match annotations.and_then(|annotations| annotations.get(MODE_ANNOTATION)).map(Value::as_str) {
        None | Some(Some("Correct")) => Mode::Correct,
        Some(Some("Off")) => Mode::Off,
        Some(_) => Mode::Warn,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_can_ask_for_less() {
        let modes = [("Correct", Mode::Correct), ("Warn", Mode::Warn), ("Off", Mode::Off), ("off", Mode::Warn), ("", Mode::Warn)];
        for (word, mode) in modes {
            assert_eq!(most_done(&json!({"metadata": {"annotations": {"holdfast.dev/mode": word}}})), mode, "{word}");
        }
        assert_eq!(most_done(&json!({"metadata": {"annotations": {"holdfast.dev/mode": 5}}})), Mode::Warn);
        assert_eq!(most_done(&json!({"metadata": {"name": "x"}})), Mode::Correct);
    }
}
