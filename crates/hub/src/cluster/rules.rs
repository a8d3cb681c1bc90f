//! The rules of a policy that are about one object.

use holdfast_engine::path::Pattern;
use jiff::Timestamp;
use serde_json::Value;

use super::guarded::Guarded;
use crate::policy::{Guard, Ignore, PathsOf, RuleSubject, Texts};

/// What a policy says about one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRules {
    /// Accepted drift.
    pub ignore: Vec<Ignore>,
    /// Paths that are never yielded.
    pub enforce: Vec<Pattern>,
    /// Containers of fields where anything added is drift.
    pub exclusive: Vec<Pattern>,
}

impl ObjectRules {
    /// Those that hold for an object at this time.
    pub fn of(guard: &Guard, guarded: &Guarded, now: Timestamp) -> Self {
        if guard.ignore.is_empty() && guard.enforce.is_empty() && guard.exclusive.is_empty() {
            return Self::default();
        }
        let subject = subject(guarded);
        let paths = |rules: &[PathsOf]| rules.iter().flat_map(|rule| rule.of(&subject)).cloned().collect();
        Self {
            ignore: guard.ignore.iter().filter(|rule| rule.holds(now) && rule.is_about(&subject)).cloned().collect(),
            enforce: paths(&guard.enforce),
            exclusive: paths(&guard.exclusive),
        }
    }
}

/// The object as rules ask about it.
pub(super) fn subject(guarded: &Guarded) -> RuleSubject<'_> {
    RuleSubject::new(&guarded.key, || {
        let desired = guarded.desired().value;
        let texts = |field: &str| -> Texts {
            let map = desired.pointer(field).and_then(Value::as_object);
            map.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
        };
        (texts("/metadata/labels"), texts("/metadata/annotations"))
    })
}
