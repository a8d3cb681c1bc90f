//! Canonical JSON and the digests taken over it.
//!
//! Keys are sorted here, not by the JSON library: a dependency that switches on its `preserve_order` feature must not
//! change a digest.

use std::fmt;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// First 128 bits of a SHA-256. Enough to tell values apart in memory; never shown to users without a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 16]);

impl Digest {
    /// Digest of some bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    /// Digest of a JSON value in canonical form.
    pub fn of(value: &Value) -> Self {
        let mut hasher = Sha256::new();
        write_canonical(value, &mut |bytes| hasher.update(bytes));
        Self::finish(hasher)
    }

    /// A digest that [`Digest::bytes`] gave.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The first eight bytes, where that many tell things apart well enough.
    pub fn number(&self) -> u64 {
        self.0.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
    }

    /// The bytes, for keyed hashing or sealing before anything leaves the process.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    fn finish(hasher: Sha256) -> Self {
        let full = hasher.finalize();
        let mut short = [0; 16];
        short.iter_mut().zip(full.iter()).for_each(|(to, from)| *to = *from);
        Self(short)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An unkeyed digest of a short Secret value could be guessed.
        f.write_str("Digest(…)")
    }
}

/// A running digest over several parts; every part is delimited.
pub struct Digester(Sha256);

impl Digester {
    /// Starts empty.
    pub fn new() -> Self {
        Self(Sha256::new())
    }

    /// Adds a part.
    pub fn add(&mut self, part: &[u8]) {
        self.0.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.0.update(part);
    }

    /// Adds a JSON value, or its absence.
    pub fn add_value(&mut self, value: Option<&Value>) {
        match value {
            None => self.0.update([0]),
            Some(value) => {
                self.0.update([1]);
                write_canonical(value, &mut |bytes| self.0.update(bytes));
            }
        }
    }

    /// The digest of all parts.
    pub fn finish(self) -> Digest {
        Digest::finish(self.0)
    }
}

impl Default for Digester {
    fn default() -> Self {
        Self::new()
    }
}

/// The canonical text of a value: sorted keys, no blanks.
pub fn canonical(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_canonical(value, &mut |bytes| out.extend_from_slice(bytes));
    out
}

fn write_canonical(value: &Value, sink: &mut impl FnMut(&[u8])) {
    match value {
        Value::Null => sink(b"null"),
        Value::Bool(true) => sink(b"true"),
        Value::Bool(false) => sink(b"false"),
        Value::Number(number) => sink(number.to_string().as_bytes()),
        Value::String(text) => write_text(text, sink),
        Value::Array(items) => {
            sink(b"[");
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    sink(b",");
                }
                write_canonical(item, sink);
            }
            sink(b"]");
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            sink(b"{");
            for (index, (name, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    sink(b",");
                }
                write_text(name, sink);
                sink(b":");
                write_canonical(member, sink);
            }
            sink(b"}");
        }
    }
}

fn write_text(text: &str, sink: &mut impl FnMut(&[u8])) {
    sink(b"\"");
    let mut plain = 0;
    let bytes = text.as_bytes();
    for (index, byte) in bytes.iter().enumerate() {
        let escape: Option<[u8; 6]> = match byte {
            b'"' | b'\\' | 0..=0x1f => {
                let hex = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
                Some([b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)])
            }
            _ => None,
        };
        if let Some(escape) = escape {
            sink(bytes.get(plain..index).unwrap_or_default());
            sink(&escape);
            plain = index + 1;
        }
    }
    sink(bytes.get(plain..).unwrap_or_default());
    sink(b"\"");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn golden_text() {
        let value = json!({"b": [1, 1.5, -3, null, true], "a": {"z": "é\n\"\\", "": {}}});
        assert_eq!(String::from_utf8(canonical(&value)).unwrap(), r#"{"a":{"":{},"z":"é\u000a\u0022\u005c"},"b":[1,1.5,-3,null,true]}"#);
    }

    #[test]
    fn types_and_absence_count() {
        let digests: Vec<_> =
            [json!(80), json!("80"), json!(null), json!(""), json!({}), json!([]), json!(false)].iter().map(Digest::of).collect();
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(digest), "value {index} looks like another");
        }
        let (mut absent, mut null) = (Digester::new(), Digester::new());
        absent.add_value(None);
        null.add_value(Some(&json!(null)));
        assert_ne!(absent.finish(), null.finish());
    }

    #[test]
    fn debug_hides_the_digest() {
        assert_eq!(format!("{:?}", Digest::of(&json!("secret"))), "Digest(…)");
    }

    pub(crate) fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..6).prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_text_parses_back_to_the_value(value in any_json()) {
            let parsed: Value = serde_json::from_slice(&canonical(&value)).unwrap();
            prop_assert_eq!(parsed, value);
        }
    }
}
