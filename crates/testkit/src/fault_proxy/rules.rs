//! The rules in force, and what became of each request.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use super::fault::{Asked, Fault, Match};

/// A number of a rule or an exchange, in the order they came to be.
pub(super) type Number = u64;

struct Entry {
    number: Number,
    wanted: Match,
    fault: Fault,
    hits: Arc<AtomicU64>,
}

impl Entry {
    fn claim(&self) -> bool {
        let room = |hits| self.wanted.has_room_after(hits).then_some(hits + 1);
        self.hits.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_ok()
    }
}

/// All rules of a proxy, the exchanges under way, and a log of all that was asked.
pub(super) struct Rules {
    next: AtomicU64,
    entries: Mutex<Vec<Entry>>,
    changes: watch::Sender<()>,
    open: Mutex<BTreeMap<Number, Arc<Asked>>>,
    log: Mutex<Vec<(Instant, Arc<Asked>)>>,
}

impl Rules {
    pub(super) fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            entries: Mutex::default(),
            changes: watch::channel(()).0,
            open: Mutex::default(),
            log: Mutex::default(),
        }
    }

    fn number(&self) -> Number {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn add(self: &Arc<Self>, wanted: Match, fault: Fault) -> Rule {
        let (number, hits) = (self.number(), Arc::new(AtomicU64::new(0)));
        self.entries.lock().push(Entry { number, wanted, fault, hits: Arc::clone(&hits) });
        self.changes.send_replace(());
        Rule { rules: Arc::clone(self), number, hits }
    }

    fn remove(&self, number: Number) {
        self.entries.lock().retain(|entry| entry.number != number);
        self.changes.send_replace(());
    }

    /// Hears of every change of the rules.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// A request came in.
    pub(super) fn opened(self: &Arc<Self>, asked: Asked) -> Exchange {
        let (number, asked) = (self.number(), Arc::new(asked));
        self.open.lock().insert(number, Arc::clone(&asked));
        self.log.lock().push((Instant::now(), Arc::clone(&asked)));
        Exchange { rules: Arc::clone(self), number, asked, claimed: Vec::new(), done: Vec::new() }
    }

    /// When requests came in that are meant.
    pub(super) fn times(&self, wanted: &Match) -> Vec<Instant> {
        self.log.lock().iter().filter(|(_, asked)| wanted.is_met_by(asked)).map(|(at, _)| *at).collect()
    }

    /// Exchanges under way that are meant.
    pub(super) fn open(&self, wanted: &Match) -> usize {
        self.open.lock().values().filter(|asked| wanted.is_met_by(asked)).count()
    }
}

/// A rule in force; goes when dropped.
#[must_use = "a rule that is dropped at once does nothing"]
pub struct Rule {
    rules: Arc<Rules>,
    number: Number,
    hits: Arc<AtomicU64>,
}

impl Rule {
    /// Requests it took effect on so far.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Acquire)
    }

    /// Ends the rule; answers on how many requests it took effect.
    pub fn end(self) -> u64 {
        self.hits()
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        self.rules.remove(self.number);
    }
}

/// One request and its answer, under way until dropped.
pub(super) struct Exchange {
    rules: Arc<Rules>,
    number: Number,
    asked: Arc<Asked>,
    /// Rules that count this exchange as one of theirs.
    claimed: Vec<Number>,
    /// Rules that have had their effect.
    done: Vec<Number>,
}

impl Exchange {
    /// What happens before the answer, by the first rule that is about it.
    pub(super) fn at_head(&mut self) -> Option<Fault> {
        self.find(Fault::is_about_heads, false).map(|(_, fault)| fault)
    }

    /// What happens to the body now. A rule stays the one until it goes, or until it is [`done`](Self::done).
    pub(super) fn at_body(&mut self) -> Option<(Number, Fault)> {
        self.find(Fault::is_about_bodies, true)
    }

    /// A rule has had its effect on this exchange.
    pub(super) fn done(&mut self, rule: Number) {
        self.done.push(rule);
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.rules.changes()
    }

    fn find(&mut self, is_about: impl Fn(&Fault) -> bool, under_way: bool) -> Option<(Number, Fault)> {
        let entries = self.rules.entries.lock();
        for entry in entries.iter() {
            let too_late = entry.wanted.is_open_only() && (!under_way || entry.number < self.number);
            if too_late || self.done.contains(&entry.number) || !is_about(&entry.fault) || !entry.wanted.is_met_by(&self.asked) {
                continue;
            }
            if !self.claimed.contains(&entry.number) {
                if !entry.claim() {
                    continue;
                }
                self.claimed.push(entry.number);
            }
            return Some((entry.number, entry.fault.clone()));
        }
        None
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.rules.open.lock().remove(&self.number);
    }
}
