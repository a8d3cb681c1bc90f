//! How long this process may write.
//!
//! Of several hubs one writes at a time: the one that holds a Lease. A hub that was stopped or cut off for longer than the Lease lasts
//! cannot know that another one took over, so a term ends by itself, on this machine's clocks, before anybody else may take the Lease.
//! Whoever writes asks [`Term::holds`] right before the request goes out.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock::Clock;

/// Leave to write, until some moment. Cheap to clone; all clones are the same term.
#[derive(Clone)]
pub struct Term {
    /// `None` for a process that needs nobody's leave.
    bounded: Option<Arc<Bounded>>,
}

struct Bounded {
    clock: Arc<dyn Clock>,
    limit: Mutex<Limit>,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Not begun.
    Open,
    /// For `length` from a moment, which is known on both clocks.
    For { length: Duration, instant: Instant, wall: Timestamp },
    /// Over for good.
    Over,
}

/// The moment from which a term is extended. To be taken before the request is sent that extends the Lease: others count from later.
#[derive(Clone, Copy, Debug)]
pub struct Since {
    instant: Instant,
    wall: Timestamp,
}

impl Term {
    /// The term of a process that is the only one.
    pub const fn unlimited() -> Self {
        Self { bounded: None }
    }

    /// A term that begins with its first extension.
    pub fn bounded(clock: Arc<dyn Clock>) -> Self {
        Self { bounded: Some(Arc::new(Bounded { clock, limit: Mutex::new(Limit::Open) })) }
    }

    /// Now, by the clocks that a term is measured with.
    pub fn since(clock: &dyn Clock) -> Since {
        Since { instant: Instant::now(), wall: clock.now() }
    }

    /// Whether a write may be sent now.
    ///
    /// The monotonic clock runs on while a process is stopped, but stands still while the whole machine sleeps; wall time is right again
    /// after that. So the term is over when it is over on one of them. Somebody who sets the wall clock forward costs a hub its term until
    /// the next extension, a few seconds later; one who sets it back gains nothing.
    pub fn holds(&self) -> bool {
        let Some(bounded) = &self.bounded else { return true };
        let Limit::For { length, instant, wall } = *bounded.limit.lock() else { return false };
        let on_wall = Duration::try_from(bounded.clock.now().duration_since(wall)).unwrap_or_default();
        instant.elapsed() < length && on_wall < length
    }

    /// Lets the term last for `length` from `since`. One that was ended stays over.
    pub fn extend(&self, since: Since, length: Duration) {
        if let Some(bounded) = &self.bounded {
            let mut limit = bounded.limit.lock();
            if !matches!(*limit, Limit::Over) {
                *limit = Limit::For { length, instant: since.instant, wall: since.wall };
            }
        }
    }

    /// Ends the term for good.
    pub fn end(&self) {
        if let Some(bounded) = &self.bounded {
            *bounded.limit.lock() = Limit::Over;
        }
    }

    /// Whether it was ended for good.
    pub fn is_over(&self) -> bool {
        self.bounded.as_ref().is_some_and(|bounded| matches!(*bounded.limit.lock(), Limit::Over))
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.bounded.as_ref().map(|bounded| *bounded.limit.lock());
        f.debug_struct("Term").field("limit", &limit).finish()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::clock::ManualClock;

    const LENGTH: Duration = Duration::from_secs(9);

    fn term() -> (Term, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
        (Term::bounded(Arc::clone(&clock) as Arc<dyn Clock>), clock)
    }

    async fn pass(clock: &ManualClock, seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        clock.advance(SignedDuration::from_secs(seconds.cast_signed()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_ends_by_itself_and_goes_on_when_extended() {
        let (term, clock) = term();
        assert!(!term.holds(), "not begun");
        let asked = Term::since(clock.as_ref());
        pass(&clock, 3).await;
        term.extend(asked, LENGTH);
        pass(&clock, 5).await;
        assert!(term.holds(), "eight seconds after it was asked for");
        pass(&clock, 1).await;
        assert!(!term.holds() && !term.is_over(), "counted from the question, not from the answer");
        term.extend(Term::since(clock.as_ref()), LENGTH);
        assert!(term.clone().holds());
        term.end();
        term.extend(Term::since(clock.as_ref()), LENGTH);
        assert!(term.is_over() && !term.holds(), "over is over");
        assert!(Term::unlimited().holds());
    }

    #[tokio::test(start_paused = true)]
    async fn either_clock_ends_a_term() {
        let (term, clock) = term();
        term.extend(Term::since(clock.as_ref()), LENGTH);
        clock.advance(SignedDuration::from_hours(-1));
        assert!(term.holds(), "a clock set back lengthens and shortens nothing");
        tokio::time::advance(LENGTH).await;
        assert!(!term.holds(), "the process was stopped");
        term.extend(Term::since(clock.as_ref()), LENGTH);
        clock.advance(SignedDuration::from_secs(10));
        assert!(!term.holds(), "the machine slept");
    }
}
