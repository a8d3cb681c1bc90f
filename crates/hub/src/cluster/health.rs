//! How far the watches of a cluster back what is said about it. Pure: told the time.

use std::time::Duration;

use holdfast_fleet::watch::Reason;
use tokio::time::Instant;

/// What a watch that is broken for longer, and an audit that is older, do not back any more.
pub const BACKED_FOR: Duration = Duration::from_mins(1);

/// One watch.
#[derive(Debug, Default)]
pub struct Health {
    was_live: bool,
    broken: Option<(Instant, Reason)>,
    audited: Option<Instant>,
}

impl Health {
    /// The watch delivers.
    pub const fn live(&mut self) {
        self.was_live = true;
        self.broken = None;
    }

    /// The watch is broken, since `now` unless it was before.
    pub fn broken(&mut self, reason: Reason, now: Instant) {
        let since = self.broken.map_or(now, |(since, _)| since);
        self.broken = Some((since, reason));
    }

    /// A fresh list showed the same objects.
    pub const fn audited(&mut self, now: Instant) {
        self.audited = Some(now);
    }

    /// Whether the watch is broken.
    pub const fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Whether access control is what breaks the watch. That says nothing about anything else.
    pub fn is_forbidden(&self) -> bool {
        self.broken.is_some_and(|(_, reason)| reason == Reason::Forbidden)
    }

    /// Whether the watch delivers, or did a minute ago.
    pub fn is_recent(&self, now: Instant) -> bool {
        self.was_live && !self.is_broken_longer(now)
    }

    /// Whether the watch has been broken for more than a minute.
    pub fn is_broken_longer(&self, now: Instant) -> bool {
        self.broken.is_some_and(|(since, _)| now.duration_since(since) > BACKED_FOR)
    }

    /// Whether neither the watch nor an audit backs what it would show. Objects that may not be listed are read one by one with each
    /// audit, which backs them as well.
    pub fn is_stale(&self, interval: Duration, now: Instant) -> bool {
        let audited = self.audited.is_some_and(|at| now.duration_since(at) <= BACKED_FOR.max(interval.mul_f64(1.5)));
        self.is_broken_longer(now) && !self.is_forbidden() && !audited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_mins(10);

    #[tokio::test(start_paused = true)]
    async fn a_minute_without_a_watch_is_stale_unless_an_audit_ran() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let mut health = Health::default();
        assert!(!health.is_recent(now), "never seen");
        health.live();
        health.broken(Reason::Unreachable, now);
        health.broken(Reason::Timeout, later(50));
        assert!(health.is_recent(later(60)) && !health.is_stale(INTERVAL, later(60)));
        assert!(!health.is_recent(later(61)) && health.is_stale(INTERVAL, later(61)), "since the first break");
        health.audited(later(100));
        assert!(!health.is_stale(INTERVAL, later(1000)) && health.is_stale(INTERVAL, later(1001)));
        assert!(!health.is_recent(later(101)), "an audit is about declared objects only");
        health.live();
        assert!(health.is_recent(later(2000)) && !health.is_broken());
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_not_be_watched_is_not_stale() {
        let now = Instant::now();
        let mut health = Health::default();
        health.broken(Reason::Forbidden, now);
        let later = now + Duration::from_hours(1);
        assert!(!health.is_stale(INTERVAL, later) && health.is_forbidden() && !health.is_recent(later));
        health.broken(Reason::Unreachable, later);
        assert!(health.is_stale(INTERVAL, later));
    }
}
