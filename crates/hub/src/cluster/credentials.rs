//! Which credentials a connection has, and which are being tried before it moves to them. Pure: told the time.

use std::{sync::Arc, time::Duration};

use holdfast_fleet::kubeconfig::{Fingerprint, Kubeconfig};
use tokio::time::Instant;

use super::loads::doubling;

/// First wait before credentials are tried again; doubles up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait.
const LAST_WAIT: Duration = Duration::from_mins(1);

/// The credentials of one connection. Other ones are the connection's only once they led to the same cluster.
#[derive(Debug)]
pub struct Credentials<K = Arc<Kubeconfig>, F = Fingerprint> {
    current: (K, F),
    /// The server refused the current ones, and whether there are newer ones was looked up.
    refused: bool,
    trial: Option<Trial<K, F>>,
    /// Number of the last probe: the end of an earlier one says nothing.
    probe: u64,
}

#[derive(Debug)]
struct Trial<K, F> {
    next: K,
    fingerprint: F,
    failures: u32,
    /// Why the last probe failed.
    failure: Option<&'static str>,
    /// When to probe; `None` while a probe is under way.
    at: Option<Instant>,
}

impl<K: Clone, F: Copy + PartialEq> Credentials<K, F> {
    /// The credentials that the connection was made with.
    pub const fn new(current: K, fingerprint: F) -> Self {
        Self { current: (current, fingerprint), refused: false, trial: None, probe: 0 }
    }

    /// The credentials in use.
    pub const fn current(&self) -> &K {
        &self.current.0
    }

    /// The server refuses the credentials in use. Answers whether to look for newer ones: once.
    pub const fn refused(&mut self) -> bool {
        !std::mem::replace(&mut self.refused, true)
    }

    /// Whether these are neither in use nor being tried. Where they are in use, what was tried instead no longer counts.
    pub fn is_news(&mut self, offered: F) -> bool {
        if offered == self.current.1 {
            self.trial = None;
            return false;
        }
        self.trial.as_ref().is_none_or(|trial| trial.fingerprint != offered)
    }

    /// The connection has these now.
    pub fn taken(&mut self, current: K, fingerprint: F) {
        self.current = (current, fingerprint);
        self.refused = false;
        self.trial = None;
    }

    /// These are to be tried, instead of any others.
    pub fn try_out(&mut self, next: K, fingerprint: F, now: Instant) {
        self.trial = Some(Trial { next, fingerprint, failures: 0, failure: None, at: Some(now) });
    }

    /// What to probe now, and the number of that probe.
    pub fn due(&mut self, now: Instant) -> Option<(u64, K)> {
        let trial = self.trial.as_mut()?;
        trial.at.take_if(|at| *at <= now)?;
        self.probe += 1;
        Some((self.probe, trial.next.clone()))
    }

    /// A probe led to the same cluster. Answers whether the connection is to move: not after an outdated probe.
    pub fn passed(&mut self, probe: u64) -> bool {
        let Some((next, fingerprint)) = self.trial_of(probe).map(|trial| (trial.next.clone(), trial.fingerprint)) else { return false };
        self.taken(next, fingerprint);
        true
    }

    /// A probe led nowhere: again after a wait. Answers whether that is news about these credentials.
    pub fn failed(&mut self, probe: u64, reason: &'static str, now: Instant) -> bool {
        let Some(trial) = self.trial_of(probe) else { return false };
        trial.at = Some(now + doubling(FIRST_WAIT, trial.failures, LAST_WAIT));
        trial.failures = trial.failures.saturating_add(1);
        trial.failure.replace(reason) != Some(reason)
    }

    /// Why the credentials that are being tried do not work, if they were seen not to.
    pub fn failure(&self) -> Option<&'static str> {
        self.trial.as_ref()?.failure
    }

    /// Whether a probe is the one that counts.
    pub fn is_current(&self, probe: u64) -> bool {
        self.probe == probe && self.trial.as_ref().is_some_and(|trial| trial.at.is_none())
    }

    fn trial_of(&mut self, probe: u64) -> Option<&mut Trial<K, F>> {
        if self.is_current(probe) { self.trial.as_mut() } else { None }
    }

    /// Whether credentials are being tried: where they lead is not known, so nothing may be written.
    pub const fn is_unresolved(&self) -> bool {
        self.trial.is_some()
    }

    /// When the next probe is due.
    pub fn next(&self) -> Option<Instant> {
        self.trial.as_ref()?.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn other_credentials_count_only_once_they_led_to_the_same_cluster() {
        let now = Instant::now();
        let mut credentials = Credentials::new("one", 1);
        assert!(!credentials.is_news(1) && credentials.is_news(2));
        credentials.try_out("two", 2, now);
        assert!(credentials.is_unresolved() && !credentials.is_news(2), "they are being tried already");
        let (first, next) = credentials.due(now).unwrap();
        assert_eq!((next, credentials.due(now)), ("two", None), "one probe at a time");
        assert!(credentials.failed(first, "Timeout", now));
        assert_eq!((credentials.failure(), *credentials.current()), (Some("Timeout"), "one"));
        assert_eq!(credentials.next(), Some(now + Duration::from_secs(1)));
        let mut at = now;
        for wait in [2, 4, 8, 16, 32, 60, 60] {
            at = credentials.next().unwrap();
            let (probe, _) = credentials.due(at).unwrap();
            assert!(!credentials.failed(probe, "Timeout", at));
            assert_eq!(credentials.next(), Some(at + Duration::from_secs(wait)));
        }
        let (last, _) = credentials.due(at + Duration::from_mins(1)).unwrap();
        assert!(!credentials.passed(first), "an earlier probe");
        assert!(credentials.refused() && !credentials.refused(), "looked up once");
        assert!(credentials.passed(last) && !credentials.is_unresolved() && !credentials.is_news(2));
        assert_eq!((credentials.failure(), *credentials.current()), (None, "two"));
        assert!(credentials.refused(), "these are others");
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_newest_probe_counts() {
        let now = Instant::now();
        let mut credentials = Credentials::new("one", 1);
        credentials.try_out("two", 2, now);
        let (two, _) = credentials.due(now).unwrap();
        assert!(credentials.is_news(3));
        credentials.try_out("three", 3, now);
        assert!(!credentials.passed(two) && !credentials.is_current(two));
        let (three, _) = credentials.due(now).unwrap();
        assert!(!credentials.passed(two));
        assert!(!credentials.is_news(1), "back to what is in use");
        assert!(!credentials.passed(three) && !credentials.is_unresolved());
    }
}
