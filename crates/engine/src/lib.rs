//! Holdfast's judgement: pure functions over plain values. No I/O, no clock, no async.
//!
//! Controllers of other people find what they need in [`judge`]; `examples/keep_generated.rs` is one. The rest is what Holdfast itself
//! needs beyond that: releases, first sight of objects it did not write, and corrections that leave no trace.
//!
//! The way of a decision: [`normalise`] makes a declared object comparable; a forced server-side-apply dry-run tells
//! its [`owned`] paths; [`project`] looks these up in the live object; [`assess`] sorts the differences; [`decide`]
//! answers with the next step, and [`plan`] builds the write.

pub mod answer;
pub mod assess;
pub mod blast;
pub mod bookkeeping;
pub mod canonical;
pub mod case;
pub mod collateral;
pub mod contest;
mod coupled;
pub mod decide;
pub mod equivalence;
pub mod fields;
pub mod foreign;
mod ignore;
mod inexact;
pub mod items;
pub mod judge;
pub mod limit;
pub mod manager;
pub mod meets;
pub mod normalise;
pub mod object;
pub mod owned;
pub mod patch;
pub mod path;
pub mod plan;
mod positional;
pub mod project;
pub mod recreate;
pub mod redact;
pub mod reduced;
pub mod shown;
mod sorter;
pub mod stored;
pub mod yields;
