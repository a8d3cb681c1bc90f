//! Turns a flood of happenings into a few Events. Synchronous, and told the time.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{EventReason, Happening, Regarding};

/// The same thing within this time is one Event.
const SERIES: Duration = Duration::from_mins(10);
/// How often the count of a series is written.
const REFRESH: Duration = Duration::from_mins(1);
/// New Events that an object may get at once …
const BURST: u32 = 5;
/// … and how often it may get one more.
const REFILL: Duration = Duration::from_secs(20);
/// How long an Event waits for the object it is about.
const PATIENCE: Duration = Duration::from_secs(5);
/// Series remembered at a time. At half a kilobyte each, two megabytes.
const MAX_SERIES: usize = 4096;

/// What makes two happenings the same thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    pub regarding: Regarding,
    pub reason: EventReason,
    pub object: Option<String>,
}

#[derive(Debug)]
struct Series {
    note: String,
    first: Timestamp,
    last: Timestamp,
    count: u32,
    first_seen: Instant,
    last_seen: Instant,
    /// What the server has; nothing before the first write.
    stored: Option<Stored>,
    refresh_at: Instant,
    queued: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    name: String,
    count: u32,
}

/// An Event to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub key: SeriesKey,
    pub note: String,
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u32,
    /// The Event that exists already and needs only its count moved.
    pub stored: Option<String>,
}

/// Series under way.
#[derive(Debug, Default)]
pub struct Gather {
    series: BTreeMap<SeriesKey, Series>,
    budgets: BTreeMap<Regarding, Budget>,
    /// Series that were never written, in the order in which they began.
    new: VecDeque<SeriesKey>,
}

#[derive(Debug)]
struct Budget {
    tokens: u32,
    refilled: Instant,
}

impl Gather {
    /// Takes note; says whether the happening has a place.
    pub fn note(&mut self, happening: Happening, wall: Timestamp, now: Instant) -> bool {
        let key = SeriesKey { regarding: happening.regarding, reason: happening.reason, object: happening.object };
        if let Some(series) = self.series.get_mut(&key) {
            series.count = series.count.saturating_add(1);
            series.last = wall;
            series.last_seen = now;
            return true;
        }
        // What is about the whole is one series for each reason: what happens to single objects does not crowd it out.
        if self.series.len() >= MAX_SERIES || (key.object.is_some() && !self.budget(&key.regarding, now)) {
            return false;
        }
        self.new.push_back(key.clone());
        let series = Series {
            note: happening.note,
            first: wall,
            last: wall,
            count: 1,
            first_seen: now,
            last_seen: now,
            stored: None,
            refresh_at: now,
            queued: true,
        };
        self.series.insert(key, series);
        true
    }

    fn budget(&mut self, regarding: &Regarding, now: Instant) -> bool {
        let budget = self.budgets.entry(regarding.clone()).or_insert(Budget { tokens: BURST, refilled: now });
        while budget.tokens < BURST && now.duration_since(budget.refilled) >= REFILL {
            budget.tokens += 1;
            budget.refilled += REFILL;
        }
        if budget.tokens == BURST {
            budget.refilled = now;
        }
        let granted = budget.tokens > 0;
        budget.tokens = budget.tokens.saturating_sub(1);
        granted
    }

    /// The next Event that should be written: new ones first, then counts that moved. A new one about an object that does not `exist`
    /// yet waits a few seconds for it.
    pub fn next(&mut self, exists: impl Fn(&Regarding) -> bool, now: Instant) -> Option<Draft> {
        let waited = |key| self.series.get(key).is_none_or(|series| now.duration_since(series.first_seen) >= PATIENCE);
        let ready = self.new.iter().position(|key| waited(key) || exists(&key.regarding));
        if let Some(key) = ready.and_then(|index| self.new.remove(index)) {
            return self.draft(&key);
        }
        let moved = |series: &Series| {
            !series.queued && series.refresh_at <= now && series.stored.as_ref().is_some_and(|stored| stored.count < series.count)
        };
        let key = self.series.iter().find(|(_, series)| moved(series)).map(|(key, _)| key.clone())?;
        self.draft(&key)
    }

    fn draft(&mut self, key: &SeriesKey) -> Option<Draft> {
        let series = self.series.get_mut(key)?;
        series.queued = true;
        Some(Draft {
            key: key.clone(),
            note: series.note.clone(),
            first: series.first,
            last: series.last,
            count: series.count,
            stored: series.stored.as_ref().map(|stored| stored.name.clone()),
        })
    }

    /// The Event is stored under this name with this count.
    pub fn stored(&mut self, key: &SeriesKey, name: String, count: u32, now: Instant) {
        if let Some(series) = self.series.get_mut(key) {
            series.stored = Some(Stored { name, count });
            series.refresh_at = now + REFRESH;
            series.queued = false;
        }
    }

    /// The Event could not be written; its series is given up, and the next happening begins a new one.
    pub fn failed(&mut self, key: &SeriesKey) {
        self.series.remove(key);
    }

    /// Forgets series that ended and whose count was written, and budgets that are full again.
    pub fn expire(&mut self, now: Instant) {
        self.series.retain(|_, series| {
            let unwritten = series.stored.as_ref().is_none_or(|stored| stored.count < series.count);
            unwritten || now.duration_since(series.last_seen) < SERIES
        });
        self.budgets.retain(|_, budget| now.duration_since(budget.refilled) < REFILL * BURST);
    }
}
