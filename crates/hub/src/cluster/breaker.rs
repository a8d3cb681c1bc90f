//! Whether a cluster can be talked to, and whether it still is the cluster that everything known is about: its circuit breaker. Pure: told
//! the time.
//!
//! A call that fails says little about the cluster, since one kind may hang while everything else answers. It raises a doubt, and the
//! smallest question there is settles it: who are you? While the breaker is open, that question is all that is sent.
//!
//! Behind the address of a connection that broke there can be another cluster afterwards: rebuilt with the same certificates, or restored
//! elsewhere. From the break on nothing is judged and nothing written before the question was answered.

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
    /// Number of the last question: what answers an earlier one says nothing.
    question: u64,
    /// The connection broke, and who answers was not asked since.
    unproven: bool,
    /// It broke since the question under way was sent: the answer may be from before.
    broke_again: bool,
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
        Self { open: None, ask_at: None, asking: false, question: 0, unproven: false, broke_again: false, settled: None, backoff }
    }

    /// A call failed in a way that may be the cluster's.
    pub fn doubt(&mut self, now: Instant) {
        if self.open.is_none() && !self.asking && self.ask_at.is_none() {
            self.ask_at = Some(self.settled.map_or(now, |settled| now.max(settled + SETTLED_FOR)));
        }
    }

    /// The connection broke. Answers whether it was sound before: what was decided on until now may be about another cluster.
    pub fn broke(&mut self, now: Instant) -> bool {
        self.broke_again |= self.asking;
        if self.open.is_none() && !self.asking {
            self.ask_at = Some(now);
        }
        !std::mem::replace(&mut self.unproven, true)
    }

    /// Other credentials were just seen to lead to the same cluster: the connection is another one, and sound. Answers whether the breaker
    /// was open.
    pub fn renewed(&mut self, now: Instant) -> bool {
        self.ask_at = None;
        self.broke_again = false;
        // What was asked over the old connection is answered by this.
        self.question += 1;
        self.settled(now)
    }

    /// Something changed that may help, such as the credentials: an open breaker asks at once.
    pub fn hasten(&mut self, now: Instant) {
        if let Some(at) = self.ask_at.as_mut().filter(|_| self.open.is_some()) {
            *at = now.min(*at);
        }
    }

    /// The number of the question to send now; it is under way from then on.
    pub fn ask(&mut self, now: Instant) -> Option<u64> {
        let is_due = !self.asking && self.ask_at.take_if(|at| *at <= now).is_some();
        if is_due {
            self.asking = true;
            self.broke_again = false;
            self.question += 1;
        }
        is_due.then_some(self.question)
    }

    /// The question was answered. Answers whether the breaker was open.
    pub fn settled(&mut self, now: Instant) -> bool {
        self.asking = false;
        if std::mem::take(&mut self.broke_again) {
            self.ask_at = Some(now);
            return false;
        }
        self.unproven = false;
        self.settled = Some(now);
        self.close(now)
    }

    /// Some other call was answered: whatever is wrong, somebody answers, and it can be asked who. Answers whether the breaker was open and
    /// is no more.
    pub fn close(&mut self, now: Instant) -> bool {
        if self.unproven {
            self.hasten(now);
            return false;
        }
        let was_open = self.open.take().is_some();
        if was_open {
            self.ask_at = None;
        }
        was_open
    }

    /// The question was not answered, `hint` being the time the server asked for. Answers whether that is news.
    pub fn failed(&mut self, reason: &'static str, hint: Option<Duration>, now: Instant) -> bool {
        self.asking = false;
        self.broke_again = false;
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
        self.open.is_some() || self.asking || self.unproven
    }

    /// Whether this is the question whose answer counts.
    pub const fn awaits(&self, question: u64) -> bool {
        self.asking && question == self.question
    }

    /// Whether nobody knows who answers.
    pub const fn is_unproven(&self) -> bool {
        self.unproven
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
        assert!(breaker.ask(now).is_none() && !breaker.holds());
        breaker.doubt(now);
        breaker.doubt(now);
        assert!(!breaker.holds() && breaker.ask(now).is_some() && breaker.ask(now).is_none(), "one question at a time");
        breaker.doubt(now);
        assert!(breaker.holds() && breaker.open().is_none() && breaker.next().is_none());
        assert!(!breaker.settled(now) && !breaker.holds());
        breaker.doubt(now);
        assert_eq!(breaker.next(), Some(now + SETTLED_FOR), "a kind that keeps failing asks no storm of questions");
        assert!(!breaker.holds() && breaker.ask(now).is_none() && breaker.ask(now + SETTLED_FOR).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_asks_with_growing_pauses_until_something_answers() {
        let (mut breaker, mut now) = (breaker(), Instant::now());
        breaker.doubt(now);
        assert!(breaker.ask(now).is_some() && breaker.failed("Timeout", None, now), "open");
        let mut waits = Vec::new();
        for _ in 0..12 {
            let at = breaker.next().unwrap();
            breaker.doubt(now);
            assert_eq!(breaker.next(), Some(at), "no further failure hastens it");
            waits.push(at - now);
            now = at;
            assert!(breaker.ask(now).is_some() && !breaker.failed("Timeout", None, now));
        }
        assert!(waits.iter().all(|wait| *wait >= Duration::from_millis(100) && *wait <= BackoffPolicy::CLUSTER.cap()), "{waits:?}");
        assert!(waits[..3].iter().max() < waits[6..].iter().max() && waits[6..].iter().max() > Some(&Duration::from_secs(8)), "{waits:?}");
        breaker.hasten(now);
        assert!(breaker.ask(now).is_some() && breaker.failed("Unauthorized", None, now), "another reason is news");
        assert!(breaker.close(now) && !breaker.holds() && breaker.next().is_none(), "any answer will do");
        assert!(!breaker.close(now));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_break_only_the_answer_to_the_question_counts() {
        let (mut breaker, now) = (breaker(), Instant::now());
        breaker.doubt(now);
        assert!(breaker.ask(now).is_some() && !breaker.settled(now));
        assert!(breaker.broke(now) && !breaker.broke(now) && breaker.holds(), "asked at once, whatever was settled a moment ago");
        assert!(!breaker.close(now) && breaker.holds(), "somebody answers; who?");
        assert!(breaker.ask(now).is_some());
        breaker.broke(now);
        assert!(!breaker.settled(now) && breaker.holds() && breaker.ask(now).is_some(), "the answer was from before the last break");
        assert!(breaker.failed("Unreachable", None, now) && breaker.holds());
        assert!(
            !breaker.close(now) && breaker.ask(now).is_some() && breaker.settled(now) && !breaker.holds(),
            "asked early, since somebody answers"
        );
        breaker.broke(now);
        let old = breaker.ask(now).unwrap();
        assert!(breaker.awaits(old) && !breaker.renewed(now) && !breaker.holds() && breaker.next().is_none());
        assert!(!breaker.awaits(old), "what was asked over the old connection says nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_for_time_gets_it() {
        let (mut breaker, now) = (breaker(), Instant::now());
        breaker.doubt(now);
        assert!(breaker.ask(now).is_some() && breaker.failed("Throttled", Some(Duration::from_secs(30)), now));
        assert!(breaker.next() > Some(now + Duration::from_secs(30)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_comes_and_goes_is_asked_less_and_less() {
        let (mut breaker, mut now) = (breaker(), Instant::now());
        let mut open_for = |calm: Duration| {
            now += calm;
            breaker.doubt(now);
            now = breaker.next().unwrap();
            assert!(breaker.ask(now).is_some() && breaker.failed("Timeout", None, now));
            let wait = breaker.next().unwrap() - now;
            now += wait;
            assert!(breaker.ask(now).is_some() && breaker.settled(now));
            wait
        };
        let flapping = (0..10).map(|_| open_for(Duration::from_secs(1))).max().unwrap();
        assert!(flapping > Duration::from_secs(5), "{flapping:?}");
        assert!(open_for(Duration::from_mins(3)) <= Duration::from_millis(800), "after a calm while it starts anew");
    }
}
