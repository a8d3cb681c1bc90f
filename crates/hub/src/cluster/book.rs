//! The release records of one cluster, and what they say about each release. Pure: fed by the watches, asked by the actor.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_helm::{Judged, RecordMeta, Selection, State, Status, Store, select};
use jiff::Timestamp;

use super::{
    pending::Pending,
    records::{RecordSight, ReleaseName},
};

/// Where a release stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// This revision is desired.
    Desired(Revision),
    /// The newest revision failed; this one was deployed last.
    Failed {
        /// The failed revision.
        failed: u64,
        /// The last deployed one.
        deployed: Option<Revision>,
    },
    /// Helm is at work, or died over it: hands off.
    Pending(Pending),
    /// Hands off: the reason word for the `InSync` condition and a sentence.
    Held {
        /// The reason word.
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// The release is gone; `true` when its uninstallation was seen.
    Gone(bool),
}

/// A revision to judge by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Its record.
    pub meta: RecordMeta,
    /// For the check right before a write.
    pub judged: Judged,
    /// When the record was last written, by the API server's clock: its switch to `deployed`.
    pub deployed_at: Option<Timestamp>,
    /// How many of the release's records are `deployed`: more than one is worth a warning.
    pub deployed: usize,
}

impl Revision {
    /// Whether two revisions declare the same: the same record, whatever happened to newer ones.
    pub fn is_record(&self, other: &Self) -> bool {
        same_record(&self.meta, &other.meta)
    }
}

/// Whether two sights of a record are of one record in one status. Its body may change with its status, and only then.
pub fn same_record(one: &RecordMeta, other: &RecordMeta) -> bool {
    one.uid == other.uid && one.version == other.version && one.status == other.status
}

/// All records of one cluster.
#[derive(Debug, Default)]
pub struct Book {
    releases: BTreeMap<ReleaseName, BTreeMap<(Store, String), RecordSight>>,
    uninstalling: BTreeSet<ReleaseName>,
    /// The highest deployed revision whose record went without an uninstallation.
    vanished: BTreeMap<ReleaseName, u64>,
    /// When Helm began a revision, as its body says; by UID of the record.
    begun: BTreeMap<ReleaseName, (String, Timestamp)>,
    /// What the lists under way have shown.
    listed: BTreeMap<Store, BTreeSet<(String, String)>>,
    /// Stores that were listed.
    known: BTreeSet<Store>,
    /// The first list of every store is complete: before, nothing may be concluded from a release's absence.
    pub complete: bool,
}

impl Book {
    /// A list begins.
    pub fn reset(&mut self, store: Store) {
        self.listed.insert(store, BTreeSet::new());
    }

    /// A record was listed or changed; answers with the release to look at.
    pub fn put(&mut self, sight: RecordSight) -> Option<ReleaseName> {
        let release = sight.release()?;
        if let Some(listed) = self.listed.get_mut(&sight.store) {
            listed.insert((sight.namespace.clone(), sight.stored_name.clone()));
        }
        if let Ok(meta) = &sight.meta {
            if meta.status == Status::Uninstalling {
                self.uninstalling.insert(release.clone());
            } else if meta.status.is_pending() || meta.status == Status::Deployed {
                // An uninstallation that was given up says nothing about a later disappearance.
                self.uninstalling.remove(&release);
                if self.vanished.get(&release).is_some_and(|vanished| *vanished <= meta.version) {
                    self.vanished.remove(&release);
                }
            }
        }
        self.releases.entry(release.clone()).or_default().insert((sight.store, sight.stored_name.clone()), sight);
        Some(release)
    }

    /// A record was deleted; answers with the release to look at.
    pub fn remove(&mut self, sight: &RecordSight) -> Option<ReleaseName> {
        let release = sight.release()?;
        let records = self.releases.get_mut(&release)?;
        let gone = records.remove(&(sight.store, sight.stored_name.clone()));
        if records.is_empty() {
            self.releases.remove(&release);
        }
        self.left(&release, gone);
        Some(release)
    }

    /// The list is complete: records it does not hold are gone. Answers with the releases to look at.
    pub fn list_complete(&mut self, store: Store) -> Vec<ReleaseName> {
        let mut gone = Vec::new();
        if let Some(listed) = self.listed.remove(&store) {
            let is_left =
                |sight: &RecordSight| sight.store != store || listed.contains(&(sight.namespace.clone(), sight.stored_name.clone()));
            self.releases.retain(|release, records| {
                gone.extend(records.extract_if(.., |_, sight| !is_left(sight)).map(|(_, sight)| (release.clone(), sight)));
                !records.is_empty()
            });
        }
        let mut touched = BTreeSet::new();
        for (release, sight) in gone {
            self.left(&release, Some(sight));
            touched.insert(release);
        }
        self.known.insert(store);
        if !self.complete && self.known.len() == Store::ALL.len() {
            self.complete = true;
            return self.releases.keys().cloned().collect();
        }
        touched.into_iter().collect()
    }

    /// Keeps in mind what follows from a record that is no longer there.
    fn left(&mut self, release: &ReleaseName, gone: Option<RecordSight>) {
        if let Some(Ok(meta)) = gone.map(|sight| sight.meta)
            && meta.status == Status::Deployed
            && !self.uninstalling.contains(release)
        {
            let vanished = self.vanished.entry(release.clone()).or_default();
            *vanished = meta.version.max(*vanished);
        }
        if !self.releases.contains_key(release) {
            self.begun.remove(release);
            self.vanished.remove(release);
        }
    }

    /// The body of a record was read: when Helm began the revision.
    pub fn begins(&mut self, release: &ReleaseName, meta: &RecordMeta, at: Timestamp) {
        if self.releases.contains_key(release) {
            self.begun.insert(release.clone(), (meta.uid.clone(), at));
        }
    }

    /// Every release that has records.
    pub fn releases(&self) -> impl Iterator<Item = &ReleaseName> {
        self.releases.keys()
    }

    /// Whether a release has records.
    pub fn has(&self, release: &ReleaseName) -> bool {
        self.releases.contains_key(release)
    }

    /// The records to read for what a release claims: of each store those whose objects may stand on the cluster.
    pub fn in_force(&self, release: &ReleaseName) -> Vec<RecordMeta> {
        let stores = Store::ALL.map(|store| self.metas(release, store));
        stores.iter().flat_map(|metas| select(metas).in_force().cloned().collect::<Vec<_>>()).collect()
    }

    fn metas(&self, release: &ReleaseName, store: Store) -> Vec<RecordMeta> {
        let records = self.releases.get(release).into_iter().flat_map(BTreeMap::values);
        records.filter(|sight| sight.store == store).filter_map(|sight| sight.meta.clone().ok()).collect()
    }

    /// Where a release stands.
    pub fn phase(&self, release: &ReleaseName) -> Phase {
        let Some(records) = self.releases.get(release) else { return Phase::Gone(self.uninstalling.contains(release)) };
        if let Some(invalid) = records.values().find_map(|sight| sight.meta.as_ref().err()) {
            // It may stand for the newest revision.
            return Phase::Held { reason: "RecordInvalid", message: format!("{}: {}", invalid.stored_name, invalid.error) };
        }
        match Store::ALL.map(|store| self.metas(release, store)) {
            [secrets, configmaps] if !secrets.is_empty() && !configmaps.is_empty() => {
                // Which of them Helm goes by depends on who runs it.
                let message = "the release has records in Secrets and in ConfigMaps, and only one kind can be the one Helm goes by";
                Phase::Held { reason: "OwnerUnclear", message: message.to_owned() }
            }
            [secrets, configmaps] => {
                let metas = if secrets.is_empty() { configmaps } else { secrets };
                self.phase_of(release, records, &select(&metas))
            }
        }
    }

    fn phase_of(&self, release: &ReleaseName, records: &BTreeMap<(Store, String), RecordSight>, selection: &Selection<'_>) -> Phase {
        let written_at = |meta: &RecordMeta| records.get(&(meta.store, meta.stored_name.clone())).and_then(|sight| sight.written_at);
        let revision = |meta: &RecordMeta| -> Option<Revision> {
            let judged = Judged::of(selection)?;
            Some(Revision { meta: meta.clone(), judged, deployed_at: written_at(meta), deployed: selection.deployed })
        };
        let held = |message: String| Phase::Held { reason: selection.state.reason().unwrap_or("RecordInvalid"), message };
        let goes_by = selection.state.last_deployed().map_or(0, |meta| meta.version);
        let vanished = self.vanished.get(release).filter(|vanished| **vanished > goes_by);
        match &selection.state {
            State::Deployed(_) | State::Failed { .. } | State::Between(_) if let Some(vanished) = vanished => Phase::Held {
                reason: "RecordsVanished",
                message: format!("the record of revision {vanished} is gone although no uninstallation was seen"),
            },
            State::Deployed(meta) => revision(meta).map_or_else(|| held("no deployed revision".to_owned()), Phase::Desired),
            State::Failed { failed, deployed } => Phase::Failed { failed: failed.version, deployed: deployed.and_then(revision) },
            State::Pending { pending, .. } => {
                // The record is made right after Helm began; a younger clock in the body is wrong.
                let begun = self.begun.get(release).filter(|(uid, _)| *uid == pending.uid).map(|(_, at)| *at);
                let since = begun.into_iter().chain(pending.created).min();
                Phase::Pending(Pending { version: pending.version, status: pending.status, since })
            }
            State::Between(_) if self.uninstalling.contains(release) => {
                Phase::Held { reason: "ReleaseUninstalling", message: "the release is being uninstalled".to_owned() }
            }
            State::Between(meta) => Phase::Pending(Pending { version: meta.version, status: meta.status, since: written_at(meta) }),
            State::Uninstalling(meta) | State::Uninstalled(meta) | State::Unclear(meta) => {
                held(format!("revision {} is {}", meta.version, meta.status.as_str()))
            }
            State::Absent => Phase::Gone(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_fleet::meta::Meta;
    use serde_json::json;

    use super::*;

    fn sight(version: u64, status: &str) -> RecordSight {
        stored(Store::Secrets, version, status)
    }

    fn stored(store: Store, version: u64, status: &str) -> RecordSight {
        let text = json!({"metadata": {"name": format!("sh.helm.release.v1.web.v{version}"), "namespace": "t", "uid": format!("u{version}"), "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:03Z",
            "labels": {"owner": "helm", "name": "web", "status": status, "version": version.to_string()},
            "managedFields": [{"manager": "Helm", "operation": "Update", "time": "2026-01-01T00:00:05Z"}]}})
        .to_string();
        RecordSight::of(store, &Meta::of_object(text.as_bytes()).unwrap()).unwrap()
    }

    fn web() -> ReleaseName {
        ReleaseName { namespace: "t".into(), name: "web".into() }
    }

    #[test]
    fn a_release_through_its_life() {
        let mut book = Book::default();
        book.put(sight(1, "deployed"));
        let Phase::Desired(first) = book.phase(&web()) else { panic!() };
        assert_eq!((first.meta.version, first.deployed_at.unwrap().as_second() % 60), (1, 5));
        book.put(sight(2, "pending-upgrade"));
        assert!(matches!(book.phase(&web()), Phase::Pending(Pending { version: 2, .. })));
        book.put(sight(1, "superseded"));
        assert!(matches!(book.phase(&web()), Phase::Pending(Pending { version: 2, .. })));
        book.put(sight(2, "deployed"));
        assert!(matches!(book.phase(&web()), Phase::Desired(revision) if revision.meta.version == 2));
        book.put(sight(3, "failed"));
        assert!(matches!(book.phase(&web()), Phase::Failed { failed: 3, deployed: Some(revision) } if revision.meta.version == 2));
    }

    #[test]
    fn vanished_is_not_uninstalled() {
        let mut book = Book::default();
        book.put(sight(1, "deployed"));
        book.remove(&sight(1, "deployed"));
        assert_eq!(book.phase(&web()), Phase::Gone(false));
        book.put(sight(1, "uninstalling"));
        book.remove(&sight(1, "uninstalling"));
        assert_eq!(book.phase(&web()), Phase::Gone(true));
    }

    #[test]
    fn an_uninstallation_is_not_remembered_for_ever() {
        let mut book = Book::default();
        book.put(sight(1, "uninstalling"));
        book.remove(&sight(1, "uninstalling"));
        assert_eq!(book.phase(&web()), Phase::Gone(true));
        book.put(sight(1, "deployed"));
        book.remove(&sight(1, "deployed"));
        assert_eq!(book.phase(&web()), Phase::Gone(false));
    }

    #[test]
    fn a_list_forgets_only_when_complete() {
        let mut book = Book::default();
        book.put(sight(1, "deployed"));
        assert!(book.list_complete(Store::Secrets).is_empty() && !book.complete, "there may be more in ConfigMaps");
        assert_eq!(book.list_complete(Store::ConfigMaps), [web()], "the first complete lists show every release");
        for (store, touched) in [(Store::ConfigMaps, vec![]), (Store::Secrets, vec![web()])] {
            book.reset(store);
            assert!(matches!(book.phase(&web()), Phase::Desired(_)));
            assert_eq!(book.list_complete(store), touched);
        }
        assert_eq!(book.phase(&web()), Phase::Gone(false));
    }

    #[test]
    fn an_odd_record_holds_its_release() {
        let mut book = Book::default();
        book.put(sight(1, "deployed"));
        book.put(sight(2, "nonsense"));
        assert!(matches!(book.phase(&web()), Phase::Held { reason: "RecordInvalid", .. }));
    }

    fn reason(book: &Book) -> &'static str {
        match book.phase(&web()) {
            Phase::Held { reason, .. } => reason,
            Phase::Pending(_) => "pending",
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_deployed_record_alone_vanishes() {
        let mut book = Book::default();
        book.put(sight(1, "superseded"));
        assert_eq!(reason(&book), "pending", "superseded only: a successor may come into sight");
        book.put(sight(2, "deployed"));
        book.remove(&sight(1, "superseded"));
        assert!(matches!(book.phase(&web()), Phase::Desired(_)), "history is pruned");
        book.put(sight(1, "superseded"));
        book.remove(&sight(2, "deployed"));
        assert_eq!(reason(&book), "RecordsVanished");
        book.put(sight(3, "pending-upgrade"));
        assert_eq!(reason(&book), "pending");
        book.put(sight(3, "superseded"));
        assert_eq!(reason(&book), "pending", "that one is a later story");
        book.put(sight(4, "deployed"));
        book.put(sight(5, "deployed"));
        book.remove(&sight(5, "deployed"));
        assert_eq!(reason(&book), "RecordsVanished", "a lower one that is deployed as well was not the last word");
    }

    #[test]
    fn records_that_go_one_by_one_while_helm_uninstalls() {
        let mut book = Book::default();
        book.put(sight(1, "superseded"));
        book.put(sight(2, "deployed"));
        book.put(sight(2, "uninstalling"));
        assert_eq!(reason(&book), "ReleaseUninstalling");
        book.remove(&sight(2, "uninstalling"));
        assert_eq!(reason(&book), "ReleaseUninstalling");
        book.remove(&sight(1, "superseded"));
        assert_eq!(book.phase(&web()), Phase::Gone(true));
    }

    #[test]
    fn a_pending_revision_is_as_old_as_its_body_says_or_its_record() {
        let mut book = Book::default();
        book.put(sight(1, "deployed"));
        let pending = sight(2, "pending-upgrade");
        let meta = pending.meta.clone().unwrap();
        book.put(pending);
        let since = |book: &Book| match book.phase(&web()) {
            Phase::Pending(pending) => pending.since.unwrap().to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(since(&book), "2026-01-01T00:00:03Z");
        book.begins(&web(), &meta, "2026-01-01T00:00:01Z".parse().unwrap());
        assert_eq!(since(&book), "2026-01-01T00:00:01Z");
        book.begins(&web(), &meta, "2027-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(since(&book), "2026-01-01T00:00:03Z", "nobody begins after the record was made");
        book.begins(&web(), &RecordMeta { uid: "other".into(), ..meta }, "2025-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(since(&book), "2026-01-01T00:00:03Z", "another record's");
    }

    #[test]
    fn records_in_both_stores_are_unclear_and_all_claim() {
        let mut book = Book::default();
        book.put(stored(Store::ConfigMaps, 1, "deployed"));
        assert!(matches!(book.phase(&web()), Phase::Desired(revision) if revision.meta.store == Store::ConfigMaps));
        book.put(stored(Store::Secrets, 1, "deployed"));
        book.put(stored(Store::Secrets, 2, "pending-upgrade"));
        assert_eq!(reason(&book), "OwnerUnclear");
        let claiming: Vec<_> = book.in_force(&web()).iter().map(|meta| (meta.store, meta.version)).collect();
        assert_eq!(claiming, [(Store::Secrets, 1), (Store::Secrets, 2), (Store::ConfigMaps, 1)]);
        book.remove(&stored(Store::ConfigMaps, 1, "deployed"));
        assert_eq!(reason(&book), "pending");
    }

    #[test]
    fn several_deployed_are_counted() {
        let mut book = Book::default();
        book.put(sight(1, "deployed"));
        book.put(sight(2, "deployed"));
        assert!(matches!(book.phase(&web()), Phase::Desired(revision) if revision.meta.version == 2 && revision.deployed == 2));
    }
}
