//! Which hub writes, and for how long.
//!
//! One Lease, `holdfast` in the hub's namespace, names the hub that writes and when it last said so. [`Keeper::run`] keeps it. What the
//! rest of the hub sees is a [`Term`]: it begins when the Lease is ours, goes on with each renewal, ends by itself when renewals stop
//! succeeding, and is over for good once somebody else was seen in the Lease.
//!
//! Three lengths make sure that two hubs never write at the same time:
//!
//! - the holder writes for [`HOLDS`] after it sent the last successful renewal,
//! - a write that was sent by then ends within the deadline of a call,
//! - others take the Lease when it did not change for [`LASTS`], measured on their own clocks: a difference between two machines'
//!   clocks shortens nothing.
//!
//! [`LASTS`] is longer than the other two together. What a process was just handing to the network when it was stopped may leave when it
//! wakes, and nothing can keep it back; it names the version of the object that it was decided on, or creates what exists by then, so it
//! is refused if the other hub wrote in between. Every change of the Lease names the version it was decided on, so of several hubs
//! that take it at once one succeeds.

mod keeper;
mod record;

use std::time::Duration;

pub use keeper::{Keeper, Leadership};

/// Name of the Lease.
pub const LEASE: &str = "holdfast";

/// How long a Lease is left to a holder who does not renew it.
pub const LASTS: Duration = Duration::from_secs(25);
/// How long the holder writes after a renewal was asked for.
pub const HOLDS: Duration = Duration::from_secs(9);

/// Who keeps which Lease.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of this process; made unique by the keeper, for two hubs of one name must not take each other for themselves.
    pub id: String,
    /// Whether there may be other hubs. If not, the Lease only says that this one is alive.
    pub elect: bool,
}

#[cfg(test)]
mod tests {
    use holdfast_fleet::call::Deadlines;

    use super::*;

    #[test]
    fn a_write_ends_before_somebody_else_may_begin() {
        assert!(HOLDS + Deadlines::default().object < LASTS);
        assert!(HOLDS + crate::management::CALL < LASTS);
    }
}
