//! How fast a source is corrected: a token bucket. Pure: told the time.

use std::time::Duration;

/// A bucket that holds as many tokens as come in a minute. Times are counted from any moment that stays the same.
///
/// It remembers one time only, the one at which it is full again, so nothing has to fill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    per_minute: u32,
    full_at: Duration,
}

impl TokenBucket {
    /// A full bucket of this many tokens a minute, one at least.
    pub const fn new(per_minute: u32) -> Self {
        Self { per_minute: if per_minute == 0 { 1 } else { per_minute }, full_at: Duration::ZERO }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Duration) -> bool {
        let is_there = self.next() <= now;
        if is_there {
            self.full_at = self.full_at.max(now).saturating_add(self.one());
        }
        is_there
    }

    /// Gives a token back that was not used.
    pub fn give_back(&mut self) {
        self.full_at = self.full_at.saturating_sub(self.one());
    }

    /// The earliest time at which there is a token.
    pub fn next(&self) -> Duration {
        self.full_at.saturating_add(self.one()).saturating_sub(self.one().saturating_mul(self.per_minute))
    }

    /// How many tokens there are.
    pub fn available(&self, now: Duration) -> u32 {
        let missing = self.full_at.saturating_sub(now).as_nanos().div_ceil(self.one().as_nanos().max(1));
        self.per_minute.saturating_sub(u32::try_from(missing).unwrap_or(u32::MAX))
    }

    /// Another rate from now on: as many tokens as were out are out still.
    pub fn set_rate(&mut self, per_minute: u32, now: Duration) {
        if per_minute == self.per_minute {
            return;
        }
        let out = self.per_minute.saturating_sub(self.available(now));
        *self = Self::new(per_minute);
        self.full_at = now.saturating_add(self.one().saturating_mul(out));
    }

    /// How long one token takes to come.
    fn one(&self) -> Duration {
        Duration::from_mins(1) / self.per_minute
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn as_many_a_minute_as_it_says_whatever_the_rhythm() {
        for per_minute in [1, 2, 60, 6000] {
            for start in [seconds(0), seconds(1000)] {
                let mut bucket = TokenBucket::new(per_minute);
                let taken = |bucket: &mut TokenBucket, now| std::iter::from_fn(|| bucket.take(now).then_some(())).count();
                assert_eq!(taken(&mut bucket, start), per_minute as usize, "a burst of {per_minute}");
                assert_eq!(bucket.available(start), 0);
                let mut after = 0;
                for second in 1..=60 {
                    after += taken(&mut bucket, start + seconds(second));
                }
                assert_eq!(after, per_minute as usize, "a minute at {per_minute}");
            }
        }
    }

    #[test]
    fn it_tells_when_there_is_one_again() {
        let mut bucket = TokenBucket::new(2);
        assert!(bucket.take(seconds(100)) && bucket.take(seconds(100)));
        assert_eq!((bucket.next(), bucket.available(seconds(129))), (seconds(130), 0));
        assert!(!bucket.take(seconds(129)) && bucket.take(seconds(130)) && !bucket.take(seconds(131)));
    }

    #[test]
    fn one_that_was_not_used_is_there_again() {
        let mut bucket = TokenBucket::new(1);
        assert!(bucket.take(seconds(5)) && !bucket.take(seconds(6)));
        bucket.give_back();
        assert!(bucket.take(seconds(7)) && !bucket.take(seconds(8)));
    }

    #[test]
    fn another_rate_forgives_nothing() {
        let mut bucket = TokenBucket::new(4);
        for _ in 0..4 {
            assert!(bucket.take(seconds(10)));
        }
        bucket.set_rate(6, seconds(10));
        assert_eq!(bucket.available(seconds(10)), 2);
        bucket.set_rate(2, seconds(10));
        assert_eq!(bucket.available(seconds(10)), 0);
        assert!(!bucket.take(seconds(69)) && bucket.take(seconds(100)));
    }
}
