//! The only place wall time comes from.
//!
//! Durations and deadlines use `tokio::time::Instant`, so that tests can pause them. Wall time is for what people read and for
//! comparing with times a server wrote down.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// Tells the wall time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The current time, UTC.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one clock everything else is pointed at")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that moves only when told to, for tests and replays.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// A clock that stands at `at`.
    pub fn new(at: Timestamp) -> Self {
        Self(Mutex::new(at))
    }

    /// Puts the clock to `at`, forwards or back.
    pub fn set(&self, at: Timestamp) {
        *self.0.lock() = at;
    }

    /// Moves the clock by `by`; stops at the ends of the calendar.
    pub fn advance(&self, by: SignedDuration) {
        let mut at = self.0.lock();
        let end = if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
        *at = at.checked_add(by).unwrap_or(end);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);
        clock.advance(SignedDuration::from_secs(90));
        assert_eq!(clock.now().as_second(), 90);
        clock.advance(SignedDuration::from_secs(-100));
        assert_eq!(clock.now().as_second(), -10);
        clock.advance(SignedDuration::MAX);
        assert_eq!(clock.now(), Timestamp::MAX);
    }
}
