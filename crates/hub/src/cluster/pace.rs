//! Whose turn it is to be corrected: at most so many corrections of one release a minute, in the order in which they were wanted. Pure: told
//! the time, counted from the start of the cluster's task.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use holdfast_engine::limit::TokenBucket;

use super::state::StateId;

/// The corrections of one release.
#[derive(Debug)]
pub struct Pace {
    bucket: TokenBucket,
    /// Objects under judgement that may be written, each with a token.
    taken: HashSet<StateId>,
    waiting: VecDeque<StateId>,
    is_waiting: HashSet<StateId>,
    /// Objects that waited, and whose turn it is: they are on their way to a judgement.
    called: HashSet<StateId>,
}

impl Pace {
    /// At most this many a minute.
    pub fn new(per_minute: u32) -> Self {
        Self {
            bucket: TokenBucket::new(per_minute),
            taken: HashSet::new(),
            waiting: VecDeque::new(),
            is_waiting: HashSet::new(),
            called: HashSet::new(),
        }
    }

    /// Another rate from now on.
    pub fn set_rate(&mut self, per_minute: u32, now: Duration) {
        self.bucket.set_rate(per_minute, now);
    }

    /// A judgement of an object begins. Answers whether it had been called for it.
    pub fn answers(&mut self, id: StateId) -> bool {
        self.called.remove(&id)
    }

    /// Whether an object may be written if it turns out to differ; it may until [`Pace::ended`]. Nobody overtakes those who wait.
    pub fn admits(&mut self, id: StateId, was_called: bool, now: Duration) -> bool {
        let is_its_turn = was_called || (self.is_waiting.is_empty() && self.called.is_empty());
        let admitted = is_its_turn && self.bucket.take(now);
        if admitted {
            self.taken.insert(id);
        }
        admitted
    }

    /// The judgement of an object has ended. What was not needed is there for the next one.
    pub fn ended(&mut self, id: StateId, wrote: bool) {
        if self.taken.remove(&id) && !wrote {
            self.bucket.give_back();
        }
    }

    /// An object is to be corrected and has to wait.
    pub fn waits(&mut self, id: StateId) {
        if self.is_waiting.insert(id) {
            self.waiting.push_back(id);
        }
    }

    /// An object is guarded no more.
    pub fn forget(&mut self, id: StateId) {
        self.is_waiting.remove(&id);
        self.called.remove(&id);
    }

    /// Whether anybody waits.
    pub fn has_waiting(&self) -> bool {
        !self.is_waiting.is_empty()
    }

    /// When it is somebody's turn; `None` while nobody waits, or while those who were called have all there is: their judgements end first.
    pub fn next(&self, now: Duration) -> Option<Duration> {
        let is_spoken_for = !self.called.is_empty() && self.bucket.available(now) as usize <= self.called.len();
        (self.has_waiting() && !is_spoken_for).then(|| self.bucket.next())
    }

    /// Whose turn it is now.
    pub fn call(&mut self, now: Duration) -> Vec<StateId> {
        let mut turns = (self.bucket.available(now) as usize).saturating_sub(self.called.len());
        let mut called = Vec::new();
        while turns > 0
            && let Some(id) = self.waiting.pop_front()
        {
            if self.is_waiting.remove(&id) {
                self.called.insert(id);
                called.push(id);
                turns -= 1;
            }
        }
        called
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::state::ClusterId;

    fn id(number: usize) -> StateId {
        StateId::new(ClusterId(0), "", "ConfigMap", None, &number.to_string())
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_in_sync_costs_nothing() {
        let mut pace = Pace::new(1);
        for number in 0..100 {
            assert!(pace.admits(id(number), false, at(0)));
            pace.ended(id(number), false);
        }
        assert!(pace.admits(id(0), false, at(0)));
        pace.ended(id(0), true);
        assert!(!pace.admits(id(1), false, at(1)) && pace.admits(id(1), false, at(60)));
    }

    #[test]
    fn those_who_wait_are_called_in_their_order_and_nobody_overtakes_them() {
        let mut pace = Pace::new(2);
        for number in 0..2 {
            assert!(pace.admits(id(number), false, at(0)));
            pace.ended(id(number), true);
        }
        for number in 2..7 {
            assert!(!pace.admits(id(number), false, at(1)));
            pace.ended(id(number), false);
            pace.waits(id(number));
        }
        pace.waits(id(2));
        assert_eq!((pace.next(at(29)), pace.call(at(29))), (Some(at(30)), vec![]));
        assert_eq!(pace.call(at(30)), [id(2)]);
        assert!(pace.call(at(30)).is_empty(), "one token, one call");
        assert!(!pace.admits(id(9), false, at(30)), "a newcomer");
        let called = pace.answers(id(2));
        assert!(called && pace.admits(id(2), called, at(30)));
        // It had been put back by somebody else: the next one is called at once.
        pace.ended(id(2), false);
        assert_eq!(pace.call(at(30)), [id(3)]);
        pace.forget(id(4));
        pace.forget(id(3));
        assert_eq!(pace.call(at(30)), [id(5)], "those that are gone do not hold up the rest");
    }

    #[test]
    fn one_that_was_called_and_not_judged_holds_up_nobody() {
        let mut pace = Pace::new(1);
        assert!(pace.admits(id(0), false, at(0)));
        pace.ended(id(0), true);
        pace.waits(id(1));
        pace.waits(id(2));
        assert_eq!(pace.call(at(60)), [id(1)]);
        // Its judgement began, but found nothing to judge.
        assert!(pace.answers(id(1)));
        assert_eq!(pace.call(at(60)), [id(2)]);
    }
}
