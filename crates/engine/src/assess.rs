//! Sorts the owned paths of a live object: as declared, accepted, drifted, held or unverified (design §3.4–§3.6).

use std::fmt;

use holdfast_api::report::{DeviationReason, PathFinding, Reason};
use serde_json::Value;

use crate::{
    canonical::Digest,
    case::{Accepted, Case},
    contest::Held,
    foreign::{self, Additions},
    manager::Operation,
    owned::OwnedSet,
    path::Path,
    project,
    redact::Hidden,
    sorter::Sorter,
};

/// A path that differs and is not accepted.
#[derive(Clone, PartialEq)]
pub struct Drift {
    /// Where.
    pub path: Path,
    /// What a correction writes there: the declared value, or an autoscaler's bound. `None` for the order of a list, and where a correction
    /// takes away what stands there.
    pub target: Option<Value>,
    /// Digest of the two values, the one that is written and the one that stands there now, for contests.
    pub pair: Digest,
    /// As a report shows it.
    pub finding: PathFinding,
    /// The reason word for this path alone.
    pub reason: Reason,
}

impl fmt::Debug for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drift")
            .field("target", &self.target.as_ref().map(|_| Hidden))
            .field("finding", &self.finding)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

/// A difference that counts as in sync.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedPath {
    /// Where.
    pub path: Path,
    /// Why.
    pub reason: DeviationReason,
    /// What stands there, or every value.
    pub value: Digest,
    /// It was not accepted before.
    pub is_new: bool,
    /// One clause for people, without values.
    pub note: String,
}

impl AcceptedPath {
    /// The form that is remembered.
    pub fn remembered(&self) -> Accepted {
        Accepted::new(&self.path, self.reason, self.value)
    }
}

/// What is still to be asked before every path can be sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The forced dry-run of the declared object.
    pub oracle: bool,
    /// The same once more.
    pub again: bool,
    /// The dry-run create under a throw-away name.
    pub create: bool,
}

/// All owned paths, sorted.
#[derive(Debug, Default)]
pub struct Assessment {
    /// Accepted differences.
    pub accepted: Vec<AcceptedPath>,
    /// Drift that may be corrected.
    pub drifts: Vec<Drift>,
    /// Drift that somebody keeps making.
    pub held: Vec<(Drift, Held)>,
    /// Differences nobody can vouch for.
    pub unverified: Vec<(Drift, Reason)>,
    /// What somebody added and that only is reported.
    pub additions: Additions,
    /// Open questions; the lists are incomplete while there are any.
    pub needs: Needs,
}

impl Assessment {
    /// Whether every owned path is as declared or accepted.
    pub const fn is_in_sync(&self) -> bool {
        self.drifts.is_empty() && self.held.is_empty() && self.unverified.is_empty()
    }
}

/// Sorts the owned paths of `live`.
pub fn assess(case: &Case<'_>, owned: &OwnedSet, live: &Value) -> Assessment {
    let sorter = Sorter::new(case, live);
    let mut assessment = Assessment::default();
    for difference in project::differences(owned, live, &case.desired.value) {
        sorter.sort(&mut assessment, &difference);
    }
    sorter.sort_orders(&mut assessment, owned);
    // Of known objects, what was added is only looked at once it is clear which items were merely renamed: that spares a question.
    if !assessment.needs.oracle || case.baseline.is_none() {
        foreign::sort(&sorter, owned, &mut assessment);
    }
    assessment
}

/// Sorts differences at guessed paths, leaf by leaf. The order of lists is not compared: it takes the server to know which lists have one.
pub fn assess_guess(case: &Case<'_>, guess: &OwnedSet, live: &Value) -> Assessment {
    let sorter = Sorter::guessing(case, live);
    let mut assessment = Assessment::default();
    for difference in project::differences(guess, live, &case.desired.value) {
        sorter.sort(&mut assessment, &difference);
    }
    assessment
}

/// The operation a record's `apply_method` asks to prefer.
pub const fn preferred(server_side: bool) -> Operation {
    if server_side { Operation::Apply } else { Operation::Update }
}
