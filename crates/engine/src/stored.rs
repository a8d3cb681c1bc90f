//! What of a judgement outlives the process, in forms that can be serialised: accepted differences, contests, and ownership that a
//! repair still has to move.
//!
//! These forms hold unkeyed digests of values. Whoever stores them seals them.

use std::fmt;

use holdfast_api::report::DeviationReason;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    canonical::Digest,
    case::Accepted,
    contest::{History, Ledger},
    fields::Move,
    manager::{Operation, Writer},
    owned::OwnedSet,
    path::{Path, Segment},
};

/// How the order of a list is written among names of `fieldsV1`, which has no word for it.
const ORDER: &str = "#order";

/// A digest as bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredDigest([u8; 16]);

impl From<Digest> for StoredDigest {
    fn from(digest: Digest) -> Self {
        Self(*digest.bytes())
    }
}

impl From<StoredDigest> for Digest {
    fn from(stored: StoredDigest) -> Self {
        Self::from_bytes(stored.0)
    }
}

impl fmt::Debug for StoredDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredDigest(…)")
    }
}

/// A path as its `fieldsV1` names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPath(Vec<String>);

impl From<&Path> for StoredPath {
    fn from(path: &Path) -> Self {
        Self(path.segments().iter().map(|segment| segment.to_fields_v1().unwrap_or_else(|| ORDER.to_owned())).collect())
    }
}

impl StoredPath {
    /// The path; `None` where a name is not one that `fieldsV1` uses.
    pub fn restore(&self) -> Option<Path> {
        self.0.iter().map(|name| if name == ORDER { Some(Segment::Order) } else { Segment::from_fields_v1(name) }).collect()
    }
}

/// A set of paths as the text of its `fieldsV1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredSet(String);

impl From<&OwnedSet> for StoredSet {
    fn from(set: &OwnedSet) -> Self {
        Self(set.to_fields_v1().to_string())
    }
}

impl StoredSet {
    /// The set; `None` where the text is no JSON.
    pub fn restore(&self) -> Option<OwnedSet> {
        serde_json::from_str(&self.0).ok().map(|fields| OwnedSet::from_fields_v1(&fields))
    }
}

/// One accepted difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAccepted {
    path: u64,
    value: StoredDigest,
    reason: u8,
}

impl From<&Accepted> for StoredAccepted {
    fn from(accepted: &Accepted) -> Self {
        let reason = DeviationReason::ALL.iter().position(|reason| *reason == accepted.reason);
        Self {
            path: accepted.path,
            value: accepted.value.into(),
            reason: reason.and_then(|reason| u8::try_from(reason).ok()).unwrap_or(u8::MAX),
        }
    }
}

impl StoredAccepted {
    /// The accepted difference; `None` for a reason that is not known.
    pub fn restore(&self) -> Option<Accepted> {
        let reason = *DeviationReason::ALL.get(usize::from(self.reason))?;
        Some(Accepted { path: self.path, value: self.value.into(), reason })
    }
}

/// The corrections an object needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLedger {
    paths: Vec<(StoredPath, StoredHistory)>,
    object: StoredHistory,
    /// See [`StoredLedger::is_contest`].
    is_contest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredHistory {
    corrections: Vec<(i64, StoredDigest)>,
    strikes: u32,
    is_collapsed: bool,
}

impl From<&History> for StoredHistory {
    fn from(history: &History) -> Self {
        Self {
            corrections: history.corrections.iter().map(|(time, pair)| (time.as_millisecond(), (*pair).into())).collect(),
            strikes: history.strikes,
            is_collapsed: history.is_collapsed,
        }
    }
}

impl StoredHistory {
    /// The history without times that cannot be read.
    fn restore(&self) -> History {
        let read = |(time, pair): &(i64, StoredDigest)| Some((Timestamp::from_millisecond(*time).ok()?, Digest::from(*pair)));
        History { corrections: self.corrections.iter().filter_map(read).collect(), strikes: self.strikes, is_collapsed: self.is_collapsed }
    }
}

impl From<&Ledger> for StoredLedger {
    fn from(ledger: &Ledger) -> Self {
        Self {
            paths: ledger.paths.iter().map(|(path, history)| (path.into(), history.into())).collect(),
            object: (&ledger.object).into(),
            is_contest: ledger.is_contest(),
        }
    }
}

impl StoredLedger {
    /// The ledger. A path that cannot be read is left out: it starts anew.
    pub fn restore(&self) -> Ledger {
        let paths = self.paths.iter().filter_map(|(path, history)| Some((path.restore()?, history.restore())));
        Ledger { paths: paths.collect(), object: self.object.restore() }
    }

    /// Whether it holds more than corrections that nobody undid: such a ledger is the last to be given up where not all fit.
    pub const fn is_contest(&self) -> bool {
        self.is_contest
    }
}

/// Ownership that a repair moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMove {
    manager: String,
    applies: bool,
    paths: StoredSet,
    gone: Vec<StoredPath>,
    kept: StoredSet,
    released: StoredSet,
}

impl From<&Move> for StoredMove {
    fn from(change: &Move) -> Self {
        Self {
            manager: change.to.manager.clone(),
            applies: change.to.operation == Operation::Apply,
            paths: (&change.paths).into(),
            gone: change.gone.iter().map(StoredPath::from).collect(),
            kept: (&change.kept).into(),
            released: (&change.released).into(),
        }
    }
}

impl StoredMove {
    /// The move; `None` where any part of it cannot be read: half a move would leave an object that nobody can upgrade.
    pub fn restore(&self) -> Option<Move> {
        let operation = if self.applies { Operation::Apply } else { Operation::Update };
        Some(Move {
            to: Writer { manager: self.manager.clone(), operation },
            paths: self.paths.restore()?,
            gone: self.gone.iter().map(StoredPath::restore).collect::<Option<_>>()?,
            kept: self.kept.restore()?,
            released: self.released.restore()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use crate::contest::Alternation;

    fn paths() -> Vec<Path> {
        let containers = Path::of_fields(&["spec", "template", "spec", "containers"]);
        vec![
            Path::of_fields(&["metadata", "annotations", "a.b/c:d"]),
            containers.join(Segment::key("name", "we]b,=")),
            containers.join(Segment::key("name", "web")).join(Segment::field("image")),
            Path::of_fields(&["metadata", "finalizers"]).join(Segment::Item(json!("x"))),
            Path::of_fields(&["spec", "numbers"]).join(Segment::Item(json!(5))),
            containers.join(Segment::Order),
        ]
    }

    /// What comes back after a text form.
    fn reread<T: Serialize + for<'de> Deserialize<'de>>(stored: &T) -> T {
        serde_json::from_str(&serde_json::to_string(stored).unwrap()).unwrap()
    }

    #[test]
    fn paths_come_back_as_they_were() {
        for path in paths() {
            assert_eq!(reread(&StoredPath::from(&path)).restore(), Some(path.clone()), "{path}");
        }
        assert_eq!(StoredPath(vec!["nonsense".to_owned()]).restore(), None);
    }

    #[test]
    fn a_contest_goes_on_where_it_stood() {
        let at = |minutes| Timestamp::UNIX_EPOCH.checked_add(SignedDuration::from_mins(minutes)).unwrap();
        for path in paths() {
            let mut ledger = Ledger::default();
            let record = |ledger: &mut Ledger, minute: i64, theirs: i64| {
                ledger.record(&[(path.clone(), Digest::of(&json!(theirs)))], at(minute), Alternation::default());
            };
            (0..2).for_each(|minute| record(&mut ledger, minute, 7));
            assert!(!StoredLedger::from(&ledger).is_contest());
            record(&mut ledger, 2, 7);
            let stored = reread(&StoredLedger::from(&ledger));
            assert!(stored.is_contest());
            let mut restored = stored.restore();
            let held = |ledger: &Ledger, minute| ledger.held(&path, false, at(minute)).map(|held| held.until);
            assert_eq!((held(&ledger, 3), held(&restored, 3)), (Some(at(12)), Some(at(12))), "the third correction holds it");
            // The next probe that has to correct doubles the wait on both sides.
            for ledger in [&mut ledger, &mut restored] {
                record(ledger, 12, 9);
                assert_eq!(held(ledger, 13), Some(at(32)));
            }
        }
        // What stood for all of its children still does, and the object's writes still count.
        let mut ledger = Ledger::default();
        let all: Vec<(Path, Digest)> =
            (0..100).map(|key| (Path::of_fields(&["data", &format!("key-{key}")]), Digest::of(&json!(key)))).collect();
        (0..3).for_each(|minute| ledger.record(&all, at(minute), Alternation::default()));
        let restored = reread(&StoredLedger::from(&ledger)).restore();
        assert!(ledger.held(&all[7].0, false, at(3)).is_some());
        assert_eq!(restored.held(&all[7].0, false, at(3)), ledger.held(&all[7].0, false, at(3)));
        assert_eq!(restored.object.corrections.len(), 3);
    }

    #[test]
    fn what_was_accepted_is_accepted_again() {
        for reason in DeviationReason::ALL {
            let accepted = Accepted::new(&Path::of_fields(&["spec", "replicas"]), reason, Digest::of(&json!(3)));
            assert_eq!(reread(&StoredAccepted::from(&accepted)).restore(), Some(accepted));
        }
        let unknown = StoredAccepted { path: 1, value: Digest::of(&json!(3)).into(), reason: 77 };
        assert_eq!(unknown.restore(), None);
    }

    #[test]
    fn a_move_is_all_or_nothing() {
        let mut change = Move {
            to: Writer { manager: "helm".to_owned(), operation: Operation::Apply },
            paths: OwnedSet::default(),
            gone: paths(),
            kept: OwnedSet::from_fields_v1(&json!({"f:spec": {"f:paused": {}}})),
            released: OwnedSet::from_fields_v1(&json!({"f:spec": {"f:clusterIP": {}}})),
        };
        change.paths =
            OwnedSet::from_fields_v1(&json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}));
        let stored = reread(&StoredMove::from(&change));
        assert_eq!(stored.restore(), Some(change));
        let broken = StoredMove { paths: StoredSet("{".to_owned()), ..stored };
        assert_eq!(broken.restore(), None);
    }

    #[test]
    fn digests_do_not_print() {
        let text = format!("{:?}", StoredDigest::from(Digest::of(&json!("secret"))));
        assert_eq!(text, "StoredDigest(…)");
    }
}
