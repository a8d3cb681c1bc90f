//! What all clusters of one hub share.

use std::sync::Arc;

use holdfast_fleet::{clock::Clock, kubeconfig::ServerPolicy, term::Term, transport::RequestObserver, watch::WatchStats};

use super::{identities::Identities, outages::Outages, state::States};
use crate::{
    events::Events, fleet_view::KubeconfigReader, metrics::Metrics, policy::tally::Tallies, reports::Reports, state_secrets::StateSecrets,
};

/// Handles that every cluster task gets. Cheap to clone behind its `Arc`.
pub struct Shared {
    /// Hash state of all objects.
    pub states: States,
    /// Which names lead to which cluster.
    pub identities: Identities,
    /// Reads kubeconfigs again that a server refused.
    pub kubeconfigs: KubeconfigReader,
    /// Which clusters cannot be talked to, and whether they failed together.
    pub outages: Outages,
    /// Where statuses go.
    pub reports: Reports,
    /// Where Events go.
    pub events: Events,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Counts requests to workload clusters.
    pub observer: Arc<dyn RequestObserver>,
    /// Counts watches.
    pub watch_stats: Arc<WatchStats>,
    /// What is said about the policies.
    pub tallies: Tallies,
    /// Which servers a kubeconfig may name.
    pub servers: ServerPolicy,
    /// How long this hub may write.
    pub term: Term,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Where state is kept, and the key for hashes that leave the process.
    pub secrets: StateSecrets,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
