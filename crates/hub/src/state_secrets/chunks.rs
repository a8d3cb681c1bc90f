//! Splits a cluster's objects into shares that each fit a Secret. Pure.

use std::collections::HashMap;

use holdfast_engine::stored::StoredSet;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    format::{StoredContests, StoredObject, StoredObjects},
    part::Part,
};

/// Objects in one share: digests do not pack, and an object takes about 130 bytes of them (design §5: at most 512 KiB a Secret).
const SHARE: usize = 2000;
/// Bytes of one part. What is not packed further by sealing still fits the half mebibyte.
const MOST_BYTES: usize = 480 << 10;
/// Shares of one cluster.
const MOST_SHARES: u16 = 1024;
/// Bytes of all findings that are kept.
const MOST_FINDINGS: usize = 1 << 20;

/// A part before it is sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct Plain {
    /// Which.
    pub part: Part,
    /// Serialised content.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plain({}, {} bytes)", self.part, self.bytes.len())
    }
}

/// The parts of a state. Equal states give equal parts, whatever the order they are given in.
pub fn plain_parts(mut all: StoredObjects, mut contests: StoredContests) -> Vec<Plain> {
    let findings = all
        .objects
        .iter()
        .filter_map(|object| object.standing.as_ref())
        .map(|standing| [&standing.finding, &standing.added].into_iter().flatten().map(String::len).sum::<usize>());
    if findings.sum::<usize>() > MOST_FINDINGS {
        // Drift of everything: it is asked about again.
        all.objects.iter_mut().for_each(|object| object.standing = None);
    }
    let mut shares = u16::try_from(all.objects.len().div_ceil(SHARE).next_power_of_two()).unwrap_or(MOST_SHARES);
    let mut parts = object_parts(&all, shares);
    while shares < MOST_SHARES && parts.iter().any(|plain| plain.bytes.len() > MOST_BYTES) {
        shares *= 2;
        parts = object_parts(&all, shares);
    }
    contests.ledgers.sort_by_key(|(id, _)| *id);
    contests.releases.sort();
    if contests != StoredContests::default() {
        let mut bytes = encode(&contests);
        if bytes.len() > MOST_BYTES {
            contests.ledgers.retain(|(_, ledger)| ledger.is_contest());
            bytes = encode(&contests);
        }
        while bytes.len() > MOST_BYTES && !contests.ledgers.is_empty() {
            contests.ledgers.truncate(contests.ledgers.len() / 2);
            bytes = encode(&contests);
        }
        parts.push(Plain { part: Part::Contests, bytes });
    }
    parts
}

fn object_parts(all: &StoredObjects, shares: u16) -> Vec<Plain> {
    let mut split: Vec<Vec<StoredObject>> = vec![Vec::new(); usize::from(shares)];
    for object in &all.objects {
        if let Some(share) = split.get_mut(usize::from(object.id.share(shares))) {
            share.push(object.clone());
        }
    }
    let shares = (0..shares).zip(split).filter(|(_, objects)| !objects.is_empty());
    let encoded = |(number, objects)| Plain { part: Part::Objects(number), bytes: encode(&share(&all.releases, &all.sets, objects)) };
    shares.map(encoded).collect()
}

/// One share with the releases and sets that it uses.
fn share(releases: &[(String, String)], sets: &[StoredSet], mut objects: Vec<StoredObject>) -> StoredObjects {
    objects.sort_by_key(|object| object.id);
    let (mut own_releases, mut own_sets) = (Used::new(releases), Used::new(sets));
    for object in &mut objects {
        object.release = own_releases.place(object.release);
        object.set = object.set.map(|set| own_sets.place(set));
        object.previous = object.previous.map(|set| own_sets.place(set));
    }
    StoredObjects { releases: own_releases.kept, sets: own_sets.kept, objects }
}

/// The entries of a list that are used, in the order of their first use.
struct Used<'a, T> {
    all: &'a [T],
    places: HashMap<u32, u32>,
    kept: Vec<T>,
}

impl<'a, T: Clone> Used<'a, T> {
    fn new(all: &'a [T]) -> Self {
        Self { all, places: HashMap::new(), kept: Vec::new() }
    }

    fn place(&mut self, number: u32) -> u32 {
        *self.places.entry(number).or_insert_with(|| {
            let next = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
            self.kept.extend(usize::try_from(number).ok().and_then(|number| self.all.get(number)).cloned());
            next
        })
    }
}

/// Serialises a part's content.
pub fn encode(content: &impl Serialize) -> Vec<u8> {
    // Nothing that is stored has a length that is not known, which is all that can fail.
    postcard::to_stdvec(content).unwrap_or_default()
}

/// Reads a part's content.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests {
    use holdfast_engine::{
        canonical::Digest,
        object::{Gvk, ObjectKey},
        owned::OwnedSet,
    };
    use serde_json::json;

    use holdfast_api::report::DeviationReason;

    use super::{
        super::format::{StoredId, StoredShown, StoredStanding},
        *,
    };

    fn state(count: u32) -> StoredObjects {
        let gvk = std::sync::Arc::new(Gvk::new("v1", "ConfigMap"));
        let object = |number: u32| StoredObject {
            id: StoredId::of(&ObjectKey::new(std::sync::Arc::clone(&gvk), Some("t"), &format!("cm-{number}"))),
            release: number % 3,
            desired: Digest::of(&json!(number)).into(),
            set: (!number.is_multiple_of(5)).then_some(number % 2),
            sight: None,
            in_sync: Some(Digest::of(&json!([number])).into()),
            accepted: Some(Vec::new()),
            seen: true,
            vouched: false,
            uid: String::new(),
            normalized: 0,
            shown: Vec::new(),
            standing: None,
            additions: u64::from(number),
            previous: number.is_multiple_of(7).then_some((number + 1) % 2),
        };
        let set = |name: &str| StoredSet::from(&OwnedSet::from_fields_v1(&json!({"f:data": {name: {}}})));
        StoredObjects {
            releases: ["a", "b", "c"].map(|name| ("t".to_owned(), name.to_owned())).to_vec(),
            sets: vec![set("f:x"), set("f:y")],
            objects: (0..count).map(object).collect(),
        }
    }

    #[test]
    fn every_object_is_in_one_share_with_its_release_and_set() {
        for (count, shares) in [(0, 0), (1, 1), (2000, 1), (2001, 2), (9000, 8)] {
            let all = state(count);
            let parts = plain_parts(all.clone(), StoredContests::default());
            assert_eq!(parts.len(), shares, "{count}");
            let mut found = 0;
            for part in &parts {
                assert!(part.bytes.len() < 400 << 10, "{} bytes", part.bytes.len());
                let share: StoredObjects = decode(&part.bytes).unwrap();
                for object in &share.objects {
                    let whole = all.objects.iter().find(|whole| whole.id == object.id).unwrap();
                    assert_eq!(share.releases[object.release as usize], all.releases[whole.release as usize]);
                    assert_eq!(object.set.map(|set| &share.sets[set as usize]), whole.set.map(|set| &all.sets[set as usize]));
                    assert_eq!(object.previous.map(|set| &share.sets[set as usize]), whole.previous.map(|set| &all.sets[set as usize]));
                    found += 1;
                }
            }
            assert_eq!(found, count);
        }
    }

    #[test]
    fn equal_states_give_equal_parts() {
        let (all, mut turned) = (state(3000), state(3000));
        turned.objects.reverse();
        assert_eq!(plain_parts(all.clone(), StoredContests::default()), plain_parts(turned.clone(), StoredContests::default()));
        turned.objects[0].seen = false;
        let (before, after) = (plain_parts(all, StoredContests::default()), plain_parts(turned, StoredContests::default()));
        assert_eq!(before.iter().zip(&after).filter(|(before, after)| before != after).count(), 1, "one share changes");
    }

    #[test]
    fn no_part_is_larger_than_a_secret_may_be() {
        let mut all = state(1500);
        for object in &mut all.objects {
            let message = format!("{:?}", object.id).repeat(8);
            object.shown =
                vec![StoredShown { path: String::new(), reason: DeviationReason::Admission, since: jiff::Timestamp::UNIX_EPOCH, message }];
            object.standing = Some(StoredStanding { finding: Some("x".repeat(1000)), added: None, rules: object.desired, tries: 0 });
        }
        let ledger = |number: u32| {
            let mut ledger = holdfast_engine::contest::Ledger::default();
            let path = holdfast_engine::path::Path::of_fields(&["data", &"long".repeat(100), &number.to_string()]);
            let write = [(path, Digest::of(&json!(number)))];
            // Each second one is a contest.
            for _ in 0..if number.is_multiple_of(2) { 3 } else { 1 } {
                ledger.record(&write, jiff::Timestamp::UNIX_EPOCH, holdfast_engine::contest::Alternation::default());
            }
            (all.objects[number as usize].id, holdfast_engine::stored::StoredLedger::from(&ledger))
        };
        let contests = StoredContests { ledgers: (0..1500).map(ledger).collect(), ..StoredContests::default() };
        let parts = plain_parts(all, contests);
        assert!(parts.iter().all(|plain| plain.bytes.len() <= MOST_BYTES), "{parts:?}");
        let kept = parts.iter().find(|plain| plain.part == Part::Contests).unwrap();
        let kept: StoredContests = decode(&kept.bytes).unwrap();
        assert!(parts.len() > 2 && !kept.ledgers.is_empty(), "{parts:?}");
        assert!(kept.ledgers.iter().all(|(_, ledger)| ledger.is_contest()), "what nobody fought over goes first");
    }
}
