//! What the clusters say about the policies: how many releases each decides about, and which of its rules change anything.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::PolicyName;
use crate::fleet_view::ClusterName;

/// Whether an ignore rule can change a verdict. Of several findings the last one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleUse {
    /// No declared object is what it is about.
    #[default]
    NoObject,
    /// Such objects are declared, but none of its paths.
    NoPath,
    /// It can.
    Used,
}

/// What is known about one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Releases it decides about.
    pub decides: u64,
    /// Releases it selects about which others decide, by these others.
    pub overridden: BTreeMap<PolicyName, u64>,
    /// Its ignore rules, in their order.
    pub rules: Vec<RuleUse>,
}

impl Tally {
    /// Takes in what holds elsewhere too.
    pub fn add(&mut self, other: &Self) {
        self.decides += other.decides;
        for (policy, count) in &other.overridden {
            *self.overridden.entry(policy.clone()).or_default() += count;
        }
        self.add_rules(&other.rules);
    }

    /// Takes in how the rules fare elsewhere.
    pub fn add_rules(&mut self, rules: &[RuleUse]) {
        if self.rules.len() < rules.len() {
            self.rules.resize(rules.len(), RuleUse::default());
        }
        for (known, found) in self.rules.iter_mut().zip(rules) {
            *known = (*known).max(*found);
        }
    }
}

/// What one cluster says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTally {
    /// Every guarded release was judged: what is not said here is not so.
    pub is_judged: bool,
    /// By policy.
    pub policies: BTreeMap<PolicyName, Tally>,
}

/// Where the reconcilers of the clusters tell. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tallies {
    clusters: Arc<Mutex<BTreeMap<ClusterName, ClusterTally>>>,
    changed: Arc<watch::Sender<()>>,
}

impl Default for Tallies {
    fn default() -> Self {
        Self { clusters: Arc::default(), changed: Arc::new(watch::Sender::new(())) }
    }
}

impl Tallies {
    /// Says what holds on a cluster; replaces what was said before.
    pub fn set(&self, cluster: &ClusterName, tally: ClusterTally) {
        let mut clusters = self.clusters.lock();
        if clusters.get(cluster) != Some(&tally) {
            clusters.insert(cluster.clone(), tally);
            self.changed.send_replace(());
        }
    }

    /// Forgets a cluster.
    pub fn remove(&self, cluster: &ClusterName) {
        if self.clusters.lock().remove(cluster).is_some() {
            self.changed.send_replace(());
        }
    }

    /// Tells of every change.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// What is said now.
    pub fn total(&self) -> Total {
        let clusters = self.clusters.lock();
        let mut total = Total::default();
        for (name, cluster) in clusters.iter() {
            if cluster.is_judged {
                total.judged.push(name.clone());
            }
            for (policy, tally) in &cluster.policies {
                total.policies.entry(policy.clone()).or_default().add(tally);
            }
        }
        total
    }
}

/// What all clusters say together.
#[derive(Clone, Debug, Default)]
pub struct Total {
    /// Clusters that know everything about themselves, in the order of their names.
    judged: Vec<ClusterName>,
    policies: BTreeMap<PolicyName, Tally>,
}

impl Total {
    /// What is said about a policy.
    pub fn of(&self, policy: &PolicyName) -> Tally {
        self.policies.get(policy).cloned().unwrap_or_default()
    }

    /// Whether each of these clusters has said everything.
    pub fn is_complete(&self, clusters: &[&ClusterName]) -> bool {
        clusters.iter().all(|cluster| self.judged.binary_search(cluster).is_ok())
    }
}
