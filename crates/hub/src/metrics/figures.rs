//! What is true of each cluster now, and the sums over all.

use std::collections::BTreeMap;

use holdfast_api::report::{DeviationReason, Verdict};

use crate::fleet_view::ClusterName;

/// How a cluster stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// Connected and watched.
    Connected,
    /// Connecting, or listing for the first time.
    Connecting,
    /// It does not answer, or refuses the credentials.
    Unreachable,
    /// Its kubeconfig is missing or not used.
    Rejected,
    /// Its control plane was never initialised, or it is being deleted.
    Waiting,
    /// Connected, but paused: nothing is written.
    Paused,
}

impl ClusterState {
    /// Every state.
    pub const ALL: [Self; 6] = [Self::Connected, Self::Connecting, Self::Unreachable, Self::Rejected, Self::Waiting, Self::Paused];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "Connected",
            Self::Connecting => "Connecting",
            Self::Unreachable => "Unreachable",
            Self::Rejected => "Rejected",
            Self::Waiting => "Waiting",
            Self::Paused => "Paused",
        }
    }

    const fn is_up(self) -> bool {
        matches!(self, Self::Connected | Self::Paused)
    }
}

/// One cluster's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterFigures {
    /// How it stands.
    pub state: ClusterState,
    /// Its releases by their worst verdict, in the order of [`Verdict::ALL`].
    pub releases: [u64; Verdict::ALL.len()],
    /// Its objects by verdict, in the order of [`Verdict::ALL`].
    pub objects: [u64; Verdict::ALL.len()],
    /// Accepted differences, in the order of [`DeviationReason::ALL`].
    pub deviations: [u64; DeviationReason::ALL.len()],
    /// Paths somebody fights over.
    pub contested_paths: u64,
    /// Objects that wait to be judged.
    pub queue_depth: u64,
}

impl ClusterFigures {
    /// A cluster about which nothing is known but how it stands.
    pub const fn new(state: ClusterState) -> Self {
        Self {
            state,
            releases: [0; Verdict::ALL.len()],
            objects: [0; Verdict::ALL.len()],
            deviations: [0; DeviationReason::ALL.len()],
            contested_paths: 0,
            queue_depth: 0,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Figures {
    clusters: BTreeMap<ClusterName, ClusterFigures>,
}

impl Figures {
    pub(super) fn set(&mut self, cluster: &ClusterName, figures: ClusterFigures) {
        self.clusters.insert(cluster.clone(), figures);
    }

    pub(super) fn clear(&mut self) {
        self.clusters.clear();
    }

    pub(super) fn remove(&mut self, cluster: &ClusterName) {
        self.clusters.remove(cluster);
    }

    /// The sums; the state of the sum means nothing. What was last seen of a cluster that cannot be seen is no verdict of now: its
    /// releases and objects count as `Unknown`.
    pub(super) fn total(&self) -> ClusterFigures {
        let mut total = ClusterFigures::new(ClusterState::Connected);
        for figures in self.clusters.values() {
            add(&mut total.releases, &seen(figures.state, figures.releases));
            add(&mut total.objects, &seen(figures.state, figures.objects));
            add(&mut total.deviations, &figures.deviations);
            total.contested_paths += figures.contested_paths;
            total.queue_depth += figures.queue_depth;
        }
        total
    }

    /// Clusters by state, in the order of [`ClusterState::ALL`].
    pub(super) fn states(&self) -> [u64; ClusterState::ALL.len()] {
        ClusterState::ALL.map(|state| self.clusters.values().map(|figures| u64::from(figures.state == state)).sum())
    }

    pub(super) fn up(&self) -> impl Iterator<Item = (&ClusterName, bool)> {
        self.clusters.iter().map(|(cluster, figures)| (cluster, figures.state.is_up()))
    }
}

/// Counts by verdict, all of them `Unknown` unless the cluster is connected.
fn seen(state: ClusterState, counts: [u64; Verdict::ALL.len()]) -> [u64; Verdict::ALL.len()] {
    if state.is_up() {
        return counts;
    }
    let all = counts.iter().sum();
    Verdict::ALL.map(|verdict| if verdict == Verdict::Unknown { all } else { 0 })
}

fn add<const N: usize>(total: &mut [u64; N], more: &[u64; N]) {
    for (sum, number) in total.iter_mut().zip(more) {
        *sum += number;
    }
}
