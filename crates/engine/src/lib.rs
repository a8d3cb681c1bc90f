//! Holdfast's judgement: pure functions over plain values. No I/O, no clock, no async.
//!
//! The way of a decision: [`normalise`] makes a declared object comparable; a forced server-side-apply dry-run tells
//! its [`owned`] paths; [`project`] looks these up in the live object; [`assess`] sorts the differences; [`decide`]
//! answers with the next step, and [`plan`] builds the write.

pub mod answer;
pub mod assess;
pub mod blast;
pub mod canonical;
pub mod case;
pub mod collateral;
pub mod contest;
pub mod decide;
pub mod equivalence;
pub mod fields;
mod ignore;
mod inexact;
pub mod items;
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
mod sorter;
pub mod stored;
