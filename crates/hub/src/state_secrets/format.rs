//! What is stored of a cluster, as it is serialised before it is sealed.

use std::fmt;

use holdfast_api::report::DeviationReason;
use holdfast_engine::{
    canonical::Digester,
    object::ObjectKey,
    stored::{StoredAccepted, StoredDigest, StoredLedger, StoredMove, StoredSet},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An object of any cluster: the same after every restart. Versions of one kind are one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoredId([u8; 16]);

impl StoredId {
    /// The id of a key.
    pub fn of(key: &ObjectKey) -> Self {
        let mut digester = Digester::new();
        for part in [&*key.gvk.group, &*key.gvk.kind, key.namespace.as_deref().unwrap_or_default(), &*key.name] {
            digester.add(part.as_bytes());
        }
        Self(*digester.finish().bytes())
    }

    /// Which of `shares` shares the object is in.
    pub fn share(self, shares: u16) -> u16 {
        let number = u16::from_le_bytes([self.0[0], self.0[1]]);
        number % shares.max(1)
    }

    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 32 {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for StoredId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A share of a cluster's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredObjects {
    /// Each release that declares one of them: namespace and name.
    pub releases: Vec<(String, String)>,
    /// Each distinct owned set.
    pub sets: Vec<StoredSet>,
    /// The objects, by id.
    pub objects: Vec<StoredObject>,
}

/// One object. Numbers of releases and sets are places in the lists beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredObject {
    /// Which.
    pub id: StoredId,
    /// The release that declares it.
    pub release: u32,
    /// Digest of the declared object.
    pub desired: StoredDigest,
    /// Its owned set.
    pub set: Option<u32>,
    /// As it was last judged.
    pub sight: Option<StoredSight>,
    /// Digest of the owned paths when it was last in sync.
    pub in_sync: Option<StoredDigest>,
    /// What was accepted; `None` at first sight.
    pub accepted: Option<Vec<StoredAccepted>>,
    /// It was seen with its release's metadata.
    pub seen: bool,
    /// It was once as this revision declares it.
    pub vouched: bool,
    /// UID, as reports show it.
    pub uid: String,
    /// Accepted differences that are only counted.
    pub normalized: u32,
    /// Accepted differences that reports show.
    pub shown: Vec<StoredShown>,
    /// What was found of it, where that was not in sync or something was added to it.
    pub standing: Option<StoredStanding>,
    /// Digest of what somebody added to it.
    pub additions: u64,
    /// What the revision before claimed, until it was in sync with this one.
    pub previous: Option<u32>,
}

/// A finding that stands while the object and the rules it is judged by stay as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredStanding {
    /// The finding as reports show it, as JSON; `None` where it is in sync.
    pub finding: Option<String>,
    /// What somebody added to it, as a finding, as JSON.
    pub added: Option<String>,
    /// Digest of the rules it was judged by.
    pub rules: StoredDigest,
    /// How often a write was tried in vain.
    pub tries: u32,
}

/// A live object's metadata as it was last judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSight {
    /// Digest of the UID.
    pub uid: u64,
    /// Resource version.
    pub version: u64,
    /// Generation.
    pub generation: i64,
    /// Digest of labels, annotations and the like.
    pub metadata: [u8; 16],
    /// Digest of the `managedFields` entries that meet an owned path.
    pub ours: u64,
    /// Digest of the others.
    pub others: u64,
    /// Digest of who of those holds what.
    pub holdings: u64,
    /// Digest of those of the status subresource.
    pub status: u64,
}

/// An accepted difference as a report shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredShown {
    /// Where.
    pub path: String,
    /// Why.
    pub reason: DeviationReason,
    /// Since when.
    pub since: Timestamp,
    /// For people.
    pub message: String,
}

/// What is fought over, and what is known of whole releases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredContests {
    /// Objects that needed corrections lately.
    pub ledgers: Vec<(StoredId, StoredLedger)>,
    /// What is known of whole releases.
    pub releases: Vec<StoredRelease>,
}

/// What is known of a whole release.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoredRelease {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// A revision declared something.
    pub not_empty: bool,
    /// Under which manager it writes, and whether by server-side apply.
    pub writer: Option<(String, bool)>,
    /// Nothing is written because too much drifted at once: the keyed hash of what was declared, and how many objects drifted.
    pub tripped: Option<(String, u64)>,
}

/// A repair of two writes that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredIntent {
    /// UID of the object as it was read before the first write.
    pub uid: String,
    /// What the second write moves.
    pub change: StoredMove,
}
