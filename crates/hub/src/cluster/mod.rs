//! One workload cluster: connecting to it, judging what its releases declare, correcting drift.
//!
//! - [`run`] waits until the cluster may be connected to, connects, and hands over to the [`actor`].
//! - [`actor`] owns everything known about a connected cluster and does nothing slow itself; its parts are `delivering` (watches),
//!   `releases` (records to declared objects), `judging` (one object) and `publishing` (reports).
//! - [`inquiry`] carries out the engine's steps for one object, calls included.
//! - `sighting` decodes what the watches deliver and, with `state` and `sight`, drops what is no news: in sync costs nothing.
//! - `book`, `claims`, `scalers`, `queue`, `source` are plain values with rules.

pub mod actor;
mod audit;
pub mod book;
pub mod claims;
mod delivering;
pub mod guarded;
pub mod inquiry;
mod judging;
mod publishing;
mod queue;
pub mod records;
pub mod refusal;
pub mod release;
mod releases;
pub mod scalers;
mod shared;
pub mod sight;
mod sighting;
pub mod source;
pub mod state;
mod watching;

use std::{convert::Infallible, sync::Arc, time::Duration};

use holdfast_api::{
    condition::{Condition, Truth},
    report::{DriftReportStatus, Source, SourceKind},
};
use holdfast_fleet::{
    backoff::{Backoff, BackoffPolicy},
    call::{ApiClient, Deadlines},
    discovery::{Discovery, cluster_uid},
    kubeconfig::{Kubeconfig, Rejection},
    supervisor::Supervisor,
    transport::{Connection, Options},
    watch::Watches,
};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

pub use shared::Shared;

use crate::{
    events::{EventReason, Happening, Regarding},
    fleet_view::{ClusterEntry, ClusterName, Credential, FleetView, Gate},
    metrics::{ClusterFigures, ClusterState},
    reports::ReportKey,
};
use actor::{Ended, Start};
use sighting::Decoder;
use state::ClusterId;
use watching::Watching;

/// Deliveries that wait for the actor. A full channel makes watches wait, which makes the server wait: nothing is lost.
const DELIVERIES: usize = 1024;
/// How long the tasks of a connection get to end.
const DRAIN: Duration = Duration::from_secs(2);

/// Looks after one cluster until it leaves the fleet, or until `stop` is cancelled: then what was begun is finished.
pub async fn run(
    shared: Arc<Shared>,
    name: ClusterName,
    id: ClusterId,
    mut fleet: watch::Receiver<Arc<FleetView>>,
    supervisor: Supervisor,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    let mut backoff = Backoff::new(BackoffPolicy::WATCH);
    let mut rejected: Option<Rejection> = None;
    while !stop.is_cancelled() {
        let view = Arc::clone(&fleet.borrow_and_update());
        let Some(entry) = view.clusters.get(&name).filter(|_| view.guards(&name)).cloned() else {
            // Whoever started this task stops it, unless the cluster comes back before that.
            if !matches!(stop.run_until_cancelled(fleet.changed()).await, Some(Ok(()))) {
                return Ok(());
            }
            continue;
        };
        match admission(&entry) {
            Ok(kubeconfig) => {
                rejected = None;
                match Box::pin(session(&shared, &entry, &view, id, &kubeconfig, &fleet, &supervisor, &stop)).await {
                    Err(reason) => {
                        say(&shared, &entry, ClusterState::Unreachable, &Standing::unreachable(reason));
                        // Cancel-safe: a timer and a watch channel.
                        tokio::select! {
                            () = stop.cancelled() => return Ok(()),
                            () = sleep(backoff.next_delay()) => {}
                            changed = fleet.changed() => if changed.is_err() { return Ok(()) },
                        }
                    }
                    // The view that ended the session is the one to look at next.
                    Ok(Ended::Reconnect | Ended::Released) => backoff.reset(),
                }
            }
            Err(standing) => {
                if let Standing { rejection: Some(rejection), .. } = &standing
                    && rejected.as_ref() != Some(rejection)
                {
                    announce(&shared, &entry, *rejection);
                    rejected = Some(*rejection);
                }
                say(&shared, &entry, standing.state, &standing);
                if !matches!(stop.run_until_cancelled(fleet.changed()).await, Some(Ok(()))) {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Prepares calls to the server of a kubeconfig.
pub(crate) fn connect(shared: &Shared, kubeconfig: &Kubeconfig) -> Result<ApiClient, &'static str> {
    let connection = Connection::new(kubeconfig, &shared.servers, Options::default(), Arc::clone(&shared.observer))
        .map_err(holdfast_fleet::transport::ConnectError::reason)?;
    Ok(ApiClient::new(connection, Deadlines::default()))
}

/// The kubeconfig to connect with, or why not.
fn admission(entry: &ClusterEntry) -> Result<Arc<Kubeconfig>, Standing> {
    match entry.gate {
        Gate::Deleting => return Err(Standing::waiting("ClusterDeleting", "the cluster is being deleted")),
        Gate::NotInitialised => return Err(Standing::waiting("ClusterNotInitialised", "the control plane was not initialised yet")),
        Gate::Open | Gate::Paused => {}
    }
    match &entry.credential {
        Credential::Ready(kubeconfig) => Ok(Arc::clone(kubeconfig)),
        Credential::Rejected(rejection) => Err(Standing {
            state: ClusterState::Rejected,
            reason: rejection.reason(),
            message: rejection.to_string(),
            in_sync_reason: "KubeconfigRejected",
            rejection: Some(*rejection),
        }),
        Credential::Missing => Err(Standing {
            state: ClusterState::Rejected,
            reason: "KubeconfigMissing",
            message: "there is no kubeconfig Secret".to_owned(),
            in_sync_reason: "KubeconfigRejected",
            rejection: None,
        }),
    }
}

/// One connection to the cluster, from the first call until it ends.
#[expect(clippy::too_many_arguments, reason = "everything a connection starts with; each has its own owner")]
async fn session(
    shared: &Arc<Shared>,
    entry: &Arc<ClusterEntry>,
    view: &FleetView,
    id: ClusterId,
    kubeconfig: &Kubeconfig,
    fleet: &watch::Receiver<Arc<FleetView>>,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> Result<Ended, &'static str> {
    let client = connect(shared, kubeconfig)?;
    let Some(found) = Box::pin(stop.run_until_cancelled(find_out(&client))).await else { return Ok(Ended::Released) };
    let (uid, discovery) = found?;
    let (sender, deliveries) = mpsc::channel(DELIVERIES);
    let scope = supervisor.child("session");
    let decoder = Decoder::new(id, shared.states.clone());
    let watches = Watches::new(Arc::new(client.clone()), decoder.clone(), sender, scope.clone(), Arc::clone(&shared.watch_stats));
    let start = Start {
        shared: Arc::clone(shared),
        entry: Arc::clone(entry),
        policies: Arc::clone(&view.policies),
        cluster: id,
        uid,
        client,
        discovery,
        watching: Watching::new(watches, decoder),
        deliveries,
    };
    tracing::info!(cluster = %entry.name, "connected");
    let ended = Box::pin(actor::run(start, fleet.clone(), stop)).await;
    scope.stop(DRAIN).await;
    Ok(ended)
}

/// Which cluster it is and what it serves.
async fn find_out(client: &ApiClient) -> Result<(Arc<str>, Discovery), &'static str> {
    let uid = cluster_uid(client).await.map_err(holdfast_fleet::watch::SourceError::category)?;
    let mut discovery = Discovery::default();
    discovery.refresh(client).await.map_err(holdfast_fleet::discovery::DiscoveryError::category)?;
    Ok((uid, discovery))
}

/// How a cluster stands that is not connected.
#[derive(Debug)]
struct Standing {
    state: ClusterState,
    reason: &'static str,
    message: String,
    in_sync_reason: &'static str,
    rejection: Option<Rejection>,
}

impl Standing {
    fn waiting(reason: &'static str, message: &str) -> Self {
        Self { state: ClusterState::Waiting, reason, message: message.to_owned(), in_sync_reason: reason, rejection: None }
    }

    fn unreachable(reason: &'static str) -> Self {
        Self {
            state: ClusterState::Unreachable,
            reason,
            message: format!("the cluster cannot be reached: {reason}"),
            in_sync_reason: "ClusterUnreachable",
            rejection: None,
        }
    }
}

/// Says on the cluster's own report how it stands.
fn say(shared: &Shared, entry: &ClusterEntry, state: ClusterState, standing: &Standing) {
    let now = shared.clock.now();
    let condition = |kind: &str, truth, reason: &str| Condition::new(kind, truth, reason, standing.message.clone(), now);
    let status = DriftReportStatus {
        conditions: vec![
            condition("Ready", Truth::False, standing.reason),
            condition("InSync", Truth::Unknown, standing.in_sync_reason),
            condition("Reachable", if state == ClusterState::Unreachable { Truth::False } else { Truth::Unknown }, standing.reason),
            condition("Fresh", Truth::False, "Stale"),
        ],
        source: Some(Source {
            kind: SourceKind::Cluster,
            namespace: String::new(),
            name: entry.name.name.to_string(),
            revision: None,
            desired_hash: None,
        }),
        observed_at: Some(now),
        ..DriftReportStatus::default()
    };
    shared.metrics.set_cluster(&entry.name, ClusterFigures::new(state));
    shared.reports.publish(ReportKey::cluster(&entry.name), entry.owner.clone(), status);
}

/// Tells once for each rejection: Event, metric, log line.
fn announce(shared: &Shared, entry: &ClusterEntry, rejection: Rejection) {
    tracing::warn!(cluster = %entry.name, reason = rejection.reason(), "kubeconfig rejected");
    shared.metrics.kubeconfig_rejected(rejection);
    for regarding in [
        Regarding::Owner { namespace: Arc::clone(&entry.name.namespace), owner: entry.owner.clone() },
        Regarding::Report(ReportKey::cluster(&entry.name)),
    ] {
        shared.events.emit(Happening {
            regarding,
            reason: EventReason::KubeconfigRejected,
            object: None,
            note: format!("{}: {rejection}", rejection.reason()),
        });
    }
}
