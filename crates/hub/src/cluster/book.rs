//! The release records of one cluster, and what they say about each release. Pure: fed by the watch, asked by the actor.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_helm::{Judged, RecordMeta, State, select};
use jiff::Timestamp;

use super::records::{RecordSight, ReleaseName};

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
}

impl Revision {
    /// Whether two revisions declare the same: the same record, whatever happened to newer ones.
    pub fn is_record(&self, other: &Self) -> bool {
        self.meta.uid == other.meta.uid && self.meta.version == other.meta.version && self.meta.status == other.meta.status
    }
}

/// All records of one cluster.
#[derive(Debug, Default)]
pub struct Book {
    releases: BTreeMap<ReleaseName, BTreeMap<String, RecordSight>>,
    uninstalling: BTreeSet<ReleaseName>,
    listed: Option<BTreeSet<(String, String)>>,
    /// The first list is complete: before, nothing may be concluded from a release's absence.
    pub complete: bool,
}

impl Book {
    /// A list begins.
    pub fn reset(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    /// A record was listed or changed; answers with the release to look at.
    pub fn put(&mut self, sight: RecordSight) -> Option<ReleaseName> {
        let release = sight.release()?;
        if let Some(listed) = &mut self.listed {
            listed.insert((sight.namespace.clone(), sight.secret.clone()));
        }
        if sight.meta.as_ref().is_ok_and(|meta| meta.status == holdfast_helm::Status::Uninstalling) {
            self.uninstalling.insert(release.clone());
        } else if sight.meta.as_ref().is_ok_and(|meta| meta.status.is_pending() || meta.status == holdfast_helm::Status::Deployed) {
            // An uninstallation that was given up says nothing about a later disappearance.
            self.uninstalling.remove(&release);
        }
        self.releases.entry(release.clone()).or_default().insert(sight.secret.clone(), sight);
        Some(release)
    }

    /// A record was deleted; answers with the release to look at.
    pub fn remove(&mut self, sight: &RecordSight) -> Option<ReleaseName> {
        let release = sight.release()?;
        if let Some(records) = self.releases.get_mut(&release) {
            records.remove(&sight.secret);
            if records.is_empty() {
                self.releases.remove(&release);
            }
        }
        Some(release)
    }

    /// The list is complete: records it does not hold are gone. Answers with the releases to look at.
    pub fn list_complete(&mut self) -> Vec<ReleaseName> {
        let mut touched = Vec::new();
        if let Some(listed) = self.listed.take() {
            self.releases.retain(|release, records| {
                let before = records.len();
                records.retain(|_, sight| listed.contains(&(sight.namespace.clone(), sight.secret.clone())));
                if records.len() != before {
                    touched.push(release.clone());
                }
                !records.is_empty()
            });
        }
        if !self.complete {
            self.complete = true;
            touched = self.releases.keys().cloned().collect();
        }
        touched
    }

    /// Every release that has records.
    pub fn releases(&self) -> impl Iterator<Item = &ReleaseName> {
        self.releases.keys()
    }

    /// Whether a release has records.
    pub fn has(&self, release: &ReleaseName) -> bool {
        self.releases.contains_key(release)
    }

    /// Where a release stands.
    pub fn phase(&self, release: &ReleaseName) -> Phase {
        let Some(records) = self.releases.get(release) else { return Phase::Gone(self.uninstalling.contains(release)) };
        if let Some(invalid) = records.values().find_map(|sight| sight.meta.as_ref().err()) {
            // It may stand for the newest revision.
            return Phase::Held { reason: "RecordInvalid", message: format!("{}: {}", invalid.secret_name, invalid.error) };
        }
        let metas: Vec<RecordMeta> = records.values().filter_map(|sight| sight.meta.clone().ok()).collect();
        let selection = select(&metas);
        let revision = |meta: &RecordMeta| -> Option<Revision> {
            let deployed_at = records.get(&meta.secret_name).and_then(|sight| sight.written_at);
            Some(Revision { meta: meta.clone(), judged: Judged::of(&selection)?, deployed_at })
        };
        let held = |message: String| Phase::Held { reason: selection.state.reason().unwrap_or("RecordInvalid"), message };
        match &selection.state {
            State::Deployed(meta) => revision(meta).map_or_else(|| held("no deployed revision".to_owned()), Phase::Desired),
            State::Failed { failed, deployed } => Phase::Failed { failed: failed.version, deployed: deployed.and_then(revision) },
            State::Pending { pending, .. } => held(format!("revision {} is {}", pending.version, pending.status.as_str())),
            State::Between(meta) => held(format!("revision {} is superseded and its successor is not visible yet", meta.version)),
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
        let text = json!({"metadata": {"name": format!("sh.helm.release.v1.web.v{version}"), "namespace": "t", "uid": format!("u{version}"), "resourceVersion": "1",
            "labels": {"owner": "helm", "name": "web", "status": status, "version": version.to_string()},
            "managedFields": [{"manager": "Helm", "operation": "Update", "time": "2026-01-01T00:00:05Z"}]}})
        .to_string();
        RecordSight::of(&Meta::of_object(text.as_bytes()).unwrap())
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
        assert!(matches!(book.phase(&web()), Phase::Held { reason: "ReleasePending", .. }));
        book.put(sight(1, "superseded"));
        assert!(matches!(book.phase(&web()), Phase::Held { reason: "ReleasePending", .. }));
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
        assert_eq!(book.list_complete(), [web()], "the first complete list shows every release");
        book.reset();
        assert!(matches!(book.phase(&web()), Phase::Desired(_)));
        assert_eq!(book.list_complete(), [web()]);
        assert_eq!(book.phase(&web()), Phase::Gone(false));
    }

    #[test]
    fn an_odd_record_holds_its_release() {
        let mut book = Book::default();
        book.put(sight(1, "deployed"));
        book.put(sight(2, "nonsense"));
        assert!(matches!(book.phase(&web()), Phase::Held { reason: "RecordInvalid", .. }));
    }
}
