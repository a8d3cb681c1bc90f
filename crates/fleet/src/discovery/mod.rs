//! What kinds a cluster serves.
//!
//! The answer to "is this kind served?" has three values. [`Lookup::Unknown`] is the one that keeps objects alive: a group whose
//! backend is down, or a discovery that did not succeed yet, must never read as "this kind is gone".

mod aggregated;
mod catalog;
mod fetch;
mod plain;
mod server;

#[cfg(test)]
mod tests;

pub use catalog::{Catalog, Lookup, Resource, Verb, Verbs};
pub use fetch::{Discovery, DiscoveryError, Fetch, Fetched, Refreshed};
pub use server::cluster_uid;
