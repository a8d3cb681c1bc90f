//! Which releases declare which object: two that declare one are found from their records, before any write.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{book::Revision, records::ReleaseName, state::StateId};

/// What every release of a cluster declares, guarded or not.
#[derive(Debug, Default)]
pub struct Claims {
    releases: BTreeMap<ReleaseName, Claim>,
    /// Objects with more than one claimant, and only those.
    contested: HashMap<StateId, BTreeSet<ReleaseName>>,
    owners: HashMap<StateId, ReleaseName>,
}

#[derive(Debug)]
struct Claim {
    revision: Revision,
    objects: Vec<StateId>,
}

impl Claims {
    /// Whether this revision's claims are known.
    pub fn knows(&self, release: &ReleaseName, revision: &Revision) -> bool {
        self.releases.get(release).is_some_and(|claim| claim.revision.is_record(revision))
    }

    /// Takes in what a revision declares. Answers with objects whose claimants changed.
    pub fn put(&mut self, release: &ReleaseName, revision: Revision, objects: Vec<StateId>) -> Vec<StateId> {
        let mut changed = self.remove(release);
        for id in &objects {
            match self.owners.get(id) {
                None => {
                    self.owners.insert(*id, release.clone());
                }
                Some(other) if other != release => {
                    let claimants = self.contested.entry(*id).or_insert_with(|| BTreeSet::from([other.clone()]));
                    claimants.insert(release.clone());
                    changed.push(*id);
                }
                Some(_) => {}
            }
        }
        self.releases.insert(release.clone(), Claim { revision, objects });
        changed
    }

    /// A release is gone. Answers with objects that had more claimants.
    pub fn remove(&mut self, release: &ReleaseName) -> Vec<StateId> {
        let Some(claim) = self.releases.remove(release) else { return Vec::new() };
        let mut changed = Vec::new();
        for id in claim.objects {
            match self.contested.get_mut(&id) {
                Some(claimants) => {
                    claimants.remove(release);
                    changed.push(id);
                    let left = claimants.len();
                    if let Some(first) = claimants.first() {
                        self.owners.insert(id, first.clone());
                    }
                    if left <= 1 {
                        self.contested.remove(&id);
                    }
                }
                None => {
                    self.owners.remove(&id);
                }
            }
        }
        changed
    }

    /// The releases that declare an object beside `release`.
    pub fn others(&self, id: StateId, release: &ReleaseName) -> Vec<&ReleaseName> {
        self.contested.get(&id).into_iter().flatten().filter(|other| *other != release).collect()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_helm::{Judged, RecordMeta, Status};

    use super::*;
    use crate::cluster::state::ClusterId;

    fn revision(version: u64) -> Revision {
        let meta = RecordMeta {
            secret_name: format!("v{version}"),
            name: "x".into(),
            namespace: "t".into(),
            version,
            status: Status::Deployed,
            uid: format!("u{version}"),
            resource_version: "1".into(),
            created: None,
            modified: None,
        };
        Revision { judged: Judged { version, uid: meta.uid.clone(), newest: version }, meta, deployed_at: None }
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
        assert!(claims.put(&release("a"), revision(1), vec![id("own"), id("shared")]).is_empty());
        assert_eq!(claims.put(&release("b"), revision(1), vec![id("shared")]), [id("shared")]);
        assert_eq!(claims.others(id("shared"), &release("a")), [&release("b")]);
        assert_eq!(claims.others(id("shared"), &release("b")), [&release("a")]);
        assert!(claims.others(id("own"), &release("a")).is_empty());
        assert_eq!(claims.put(&release("b"), revision(2), vec![]), [id("shared")]);
        assert!(claims.others(id("shared"), &release("a")).is_empty());
        assert!(claims.knows(&release("b"), &revision(2)) && !claims.knows(&release("b"), &revision(1)));
    }

    #[test]
    fn three_claimants() {
        let mut claims = Claims::default();
        for name in ["a", "b", "c"] {
            claims.put(&release(name), revision(1), vec![id("shared")]);
        }
        claims.remove(&release("a"));
        assert_eq!(claims.others(id("shared"), &release("b")), [&release("c")]);
        claims.remove(&release("b"));
        assert!(claims.others(id("shared"), &release("c")).is_empty());
        claims.put(&release("d"), revision(1), vec![id("shared")]);
        claims.put(&release("c"), revision(2), vec![id("shared")]);
        claims.put(&release("b"), revision(2), vec![id("shared")]);
        claims.remove(&release("d"));
        assert_eq!(claims.others(id("shared"), &release("c")), [&release("b")], "an upgrade of the first claimant forgets nobody");
        claims.remove(&release("b"));
        claims.put(&release("d"), revision(1), vec![id("shared")]);
        assert_eq!(claims.others(id("shared"), &release("c")), [&release("d")]);
    }
}
