//! What the hub counts. One registry of our own, every label value from a closed list, no object names.
//!
//! Counters are moved where something happens. What is true of a cluster now is handed in as [`ClusterFigures`] and added up when the
//! page is read, so a cluster that leaves takes its numbers with it.

mod figures;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use holdfast_api::report::{Change, DeviationReason, Outcome, Verdict};
use holdfast_fleet::{
    kubeconfig::Rejection,
    term::Term,
    transport::{Observed, RequestObserver},
    watch::WatchStats,
};
use parking_lot::Mutex;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

use crate::fleet_view::ClusterName;

pub use figures::{ClusterFigures, ClusterState};

/// Kinds that get a label value of their own; any further ones are `other`. Real clusters have a few dozen.
const MAX_KINDS: usize = 200;
/// Upper bounds in seconds: from a write on loopback to an object that was down for an hour.
const SECONDS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 600.0, 3600.0];

/// Why the metrics could not be made: a mistake in this module, which its test finds.
#[derive(Debug, thiserror::Error)]
#[error("the metrics cannot be registered")]
pub struct MetricsError(#[from] prometheus::Error);

/// How a dry-run that asks the server for its opinion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OracleOutcome {
    /// It answered.
    Answered,
    /// It said no.
    Refused,
    /// There was no usable answer.
    Failed,
}

impl OracleOutcome {
    /// Every outcome.
    pub const ALL: [Self; 3] = [Self::Answered, Self::Refused, Self::Failed];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "Answered",
            Self::Refused => "Refused",
            Self::Failed => "Failed",
        }
    }
}

/// The hub's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    figures: Mutex<figures::Figures>,
    watch_stats: Arc<WatchStats>,
    kinds: Mutex<BTreeSet<String>>,

    clusters: IntGaugeVec,
    cluster_up: IntGaugeVec,
    releases: IntGaugeVec,
    objects: IntGaugeVec,
    contested_paths: IntGauge,
    deviations: IntGaugeVec,
    watches: IntGauge,
    state_bytes: IntGauge,
    queue_depth: IntGauge,
    clusters_unowned: IntGauge,
    leading: IntGauge,
    term: Mutex<Option<Term>>,
    drift_detected: IntCounterVec,
    corrections: IntCounterVec,
    correction_seconds: Histogram,
    detection_seconds: Histogram,
    workload_requests: IntCounterVec,
    oracle_requests: IntCounterVec,
    admission_changed: IntCounter,
    watch_restarts: IntCounterVec,
    kubeconfig_rejected: IntCounterVec,
    events_dropped: IntCounter,
}

impl Metrics {
    /// All metrics, at zero. `watch_stats` is the fleet's.
    pub fn new(watch_stats: Arc<WatchStats>) -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let make = Maker { registry: &registry };
        let metrics = Self {
            clusters: make.gauges("clusters", "Clusters of the fleet by state.", &["state"])?,
            cluster_up: make.gauges("cluster_up", "Whether the cluster is connected.", &["namespace", "cluster"])?,
            releases: make.gauges("releases", "Guarded releases by their worst verdict.", &["verdict"])?,
            objects: make.gauges("objects", "Objects of guarded releases by verdict.", &["verdict"])?,
            contested_paths: make.gauge("contested_paths", "Paths that somebody else keeps changing.")?,
            deviations: make.gauges("deviations", "Accepted differences from what is declared.", &["reason"])?,
            watches: make.gauge("watches", "Watches open on workload clusters.")?,
            state_bytes: make.gauge("state_bytes", "Memory the hash state of all objects takes.")?,
            queue_depth: make.gauge("queue_depth", "Objects that wait to be judged.")?,
            clusters_unowned: make.gauge("hub_clusters_unowned", "Clusters that no replica looks after.")?,
            leading: make.gauge("leading", "Whether this hub may write: of several replicas one has 1.")?,
            term: Mutex::default(),
            drift_detected: make.counters("drift_detected_total", "Drifted paths found.", &["kind", "change"])?,
            corrections: make.counters("corrections_total", "Writes to put drift back.", &["kind", "outcome"])?,
            correction_seconds: make.histogram("correction_seconds", "From the event of a drift to the acknowledged write.")?,
            detection_seconds: make.histogram("detection_seconds", "From the time a manager's write was recorded to the verdict.")?,
            workload_requests: make.counters("workload_requests_total", "Requests to workload clusters.", &["verb", "code"])?,
            oracle_requests: make.counters(
                "oracle_requests_total",
                "Dry-runs that ask the server what it makes of an object.",
                &["outcome"],
            )?,
            admission_changed: make
                .counter("admission_changed_total", "Differences accepted because the server makes them, each once a value.")?,
            watch_restarts: make.counters("watch_restarts_total", "Watches that had to start again.", &["reason"])?,
            kubeconfig_rejected: make.counters("kubeconfig_rejected_total", "Kubeconfig Secrets that are not used.", &["reason"])?,
            events_dropped: make.counter("events_dropped_total", "Kubernetes Events that were not written.")?,
            registry,
            figures: Mutex::default(),
            watch_stats,
            kinds: Mutex::default(),
        };
        metrics.show_zeros();
        Ok(metrics)
    }

    /// Series that exist from the start, so that a first increase is seen as one.
    fn show_zeros(&self) {
        for outcome in OracleOutcome::ALL {
            self.oracle_requests.with_label_values(&[outcome.as_str()]);
        }
    }

    /// A drifted path was found.
    pub fn drift_detected(&self, kind: &str, change: Change) {
        self.drift_detected.with_label_values(&[self.kind(kind).as_str(), change.as_str()]).inc();
    }

    /// A correction was tried.
    pub fn corrected(&self, kind: &str, outcome: Outcome) {
        self.corrections.with_label_values(&[self.kind(kind).as_str(), outcome.as_str()]).inc();
    }

    /// Time from receiving the event of a drift until the write was acknowledged.
    pub fn correction_took(&self, time: Duration) {
        self.correction_seconds.observe(time.as_secs_f64());
    }

    /// Time from the drift, as its manager's entry says to the second, until the verdict.
    pub fn detection_took(&self, time: Duration) {
        self.detection_seconds.observe(time.as_secs_f64());
    }

    /// A dry-run that asks for the server's opinion ended.
    pub fn oracle_asked(&self, outcome: OracleOutcome) {
        self.oracle_requests.with_label_values(&[outcome.as_str()]).inc();
    }

    /// So many paths were found to be rewritten by the server that were not before, or to another value.
    pub fn admission_changed(&self, paths: usize) {
        self.admission_changed.inc_by(paths as u64);
    }

    /// A kubeconfig Secret was rejected, once per content.
    pub fn kubeconfig_rejected(&self, rejection: Rejection) {
        self.kubeconfig_rejected.with_label_values(&[rejection.reason()]).inc();
    }

    /// An Event was not written.
    pub fn event_dropped(&self) {
        self.events_dropped.inc();
    }

    /// Clusters that no replica looks after.
    pub fn set_unowned_clusters(&self, count: u64) {
        self.clusters_unowned.set(signed(count));
    }

    /// The term this hub leads in; `None` while it stands by.
    pub fn set_term(&self, term: Option<Term>) {
        *self.term.lock() = term;
    }

    /// Memory the hash state of all clusters takes.
    pub fn set_state_bytes(&self, bytes: u64) {
        self.state_bytes.set(signed(bytes));
    }

    /// What is true of a cluster now; replaces what was said before.
    pub fn set_cluster(&self, cluster: &ClusterName, figures: ClusterFigures) {
        self.figures.lock().set(cluster, figures);
    }

    /// A cluster left.
    pub fn remove_cluster(&self, cluster: &ClusterName) {
        self.figures.lock().remove(cluster);
    }

    /// All clusters left: this hub looks after none any more.
    pub fn remove_clusters(&self) {
        self.figures.lock().clear();
        self.state_bytes.set(0);
    }

    /// The page for Prometheus.
    pub fn page(&self) -> String {
        self.refresh();
        let families = self.registry.gather();
        // Encoding fails only for a family without a metric, and the registry leaves those out.
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }

    /// Brings the gauges up to date.
    fn refresh(&self) {
        let figures = self.figures.lock();
        let total = figures.total();
        for (state, count) in ClusterState::ALL.into_iter().zip(figures.states()) {
            self.clusters.with_label_values(&[state.as_str()]).set(signed(count));
        }
        for (index, verdict) in Verdict::ALL.into_iter().enumerate() {
            let of = |counts: &[u64]| signed(counts.get(index).copied().unwrap_or_default());
            self.releases.with_label_values(&[verdict.as_str()]).set(of(&total.releases));
            self.objects.with_label_values(&[verdict.as_str()]).set(of(&total.objects));
        }
        for (reason, count) in DeviationReason::ALL.into_iter().zip(total.deviations) {
            self.deviations.with_label_values(&[reason.as_str()]).set(signed(count));
        }
        self.contested_paths.set(signed(total.contested_paths));
        self.queue_depth.set(signed(total.queue_depth));
        self.cluster_up.reset();
        for (cluster, up) in figures.up() {
            self.cluster_up.with_label_values(&[&*cluster.namespace, &*cluster.name]).set(i64::from(up));
        }
        self.leading.set(self.term.lock().as_ref().is_some_and(Term::holds).into());
        self.watches.set(signed(self.watch_stats.running()));
        for (reason, count) in self.watch_stats.restarts() {
            let counter = self.watch_restarts.with_label_values(&[reason.label()]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    /// The label value of a kind. Who can make kinds on a workload cluster must not be able to fill the hub's memory.
    fn kind(&self, kind: &str) -> String {
        let mut kinds = self.kinds.lock();
        if kinds.contains(kind) {
            return kind.to_owned();
        }
        if kinds.len() >= MAX_KINDS {
            return "other".to_owned();
        }
        kinds.insert(kind.to_owned());
        kind.to_owned()
    }
}

impl RequestObserver for Metrics {
    fn observe(&self, observed: Observed) {
        let verb = if observed.dry_run { "dryrun" } else { observed.verb.as_str() };
        let code = observed.status.as_ref().map_or("none", |status| status.as_str());
        self.workload_requests.with_label_values(&[verb, code]).inc();
    }
}

/// Gauges are signed in Prometheus' library.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

struct Maker<'a> {
    registry: &'a Registry,
}

impl Maker<'_> {
    fn opts(name: &str, help: &str) -> Opts {
        Opts::new(format!("holdfast_{name}"), help)
    }

    fn add<C: prometheus::core::Collector + Clone + 'static>(&self, collector: C) -> Result<C, MetricsError> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, MetricsError> {
        self.add(IntGauge::with_opts(Self::opts(name, help))?)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, MetricsError> {
        self.add(IntGaugeVec::new(Self::opts(name, help), labels)?)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, MetricsError> {
        self.add(IntCounter::with_opts(Self::opts(name, help))?)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, MetricsError> {
        self.add(IntCounterVec::new(Self::opts(name, help), labels)?)
    }

    fn histogram(&self, name: &str, help: &str) -> Result<Histogram, MetricsError> {
        self.add(Histogram::with_opts(HistogramOpts::new(format!("holdfast_{name}"), help).buckets(SECONDS.to_vec()))?)
    }
}
