//! The parts a cluster's state is split into, and their names.

use std::fmt;

use super::format::StoredId;

/// One Secret of a cluster's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// A share of the guarded objects.
    Objects(u16),
    /// What is fought over, and what is known of whole releases.
    Contests,
    /// A repair of this object that was begun.
    Intent(StoredId),
}

impl Part {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once('-') {
            None => (text == "contests").then_some(Self::Contests),
            Some(("objects", number)) => number.parse().ok().map(Self::Objects),
            Some(("intent", id)) => StoredId::parse(id).map(Self::Intent),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Objects(number) => write!(f, "objects-{number}"),
            Self::Contests => f.write_str("contests"),
            Self::Intent(id) => write!(f, "intent-{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_engine::object::{Gvk, ObjectKey};

    use super::*;

    #[test]
    fn names_of_parts_are_read_back() {
        let key = ObjectKey::new(Gvk::new("v1", "Service").into(), Some("t"), "web");
        for part in [Part::Objects(0), Part::Objects(17), Part::Contests, Part::Intent(StoredId::of(&key))] {
            assert_eq!(Part::parse(&part.to_string()), Some(part));
        }
        for nonsense in ["", "objects", "objects-x", "objects--1", "intent-", "intent-zz", "intents-0", "contests-1"] {
            assert_eq!(Part::parse(nonsense), None, "{nonsense}");
        }
    }
}
