//! Fuzz targets for everything that reads what others wrote, on stable Rust and without a sanitiser.
//!
//! A [`Target`] is a function from bytes to a verdict, with valid inputs to start from. [`run`] mutates these (`mutation`): it
//! deletes, repeats, nests and exchanges words and lines, so that most inputs get past the first check of a reader and wrong
//! in one place. A target never only asks "does it panic": it compares with a second way to the same answer, and holds the cost
//! of an input against a bound (`cost`).
//!
//! Inputs under `corpus/TARGET/` are tried first and mutated too. An input that fails is made small, saved under
//! `target/fuzz/`, and belongs into the corpus once the cause is repaired. The input being tried is always in
//! `target/fuzz/TARGET.current`: a stack overflow ends the process before it can say anything.
//!
//! `make test` tries a fixed sequence of inputs, `cargo xtask fuzz` new ones for as long as it is told.

mod cost;
mod mutation;
mod runner;
pub mod targets;

pub use runner::{Effort, run};

/// What is fuzzed.
pub struct Target {
    /// Its name on the command line and under `corpus/`.
    pub name: &'static str,
    /// Valid inputs that mutations start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words that mean something to the reader.
    pub words: &'static [&'static str],
    /// Tries one input. An error, or a panic, is a find.
    pub check: fn(&[u8]) -> anyhow::Result<()>,
}
