//! Blast radius: when a large part of a source drifts at once it is rather what is declared that is wrong than all of these objects.
//! Pure: told the time.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

/// Time within which drift counts as drift at once (design §2.1).
const AT_ONCE: SignedDuration = SignedDuration::from_mins(1);

/// How much drift at once is too much: more than both numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlastRule {
    /// Share of the source's objects, in percent.
    pub percent: u32,
    /// Number of objects.
    pub min_objects: u32,
}

impl BlastRule {
    fn is_exceeded(self, drifted: usize, of: usize) -> bool {
        drifted > self.min_objects as usize && drifted.saturating_mul(100) > of.saturating_mul(self.percent as usize)
    }

    /// Below half of what is too much.
    fn is_over(self, drifted: usize, of: usize) -> bool {
        let twice = drifted.saturating_mul(2);
        twice < self.min_objects as usize || twice.saturating_mul(100) < of.saturating_mul(self.percent as usize)
    }
}

/// Why nothing is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trip {
    /// Hash of what was declared.
    pub desired: String,
    /// How many objects had drifted at once.
    pub drifted: usize,
}

/// What drifted lately of one source, and whether that was too much.
#[derive(Clone, Debug)]
pub struct Blast<Id> {
    latest: BTreeMap<Id, Timestamp>,
    by_time: BTreeSet<(Timestamp, Id)>,
    trip: Option<Trip>,
}

impl<Id> Default for Blast<Id> {
    fn default() -> Self {
        Self { latest: BTreeMap::new(), by_time: BTreeSet::new(), trip: None }
    }
}

impl<Id: Copy + Ord> Blast<Id> {
    /// Notes that an object drifted, now or a while ago. The same one again counts once.
    pub fn note(&mut self, id: Id, at: Timestamp, now: Timestamp) {
        if let Some(before) = self.latest.get(&id).copied().filter(|before| *before < at) {
            self.by_time.remove(&(before, id));
            self.latest.remove(&id);
        }
        let at = *self.latest.entry(id).or_insert(at);
        self.by_time.insert((at, id));
        self.forget_old(now);
    }

    /// Whether what drifted at once is too much now, and was not before.
    pub fn trips(&mut self, rule: BlastRule, of: usize, desired: &str, now: Timestamp) -> bool {
        self.forget_old(now);
        if self.trip.is_some() || !rule.is_exceeded(self.latest.len(), of) {
            return false;
        }
        self.trip = Some(Trip { desired: desired.to_owned(), drifted: self.latest.len() });
        true
    }

    /// Why nothing is written, if so.
    pub const fn trip(&self) -> Option<&Trip> {
        self.trip.as_ref()
    }

    /// Goes on with what an earlier process knew.
    pub fn restore(&mut self, trip: Trip) {
        self.trip = Some(trip);
    }

    /// What is declared is another thing now, or somebody approved it: what drifted so far says nothing about it.
    pub fn reset(&mut self) -> bool {
        *self = Self { trip: self.trip.take(), ..Self::default() };
        self.trip.take().is_some()
    }

    /// Ends it where few of `of` objects differ any more, and few drifted lately, or where the rule has become so wide that it would not
    /// have been too much. Answers whether it ended.
    pub fn review(&mut self, rule: BlastRule, differing: usize, of: usize, now: Timestamp) -> bool {
        let Some(trip) = &self.trip else { return false };
        let drifted = trip.drifted;
        self.forget_old(now);
        let still = differing.max(self.latest.len());
        let ends = rule.is_over(still, of) || !rule.is_exceeded(still.max(drifted), of);
        ends && self.reset()
    }

    fn forget_old(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.by_time.first().copied().filter(|(at, _)| now.duration_since(*at) >= AT_ONCE) {
            self.by_time.remove(&(at, id));
            self.latest.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: BlastRule = BlastRule { percent: 30, min_objects: 20 };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    /// Notes `count` objects at one time.
    fn drifted(blast: &mut Blast<usize>, count: usize, now: i64) {
        (0..count).for_each(|id| blast.note(id, at(now), at(now)));
    }

    #[test]
    fn it_takes_more_than_both_numbers() {
        for (count, of, trips) in [(20, 20, false), (21, 21, true), (21, 70, false), (21, 69, true), (100, 334, false), (101, 334, true)] {
            let mut blast = Blast::default();
            drifted(&mut blast, count, 0);
            assert_eq!(blast.trips(RULE, of, "d", at(0)), trips, "{count} of {of}");
            assert_eq!(blast.trip().is_some(), trips);
        }
    }

    #[test]
    fn many_edits_of_few_objects_are_not_many_objects() {
        let mut blast = Blast::default();
        for second in 0..50 {
            blast.note(1_usize, at(second), at(second));
        }
        assert!(!blast.trips(BlastRule { percent: 1, min_objects: 1 }, 10, "d", at(50)));
    }

    #[test]
    fn what_drifts_slowly_is_not_at_once() {
        let mut blast = Blast::default();
        for id in 0..100_usize {
            let second = i64::try_from(id).unwrap() * 3;
            blast.note(id, at(second), at(second));
            assert!(!blast.trips(RULE, 40, "d", at(second)), "{id}");
        }
        for id in 0..30_usize {
            blast.note(id, at(10), at(1000));
        }
        assert!(!blast.trips(RULE, 40, "d", at(1000)), "found late, but long ago");
    }

    #[test]
    fn it_ends_when_little_differs_and_little_drifted_lately() {
        let mut blast = Blast::default();
        drifted(&mut blast, 30, 0);
        assert!(blast.trips(RULE, 60, "d", at(0)) && !blast.trips(RULE, 60, "d", at(1)), "it trips once");
        assert!(!blast.review(RULE, 0, 60, at(30)), "all were put back in time, yet a moment ago");
        assert!(!blast.review(RULE, 10, 60, at(61)), "10 are half of 20");
        assert!(blast.review(RULE, 9, 60, at(61)));
        assert_eq!(blast.trip(), None);
    }

    #[test]
    fn a_wider_rule_ends_it_and_a_reset_forgets_what_drifted() {
        let mut blast = Blast::default();
        drifted(&mut blast, 30, 0);
        assert!(blast.trips(RULE, 60, "d", at(0)));
        assert!(!blast.review(BlastRule { percent: 49, ..RULE }, 30, 60, at(1)));
        assert!(blast.review(BlastRule { percent: 50, ..RULE }, 30, 60, at(1)));
        drifted(&mut blast, 30, 2);
        assert!(blast.trips(RULE, 60, "d", at(2)) && blast.reset());
        assert!(!blast.trips(RULE, 60, "e", at(3)) && !blast.reset());
    }

    #[test]
    fn it_is_restored() {
        let mut blast = Blast::<usize>::default();
        blast.restore(Trip { desired: "d".to_owned(), drifted: 30 });
        assert!(!blast.review(RULE, 30, 60, at(0)) && blast.trip().is_some());
    }
}
