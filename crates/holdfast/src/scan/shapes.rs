//! Which fields a manifest claims follows from its shape alone: the server is asked once for each shape, not for each object.

use std::{collections::HashMap, sync::Arc};

use holdfast_engine::{
    canonical::{Digest, Digester},
    object::Gvk,
    owned::OwnedSet,
};
use serde_json::Value;

/// The owned paths of every shape seen so far, on one cluster.
#[derive(Debug, Default)]
pub struct Shapes(HashMap<Digest, Arc<OwnedSet>>);

impl Shapes {
    /// The paths that an object of this shape claims, once the server has told.
    pub fn get(&self, shape: Digest) -> Option<Arc<OwnedSet>> {
        self.0.get(&shape).cloned()
    }

    /// Remembers what the server told.
    pub fn put(&mut self, shape: Digest, owned: Arc<OwnedSet>) {
        self.0.insert(shape, owned);
    }
}

/// Digest of what the claimed paths depend on: the kind and every name in the manifest. Values do not matter but inside lists, where
/// any of them may be the key of an item.
pub fn shape(gvk: &Gvk, declared: &Value) -> Digest {
    let mut digester = Digester::new();
    for part in [&gvk.group, &gvk.version, &gvk.kind] {
        digester.add(part.as_bytes());
    }
    add(&mut digester, declared);
    digester.finish()
}

fn add(digester: &mut Digester, value: &Value) {
    match value {
        Value::Object(members) => {
            // The count tells where the members end.
            digester.add(&members.len().to_le_bytes());
            for (name, member) in members {
                digester.add(name.as_bytes());
                add(digester, member);
            }
        }
        Value::Array(_) => digester.add_value(Some(value)),
        Value::Null => digester.add(b"null"),
        Value::Bool(_) => digester.add(b"bool"),
        Value::Number(_) => digester.add(b"number"),
        Value::String(_) => digester.add(b"text"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_matter_only_in_lists() {
        let config_map = Gvk::new("v1", "ConfigMap");
        let of = |value: Value| shape(&config_map, &value);
        let one = of(json!({"data": {"a": "1"}, "list": [{"name": "x"}]}));
        assert_eq!(one, of(json!({"data": {"a": "other"}, "list": [{"name": "x"}]})));
        for other in [
            json!({"data": {"b": "1"}, "list": [{"name": "x"}]}),
            json!({"data": {"a": null}, "list": [{"name": "x"}]}),
            json!({"data": {"a": 1}, "list": [{"name": "x"}]}),
            json!({"data": {"a": {}}, "list": [{"name": "x"}]}),
            json!({"data": {"a": "1"}, "list": [{"name": "y"}]}),
            json!({"data": {"a": "1"}, "list": []}),
            json!({"data": {"a": "1", "list": [{"name": "x"}]}}),
        ] {
            assert_ne!(one, of(other.clone()), "{other}");
        }
        assert_ne!(shape(&Gvk::new("v1", "Secret"), &json!({})), of(json!({})));
    }
}
