//! Ignore rules of a policy, compiled.

use holdfast_api::policy::IgnoreRule;
use holdfast_engine::{
    owned::OwnedSet,
    path::{Path, Pattern},
};
use jiff::Timestamp;

use super::{
    Glob,
    compile::{PolicyError, Problem, at},
    target::{RuleSubject, TargetMatcher},
};

/// Drift that is accepted: of which objects, at which paths, written by whom, until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignore {
    target: TargetMatcher,
    patterns: Box<[Pattern]>,
    managers: Box<[Glob]>,
    until: Option<Timestamp>,
}

impl Ignore {
    pub(super) fn compile(rule: &IgnoreRule, field: &str) -> Result<Self, PolicyError> {
        if rule.paths.is_empty() && rule.managers.is_empty() {
            return Err(at(field, Problem::EmptyIgnoreRule));
        }
        let patterns =
            rule.paths.iter().enumerate().map(|(index, path)| {
                Pattern::parse(path).map_err(|problem| at(&format!("{field}.paths[{index}]"), Problem::Path(problem)))
            });
        let managers = rule.managers.iter().enumerate().map(|(index, manager)| {
            Glob::parse(manager).map_err(|problem| at(&format!("{field}.managers[{index}]"), Problem::Glob(problem)))
        });
        Ok(Self {
            target: TargetMatcher::compile(rule.target.as_ref(), &format!("{field}.target"))?,
            patterns: patterns.collect::<Result<_, _>>()?,
            managers: managers.collect::<Result<_, _>>()?,
            until: rule.until,
        })
    }

    /// Whether its time is not over.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// Whether it is about this object.
    pub fn is_about(&self, subject: &RuleSubject<'_>) -> bool {
        self.target.matches(subject)
    }

    /// Whether it can change a verdict about an object that owns these paths.
    pub fn reaches(&self, owned: &OwnedSet) -> bool {
        self.patterns.is_empty() || owned.paths().iter().any(|path| self.patterns.iter().any(|pattern| pattern.meets(path)))
    }

    /// Whether the rule covers drift at `path` written by `manager`; `None` where nobody can be named.
    ///
    /// A rule without paths covers all paths, one without managers everybody; with both, both must fit.
    pub fn covers(&self, path: &Path, manager: Option<&str>) -> bool {
        (self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.covers(path)))
            && (self.managers.is_empty() || manager.is_some_and(|manager| self.managers.iter().any(|glob| glob.matches(manager))))
    }

    /// The paths; empty means all.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// Globs over field managers; empty means everybody.
    pub fn managers(&self) -> &[Glob] {
        &self.managers
    }

    /// When the rule ends.
    pub fn until(&self) -> Option<Timestamp> {
        self.until
    }
}
