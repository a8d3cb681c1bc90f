//! `holdfast scan` against a real API server: what it finds, what it must not find, and what it never does.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "clippy allows it in test functions, not in their helpers")]

mod drifts;
mod errors;
mod fixture;
mod manifests;
mod rights;
mod unknown;
mod yardstick;
