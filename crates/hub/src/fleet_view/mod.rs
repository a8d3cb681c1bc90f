//! What the management cluster says about the fleet: clusters, their credentials and gates, and the policies.
//!
//! One task ([`FleetWatch::run`]) keeps lists up to date: Cluster API `Cluster`s (where the kind is served), Secrets with Cluster
//! API's label, Secrets with Holdfast's label, `DriftPolicies`, `ClusterDriftPolicies`, and the labels of namespaces. Each list goes through a `tokio::sync::watch` cell to the pure
//! [`fold`], whose answer, a [`FleetView`], is published only when it differs from the one before. So nothing wakes a reader but a
//! change that means something to it, and in particular no write of the hub itself does.
//!
//! Until every list was read once the view is empty and not `complete`: nothing is ever taken for gone because it was not read yet.

mod capi;
mod collect;
mod entry;
mod fold;
mod reread;
mod secret;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

pub use collect::{ObjectName, Objects};
pub use entry::{ClusterEntry, ClusterName, Credential, FleetView, Gate, OwnerRef};
pub use fold::{ClusterInput, Inputs, NamespaceInput, SecretInput, fold};
pub use reread::KubeconfigReader;
pub use watch::{FleetReceivers, FleetWatch, LivePolicies, LivePolicy, Options};
