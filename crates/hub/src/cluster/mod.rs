//! One workload cluster: connecting to it, judging what its releases declare, correcting drift.
//!
//! - [`run`] waits until the cluster may be connected to, connects, and hands over to the [`actor`].
//! - [`actor`] owns everything known about a connected cluster and does nothing slow itself; its parts are `delivering` (watches),
//!   `releases` (records to declared objects), `judging` (one object), `permits` (what may be written), `auditing` (kinds),
//!   `following` (the management cluster and the connection) and `publishing` (reports).
//! - [`inquiry`] carries out the engine's steps for one object, calls included.
//! - `sighting` decodes what the watches deliver and, with `state` and `sight`, drops what is no news: in sync costs nothing.
//! - `book`, `breaker`, `claims`, `credentials`, `health`, `loads`, `outages`, `scalers`, `queue`, `source` are plain values with rules.

pub mod actor;
mod audit;
mod auditing;
pub mod book;
mod breaker;
pub mod claims;
pub mod context;
mod credentials;
mod delivering;
mod following;
pub mod guarded;
mod health;
pub mod inquiry;
mod judging;
mod loads;
pub mod outages;
mod permits;
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

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

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
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

pub use shared::Shared;

use crate::{
    events::{EventReason, Happening, Regarding},
    fleet_view::{ClusterEntry, ClusterName, Credential, FleetView, Gate},
    metrics::{ClusterFigures, ClusterState},
    reports::ReportKey,
};
use actor::Start;
use credentials::Credentials;
use sighting::Decoder;
use state::ClusterId;
use watching::Watching;

/// Deliveries that wait for the actor. A full channel makes watches wait, which makes the server wait: nothing is lost.
const DELIVERIES: usize = 1024;
/// How long the tasks of a connection get to end.
const DRAIN: Duration = Duration::from_secs(2);

/// Statuses of releases by their reports.
type Statuses = BTreeMap<ReportKey, DriftReportStatus>;

/// Looks after one cluster until it leaves the fleet, or until `stop` is cancelled: then what was begun is finished.
pub async fn run(
    shared: Arc<Shared>,
    name: ClusterName,
    id: ClusterId,
    mut fleet: watch::Receiver<Arc<FleetView>>,
    supervisor: Supervisor,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    let mut backoff = Backoff::new(BackoffPolicy::CLUSTER);
    let mut rejected: Option<Rejection> = None;
    let mut last = Statuses::new();
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
                        shared.outages.began(&name, Instant::now());
                        let until = Instant::now() + backoff.next_delay();
                        let tell = || say(&shared, &entry, &Standing::unreachable(reason), &last);
                        // Cancel-safe: timers and a watch channel.
                        tokio::select! {
                            () = stop.cancelled() => return Ok(()),
                            () = rest(&shared, &name, until, tell) => {}
                            still_there = entry_changes(&mut fleet, &entry) => if !still_there { return Ok(()) },
                        }
                    }
                    // The view that ended the session is the one to look at next.
                    Ok(None) => backoff.reset(),
                    Ok(Some(statuses)) => {
                        last = statuses;
                        backoff.reset();
                    }
                }
            }
            Err(standing) => {
                shared.outages.forget(&name);
                if let Standing { rejection: Some(rejection), .. } = &standing
                    && rejected.as_ref() != Some(rejection)
                {
                    announce(&shared, &entry, *rejection);
                    rejected = Some(*rejection);
                }
                say(&shared, &entry, &standing, &last);
                if !matches!(stop.run_until_cancelled(fleet.changed()).await, Some(Ok(()))) {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Waits before the next attempt, and tells of the outage once it is time to.
async fn rest(shared: &Shared, name: &ClusterName, until: Instant, tell: impl Fn()) {
    while let Some(at) = shared.outages.tell_at(name).filter(|at| *at < until) {
        sleep_until(at).await;
        // Others may have failed meanwhile.
        if shared.outages.tell_at(name).is_none_or(|at| at <= Instant::now()) {
            tell();
            break;
        }
    }
    sleep_until(until).await;
}

/// Waits until the management cluster says something else about a cluster. Answers `false` when it will say nothing any more.
async fn entry_changes(fleet: &mut watch::Receiver<Arc<FleetView>>, entry: &Arc<ClusterEntry>) -> bool {
    let is_other = |view: &Arc<FleetView>| view.complete && (!view.guards(&entry.name) || view.clusters.get(&entry.name) != Some(entry));
    fleet.wait_for(is_other).await.is_ok()
}

/// Waits until a cluster is not to be connected to any more.
async fn closes(mut fleet: watch::Receiver<Arc<FleetView>>, name: &ClusterName) {
    let is_open = |entry: &Arc<ClusterEntry>| !matches!(entry.gate, Gate::Deleting | Gate::NotInitialised);
    let is_closed = |view: &Arc<FleetView>| view.complete && !(view.guards(name) && view.clusters.get(name).is_some_and(is_open));
    // A fleet that ended says nothing about a cluster; whoever ended it stops this task.
    if fleet.wait_for(is_closed).await.is_err() {
        std::future::pending::<()>().await;
    }
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

/// One connection to the cluster, from the first call until it ends. Answers with the last statuses of its releases, if it came to any.
#[expect(clippy::too_many_arguments, reason = "everything a connection starts with; each has its own owner")]
async fn session(
    shared: &Arc<Shared>,
    entry: &Arc<ClusterEntry>,
    view: &FleetView,
    id: ClusterId,
    kubeconfig: &Arc<Kubeconfig>,
    fleet: &watch::Receiver<Arc<FleetView>>,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> Result<Option<Statuses>, &'static str> {
    let client = connect(shared, kubeconfig)?;
    // Cancel-safe: nothing but reads.
    let (uid, discovery) = tokio::select! {
        () = stop.cancelled() => return Ok(None),
        () = closes(fleet.clone(), &entry.name) => return Ok(None),
        found = Box::pin(find_out(&client)) => found?,
    };
    shared.outages.known(&entry.name);
    shared.outages.ended(&entry.name);
    let (sender, deliveries) = mpsc::channel(DELIVERIES);
    let scope = supervisor.child("session");
    let decoder = Decoder::new(id, shared.states.clone());
    let watches = Watches::new(Arc::new(client.clone()), decoder.clone(), sender, scope.clone(), Arc::clone(&shared.watch_stats));
    let start = Start {
        shared: Arc::clone(shared),
        entry: Arc::clone(entry),
        credentials: Credentials::new(kubeconfig.fingerprint()),
        policies: Arc::clone(&view.policies),
        cluster: id,
        uid,
        client,
        discovery,
        watching: Watching::new(watches, decoder),
        deliveries,
    };
    tracing::info!(cluster = %entry.name, "connected");
    let last = Box::pin(actor::run(start, fleet.clone(), stop)).await;
    tracing::info!(cluster = %entry.name, ended = last.ended.as_str(), "disconnected");
    scope.stop(DRAIN).await;
    Ok(Some(last.statuses))
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

    /// What was known, with the conditions that hold now; `Ready` and everything beside the conditions stays.
    fn qualify(&self, mut known: DriftReportStatus, now: Timestamp) -> DriftReportStatus {
        let condition = |kind: &str, truth, reason: &str| Condition::new(kind, truth, reason, self.message.clone(), now);
        known.conditions.retain(|condition| condition.kind == "Ready");
        known.conditions.extend([
            condition("InSync", Truth::Unknown, self.in_sync_reason),
            condition("Reachable", if self.state == ClusterState::Unreachable { Truth::False } else { Truth::Unknown }, self.reason),
            condition("Fresh", Truth::False, "Stale"),
        ]);
        known
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

/// Says on every report of a cluster how it stands: what was found before is no longer known to hold.
fn say(shared: &Shared, entry: &ClusterEntry, standing: &Standing, last: &Statuses) {
    let now = shared.clock.now();
    let own = DriftReportStatus {
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
    shared.metrics.set_cluster(&entry.name, ClusterFigures::new(standing.state));
    let ready = Condition::new("Ready", Truth::False, standing.reason, standing.message.clone(), now);
    let status = standing.qualify(DriftReportStatus { conditions: vec![ready], ..own }, now);
    shared.reports.publish(ReportKey::cluster(&entry.name), entry.owner.clone(), status);
    for key in shared.reports.known(&entry.name).into_iter().filter(|key| key.source.kind == SourceKind::HelmRelease) {
        let known = last.get(&key).cloned().or_else(|| shared.reports.stored(&key).map(|stored| DriftReportStatus::clone(&stored)));
        if let Some(known) = known {
            shared.reports.publish(key, entry.owner.clone(), standing.qualify(known, now));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_green_is_not_shown_as_green() {
        let now = Timestamp::UNIX_EPOCH;
        let mut known = DriftReportStatus {
            conditions: ["Ready", "InSync", "Reachable", "Fresh"]
                .map(|kind| Condition::new(kind, Truth::True, "Good", "good", now))
                .to_vec(),
            ..DriftReportStatus::default()
        };
        known.summary.in_sync = 3;
        let said = |standing: &Standing| {
            let status = standing.qualify(known.clone(), now);
            assert_eq!(status.summary, known.summary, "what was found stays");
            status.conditions.into_iter().map(|condition| (condition.kind, condition.status, condition.reason)).collect::<Vec<_>>()
        };
        let expected = |in_sync: &str, reachable, reason: &str| {
            vec![
                ("Ready".to_owned(), Truth::True, "Good".to_owned()),
                ("InSync".to_owned(), Truth::Unknown, in_sync.to_owned()),
                ("Reachable".to_owned(), reachable, reason.to_owned()),
                ("Fresh".to_owned(), Truth::False, "Stale".to_owned()),
            ]
        };
        assert_eq!(said(&Standing::unreachable("Timeout")), expected("ClusterUnreachable", Truth::False, "Timeout"));
        let deleting = Standing::waiting("ClusterDeleting", "the cluster is being deleted");
        assert_eq!(said(&deleting), expected("ClusterDeleting", Truth::Unknown, "ClusterDeleting"));
    }
}
