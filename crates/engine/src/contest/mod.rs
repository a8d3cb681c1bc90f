//! Stops fighting: counts the corrections each path of an object needed and holds a path that needs too many (design §2.1 `contest`).
//!
//! What counts is that the same two values alternate: five different edits by a human are no fight. Counters and timestamps, which never
//! repeat, are caught by their number, and whoever hops from path to path by the number of writes to the object.

mod history;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

pub(crate) use history::History;
pub use history::{FIRST_HOLD, FIRST_PAUSE, MAX_HOLD, MAX_PAUSE};
pub(crate) use words::{deleted, fought};

use crate::{
    canonical::{Digest, Digester},
    path::Path,
};

/// Writes to one object within [`WRITES_WINDOW`] after which all of it is held.
pub const MOST_WRITES: usize = 20;
/// See [`MOST_WRITES`].
pub const WRITES_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Paths of one object that are told apart; of more, those with most neighbours count as their parent.
const MOST_PATHS: usize = 64;

/// The same two values `rounds` times within `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alternation {
    /// How often.
    pub rounds: usize,
    /// In which time.
    pub window: SignedDuration,
}

impl Default for Alternation {
    /// What counts where a policy says nothing.
    fn default() -> Self {
        Self { rounds: 3, window: SignedDuration::from_mins(30) }
    }
}

/// The corrections one object needed within a day. Empty for almost every object, and never of more than a few dozen paths.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// What each path needed. The root stands for the object's existence.
    pub(crate) paths: BTreeMap<Path, History>,
    /// All writes.
    pub(crate) object: History,
}

/// A path that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Corrections it needed lately.
    pub corrections: usize,
    /// When the first of them was.
    pub since: Timestamp,
    /// When one more correction is tried.
    pub until: Timestamp,
    /// A policy enforces it: it is put off, not given up.
    pub enforced: bool,
}

impl Ledger {
    /// Notes one write: the paths that it put back, and for each the two values as one digest.
    pub fn record(&mut self, write: &[(Path, Digest)], now: Timestamp, rule: Alternation) {
        self.paths.retain(|_, history| !history.is_settled(now));
        self.object.written(now, MOST_WRITES, WRITES_WINDOW);
        let mut places: BTreeMap<Path, BTreeMap<&Path, Digest>> = BTreeMap::new();
        for (path, pair) in write {
            let pairs = places.entry(self.place_of(path)).or_default();
            pairs.insert(path, pair_at(path, *pair));
        }
        for (place, pairs) in places {
            let history = self.paths.entry(place).or_default();
            let pairs: Vec<Digest> = pairs.into_values().collect();
            let pair = match pairs.as_slice() {
                [only] if !history.is_collapsed => *only,
                all => all_of(all),
            };
            history.corrected(pair, now, rule);
        }
        self.collapse();
    }

    /// Whether `path` is held at `now`. One that a policy enforces is held for a short while only.
    pub fn held(&self, path: &Path, enforced: bool, now: Timestamp) -> Option<Held> {
        let at = self.paths.get(&self.place_of(path));
        let held = at.into_iter().chain([&self.object]).filter_map(|history| {
            let until = history.until(enforced).filter(|until| now < *until)?;
            let (since, _) = *history.corrections.first()?;
            Some(Held { corrections: history.corrections.len(), since, until, enforced })
        });
        held.max_by_key(|held| held.until)
    }

    /// Whether somebody keeps changing `path`, held or not.
    pub fn is_fought(&self, path: &Path, now: Timestamp) -> bool {
        self.paths.get(&self.place_of(path)).into_iter().chain([&self.object]).any(|history| history.is_fought(now))
    }

    /// The next time a held path is tried again.
    pub fn next_probe(&self, enforced: impl Fn(&Path) -> bool, now: Timestamp) -> Option<Timestamp> {
        let paths = self.paths.iter().filter_map(|(path, history)| history.until(enforced(path)));
        // Which paths of the whole object are enforced is not known here.
        let object = [true, false].into_iter().filter_map(|enforced| self.object.until(enforced));
        paths.chain(object).filter(|until| *until > now).min()
    }

    /// How many paths are held now; a whole object counts once.
    pub fn contested(&self, now: Timestamp) -> usize {
        let all = self.paths.values().chain([&self.object]);
        all.filter(|history| history.until(false).is_some_and(|until| now < until)).count()
    }

    /// Whether anything of it is worth more than the others' when not all can be kept.
    pub fn is_contest(&self) -> bool {
        self.paths.values().chain([&self.object]).any(|history| history.strikes > 0)
    }

    /// Whether nothing needs remembering any more.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        self.object.is_settled(now) && self.paths.values().all(|history| history.is_settled(now))
    }

    /// Where a path is counted: at what it was collapsed to, else at itself.
    fn place_of(&self, path: &Path) -> Path {
        let above = (1..path.segments().len()).map(|depth| path.segments().iter().take(depth).cloned().collect::<Path>());
        let collapsed = |place: &Path| self.paths.get(place).is_some_and(|history| history.is_collapsed);
        above.into_iter().find(collapsed).unwrap_or_else(|| path.clone())
    }

    /// Bounds the memory an object takes: the paths of the parent with most of them become one.
    fn collapse(&mut self) {
        while self.paths.len() > MOST_PATHS {
            let mut children: BTreeMap<Path, usize> = BTreeMap::new();
            for parent in self.paths.keys().map(Path::parent).filter(|parent| !parent.segments().is_empty()) {
                *children.entry(parent).or_default() += 1;
            }
            let fullest = children.into_iter().max_by_key(|(parent, count)| (*count, parent.segments().len()));
            // Fields at the top of an object are few.
            let Some((fullest, _)) = fullest else { return };
            let (below, others): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.paths).into_iter().partition(|(path, _)| fullest.contains(path));
            self.paths.extend(others);
            let histories: Vec<History> = below.into_iter().map(|(_, history)| history).collect();
            self.paths.insert(fullest, History::merged(&histories));
        }
    }
}

/// Equal pairs at different paths are different pairs.
fn pair_at(path: &Path, pair: Digest) -> Digest {
    let mut digester = Digester::new();
    digester.add(path.to_string().as_bytes());
    digester.add(pair.bytes());
    digester.finish()
}

/// What one write changed at several paths that count as one.
fn all_of(pairs: &[Digest]) -> Digest {
    let mut digester = Digester::new();
    for pair in pairs {
        digester.add(pair.bytes());
    }
    digester.finish()
}
