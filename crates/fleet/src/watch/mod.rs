//! Watches: knowing what a cluster holds, through cuts, expiries and silence.
//!
//! - [`machine`] decides: a pure step function from what came in to what is delivered and done next. No sockets, no clock.
//! - [`driver`] carries out: asks the [`Source`], waits, delivers. One task per watch.
//! - [`registry`] counts: one watch per key however many ask for it, started with the first lease, stopped with the last.
//!
//! What a consumer may conclude is written at [`Update`]. The rule behind it: nothing is gone because it was not heard of; only a complete
//! list, or the server's word, says so.

mod client;
pub mod decode;
pub mod driver;
pub mod machine;
pub mod registry;
mod source;
mod stats;
pub mod step;
mod target;
mod update;

#[cfg(test)]
mod tests;

pub use decode::{Decode, Versioned};
pub use registry::{Delivery, Lease, Watches};
pub use source::{Source, SourceError};
pub use stats::WatchStats;
pub use target::WatchKey;
pub use update::{Reason, Update};
