//! A release that Helm is at work on, or died over.

use holdfast_helm::Status;
use jiff::{SignedDuration, Timestamp};

/// A pending revision counts as stuck this long after Helm began it (design §2.1): `helm --wait` takes five minutes unless told otherwise.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// Ages as they are told, in steps: a report must not change with every minute that passes.
const AGES: [(SignedDuration, &str); 4] = [
    (SignedDuration::from_hours(7 * 24), "a week"),
    (SignedDuration::from_hours(24), "a day"),
    (SignedDuration::from_hours(1), "an hour"),
    (STUCK_AFTER, "15 minutes"),
];

/// The revision that keeps all hands off its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Which.
    pub version: u64,
    /// What it is: pending, or superseded while no successor is visible.
    pub status: Status,
    /// When Helm began it, or when it was superseded, where known.
    pub since: Option<Timestamp>,
}

impl Pending {
    /// The reason word for the `InSync` condition.
    pub fn reason(&self, now: Timestamp) -> &'static str {
        if self.age(now).is_some() { "ReleaseStuck" } else { "ReleasePending" }
    }

    /// One sentence for people.
    pub fn message(&self, now: Timestamp) -> String {
        let what = if self.status == Status::Superseded {
            format!("revision {} is superseded and its successor is not visible", self.version)
        } else {
            format!("revision {} is {}", self.version, self.status)
        };
        match (self.age(now), self.since) {
            (Some(age), Some(since)) => format!("{what} for more than {age}, since {since:.0}"),
            _ => what,
        }
    }

    /// Whether it became stuck, or a step older, between two moments.
    pub fn aged(&self, before: Timestamp, now: Timestamp) -> bool {
        self.age(before) != self.age(now)
    }

    /// How long it has been stuck; `None` while it is not.
    fn age(&self, now: Timestamp) -> Option<&'static str> {
        let age = now.duration_since(self.since?);
        AGES.iter().find(|(least, _)| age >= *least).map(|(_, word)| *word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_revision_gets_stuck() {
        let began: Timestamp = "2026-01-01T00:00:00.25Z".parse().unwrap();
        let pending = Pending { version: 4, status: Status::PendingUpgrade, since: Some(began) };
        let table = [
            (0, "ReleasePending", "revision 4 is pending-upgrade"),
            (899, "ReleasePending", "revision 4 is pending-upgrade"),
            (900, "ReleaseStuck", "revision 4 is pending-upgrade for more than 15 minutes, since 2026-01-01T00:00:00Z"),
            (3599, "ReleaseStuck", "revision 4 is pending-upgrade for more than 15 minutes, since 2026-01-01T00:00:00Z"),
            (3600, "ReleaseStuck", "revision 4 is pending-upgrade for more than an hour, since 2026-01-01T00:00:00Z"),
            (86_400, "ReleaseStuck", "revision 4 is pending-upgrade for more than a day, since 2026-01-01T00:00:00Z"),
            (10_000_000, "ReleaseStuck", "revision 4 is pending-upgrade for more than a week, since 2026-01-01T00:00:00Z"),
        ];
        let mut before = began;
        for (seconds, reason, message) in table {
            let now = began + SignedDuration::from_secs(seconds);
            assert_eq!((pending.reason(now), pending.message(now).as_str()), (reason, message), "after {seconds} s");
            assert_eq!(pending.aged(before, now), pending.message(before) != message, "after {seconds} s");
            before = now;
        }
    }

    #[test]
    fn nobody_knows_how_old_it_is() {
        let pending = Pending { version: 1, status: Status::Superseded, since: None };
        assert_eq!(pending.reason(Timestamp::MAX), "ReleasePending");
        assert_eq!(pending.message(Timestamp::MAX), "revision 1 is superseded and its successor is not visible");
    }
}
