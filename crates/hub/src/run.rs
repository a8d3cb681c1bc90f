//! The hub process: starts everything, keeps one task for each selected cluster, stops everything.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use holdfast_fleet::{
    backoff::BackoffPolicy,
    clock::{Clock, SystemClock},
    kubeconfig::ServerPolicy,
    supervisor::{Supervisor, Task},
    watch::WatchStats,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{
        self, Shared,
        outages::Outages,
        state::{ClusterId, States},
    },
    events::Events,
    fleet_view::{ClusterName, FleetView, FleetWatch, Options},
    http::{HttpError, Listener, Sources},
    management,
    metrics::{Metrics, MetricsError},
    policy::{
        DefaultMode,
        status::{PolicyStatusWriter, ReleaseCounts},
    },
    reports::{ReportWriter, Reports},
};

/// How long the clusters get to finish what they began, so that it is in their reports: a write is awaited for two seconds.
const CLUSTERS_WITHIN: Duration = Duration::from_millis(2300);
/// How long everything else gets to end afterwards.
const STOP_WITHIN: Duration = Duration::from_millis(2500);
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
    /// Name of this process in Events and logs.
    pub id: String,
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
pub async fn run(options: HubOptions, stop: CancellationToken) -> Result<(), HubError> {
    let client = management::client(options.config).map_err(|error| HubError::Client(Box::new(error)))?;
    let supervisor = Supervisor::root("hub");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let watch_stats = Arc::new(WatchStats::default());
    let metrics = Arc::new(Metrics::new(Arc::clone(&watch_stats))?);
    let (fleet_watch, receivers) = FleetWatch::new(
        client.clone(),
        Options { namespace: options.namespace.clone(), default_mode: options.default_mode, servers: options.servers.clone() },
    );
    let sources = Sources { metrics: Arc::clone(&metrics), fleet: receivers.view.clone(), supervisor: supervisor.clone() };
    let merged = options.listen == options.api_listen;
    let public = if merged {
        Listener::api(options.listen, sources.clone()).await?
    } else {
        Listener::public(options.listen, sources.clone()).await?
    };
    let private = if merged { None } else { Some(Listener::api(options.api_listen, sources).await?) };
    for listener in [Some(&public), private.as_ref()].into_iter().flatten() {
        if let Some(address) = listener.address() {
            tracing::info!(id = options.id, %address, "listening");
        }
    }

    let reports = Reports::default();
    let (events, event_writer) = Events::new(client.clone(), reports.clone(), &options.id, Arc::clone(&metrics), Arc::clone(&clock));
    let releases = ReleaseCounts::default();
    let shared = Arc::new(Shared {
        states: States::default(),
        outages: Outages::default(),
        reports: reports.clone(),
        events,
        metrics: Arc::clone(&metrics),
        observer: metrics,
        watch_stats,
        releases: releases.clone(),
        servers: options.servers,
        clock: Arc::clone(&clock),
        hash_key: rand::random(),
    });

    for listener in [Some(public), private].into_iter().flatten() {
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
    let fleet_watch = Arc::new(fleet_watch);
    supervisor.spawn(Task::new("fleet-view").restart(BackoffPolicy::WATCH), move |_| {
        let fleet_watch = Arc::clone(&fleet_watch);
        async move { Err(fleet_watch.run().await) }
    });
    let writer = Arc::new(ReportWriter::new(client.clone(), reports.clone(), receivers.view.clone(), options.namespace));
    supervisor.spawn(Task::new("reports").restart(BackoffPolicy::WATCH).finishes(), move |token| {
        let writer = Arc::clone(&writer);
        async move {
            writer.run(token).await;
            Ok::<_, Infallible>(())
        }
    });
    let event_writer = Arc::new(tokio::sync::Mutex::new(event_writer));
    supervisor.spawn(Task::new("events").restart(BackoffPolicy::WATCH).finishes(), move |token| {
        let event_writer = Arc::clone(&event_writer);
        async move {
            event_writer.lock().await.run(token).await;
            Ok::<_, Infallible>(())
        }
    });
    let statuses = Arc::new(PolicyStatusWriter::new(client, receivers.clone(), releases, clock));
    supervisor.spawn(Task::new("policy-status").restart(BackoffPolicy::WATCH), move |_| {
        let statuses = Arc::clone(&statuses);
        async move { Err(statuses.run().await) }
    });
    let clusters = supervisor.child("clusters");
    let view = receivers.view;
    let looked_after = clusters.clone();
    supervisor.spawn(Task::new("registry").essential(), move |_| registry(Arc::clone(&shared), view.clone(), clusters.clone()));

    // Cancel-safe: both only wait.
    tokio::select! {
        () = stop.cancelled() => {}
        () = supervisor.cancelled() => {}
    }
    looked_after.stop(CLUSTERS_WITHIN).await;
    supervisor.stop(STOP_WITHIN).await;
    supervisor.failure().map_or(Ok(()), |task| Err(HubError::Task(task)))
}

/// One supervised task for each selected cluster, started and stopped as the fleet changes.
async fn registry(shared: Arc<Shared>, mut fleet: watch::Receiver<Arc<FleetView>>, supervisor: Supervisor) -> Result<(), Infallible> {
    let mut running: BTreeMap<ClusterName, Supervisor> = BTreeMap::new();
    let mut next_id = 0;
    // Reports of an earlier hub are the memory of what was corrected; they are read once, before anything is judged.
    shared.reports.learned().await;
    loop {
        let view = Arc::clone(&fleet.borrow_and_update());
        if view.complete {
            let gone: Vec<ClusterName> = running.keys().filter(|name| !view.guards(name)).cloned().collect();
            let scopes: Vec<Supervisor> = gone.iter().filter_map(|name| running.remove(name)).collect();
            futures::future::join_all(scopes.iter().map(|scope| scope.stop(RELEASE_WITHIN))).await;
            for name in gone {
                shared.metrics.remove_cluster(&name);
                shared.outages.forget(&name);
                shared.releases.remove(&name);
                shared.reports.retire_cluster(&name);
                tracing::info!(cluster = %name, "no longer looked after");
            }
            for name in view.clusters.keys().filter(|name| view.guards(name)) {
                if !running.contains_key(name) {
                    next_id += 1;
                    running.insert(name.clone(), start(&shared, name, ClusterId(next_id), &fleet, &supervisor));
                }
            }
        }
        if fleet.changed().await.is_err() {
            return Ok(());
        }
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
