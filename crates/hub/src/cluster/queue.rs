//! Which objects are due for a judgement, and when. One entry for each object: asking again only moves it forward.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tokio::time::Instant;

use super::state::StateId;

/// A queue of objects with due times. Bounded by the number of guarded objects.
#[derive(Debug, Default)]
pub struct Queue {
    due: BTreeSet<(Instant, u64, StateId)>,
    entries: HashMap<StateId, Entry>,
    in_flight: HashSet<StateId>,
    /// Asked for while in flight.
    again: BTreeMap<StateId, Entry>,
    sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    sequence: u64,
    noticed: Instant,
    only_if_news: bool,
}

/// An object that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which.
    pub id: StateId,
    /// When the change was noticed: the start of a correction's time.
    pub noticed: Instant,
    /// It was asked for by a watch event while it was being judged, which may have been the echo of our own write.
    pub only_if_news: bool,
}

impl Queue {
    /// Makes an object due at `at`, or earlier if it already is.
    pub fn push(&mut self, id: StateId, at: Instant, now: Instant) {
        self.insert(id, at, now, false);
    }

    /// Makes an object due now because an event showed a change.
    pub fn notice(&mut self, id: StateId, now: Instant) {
        let echo = self.in_flight.contains(&id);
        self.insert(id, now, now, echo);
    }

    fn insert(&mut self, id: StateId, at: Instant, now: Instant, only_if_news: bool) {
        self.sequence += 1;
        let mut entry = Entry { at, sequence: self.sequence, noticed: now, only_if_news };
        if self.in_flight.contains(&id) {
            if let Some(old) = self.again.get(&id) {
                entry.at = entry.at.min(old.at);
                entry.only_if_news &= old.only_if_news;
            }
            self.again.insert(id, entry);
            return;
        }
        if let Some(old) = self.entries.get_mut(&id) {
            // Whoever asks without a condition gets a judgement, whatever was asked for before.
            old.only_if_news &= only_if_news;
            if old.at <= at {
                return;
            }
            entry.only_if_news = old.only_if_news;
            self.due.remove(&(old.at, old.sequence, id));
        }
        self.due.insert((at, self.sequence, id));
        self.entries.insert(id, entry);
    }

    /// Takes the first object that is due. It is in flight until [`Queue::done`].
    pub fn pop(&mut self, now: Instant) -> Option<Due> {
        let (at, sequence, id) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.due.remove(&(at, sequence, id));
        let entry = self.entries.remove(&id)?;
        self.in_flight.insert(id);
        Some(Due { id, noticed: entry.noticed.max(entry.at), only_if_news: entry.only_if_news })
    }

    /// The object is no longer in flight.
    pub fn done(&mut self, id: StateId) {
        self.in_flight.remove(&id);
        if let Some(entry) = self.again.remove(&id) {
            self.due.insert((entry.at, entry.sequence, id));
            self.entries.insert(id, entry);
        }
    }

    /// Whether the object is being judged now.
    pub fn is_in_flight(&self, id: StateId) -> bool {
        self.in_flight.contains(&id)
    }

    /// Forgets an object that is no longer guarded.
    pub fn forget(&mut self, id: StateId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.due.remove(&(entry.at, entry.sequence, id));
        }
        self.again.remove(&id);
    }

    /// When the next object is due.
    pub fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Objects waiting, due or not.
    pub fn len(&self) -> usize {
        self.entries.len() + self.again.len()
    }

    /// Objects being judged now.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cluster::state::ClusterId;

    fn id(name: &str) -> StateId {
        StateId::new(ClusterId(0), "", "ConfigMap", None, name)
    }

    #[tokio::test(start_paused = true)]
    async fn one_entry_for_each_object_and_the_earliest_time_wins() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.push(id("a"), now + Duration::from_mins(1), now);
        queue.notice(id("a"), now);
        queue.push(id("a"), now + Duration::from_secs(5), now);
        queue.notice(id("b"), now);
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.pop(now).unwrap().id, id("a"));
        assert_eq!(queue.pop(now).unwrap().id, id("b"));
        assert_eq!(queue.pop(now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_in_flight_waits_and_an_event_meanwhile_is_marked() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.notice(id("a"), now);
        assert!(!queue.pop(now).unwrap().only_if_news);
        queue.notice(id("a"), now);
        assert_eq!(queue.pop(now), None, "never two judgements of one object at a time");
        queue.done(id("a"));
        assert!(queue.pop(now).unwrap().only_if_news);
        queue.done(id("a"));
        assert_eq!((queue.len(), queue.in_flight()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn asking_for_a_judgement_is_more_than_telling_of_an_event() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for later in [Duration::ZERO, Duration::from_secs(1)] {
            queue.notice(id("a"), now);
            queue.pop(now).unwrap();
            queue.notice(id("a"), now);
            queue.done(id("a"));
            queue.push(id("a"), now + later, now);
            assert!(!queue.pop(now).unwrap().only_if_news);
            queue.done(id("a"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_object_is_not_due() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.push(id("a"), now, now);
        queue.forget(id("a"));
        assert_eq!((queue.pop(now), queue.next()), (None, None));
    }
}
