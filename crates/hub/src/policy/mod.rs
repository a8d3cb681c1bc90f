//! Policies: what users write (`DriftPolicy`) compiled into what the reconcilers act on ([`Guard`]).
//!
//! Compilation is pure and total: a policy is in force as a whole or, while it is invalid, only keeps what it selects from being corrected.
//! What became of it is written to its status by [`status`].

mod compile;
mod glob;
mod ignore;
mod paths;
mod selector;
mod set;
pub mod status;
pub mod tally;
mod target;
#[cfg(test)]
mod tests;

pub use compile::{ContestRule, Guard, LimitRule, Policy, PolicyError, Problem};
pub use glob::{Glob, GlobTooLong};
pub use ignore::Ignore;
pub use paths::PathsOf;
pub use selector::{Of, Selector, SelectorError, SelectorProblem};
pub use set::{Acceptance, DefaultMode, PolicyInput, PolicyName, PolicySet};
pub use target::{RuleSubject, Texts};
