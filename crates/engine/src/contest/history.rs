//! How often one path, or one object, needed correcting lately, and how long it is left alone for that.

use jiff::{SignedDuration, Timestamp};

use super::Alternation;
use crate::canonical::Digest;

/// First wait before a held path is tried again; doubles up to [`MAX_HOLD`].
pub const FIRST_HOLD: SignedDuration = SignedDuration::from_mins(10);
/// Longest wait.
pub const MAX_HOLD: SignedDuration = SignedDuration::from_hours(6);
/// The same for a path that is enforced: it is written again and again, more and more slowly.
pub const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(10);
/// Longest wait of a path that is enforced.
pub const MAX_PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// A pair that alternates this often in [`DAY`] is a fight, however slow.
const SLOW_ROUNDS: usize = 5;
/// See [`SLOW_ROUNDS`]; no rule looks back further.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Corrections within the policy's window that are a fight, whatever the values.
const MANY: usize = 10;
/// Corrections remembered; more are not needed by any rule.
const MEMORY: usize = 20;
/// Strikes beyond which no wait grows.
const MOST_STRIKES: u32 = 10;

/// The corrections that one path needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// When, and which two values alternated: one digest of both.
    pub(crate) corrections: Vec<(Timestamp, Digest)>,
    /// How often in a row it was contested.
    pub(crate) strikes: u32,
    /// It stands for everything below its path too.
    pub(crate) is_collapsed: bool,
}

impl History {
    /// Notes one correction of a path.
    pub(super) fn corrected(&mut self, pair: Digest, now: Timestamp, rule: Alternation) {
        self.note(pair, now, |history| {
            let same = |window| history.within(now, window).filter(|known| *known == pair).count();
            same(rule.window) >= rule.rounds || same(DAY) >= SLOW_ROUNDS || history.within(now, rule.window).count() >= MANY
        });
    }

    /// Notes one write to an object, of which so many may happen in that time.
    pub(super) fn written(&mut self, now: Timestamp, most: usize, window: SignedDuration) {
        self.note(Digest::of_bytes(b""), now, |history| history.within(now, window).count() >= most);
    }

    fn note(&mut self, pair: Digest, now: Timestamp, is_fought: impl FnOnce(&Self) -> bool) {
        let goes_on = self.strikes > 0 && !self.is_quiet(now);
        if self.corrections.len() == MEMORY {
            self.corrections.remove(0);
        }
        self.corrections.push((now, pair));
        // A probe that had to correct again is one more strike.
        self.strikes = if goes_on || is_fought(self) { (self.strikes + 1).min(MOST_STRIKES) } else { 0 };
    }

    fn within(&self, now: Timestamp, window: SignedDuration) -> impl Iterator<Item = Digest> + use<'_> {
        self.corrections.iter().filter(move |(time, _)| now.duration_since(*time) <= window).map(|(_, pair)| *pair)
    }

    /// When one more correction is tried; `None` where nothing holds it.
    pub(super) fn until(&self, enforced: bool) -> Option<Timestamp> {
        let wait = if enforced { self.pause() } else { self.hold() };
        self.corrections.last().filter(|_| self.strikes > 0)?.0.checked_add(wait).ok()
    }

    /// Whether somebody keeps undoing its corrections.
    pub(super) fn is_fought(&self, now: Timestamp) -> bool {
        self.strikes > 0 && !self.is_quiet(now)
    }

    /// Quiet for twice the last hold means that the fight is over.
    fn is_quiet(&self, now: Timestamp) -> bool {
        let quiet = self.hold().checked_mul(2).unwrap_or(MAX_HOLD);
        self.corrections.last().is_none_or(|(last, _)| now.duration_since(*last) >= quiet)
    }

    /// Whether nothing of it counts any more. The longest quiet is shorter than a day.
    pub(super) fn is_settled(&self, now: Timestamp) -> bool {
        self.corrections.last().is_none_or(|(last, _)| now.duration_since(*last) > DAY)
    }

    fn hold(&self) -> SignedDuration {
        doubled(FIRST_HOLD, self.strikes, MAX_HOLD)
    }

    fn pause(&self) -> SignedDuration {
        doubled(FIRST_PAUSE, self.strikes, MAX_PAUSE)
    }

    /// Several histories as one. Corrections of one moment were one write.
    pub(super) fn merged(parts: &[Self]) -> Self {
        let mut writes: std::collections::BTreeMap<Timestamp, Vec<Digest>> = std::collections::BTreeMap::new();
        for (time, pair) in parts.iter().flat_map(|part| &part.corrections) {
            writes.entry(*time).or_default().push(*pair);
        }
        let skipped = writes.len().saturating_sub(MEMORY);
        Self {
            corrections: writes.into_iter().skip(skipped).map(|(time, pairs)| (time, super::all_of(&pairs))).collect(),
            strikes: parts.iter().map(|part| part.strikes).max().unwrap_or_default(),
            is_collapsed: true,
        }
    }
}

fn doubled(first: SignedDuration, strikes: u32, most: SignedDuration) -> SignedDuration {
    let Some(doublings) = strikes.checked_sub(1) else { return SignedDuration::ZERO };
    first.checked_mul(1_i32 << doublings.min(MOST_STRIKES)).unwrap_or(most).min(most)
}
