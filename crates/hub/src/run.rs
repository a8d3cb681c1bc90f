//! The hub process: starts everything, keeps one task for each selected cluster, stops everything.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use holdfast_fleet::{
    backoff::{Backoff, BackoffPolicy},
    clock::{Clock, SystemClock},
    kubeconfig::ServerPolicy,
    supervisor::{Stopped, Supervisor, Task},
    term::Term,
    transport::RequestObserver,
    watch::WatchStats,
};
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{
        self, Shared,
        identities::Identities,
        outages::Outages,
        state::{ClusterId, States},
    },
    events::Events,
    fleet_view::{ClusterName, FleetReceivers, FleetView, FleetWatch, KubeconfigReader, Options},
    http::{HttpError, Listener, Sources},
    leadership::{self, Keeper, Leadership},
    management,
    metrics::{Metrics, MetricsError},
    policy::{DefaultMode, status::PolicyStatusWriter, tally::Tallies},
    reports::{ReportWriter, Reports},
    state_secrets::{StateSecrets, Sweeper},
};

/// How long the clusters get to finish what they began, so that it is in their reports: a write is awaited for two seconds.
const CLUSTERS_WITHIN: Duration = Duration::from_millis(2300);
/// How long everything else that a leader does gets to end afterwards.
const LEADER_WITHIN: Duration = Duration::from_millis(1700);
/// How long the rest gets: listeners, and the Lease that is given back.
const STOP_WITHIN: Duration = Duration::from_millis(700);
/// How long the tasks of one cluster get to end.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);

/// What a hub is started with.
#[derive(Debug)]
pub struct HubOptions {
    /// The management cluster.
    pub config: kube::Config,
    /// Health and metrics.
    pub listen: SocketAddr,
    /// Everything else.
    pub api_listen: SocketAddr,
    /// Name of this process, and the Lease it keeps.
    pub lease: leadership::Options,
    /// Only this namespace of the management cluster.
    pub namespace: Option<String>,
    /// What is done about releases without a policy.
    pub default_mode: DefaultMode,
    /// Which servers a kubeconfig may name.
    pub servers: ServerPolicy,
}

/// Why a hub cannot run, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The management cluster's configuration cannot be used.
    #[error("no client for the management cluster")]
    Client(#[source] Box<kube::Error>),
    /// A listener.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The metrics.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A task the hub cannot do without failed.
    #[error("the task {0} failed")]
    Task(Arc<str>),
}

/// Runs until `stop` is cancelled or something essential fails; ends within five seconds of either.
///
/// A hub that stands by listens and reads the management cluster; everything else begins with its term, and ends with it.
pub async fn run(options: HubOptions, stop: CancellationToken) -> Result<(), HubError> {
    let client = management::client(options.config.clone()).map_err(unusable)?;
    let supervisor = Supervisor::root("hub");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let watch_stats = Arc::new(WatchStats::default());
    let metrics = Arc::new(Metrics::new(Arc::clone(&watch_stats))?);
    let (fleet_watch, receivers) = FleetWatch::new(
        client,
        Options { namespace: options.namespace.clone(), default_mode: options.default_mode, servers: options.servers.clone() },
    );
    let lease_client = management::client(options.config.clone()).map_err(unusable)?;
    let (keeper, mut leadership) = Keeper::new(lease_client, &options.lease, Arc::clone(&clock));
    let sources = Sources {
        metrics: Arc::clone(&metrics),
        fleet: receivers.view.clone(),
        term: leadership.subscribe(),
        supervisor: supervisor.clone(),
    };
    listen(&options, &sources, &supervisor).await?;
    let fleet_watch = Arc::new(fleet_watch);
    supervisor.spawn(Task::new("fleet-view").restart(BackoffPolicy::WATCH), move |_| {
        let fleet_watch = Arc::clone(&fleet_watch);
        async move { Err(fleet_watch.run().await) }
    });
    let keeper = Arc::new(keeper);
    supervisor.spawn(Task::new("lease").restart(BackoffPolicy::WATCH).finishes(), move |token| {
        let keeper = Arc::clone(&keeper);
        async move {
            keeper.run(token).await;
            Ok::<_, Infallible>(())
        }
    });

    let hub = Hub { options, metrics, watch_stats, receivers, clock, supervisor: supervisor.clone() };
    let mut led = Ok(true);
    while led.is_ok() && !stop.is_cancelled() && !supervisor.token().is_cancelled() {
        // Cancel-safe: all three only wait.
        let term = tokio::select! {
            () = stop.cancelled() => break,
            () = supervisor.cancelled() => break,
            term = leadership.begins() => term,
        };
        led = hub.lead(term, &mut leadership, &stop).await;
    }
    leadership.finish(matches!(led, Ok(true)));
    supervisor.stop(STOP_WITHIN).await;
    led?;
    supervisor.failure().map_or(Ok(()), |task| Err(HubError::Task(task)))
}

fn unusable(error: kube::Error) -> HubError {
    HubError::Client(Box::new(error))
}

/// Binds the listeners before anything else starts, and serves.
async fn listen(options: &HubOptions, sources: &Sources, supervisor: &Supervisor) -> Result<(), HubError> {
    let merged = options.listen == options.api_listen;
    let public = if merged {
        Listener::api(options.listen, sources.clone()).await?
    } else {
        Listener::public(options.listen, sources.clone()).await?
    };
    let private = if merged { None } else { Some(Listener::api(options.api_listen, sources.clone()).await?) };
    for listener in [Some(public), private].into_iter().flatten() {
        if let Some(address) = listener.address() {
            tracing::info!(id = options.lease.id, %address, "listening");
        }
        let mut listener = Some(listener);
        supervisor.spawn(Task::new("http").essential().finishes(), move |token| {
            let listener = listener.take();
            async move {
                match listener {
                    Some(listener) => listener.serve(token).await,
                    None => Ok(()),
                }
            }
        });
    }
    Ok(())
}

/// What outlives a term.
struct Hub {
    options: HubOptions,
    metrics: Arc<Metrics>,
    watch_stats: Arc<WatchStats>,
    receivers: FleetReceivers,
    clock: Arc<dyn Clock>,
    supervisor: Supervisor,
}

impl Hub {
    /// Does a hub's work for a term: until it is over, or the hub is to stop. Answers whether every task ended by itself.
    async fn lead(&self, term: Term, leadership: &mut Leadership, stop: &CancellationToken) -> Result<bool, HubError> {
        let (options, clock, receivers) = (&self.options, &self.clock, self.receivers.clone());
        let client = management::client_during(options.config.clone(), term.clone()).map_err(unusable)?;
        let leading = self.supervisor.child("leading");
        self.metrics.set_term(Some(term.clone()));

        let reports = Reports::default();
        let (events, event_writer) =
            Events::new(client.clone(), reports.clone(), &options.lease.id, Arc::clone(&self.metrics), Arc::clone(clock));
        let tallies = Tallies::default();
        let secrets = StateSecrets::new(client.clone(), &options.lease.namespace);
        let shared = Arc::new(Shared {
            states: States::default(),
            identities: Identities::default(),
            outages: Outages::default(),
            kubeconfigs: KubeconfigReader::new(client.clone(), options.servers.clone()),
            reports: reports.clone(),
            events,
            metrics: Arc::clone(&self.metrics),
            observer: Arc::clone(&self.metrics) as Arc<dyn RequestObserver>,
            watch_stats: Arc::clone(&self.watch_stats),
            tallies: tallies.clone(),
            servers: options.servers.clone(),
            term: term.clone(),
            clock: Arc::clone(clock),
            secrets: secrets.clone(),
        });

        let writer = Arc::new(ReportWriter::new(client.clone(), reports.clone(), receivers.view.clone(), options.namespace.clone()));
        leading.spawn(Task::new("reports").restart(BackoffPolicy::WATCH).finishes(), move |token| {
            let writer = Arc::clone(&writer);
            async move {
                writer.run(token).await;
                Ok::<_, Infallible>(())
            }
        });
        let event_writer = Arc::new(tokio::sync::Mutex::new(event_writer));
        leading.spawn(Task::new("events").restart(BackoffPolicy::WATCH).finishes(), move |token| {
            let event_writer = Arc::clone(&event_writer);
            async move {
                event_writer.lock().await.run(token).await;
                Ok::<_, Infallible>(())
            }
        });
        let statuses =
            Arc::new(PolicyStatusWriter::new(client, receivers.clone(), tallies, Arc::clone(clock), options.namespace.is_some()));
        leading.spawn(Task::new("policy-status").restart(BackoffPolicy::WATCH), move |_| {
            let statuses = Arc::clone(&statuses);
            async move { Err(statuses.run().await) }
        });
        let (left, sweeper) = (Arc::new(Notify::new()), Arc::new(Sweeper::new(secrets, options.namespace.clone(), receivers.view.clone())));
        let has_left = Arc::clone(&left);
        leading.spawn(Task::new("state-sweep").restart(BackoffPolicy::WATCH), move |_| {
            let (sweeper, left) = (Arc::clone(&sweeper), Arc::clone(&left));
            async move { Err(sweeper.run(&left).await) }
        });
        let clusters = leading.child("clusters");
        let view = receivers.view;
        let looked_after = clusters.clone();
        leading.spawn(Task::new("registry").essential(), move |_| {
            registry(Arc::clone(&shared), view.clone(), clusters.clone(), Arc::clone(&has_left))
        });

        // Cancel-safe: all three only wait.
        tokio::select! {
            () = stop.cancelled() => {}
            () = leading.cancelled() => {}
            () = leadership.ends(&term) => {}
        }
        let mut clean = looked_after.stop(CLUSTERS_WITHIN).await == Stopped::Clean;
        clean &= leading.stop(LEADER_WITHIN).await == Stopped::Clean;
        self.metrics.set_term(None);
        self.metrics.remove_clusters();
        leading.failure().map_or(Ok(clean), |task| Err(HubError::Task(task)))
    }
}

/// What earlier hubs knew, read once before anything is judged: their reports are the memory of what was corrected, and their key opens
/// what they kept.
async fn memories(shared: &Shared) {
    shared.reports.learned().await;
    let mut backoff = Backoff::new(BackoffPolicy::WATCH);
    while let Err(failure) = shared.secrets.ready().await {
        tracing::warn!(reason = failure.as_str(), "the hub's key cannot be read yet");
        sleep(backoff.next_delay()).await;
    }
}

/// One supervised task for each selected cluster, started and stopped as the fleet changes.
async fn registry(
    shared: Arc<Shared>,
    mut fleet: watch::Receiver<Arc<FleetView>>,
    supervisor: Supervisor,
    left: Arc<Notify>,
) -> Result<(), Infallible> {
    let mut running: BTreeMap<ClusterName, Running> = BTreeMap::new();
    let mut next_id = 0;
    let mut known = Box::pin(memories(&shared));
    loop {
        // Cancel-safe: a wait, and a channel that keeps what was not taken.
        tokio::select! {
            () = &mut known => break,
            changed = fleet.changed() => if changed.is_err() { return Ok(()) },
        }
        let view = fleet.borrow_and_update();
        shared.metrics.set_unowned_clusters(view.clusters.keys().filter(|name| view.guards(name)).count() as u64);
    }
    // Clusters may have left while no hub was running.
    let mut has_left = true;
    loop {
        let view = Arc::clone(&fleet.borrow_and_update());
        if view.complete {
            let gone: Vec<ClusterName> =
                running.iter().filter(|(name, running)| !running.is_still(name, &view)).map(|(name, _)| name.clone()).collect();
            let ended: Vec<Running> = gone.iter().filter_map(|name| running.remove(name)).collect();
            futures::future::join_all(ended.iter().map(|running| running.scope.stop(RELEASE_WITHIN))).await;
            for name in gone {
                shared.metrics.remove_cluster(&name);
                shared.outages.forget(&name);
                shared.tallies.remove(&name);
                shared.reports.retire_cluster(&name);
                tracing::info!(cluster = %name, "no longer looked after");
                has_left = true;
            }
            if std::mem::take(&mut has_left) {
                left.notify_one();
            }
            shared.identities.follow(&view, &shared.reports);
            for (name, entry) in view.clusters.iter().filter(|(name, _)| view.guards(name)) {
                if !running.contains_key(name) {
                    next_id += 1;
                    let scope = start(&shared, name, ClusterId(next_id), &fleet, &supervisor);
                    running.insert(name.clone(), Running { owner: Arc::clone(&entry.owner.uid), scope });
                }
            }
            shared.metrics.set_unowned_clusters(0);
        }
        if fleet.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// The tasks of one cluster.
struct Running {
    /// UID of what the cluster stands for on the management cluster. Under the same name another one is another cluster.
    owner: Arc<str>,
    scope: Supervisor,
}

impl Running {
    fn is_still(&self, name: &ClusterName, view: &FleetView) -> bool {
        view.guards(name) && view.clusters.get(name).is_some_and(|entry| entry.owner.uid == self.owner)
    }
}

fn start(
    shared: &Arc<Shared>,
    name: &ClusterName,
    id: ClusterId,
    fleet: &watch::Receiver<Arc<FleetView>>,
    supervisor: &Supervisor,
) -> Supervisor {
    let scope = supervisor.child(&name.to_string());
    let (shared, name, fleet, inner) = (Arc::clone(shared), name.clone(), fleet.clone(), scope.clone());
    scope.spawn(Task::new("cluster").restart(BackoffPolicy::WATCH).finishes(), move |stop| {
        Box::pin(cluster::run(Arc::clone(&shared), name.clone(), id, fleet.clone(), inner.clone(), stop))
    });
    scope
}
