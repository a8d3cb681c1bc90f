//! Whether a cluster can be talked to: its circuit breaker. Pure: told the time.
//!
//! A call that fails says little about the cluster, since one kind may hang while everything else answers. It raises a doubt, and the
//! smallest question there is settles it. While the breaker is open, that question is all that is sent.

use std::time::Duration;

use holdfast_fleet::backoff::{Backoff, BackoffPolicy};
use tokio::time::Instant;

/// What was just settled is not asked again for this long, however many calls fail.
const SETTLED_FOR: Duration = Duration::from_secs(5);

/// The breaker of one cluster.
#[derive(Debug)]
pub struct Breaker {
    open: Option<&'static str>,
    /// When to ask; `None` where nothing is in doubt, or while the question is under way.
    ask_at: Option<Instant>,
    asking: bool,
    /// When the cluster last answered the question.
    settled: Option<Instant>,
    backoff: Backoff,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new(Backoff::new(BackoffPolicy::CLUSTER))
    }
}

impl Breaker {
    /// A closed breaker that waits by `backoff` between questions once it is open.
    fn new(backoff: Backoff) -> Self {
        Self { open: None, ask_at: None, asking: false, settled: None, backoff }
    }

    /// A call failed in a way that may be the cluster's.
    pub fn doubt(&mut self, now: Instant) {
        if self.open.is_none() && !self.asking && self.ask_at.is_none() {
            self.ask_at = Some(self.settled.map_or(now, |settled| now.max(settled + SETTLED_FOR)));
        }
    }

    /// Something changed that may help, such as the credentials: an open breaker asks at once.
    pub fn hasten(&mut self, now: Instant) {
        if let Some(at) = self.ask_at.as_mut().filter(|_| self.open.is_some()) {
            *at = now.min(*at);
        }
    }

    /// Whether the question is to be sent now; it is under way from then on.
    pub fn ask(&mut self, now: Instant) -> bool {
        let is_due = self.ask_at.take_if(|at| *at <= now).is_some();
        self.asking |= is_due;
        is_due
    }

    /// The question was answered. Answers whether the breaker was open.
    pub fn settled(&mut self, now: Instant) -> bool {
        self.asking = false;
        self.settled = Some(now);
        self.close()
    }

    /// Some other call was answered: whatever is wrong, the cluster answers. Answers whether the breaker was open.
    pub fn close(&mut self) -> bool {
        let was_open = self.open.take().is_some();
        if was_open {
            self.ask_at = None;
        }
        was_open
    }

    /// The question was not answered, `hint` being the time the server asked for. Answers whether that is news.
    pub fn failed(&mut self, reason: &'static str, hint: Option<Duration>, now: Instant) -> bool {
        self.asking = false;
        if let (None, Some(settled)) = (self.open, self.settled) {
            self.backoff.was_calm_for(now.saturating_duration_since(settled));
        }
        let delay = match hint {
            Some(hint) => self.backoff.next_delay_after(hint),
            None => self.backoff.next_delay(),
        };
        self.ask_at = Some(now + delay);
        self.open.replace(reason) != Some(reason)
    }

    /// Why the cluster cannot be talked to.
    pub const fn open(&self) -> Option<&'static str> {
        self.open
    }

    /// Whether other calls wait: for the cluster, or for an answer that is a moment away.
    pub const fn holds(&self) -> bool {
        self.open.is_some() || self.asking
    }

    /// When the next question is due.
    pub const fn next(&self) -> Option<Instant> {
        self.ask_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(Backoff::seeded(BackoffPolicy::CLUSTER, 7))
    }

    #[tokio::test(start_paused = true)]
    async fn one_failed_call_is_a_question_and_no_verdict() {
        let (mut breaker, now) = (breaker(), Instant::now());
        assert!(!breaker.ask(now) && !breaker.holds());
        breaker.doubt(now);
        breaker.doubt(now);
        assert!(!breaker.holds() && breaker.ask(now) && !breaker.ask(now), "one question at a time");
        breaker.doubt(now);
        assert!(breaker.holds() && breaker.open().is_none() && breaker.next().is_none());
        assert!(!breaker.settled(now) && !breaker.holds());
        breaker.doubt(now);
        assert_eq!(breaker.next(), Some(now + SETTLED_FOR), "a kind that keeps failing asks no storm of questions");
        assert!(!breaker.holds() && !breaker.ask(now) && breaker.ask(now + SETTLED_FOR));
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_asks_with_growing_pauses_until_something_answers() {
        let (mut breaker, mut now) = (breaker(), Instant::now());
        breaker.doubt(now);
        assert!(breaker.ask(now) && breaker.failed("Timeout", None, now), "open");
        let mut waits = Vec::new();
        for _ in 0..12 {
            let at = breaker.next().unwrap();
            breaker.doubt(now);
            assert_eq!(breaker.next(), Some(at), "no further failure hastens it");
            waits.push(at - now);
            now = at;
            assert!(breaker.ask(now) && !breaker.failed("Timeout", None, now));
        }
        assert!(waits.iter().all(|wait| *wait >= Duration::from_millis(100) && *wait <= BackoffPolicy::CLUSTER.cap()), "{waits:?}");
        assert!(waits[..3].iter().max() < waits[6..].iter().max() && waits[6..].iter().max() > Some(&Duration::from_secs(8)), "{waits:?}");
        breaker.hasten(now);
        assert!(breaker.ask(now) && breaker.failed("Unauthorized", None, now), "another reason is news");
        assert!(breaker.close() && !breaker.holds() && breaker.next().is_none(), "any answer will do");
        assert!(!breaker.close());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_for_time_gets_it() {
        let (mut breaker, now) = (breaker(), Instant::now());
        breaker.doubt(now);
        assert!(breaker.ask(now) && breaker.failed("Throttled", Some(Duration::from_secs(30)), now));
        assert!(breaker.next() > Some(now + Duration::from_secs(30)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_comes_and_goes_is_asked_less_and_less() {
        let (mut breaker, mut now) = (breaker(), Instant::now());
        let mut open_for = |calm: Duration| {
            now += calm;
            breaker.doubt(now);
            now = breaker.next().unwrap();
            assert!(breaker.ask(now) && breaker.failed("Timeout", None, now));
            let wait = breaker.next().unwrap() - now;
            now += wait;
            assert!(breaker.ask(now) && breaker.settled(now));
            wait
        };
        let flapping = (0..10).map(|_| open_for(Duration::from_secs(1))).max().unwrap();
        assert!(flapping > Duration::from_secs(5), "{flapping:?}");
        assert!(open_for(Duration::from_mins(3)) <= Duration::from_millis(800), "after a calm while it starts anew");
    }
}
