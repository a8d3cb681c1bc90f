//! Stops fighting: counts the corrections each path of an object needed and holds a path that needs too many.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::{canonical::Digest, path::Path};

/// Corrections of one path within [`FLOOR_WINDOW`] that make it contested, whatever the policy.
pub const FLOOR_CORRECTIONS: usize = 5;
/// See [`FLOOR_CORRECTIONS`].
pub const FLOOR_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// First wait before a held path is tried again; doubles up to [`MAX_HOLD`].
pub const FIRST_HOLD: SignedDuration = SignedDuration::from_mins(10);
/// Longest wait.
pub const MAX_HOLD: SignedDuration = SignedDuration::from_hours(6);
/// Corrections remembered for a path; more are not needed by any rule.
const MEMORY: usize = 20;

/// What a policy adds to the floor: the same foreign value `rounds` times within `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alternation {
    /// How often.
    pub rounds: usize,
    /// In which time.
    pub window: SignedDuration,
}

/// The corrections one object needed. Empty for almost every object, and never larger than its owned paths: what has been
/// quiet long enough is forgotten.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// What each path needed.
    pub(crate) paths: BTreeMap<Path, History>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// When it was corrected, and what had stood there.
    pub(crate) corrections: Vec<(Timestamp, Digest)>,
    /// How often in a row it was contested.
    pub(crate) strikes: u32,
    /// Until when it is left alone.
    pub(crate) held_until: Option<Timestamp>,
}

/// A path that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Corrections it needed lately.
    pub corrections: usize,
    /// When one more correction is tried.
    pub until: Timestamp,
}

impl Ledger {
    /// Notes that `path` was corrected and what had stood there. True when this makes the path contested.
    pub fn record(&mut self, path: &Path, theirs: Digest, now: Timestamp, rule: Option<Alternation>) -> bool {
        // Now and then is enough, and cheap where thousands of paths are recorded at once.
        if self.paths.len().is_power_of_two() && !self.paths.contains_key(path) {
            self.paths.retain(|_, history| !history.is_settled(now));
        }
        self.paths.entry(path.clone()).or_default().record(theirs, now, rule)
    }

    /// Whether `path` is held at `now`.
    pub fn held(&self, path: &Path, now: Timestamp) -> Option<Held> {
        let history = self.paths.get(path)?;
        let until = history.held_until.filter(|until| now < *until)?;
        Some(Held { corrections: history.corrections.len(), until })
    }

    /// The next time a held path is tried again.
    pub fn next_probe(&self, now: Timestamp) -> Option<Timestamp> {
        self.paths.values().filter_map(|history| history.held_until).filter(|until| *until > now).min()
    }

    /// Whether nothing needs remembering any more.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        self.paths.values().all(|history| history.is_settled(now))
    }
}

impl History {
    fn record(&mut self, theirs: Digest, now: Timestamp, rule: Option<Alternation>) -> bool {
        if self.is_settled(now) {
            self.strikes = 0;
            self.corrections.clear();
        }
        if self.corrections.len() == MEMORY {
            self.corrections.remove(0);
        }
        self.corrections.push((now, theirs));
        let within = |window: SignedDuration| self.corrections.iter().filter(move |(time, _)| now.duration_since(*time) <= window);
        let fought = within(FLOOR_WINDOW).count() >= FLOOR_CORRECTIONS
            || rule.is_some_and(|rule| within(rule.window).filter(|(_, value)| *value == theirs).count() >= rule.rounds);
        if !fought && self.strikes == 0 {
            return false;
        }
        // A probe that had to correct again is one more strike.
        self.strikes += 1;
        let hold = FIRST_HOLD.checked_mul(1_i32 << self.strikes.saturating_sub(1).min(10)).unwrap_or(MAX_HOLD).min(MAX_HOLD);
        self.held_until = now.checked_add(hold).ok();
        true
    }

    fn is_settled(&self, now: Timestamp) -> bool {
        self.corrections.last().is_none_or(|(last, _)| now.duration_since(*last) > self.quiet())
    }

    /// Quiet for twice the last hold means that the fight is over.
    fn quiet(&self) -> SignedDuration {
        let hold = FIRST_HOLD.checked_mul(1_i32 << self.strikes.min(10)).unwrap_or(MAX_HOLD).min(MAX_HOLD);
        hold.checked_mul(2).unwrap_or(MAX_HOLD).max(SignedDuration::from_mins(60))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH.checked_add(SignedDuration::from_mins(minutes)).unwrap()
    }

    fn theirs(value: i64) -> Digest {
        Digest::of(&json!(value))
    }

    #[test]
    fn the_fifth_correction_in_ten_minutes_holds_the_path() {
        let (mut ledger, path) = (Ledger::default(), Path::of_fields(&["spec", "replicas"]));
        for minute in 0..4 {
            assert!(!ledger.record(&path, theirs(minute), at(minute), None));
        }
        assert_eq!(ledger.held(&path, at(4)), None);
        assert!(ledger.record(&path, theirs(4), at(4), None));
        assert_eq!(ledger.held(&path, at(5)).unwrap().until, at(14));
        assert_eq!(ledger.held(&Path::of_fields(&["spec", "paused"]), at(5)), None, "siblings are healed");
        assert_eq!(ledger.held(&path, at(14)), None, "then it is probed");
        assert!(ledger.record(&path, theirs(5), at(14), None));
        assert_eq!(ledger.held(&path, at(15)).unwrap().until, at(34), "each probe that corrects doubles the wait");
    }

    #[test]
    fn holds_end_at_six_hours_and_after_quiet() {
        let (mut ledger, path) = (Ledger::default(), Path::of_fields(&["a"]));
        let mut now = 0;
        for round in 0..14 {
            ledger.record(&path, theirs(0), at(now), None);
            now = ledger.held(&path, at(now)).map_or(now, |held| (held.until.as_second()) / 60);
            assert!(round < 5 || ledger.held(&path, at(now - 1)).unwrap().until <= at(now - 1 + 360));
        }
        assert!(!ledger.is_settled(at(now)));
        assert!(ledger.is_settled(at(now + 60 * 24)));
        assert!(!ledger.record(&path, theirs(0), at(now + 60 * 24), None), "forgotten after a quiet day");
    }

    #[test]
    fn slow_edits_are_no_fight_unless_the_policy_says_so() {
        let (mut ledger, path) = (Ledger::default(), Path::of_fields(&["a"]));
        for round in 0..10 {
            assert!(!ledger.record(&path, theirs(round), at(round * 4), None));
        }
        let rule = Some(Alternation { rounds: 3, window: SignedDuration::from_mins(30) });
        let mut ledger = Ledger::default();
        assert!(!ledger.record(&path, theirs(1), at(0), rule) && !ledger.record(&path, theirs(1), at(9), rule));
        assert!(ledger.record(&path, theirs(1), at(18), rule));
    }

    #[test]
    fn what_has_been_quiet_is_forgotten() {
        let mut ledger = Ledger::default();
        for minute in 0..600 {
            ledger.record(&Path::of_fields(&["data", &minute.to_string()]), theirs(0), at(minute), None);
        }
        assert!(ledger.paths.len() <= 128, "{} histories", ledger.paths.len());
    }
}
