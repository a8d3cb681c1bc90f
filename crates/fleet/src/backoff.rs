//! How long to wait after a failure: exponential, with jitter, bounded.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::SmallRng};

/// The longest ceiling a policy may have. Beyond it a recovered server would look dead to people.
const LONGEST: Duration = Duration::from_hours(1);

/// Why a [`BackoffPolicy`] was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBackoff {
    /// The first delay is zero: retries would be a tight loop.
    #[error("the first back-off delay must be longer than zero")]
    ZeroFirst,
    /// The ceiling is below the first delay, or above one hour.
    #[error("the back-off ceiling must lie between the first delay and one hour")]
    BadCap,
    /// The calm time is zero: every success would reset the back-off.
    #[error("the calm time that resets the back-off must be longer than zero")]
    ZeroCalm,
}

/// The numbers of a back-off; checked when made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    first: Duration,
    cap: Duration,
    calm: Duration,
}

impl BackoffPolicy {
    /// For watches and what is like them: 800 ms doubling to 60 s, back to the start after two calm minutes.
    pub const WATCH: Self = Self { first: Duration::from_millis(800), cap: Duration::from_mins(1), calm: Duration::from_mins(2) };

    /// For the one question a cluster is asked that does not answer: like [`Self::WATCH`], with pauses of half a minute at most, because
    /// the question is small and nothing else tells that the cluster is back.
    pub const CLUSTER: Self = Self { cap: Duration::from_secs(30), ..Self::WATCH };

    /// A policy whose delays start at up to `first`, double up to `cap`, and start anew after `calm` without a failure.
    pub fn new(first: Duration, cap: Duration, calm: Duration) -> Result<Self, BadBackoff> {
        if first.is_zero() {
            return Err(BadBackoff::ZeroFirst);
        }
        if cap < first || cap > LONGEST {
            return Err(BadBackoff::BadCap);
        }
        if calm.is_zero() {
            return Err(BadBackoff::ZeroCalm);
        }
        Ok(Self { first, cap, calm })
    }

    /// The ceiling of one delay.
    pub fn cap(&self) -> Duration {
        self.cap
    }

    /// The upper bound of the delay after `failures` earlier ones.
    fn ceiling(&self, failures: u32) -> Duration {
        // 2^20 times the shortest sensible delay is far above any cap already.
        self.first.saturating_mul(1 << failures.min(20)).min(self.cap)
    }
}

/// A running back-off.
///
/// Each delay is drawn evenly from a floor of an eighth of the first delay up to the ceiling: full jitter, so that many clients that
/// failed together do not return together, with a floor so that an unlucky run of draws is no tight loop.
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: BackoffPolicy,
    failures: u32,
    rng: SmallRng,
}

impl Backoff {
    /// A back-off with a random sequence of its own.
    pub fn new(policy: BackoffPolicy) -> Self {
        Self { policy, failures: 0, rng: SmallRng::from_rng(&mut rand::rng()) }
    }

    /// A back-off whose delays follow from `seed`, for tests and replays.
    pub fn seeded(policy: BackoffPolicy, seed: u64) -> Self {
        Self { policy, failures: 0, rng: SmallRng::seed_from_u64(seed) }
    }

    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let ceiling = self.policy.ceiling(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.rng.random_range(self.policy.first / 8..=ceiling)
    }

    /// The delay before the next attempt when the server asked for at least `hint` (Retry-After).
    ///
    /// The hint is clamped to the policy's ceiling, since a server must not be able to switch us off, and the usual delay is added to
    /// it, since everybody was told the same number. So the result is at most twice the ceiling.
    pub fn next_delay_after(&mut self, hint: Duration) -> Duration {
        hint.min(self.policy.cap) + self.next_delay()
    }

    /// Notes that things went well for `lasted` before they failed; long enough resets the delays.
    pub fn was_calm_for(&mut self, lasted: Duration) {
        if lasted >= self.policy.calm {
            self.reset();
        }
    }

    /// Starts anew with the shortest delay.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last reset.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_checked() {
        let s = Duration::from_secs;
        assert_eq!(BackoffPolicy::new(s(0), s(1), s(1)), Err(BadBackoff::ZeroFirst));
        assert_eq!(BackoffPolicy::new(s(2), s(1), s(1)), Err(BadBackoff::BadCap));
        assert_eq!(BackoffPolicy::new(s(1), s(3601), s(1)), Err(BadBackoff::BadCap));
        assert_eq!(BackoffPolicy::new(s(1), s(1), s(0)), Err(BadBackoff::ZeroCalm));
        assert!(BackoffPolicy::new(s(1), s(1), s(1)).is_ok());
    }

    #[test]
    fn delays_grow_stay_in_bounds_and_differ_between_seeds() {
        let policy = BackoffPolicy::WATCH;
        let mut longest = Duration::ZERO;
        let mut first_draws = Vec::new();
        for seed in 0..50 {
            let mut backoff = Backoff::seeded(policy, seed);
            for failures in 0..40 {
                let delay = backoff.next_delay();
                assert!(delay >= policy.first / 8, "no tight loop");
                assert!(delay <= policy.ceiling(failures));
                longest = longest.max(delay);
                if failures == 0 {
                    first_draws.push(delay);
                }
            }
            backoff.was_calm_for(Duration::from_secs(119));
            assert_eq!(backoff.failures(), 40);
            backoff.was_calm_for(Duration::from_mins(2));
            assert_eq!(backoff.failures(), 0);
            assert!(backoff.next_delay() <= policy.first);
        }
        assert!(longest > policy.cap / 2 && longest <= policy.cap);
        first_draws.sort();
        first_draws.dedup();
        assert!(first_draws.len() > 40, "jitter spreads the first retry");
    }

    #[test]
    fn hints_are_clamped_and_spread() {
        let policy = BackoffPolicy::WATCH;
        let mut backoff = Backoff::seeded(policy, 1);
        let delay = backoff.next_delay_after(Duration::from_secs(1_000_000));
        assert!(delay > policy.cap && delay <= policy.cap * 2);
        backoff.reset();
        let delay = backoff.next_delay_after(Duration::from_secs(1));
        assert!(delay > Duration::from_secs(1) && delay <= Duration::from_millis(1800));
    }
}
