//! State Secrets: what cannot be found out again after a restart, kept on the management cluster.
//!
//! Each cluster has a few Secrets `holdfast-state-…` beside its reports, owned by whatever owns these:
//!
//! | part | content |
//! |---|---|
//! | `objects-N` | owned sets, each once; accepted differences, last sight and seen-bits of a share of the guarded objects |
//! | `contests` | paths that somebody keeps undoing, and what is known of whole releases: under which manager each writes, and whether too much of it drifted at once |
//! | `intent-…` | one repair of two writes that was begun; written before its first write, removed after its second |
//!
//! The content is packed, then sealed with a key of this hub ([`key`]): digests of short values could be guessed, and a forged seen-bit
//! would make the hub write. A Secret that cannot be opened counts as absent, and then everything is at first sight: more questions,
//! never another write.

mod chunks;
mod format;
mod key;
mod part;
mod seal;
mod store;
mod sweeper;

pub use chunks::{Plain, plain_parts};
pub use format::{
    StoredContests, StoredId, StoredIntent, StoredObject, StoredObjects, StoredRelease, StoredShown, StoredSight, StoredStanding,
};
pub use holdfast_engine::stored::StoredLedger;
pub use part::Part;
pub use store::{ClusterSecrets, Kept, StateSecrets, Stored, Subject};
pub use sweeper::Sweeper;
