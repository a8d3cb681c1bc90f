//! Namespaces in which nothing can be created for now: one answer of the server suspends creations there (design §3.10). Pure: told the
//! time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use holdfast_api::report::Reason;
use tokio::time::Instant;

use super::loads::doubling;

/// First wait before a namespace is tried again that cannot be seen; doubles up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// Longest wait.
const LAST_WAIT: Duration = Duration::from_hours(1);

/// The suspended namespaces of one cluster.
#[derive(Debug, Default)]
pub struct Suspensions {
    held: BTreeMap<Box<str>, Suspension>,
    /// Suspended namespaces that the list under way has shown.
    listed: Option<BTreeSet<Box<str>>>,
}

#[derive(Clone, Copy, Debug)]
struct Suspension {
    reason: Reason,
    until: Until,
    /// Waits that were in vain.
    tries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// It was seen to be so, and will be seen to change.
    Seen,
    /// Only an answer told: worth another try then.
    At(Instant),
    /// Being tried again.
    Lapsed,
}

impl Suspensions {
    /// A creation was refused because the namespace is missing or being deleted. Answers whether that is news.
    pub fn suspend(&mut self, namespace: &str, reason: Reason, now: Instant) -> bool {
        let before = self.held.get(namespace);
        if before.is_some_and(|held| held.until != Until::Lapsed) {
            return false;
        }
        let tries = before.map_or(0, |held| held.tries.saturating_add(1));
        let until = Until::At(now + doubling(FIRST_WAIT, tries, LAST_WAIT));
        self.held.insert(namespace.into(), Suspension { reason, until, tries });
        true
    }

    /// Why nothing can be created in a namespace.
    pub fn reason(&self, namespace: &str) -> Option<Reason> {
        self.held.get(namespace).filter(|held| held.until != Until::Lapsed).map(|held| held.reason)
    }

    /// A creation succeeded.
    pub fn end(&mut self, namespace: &str) {
        self.held.remove(namespace);
    }

    /// A list of the namespaces begins.
    pub fn list_begins(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    /// A namespace was seen. Answers whether what is said about its objects changes.
    pub fn saw(&mut self, namespace: &str, is_leaving: bool) -> bool {
        if let Some(listed) = self.listed.as_mut().filter(|_| self.held.contains_key(namespace)) {
            listed.insert(namespace.into());
        }
        if is_leaving { self.is(namespace, Reason::NamespaceTerminating) } else { self.held.remove(namespace).is_some() }
    }

    /// A namespace is gone. Answers whether what is said about its objects changes.
    pub fn gone(&mut self, namespace: &str) -> bool {
        self.is(namespace, Reason::NamespaceMissing)
    }

    /// The list is complete: answers with suspended namespaces that turned out not to exist.
    pub fn list_ends(&mut self) -> Vec<Box<str>> {
        let Some(listed) = self.listed.take() else { return Vec::new() };
        let absent: Vec<Box<str>> = self.held.keys().filter(|namespace| !listed.contains(*namespace)).cloned().collect();
        absent.into_iter().filter(|namespace| self.gone(namespace)).collect()
    }

    fn is(&mut self, namespace: &str, reason: Reason) -> bool {
        let Some(held) = self.held.get_mut(namespace) else { return false };
        let is_news = held.reason != reason;
        (held.reason, held.until) = (reason, Until::Seen);
        is_news
    }

    /// Namespaces that are worth another try.
    pub fn lapse(&mut self, now: Instant) -> Vec<Box<str>> {
        let is_over = |held: &Suspension| matches!(held.until, Until::At(at) if at <= now);
        let over = self.held.iter_mut().filter(|(_, held)| is_over(held));
        over.map(|(namespace, held)| {
            held.until = Until::Lapsed;
            namespace.clone()
        })
        .collect()
    }

    /// When the next wait ends.
    pub fn next(&self) -> Option<Instant> {
        let times = self.held.values().filter_map(|held| if let Until::At(at) = held.until { Some(at) } else { None });
        times.min()
    }

    /// Whether there is nothing to look out for.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOING: Reason = Reason::NamespaceTerminating;
    const GONE: Reason = Reason::NamespaceMissing;

    #[tokio::test(start_paused = true)]
    async fn one_answer_suspends_and_what_is_seen_says_until_when() {
        let (mut suspensions, now) = (Suspensions::default(), Instant::now());
        assert!(suspensions.suspend("a", GOING, now) && !suspensions.suspend("a", GOING, now), "one answer is enough");
        assert_eq!((suspensions.reason("a"), suspensions.reason("b")), (Some(GOING), None));
        assert!(!suspensions.saw("a", true), "no news");
        assert_eq!(suspensions.next(), None, "seen, so there is nothing to try");
        assert!(suspensions.gone("a") && suspensions.reason("a") == Some(GONE));
        assert!(suspensions.saw("a", false) && suspensions.reason("a").is_none() && suspensions.is_empty());
        assert!(!suspensions.saw("b", true) && suspensions.is_empty(), "nobody was refused there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_shows_which_are_gone() {
        let (mut suspensions, now) = (Suspensions::default(), Instant::now());
        for namespace in ["gone", "going", "back"] {
            suspensions.suspend(namespace, GOING, now);
        }
        assert!(suspensions.list_ends().is_empty(), "no list began");
        suspensions.list_begins();
        suspensions.saw("going", true);
        suspensions.saw("back", false);
        suspensions.saw("stranger", false);
        assert_eq!(suspensions.list_ends(), ["gone".into()]);
        assert_eq!(["gone", "going", "back"].map(|namespace| suspensions.reason(namespace)), [Some(GONE), Some(GOING), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_seen_is_tried_again_less_and_less() {
        let (mut suspensions, mut now) = (Suspensions::default(), Instant::now());
        for wait in [30, 60, 120] {
            assert!(suspensions.suspend("a", GONE, now));
            assert!(suspensions.lapse(now).is_empty());
            now += Duration::from_secs(wait);
            assert_eq!(suspensions.next(), Some(now));
            assert_eq!(suspensions.lapse(now), ["a".into()]);
            assert_eq!((suspensions.reason("a"), suspensions.next()), (None, None), "creations may try");
        }
        suspensions.end("a");
        suspensions.suspend("a", GONE, now);
        assert_eq!(suspensions.next(), Some(now + FIRST_WAIT), "a success forgets what was in vain");
    }
}
