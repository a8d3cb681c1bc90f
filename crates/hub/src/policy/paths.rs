//! Rules of a policy that name paths of some objects (`exclusive`, `enforce`), compiled.

use holdfast_api::policy::PathRule;
use holdfast_engine::path::Pattern;

use super::{
    compile::{PolicyError, Problem, at},
    target::{RuleSubject, TargetMatcher},
};

/// Paths of some objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathsOf {
    target: TargetMatcher,
    patterns: Box<[Pattern]>,
}

impl PathsOf {
    pub(super) fn compile_all(rules: &[PathRule], field: &str) -> Result<Box<[Self]>, PolicyError> {
        rules.iter().enumerate().map(|(index, rule)| Self::compile(rule, &format!("{field}[{index}]"))).collect()
    }

    fn compile(rule: &PathRule, field: &str) -> Result<Self, PolicyError> {
        let patterns =
            rule.paths.iter().enumerate().map(|(index, path)| {
                Pattern::parse(path).map_err(|problem| at(&format!("{field}.paths[{index}]"), Problem::Path(problem)))
            });
        let patterns = patterns.collect::<Result<_, _>>()?;
        Ok(Self { target: TargetMatcher::compile(rule.target.as_ref(), &format!("{field}.target"))?, patterns })
    }

    /// The paths, where the rule is about this object.
    pub fn of(&self, subject: &RuleSubject<'_>) -> &[Pattern] {
        if self.target.matches(subject) { &self.patterns } else { &[] }
    }
}
