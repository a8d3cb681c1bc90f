//! One workload cluster: connecting to it, judging what its releases declare, correcting drift.
//!
//! - [`run`] waits until the cluster may be connected to, connects, and hands over to the [`actor`].
//! - [`actor`] owns everything known about a connected cluster and does nothing slow itself; its parts are `delivering` (watches),
//!   `releases` (records to declared objects), `judging` (one object), `permits` (what may be written), `auditing` (kinds),
//!   `discovering` (what is served), `creating` (where nothing can be created now), `limiting` (brakes), `tallying` (what policies are told), `following` (the management cluster and the
//!   connection), `remembering` (what outlives the process) and `publishing` (reports).
//! - [`inquiry`] carries out the engine's steps for one object, calls included.
//! - `sighting` decodes what the watches deliver and, with `state` and `sight`, drops what is no news: in sync costs nothing.
//! - [`identities`] decides under which of several names of one cluster is written.
//! - `admission`, `book`, `breaker`, `claims`, `credentials`, `definitions`, `health`, `loads`, `memory`, `outages`, `pace`, `pending`, `scalers`, `suspensions`,
//!   `queue`, `source` are plain values with rules.

pub mod actor;
pub mod admission;
mod audit;
mod auditing;
pub mod book;
mod breaker;
pub mod claims;
pub mod context;
mod creating;
mod credentials;
mod definitions;
mod delivering;
mod discovering;
mod following;
pub mod guarded;
mod health;
pub mod identities;
pub mod inquiry;
mod judging;
mod limiting;
mod loads;
mod memory;
pub mod outages;
mod pace;
pub mod pending;
mod permits;
mod publishing;
mod queue;
pub mod records;
pub mod refusal;
pub mod release;
mod releases;
mod remembering;
pub mod rules;
pub mod scalers;
mod shared;
pub mod sight;
mod sighting;
pub mod source;
pub mod state;
mod suspensions;
mod tallying;
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
    kubeconfig::{Fingerprint, Kubeconfig, Rejection},
    supervisor::Supervisor,
    transport::{Connection, Options},
    watch::Watches,
};
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

pub use judging::word_of;
pub use shared::Shared;

use crate::{
    events::{EventReason, Happening, Regarding},
    fleet_view::{ClusterEntry, ClusterName, Credential, FleetView, Gate},
    metrics::{ClusterFigures, ClusterState},
    reports::ReportKey,
    state_secrets::{ClusterSecrets, Kept, Subject},
};
use actor::Start;
use credentials::Credentials;
use following::{explained, refuses_credentials};
use memory::Memory;
use sighting::Decoder;
use state::ClusterId;
use watching::Watching;

/// Deliveries that wait for the actor. A full channel makes watches wait, which makes the server wait: nothing is lost.
const DELIVERIES: usize = 1024;
/// How long the tasks of a connection get to end.
const DRAIN: Duration = Duration::from_secs(2);

/// What the last connection of a name left behind.
#[derive(Default)]
struct Before {
    /// Which cluster it led to.
    uid: Option<Arc<str>>,
    /// Statuses of releases by their reports.
    statuses: BTreeMap<ReportKey, DriftReportStatus>,
}

/// Credentials that were read past the watch, and those that the watch showed then.
#[derive(Default)]
struct Reread(Option<(Fingerprint, Arc<Kubeconfig>)>);

impl Reread {
    /// What to connect with where the watch shows this.
    fn instead_of(&self, shown: &Arc<Kubeconfig>) -> Arc<Kubeconfig> {
        let read = self.0.as_ref().filter(|(instead_of, _)| *instead_of == shown.fingerprint());
        Arc::clone(read.map_or(shown, |(_, read)| read))
    }

    /// Looks, once, whether the Secret holds others already than these, which the server refused.
    async fn look(&mut self, shared: &Shared, entry: &ClusterEntry, shown: &Arc<Kubeconfig>) -> bool {
        if self.0.as_ref().is_some_and(|(instead_of, _)| *instead_of == shown.fingerprint()) {
            return false;
        }
        let read = shared.kubeconfigs.read(entry).await.unwrap_or_else(|| Arc::clone(shown));
        let is_other = read.fingerprint() != shown.fingerprint();
        self.0 = Some((shown.fingerprint(), read));
        is_other
    }
}

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
    let mut before = Before::default();
    let mut reread = Reread::default();
    say_connecting(&shared, &fleet.borrow(), &name);
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
            Ok(shown) => {
                rejected = None;
                let kubeconfig = reread.instead_of(&shown);
                match Box::pin(session(&shared, &entry, &view, id, &kubeconfig, &fleet, &supervisor, &stop)).await {
                    Err(reason) => {
                        shared.identities.tried(&name);
                        shared.outages.began(&name, Instant::now());
                        let looked_up = refuses_credentials(reason).then(|| reread.look(&shared, &entry, &shown));
                        if let Some(newer) = looked_up
                            && stop.run_until_cancelled(newer).await == Some(true)
                        {
                            continue;
                        }
                        let until = Instant::now() + backoff.next_delay();
                        let explained = explained(reason, &kubeconfig, shared.clock.now());
                        let tell = || say(&shared, &entry, &Standing::unreachable(explained), &before);
                        // Cancel-safe: timers and a watch channel.
                        tokio::select! {
                            () = stop.cancelled() => return Ok(()),
                            () = rest(&shared, &name, until, tell) => {}
                            still_there = entry_changes(&mut fleet, &entry) => if !still_there { return Ok(()) },
                        }
                    }
                    // The view that ended the session is the one to look at next.
                    Ok(None) => backoff.reset(),
                    Ok(Some(left)) => {
                        before = left;
                        backoff.reset();
                    }
                }
            }
            Err(standing) => {
                shared.identities.tried(&name);
                shared.outages.forget(&name);
                if let Standing { rejection: Some(rejection), .. } = &standing
                    && rejected.as_ref() != Some(rejection)
                {
                    announce(&shared, &entry, *rejection);
                    rejected = Some(*rejection);
                }
                say(&shared, &entry, &standing, &before);
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
    Ok(ApiClient::new(connection, Deadlines::default()).during(shared.term.clone()))
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

/// One connection to the cluster, from the first call until it ends. Answers with what it left behind, if it came to anything.
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
) -> Result<Option<Before>, &'static str> {
    let client = connect(shared, kubeconfig)?;
    // Cancel-safe: nothing but reads.
    let (uid, discovery, secrets, kept) = tokio::select! {
        () = stop.cancelled() => return Ok(None),
        () = closes(fleet.clone(), &entry.name) => return Ok(None),
        found = Box::pin(async {
            let (uid, discovery) = find_out(shared, &entry.name, &client).await?;
            let secrets = shared.secrets.of(Subject { cluster: entry.name.clone(), owner: entry.owner.clone(), uid: Arc::clone(&uid) });
            let kept = take_up(&entry.name, secrets.as_ref()).await;
            Ok::<_, &'static str>((uid, discovery, secrets, kept))
        }) => found?,
    };
    let memory = Memory::of(kept, |set| shared.states.intern(set));
    shared.outages.known(&entry.name);
    shared.outages.ended(&entry.name);
    let (sender, deliveries) = mpsc::channel(DELIVERIES);
    let scope = supervisor.child("session");
    let decoder = Decoder::new(id, shared.states.clone());
    let watches = Watches::new(Arc::new(client.clone()), decoder.clone(), sender, scope.clone(), Arc::clone(&shared.watch_stats));
    let start = Start {
        shared: Arc::clone(shared),
        entry: Arc::clone(entry),
        credentials: Credentials::new(Arc::clone(kubeconfig), kubeconfig.fingerprint()),
        policies: Arc::clone(&view.policies),
        cluster: id,
        uid: Arc::clone(&uid),
        seat: shared.identities.seat(&entry.name),
        client,
        secrets,
        memory,
        discovery,
        watching: Watching::new(watches, decoder),
        deliveries,
    };
    tracing::info!(cluster = %entry.name, "connected");
    let last = Box::pin(actor::run(start, fleet.clone(), stop)).await;
    tracing::info!(cluster = %entry.name, ended = last.ended.as_str(), "disconnected");
    scope.stop(DRAIN).await;
    Ok(Some(Before { uid: Some(uid), statuses: last.statuses }))
}

/// Reads what an earlier process kept of a cluster. Without it a half-finished repair would stay so: it is asked for until it is known.
async fn take_up(cluster: &ClusterName, secrets: Option<&ClusterSecrets>) -> Kept {
    let Some(secrets) = secrets else { return Kept::default() };
    let mut backoff = Backoff::new(BackoffPolicy::WATCH);
    loop {
        let failure = match secrets.load().await {
            Ok(kept) => {
                let unusable = kept.parts.values().filter(|part| part.content.is_none()).count();
                if unusable > 0 {
                    tracing::warn!(%cluster, unusable, "state Secrets that were not sealed for this cluster by this hub count as absent");
                }
                return kept;
            }
            Err(failure) => failure,
        };
        tracing::warn!(%cluster, reason = failure.as_str(), "what an earlier hub knew of the cluster cannot be read yet");
        sleep(backoff.next_delay()).await;
    }
}

/// Which cluster it is and what it serves.
async fn find_out(shared: &Shared, name: &ClusterName, client: &ApiClient) -> Result<(Arc<str>, Discovery), &'static str> {
    let uid = cluster_uid(client).await.map_err(holdfast_fleet::watch::SourceError::category)?;
    shared.identities.identified(name, &uid);
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

    fn connecting() -> Self {
        Self {
            state: ClusterState::Connecting,
            reason: "Connecting",
            message: "the cluster is being connected".to_owned(),
            in_sync_reason: "Stale",
            rejection: None,
        }
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

/// Says that a cluster is being connected, unless an earlier hub said more about it.
fn say_connecting(shared: &Shared, view: &FleetView, name: &ClusterName) {
    let Some(entry) = view.clusters.get(name) else { return };
    shared.metrics.set_cluster(name, ClusterFigures::new(ClusterState::Connecting));
    if shared.reports.stored_of(&ReportKey::cluster(name), &entry.owner).is_none() {
        say(shared, entry, &Standing::connecting(), &Before::default());
    }
}

/// Says on every report of a cluster how it stands: what was found before is no longer known to hold.
fn say(shared: &Shared, entry: &ClusterEntry, standing: &Standing, before: &Before) {
    let now = shared.clock.now();
    let key = ReportKey::cluster(&entry.name);
    let earlier = || shared.reports.stored_of(&key, &entry.owner).and_then(|stored| stored.cluster_uid.clone());
    let own = DriftReportStatus {
        source: Some(Source {
            kind: SourceKind::Cluster,
            namespace: String::new(),
            name: entry.name.name.to_string(),
            revision: None,
            desired_hash: None,
        }),
        cluster_uid: before.uid.as_ref().map(ToString::to_string).or_else(earlier),
        observed_at: Some(now),
        ..DriftReportStatus::default()
    };
    shared.metrics.set_cluster(&entry.name, ClusterFigures::new(standing.state));
    let ready = Condition::new("Ready", Truth::False, standing.reason, standing.message.clone(), now);
    let status = standing.qualify(DriftReportStatus { conditions: vec![ready], ..own }, now);
    shared.reports.publish(key, entry.owner.clone(), status);
    for key in shared.reports.known(&entry.name).into_iter().filter(|key| key.source.kind == SourceKind::HelmRelease) {
        if let Some(known) = before.statuses.get(&key) {
            shared.reports.publish(key, entry.owner.clone(), standing.qualify(known.clone(), now));
        } else if let Some(stored) = shared.reports.stored(&key) {
            let is_about = |uid: &Arc<str>| publishing::is_about(&stored, uid);
            if shared.reports.stored_of(&key, &entry.owner).is_some() && before.uid.as_ref().is_none_or(is_about) {
                let known = DriftReportStatus::clone(&stored);
                shared.reports.publish(key, entry.owner.clone(), standing.qualify(known, now));
            } else {
                shared.reports.retire(&key);
            }
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
