//! Which release records are to be read, are being read, and wait after a failure. Pure: told the time.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use holdfast_helm::RecordMeta;
use tokio::time::Instant;

use super::records::ReleaseName;

/// First wait after a record could not be read; doubles up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait.
const LAST_WAIT: Duration = Duration::from_mins(5);
/// Records of one release that can be in force: two of each store.
const IN_FORCE: usize = 4;

/// The loads of one cluster.
#[derive(Debug, Default)]
pub struct Loads {
    wanted: BTreeSet<ReleaseName>,
    running: BTreeSet<ReleaseName>,
    waiting: BTreeMap<ReleaseName, Instant>,
    /// Failures in a row.
    failures: BTreeMap<ReleaseName, u32>,
    /// Records that cannot be used, whoever reads them again: UID and resource version, as many as a release has in force at most.
    refused: BTreeMap<ReleaseName, VecDeque<(String, String)>>,
}

impl Loads {
    /// The record of a release is to be read now, a wait notwithstanding. Answers whether that is news.
    pub fn want(&mut self, release: &ReleaseName) -> bool {
        if self.running.contains(release) {
            return false;
        }
        self.waiting.remove(release);
        self.wanted.insert(release.clone())
    }

    /// There is nothing to read for a release.
    pub fn unwant(&mut self, release: &ReleaseName) {
        self.wanted.remove(release);
        self.waiting.remove(release);
        self.failures.remove(release);
    }

    /// The next release whose record is to be read, while fewer than `most` are being read. It is running until [`Loads::ended`].
    pub fn start(&mut self, now: Instant, most: usize) -> Option<ReleaseName> {
        if self.running.len() >= most {
            return None;
        }
        let over = self.waiting.iter().find(|(_, at)| **at <= now).map(|(release, _)| release.clone());
        let release = self.wanted.pop_first().or(over)?;
        self.waiting.remove(&release);
        self.running.insert(release.clone());
        Some(release)
    }

    /// A load has ended.
    pub fn ended(&mut self, release: &ReleaseName) {
        self.running.remove(release);
    }

    /// The record was read.
    pub fn succeeded(&mut self, release: &ReleaseName) {
        self.failures.remove(release);
    }

    /// The record could not be read: again after a wait. Answers whether it is the first failure in a row.
    pub fn failed(&mut self, release: &ReleaseName, now: Instant) -> bool {
        let failures = self.failures.entry(release.clone()).or_default();
        self.waiting.insert(release.clone(), now + doubling(FIRST_WAIT, *failures, LAST_WAIT));
        *failures = failures.saturating_add(1);
        *failures == 1
    }

    /// Ends every wait after a failure.
    pub fn retry_now(&mut self, now: Instant) {
        for at in self.waiting.values_mut() {
            *at = now.min(*at);
        }
    }

    /// The record was read and cannot be used.
    pub fn refuse(&mut self, release: &ReleaseName, meta: &RecordMeta) {
        self.failures.remove(release);
        let refused = self.refused.entry(release.clone()).or_default();
        refused.retain(|(uid, _)| *uid != meta.uid);
        if refused.len() == IN_FORCE {
            refused.pop_front();
        }
        refused.push_back((meta.uid.clone(), meta.resource_version.clone()));
    }

    /// Whether this very record was read and cannot be used.
    pub fn is_refused(&self, release: &ReleaseName, meta: &RecordMeta) -> bool {
        self.refused.get(release).into_iter().flatten().any(|(uid, at)| *uid == meta.uid && *at == meta.resource_version)
    }

    /// Forgets a release that is gone.
    pub fn forget(&mut self, release: &ReleaseName) {
        self.unwant(release);
        self.refused.remove(release);
    }

    /// Whether judgements wait for a record. They do not wait for one that already failed: it may fail for ever.
    pub fn hold_judgements(&self) -> bool {
        self.wanted.iter().chain(&self.running).any(|release| !self.failures.contains_key(release))
    }

    /// Whether every record was read, so that every claim on an object is known.
    pub fn is_settled(&self) -> bool {
        self.wanted.is_empty() && self.running.is_empty() && self.waiting.is_empty()
    }

    /// When the next wait ends, while fewer than `most` are being read.
    pub fn next(&self, most: usize) -> Option<Instant> {
        if self.running.len() < most { self.waiting.values().min().copied() } else { None }
    }
}

/// `first`, doubled for each earlier try, at most `last`.
pub fn doubling(first: Duration, tries: u32, last: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(tries)).min(last)
}

#[cfg(test)]
mod tests {
    use holdfast_helm::{Status, Store};

    use super::*;

    fn web() -> ReleaseName {
        ReleaseName { namespace: "t".into(), name: "web".into() }
    }

    fn meta(resource_version: &str) -> RecordMeta {
        RecordMeta {
            store: Store::Secrets,
            stored_name: "v1".into(),
            name: "web".into(),
            namespace: "t".into(),
            version: 1,
            status: Status::Deployed,
            uid: "u".into(),
            resource_version: resource_version.into(),
            created: None,
            modified: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_cannot_be_read_is_read_again_and_holds_up_nobody() {
        let (mut loads, now) = (Loads::default(), Instant::now());
        assert!(loads.want(&web()) && !loads.want(&web()));
        assert!(loads.hold_judgements() && !loads.is_settled());
        for (number, wait) in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].into_iter().enumerate() {
            assert_eq!(loads.start(now + Duration::from_hours(1), 4), Some(web()));
            assert_eq!(loads.start(now, 4), None, "one read at a time");
            assert_eq!(loads.hold_judgements(), number == 0, "only the first try holds judgements up");
            loads.ended(&web());
            assert_eq!(loads.failed(&web(), now), number == 0);
            assert!(!loads.hold_judgements() && !loads.is_settled(), "its claims are not known");
            assert_eq!(loads.next(4), Some(now + Duration::from_secs(wait)));
            assert_eq!(loads.start(now, 4), None, "not before its time");
        }
        loads.retry_now(now);
        assert_eq!(loads.start(now, 4), Some(web()), "the cluster answers again");
        loads.ended(&web());
        loads.failed(&web(), now);
        assert!(loads.want(&web()), "news ends the wait");
        assert_eq!(loads.start(now, 4), Some(web()));
        loads.ended(&web());
        loads.succeeded(&web());
        assert!(loads.is_settled() && loads.next(4).is_none());
    }

    #[test]
    fn only_the_very_record_is_refused() {
        let mut loads = Loads::default();
        loads.refuse(&web(), &meta("1"));
        assert!(loads.is_refused(&web(), &meta("1")) && loads.is_settled());
        assert!(!loads.is_refused(&web(), &meta("2")), "somebody mended it in place");
        for number in 0..IN_FORCE {
            assert!(loads.is_refused(&web(), &meta("1")), "others beside it");
            loads.refuse(&web(), &RecordMeta { uid: format!("u{number}"), ..meta("1") });
        }
        assert!(!loads.is_refused(&web(), &meta("1")), "only as many as can count");
        loads.refuse(&web(), &meta("1"));
        loads.forget(&web());
        assert!(!loads.is_refused(&web(), &meta("1")));
    }
}
