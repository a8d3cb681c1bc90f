//! Removes what was kept of clusters that left.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::StateSecrets;
use crate::{
    fleet_view::{ClusterName, FleetView},
    management::Failure,
};

/// Keeps no state of clusters that are not looked after.
#[derive(Debug)]
pub struct Sweeper {
    secrets: StateSecrets,
    namespace: Option<String>,
    fleet: watch::Receiver<Arc<FleetView>>,
}

impl Sweeper {
    /// A sweeper of one namespace, or of all.
    pub const fn new(secrets: StateSecrets, namespace: Option<String>, fleet: watch::Receiver<Arc<FleetView>>) -> Self {
        Self { secrets, namespace, fleet }
    }

    /// Sweeps whenever clusters have left, until that fails.
    pub async fn run(&self, left: &Notify) -> Failure {
        loop {
            left.notified().await;
            let keep = |cluster: &ClusterName| {
                let view = self.fleet.borrow();
                !view.complete || view.guards(cluster)
            };
            if let Err(failure) = self.secrets.sweep(self.namespace.as_deref(), keep).await {
                // It is tried again.
                left.notify_one();
                return failure;
            }
        }
    }
}
