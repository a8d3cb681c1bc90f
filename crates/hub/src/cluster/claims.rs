//! Which releases declare which object: two that declare one are found from their records, before any write.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use holdfast_helm::RecordMeta;

use super::{book::same_record, records::ReleaseName, state::StateId};

/// What every release of a cluster declares, guarded or not: its last deployed revision, and one that Helm is at work on or failed with.
#[derive(Debug, Default)]
pub struct Claims {
    releases: BTreeMap<ReleaseName, Vec<Claim>>,
    /// Objects with more than one claimant, and only those.
    contested: HashMap<StateId, BTreeSet<ReleaseName>>,
    owners: HashMap<StateId, ReleaseName>,
}

/// What one record declares.
#[derive(Debug)]
struct Claim {
    record: RecordMeta,
    objects: Vec<StateId>,
    /// Some of its kinds were not served.
    incomplete: bool,
    /// Other kinds are served by now: it counts until it is read again.
    outdated: bool,
}

impl Claims {
    /// Whether this record's claims are known.
    pub fn knows(&self, release: &ReleaseName, record: &RecordMeta) -> bool {
        self.releases.get(release).is_some_and(|claims| claims.iter().any(|claim| !claim.outdated && same_record(&claim.record, record)))
    }

    /// Takes in what a record declares; `incomplete` where some of its kinds are not served. Answers with objects whose claimants changed.
    pub fn put(&mut self, release: &ReleaseName, record: RecordMeta, objects: Vec<StateId>, incomplete: bool) -> Vec<StateId> {
        self.change(release, |claims| {
            claims.retain(|claim| claim.record.uid != record.uid);
            claims.push(Claim { record, objects, incomplete, outdated: false });
        })
    }

    /// These records of a release count, and no others. Answers with objects whose claimants changed.
    pub fn keep(&mut self, release: &ReleaseName, records: &[RecordMeta]) -> Vec<StateId> {
        let counts = |claim: &Claim| records.iter().any(|record| same_record(&claim.record, record));
        if self.releases.get(release).is_none_or(|claims| claims.iter().all(counts)) {
            return Vec::new();
        }
        self.change(release, |claims| claims.retain(counts))
    }

    /// A release is gone. Answers with objects that had more claimants.
    pub fn remove(&mut self, release: &ReleaseName) -> Vec<StateId> {
        self.change(release, Vec::clear)
    }

    /// Other kinds are served: what could not be read of some records may be readable now. Answers with the releases to read again.
    pub fn outdate(&mut self) -> Vec<ReleaseName> {
        let mut outdated = Vec::new();
        for (release, claims) in &mut self.releases {
            for claim in claims.iter_mut().filter(|claim| claim.incomplete) {
                claim.outdated = true;
                outdated.push(release.clone());
            }
        }
        outdated.dedup();
        outdated
    }

    /// What a release declares is served in another way now: its records are to be read again and count until then.
    pub fn outdate_release(&mut self, release: &ReleaseName) {
        for claim in self.releases.get_mut(release).into_iter().flatten() {
            claim.outdated = true;
        }
    }

    /// Whether a release declares an object.
    pub fn declares(&self, release: &ReleaseName, id: StateId) -> bool {
        self.owners.get(&id) == Some(release) || self.contested.get(&id).is_some_and(|claimants| claimants.contains(release))
    }

    fn change(&mut self, release: &ReleaseName, change: impl FnOnce(&mut Vec<Claim>)) -> Vec<StateId> {
        let union = |claims: &[Claim]| claims.iter().flat_map(|claim| claim.objects.iter().copied()).collect::<HashSet<StateId>>();
        let mut claims = self.releases.remove(release).unwrap_or_default();
        let before = union(&claims);
        change(&mut claims);
        let after = union(&claims);
        if !claims.is_empty() {
            self.releases.insert(release.clone(), claims);
        }
        let dropped = before.difference(&after).filter(|id| self.unclaim(**id, release)).copied().collect::<Vec<_>>();
        let added = after.difference(&before).filter(|id| self.claim(**id, release)).copied().collect::<Vec<_>>();
        [dropped, added].concat()
    }

    /// Answers whether the object has other claimants.
    fn claim(&mut self, id: StateId, release: &ReleaseName) -> bool {
        let Some(other) = self.owners.get(&id) else {
            self.owners.insert(id, release.clone());
            return false;
        };
        self.contested.entry(id).or_insert_with(|| BTreeSet::from([other.clone()])).insert(release.clone());
        true
    }

    /// Answers whether the object had other claimants.
    fn unclaim(&mut self, id: StateId, release: &ReleaseName) -> bool {
        let Some(claimants) = self.contested.get_mut(&id) else {
            self.owners.remove(&id);
            return false;
        };
        claimants.remove(release);
        if let Some(first) = claimants.first() {
            self.owners.insert(id, first.clone());
        }
        if claimants.len() <= 1 {
            self.contested.remove(&id);
        }
        true
    }

    /// The releases that declare an object beside `release`.
    pub fn others(&self, id: StateId, release: &ReleaseName) -> Vec<&ReleaseName> {
        self.contested.get(&id).into_iter().flatten().filter(|other| *other != release).collect()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_helm::{Status, Store};

    use super::*;
    use crate::cluster::state::ClusterId;

    fn record(version: u64) -> RecordMeta {
        RecordMeta {
            store: Store::Secrets,
            stored_name: format!("v{version}"),
            name: "x".into(),
            namespace: "t".into(),
            version,
            status: Status::Deployed,
            uid: format!("u{version}"),
            resource_version: "1".into(),
            created: None,
            modified: None,
        }
    }

    /// Takes in what the only record of a release in force declares.
    fn put(claims: &mut Claims, name: &str, version: u64, objects: Vec<StateId>) -> Vec<StateId> {
        let mut changed = claims.put(&release(name), record(version), objects, false);
        changed.extend(claims.keep(&release(name), &[record(version)]));
        changed
    }

    fn release(name: &str) -> ReleaseName {
        ReleaseName { namespace: "t".into(), name: name.into() }
    }

    fn id(name: &str) -> StateId {
        StateId::new(ClusterId(0), "", "ConfigMap", Some("t"), name)
    }

    #[test]
    fn two_claimants_are_found_and_forgotten() {
        let mut claims = Claims::default();
        assert!(put(&mut claims, "a", 1, vec![id("own"), id("shared")]).is_empty());
        assert_eq!(put(&mut claims, "b", 1, vec![id("shared")]), [id("shared")]);
        assert_eq!(claims.others(id("shared"), &release("a")), [&release("b")]);
        assert_eq!(claims.others(id("shared"), &release("b")), [&release("a")]);
        assert!(claims.others(id("own"), &release("a")).is_empty());
        assert_eq!(put(&mut claims, "b", 2, vec![]), [id("shared")]);
        assert!(claims.others(id("shared"), &release("a")).is_empty());
        assert!(claims.knows(&release("b"), &record(2)) && !claims.knows(&release("b"), &record(1)));
    }

    #[test]
    fn three_claimants() {
        let mut claims = Claims::default();
        for name in ["a", "b", "c"] {
            put(&mut claims, name, 1, vec![id("shared")]);
        }
        claims.remove(&release("a"));
        assert_eq!(claims.others(id("shared"), &release("b")), [&release("c")]);
        claims.remove(&release("b"));
        assert!(claims.others(id("shared"), &release("c")).is_empty());
        put(&mut claims, "d", 1, vec![id("shared")]);
        put(&mut claims, "c", 2, vec![id("shared")]);
        put(&mut claims, "b", 2, vec![id("shared")]);
        claims.remove(&release("d"));
        assert_eq!(claims.others(id("shared"), &release("c")), [&release("b")], "an upgrade of the first claimant forgets nobody");
        claims.remove(&release("b"));
        put(&mut claims, "d", 1, vec![id("shared")]);
        assert_eq!(claims.others(id("shared"), &release("c")), [&release("d")]);
    }

    #[test]
    fn a_release_claims_what_it_is_being_upgraded_to_as_well() {
        let mut claims = Claims::default();
        put(&mut claims, "a", 1, vec![id("shared"), id("own")]);
        put(&mut claims, "b", 1, vec![id("of-b")]);
        assert_eq!(claims.put(&release("b"), record(2), vec![id("of-b"), id("shared")], true), [id("shared")]);
        assert_eq!(claims.others(id("shared"), &release("a")), [&release("b")]);
        assert!(claims.others(id("of-b"), &release("b")).is_empty(), "two revisions of one release are no conflict");
        assert_eq!(claims.outdate(), [release("b")]);
        assert!(claims.knows(&release("b"), &record(1)) && !claims.knows(&release("b"), &record(2)), "to be read again");
        assert_eq!(claims.others(id("shared"), &release("a")), [&release("b")], "it counts until then");
        assert!(claims.declares(&release("b"), id("shared")) && claims.declares(&release("a"), id("own")));
        assert!(!claims.declares(&release("b"), id("own")));
        assert!(claims.keep(&release("b"), &[record(1), record(2)]).is_empty());
        assert_eq!(claims.keep(&release("b"), &[record(1)]), [id("shared")], "it was given up");
        assert!(claims.others(id("shared"), &release("a")).is_empty() && claims.outdate().is_empty());
        assert_eq!(claims.put(&release("c"), record(1), vec![id("of-b")], false), [id("of-b")], "the first revision still claims it");
        let record_again = RecordMeta { status: Status::Failed, ..record(1) };
        assert_eq!(claims.put(&release("c"), record_again, vec![], false), [id("of-b")], "one record counts once");
    }
}
