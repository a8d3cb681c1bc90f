//! Writes to each policy what became of it: whether it is in force, and for how many clusters and releases.

use std::{collections::BTreeMap, convert::Infallible, fmt, sync::Arc, time::Duration};

use holdfast_api::{
    condition::{Condition, Truth, keep_transition_times},
    policy::{DriftPolicy, DriftPolicyStatus},
};
use holdfast_fleet::{
    backoff::{Backoff, BackoffPolicy},
    clock::Clock,
};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{Acceptance, PolicyName};
use crate::{
    fleet_view::{ClusterName, FleetReceivers, FleetView, LivePolicy, ObjectName},
    management::{self, Failure},
};

/// The condition a policy has.
const ACCEPTED: &str = "Accepted";
/// Counts move with every cluster that connects; they are gathered this long.
const GATHER: Duration = Duration::from_secs(1);

/// How many releases each policy decides about, told by the reconcilers of the clusters. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReleaseCounts {
    counts: Arc<Mutex<BTreeMap<ClusterName, BTreeMap<PolicyName, u64>>>>,
    changed: Arc<watch::Sender<()>>,
}

impl Default for ReleaseCounts {
    fn default() -> Self {
        Self { counts: Arc::default(), changed: Arc::new(watch::Sender::new(())) }
    }
}

impl ReleaseCounts {
    /// Says how many releases of a cluster each policy decides about; replaces what was said before.
    pub fn set(&self, cluster: &ClusterName, releases: BTreeMap<PolicyName, u64>) {
        let mut counts = self.counts.lock();
        if counts.get(cluster) != Some(&releases) {
            counts.insert(cluster.clone(), releases);
            self.changed.send_replace(());
        }
    }

    /// Forgets a cluster.
    pub fn remove(&self, cluster: &ClusterName) {
        if self.counts.lock().remove(cluster).is_some() {
            self.changed.send_replace(());
        }
    }

    fn total(&self) -> BTreeMap<PolicyName, u64> {
        let mut total = BTreeMap::new();
        for (policy, count) in self.counts.lock().values().flatten() {
            *total.entry(policy.clone()).or_default() += count;
        }
        total
    }
}

/// Writes policy statuses.
pub struct PolicyStatusWriter {
    client: Client,
    fleet: FleetReceivers,
    releases: ReleaseCounts,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for PolicyStatusWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyStatusWriter").finish_non_exhaustive()
    }
}

impl PolicyStatusWriter {
    /// A writer that does nothing until it is run.
    pub fn new(client: Client, fleet: FleetReceivers, releases: ReleaseCounts, clock: Arc<dyn Clock>) -> Self {
        Self { client, fleet, releases, clock }
    }

    /// Writes for ever, and only where a status differs from what it should be. May be dropped at any await and run again.
    pub async fn run(&self) -> Infallible {
        let FleetReceivers { mut view, mut policies } = self.fleet.clone();
        let mut releases = self.releases.changed.subscribe();
        let mut backoff = Backoff::new(BackoffPolicy::WATCH);
        loop {
            releases.borrow_and_update();
            let fleet = Arc::clone(&view.borrow_and_update());
            let live = policies.borrow_and_update().clone();
            let mut failed = false;
            for (name, status) in due(&fleet, live.iter().flat_map(|live| live.iter()), &self.releases.total(), self.clock.now()) {
                failed |= !self.write(&name, &status).await;
            }
            let retry = if failed {
                Some(Instant::now() + backoff.next_delay())
            } else {
                backoff.reset();
                None
            };
            // `changed` is cancel-safe; a closed channel means that the hub ends, which cancels this task too.
            tokio::select! {
                _ = view.changed() => {}
                _ = policies.changed() => {}
                _ = releases.changed() => {}
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Whether the status stands; a policy that is gone needs none.
    async fn write(&self, name: &PolicyName, status: &DriftPolicyStatus) -> bool {
        let api: Api<DriftPolicy> = Api::namespaced(self.client.clone(), &name.namespace);
        // A count that went away must be taken away: a merge patch leaves out nothing by itself.
        let patch = Patch::Merge(json!({ "status": {
            "conditions": status.conditions, "clusters": status.clusters, "releases": status.releases, "observedGeneration": status.observed_generation,
        }}));
        match management::call(api.patch_status(&name.name, &PatchParams::default(), &patch)).await {
            Ok(_) | Err(Failure::NotFound) => true,
            Err(Failure::Withheld) => false,
            Err(failure) => {
                tracing::warn!(policy = %name, failure = failure.as_str(), "cannot write the status of a policy, retrying");
                false
            }
        }
    }
}

/// The statuses that must be written.
fn due<'a>(
    view: &FleetView,
    live: impl Iterator<Item = (&'a ObjectName, &'a Arc<LivePolicy>)>,
    releases: &BTreeMap<PolicyName, u64>,
    now: Timestamp,
) -> Vec<(PolicyName, DriftPolicyStatus)> {
    if !view.complete {
        return Vec::new();
    }
    let clusters = view.policies.selected_clusters(view.clusters.values().map(AsRef::as_ref));
    live.filter_map(|(object, live)| {
        let name = PolicyName::from(object);
        // A view that lags behind the list says nothing about this generation yet.
        let acceptance = view.policies.acceptance().get(&name).filter(|acceptance| acceptance.generation == live.input.generation)?;
        let status = status_of(acceptance, clusters.get(&name).copied(), releases.get(&name).copied(), live.status.as_ref(), now);
        (live.status.as_ref() != Some(&status)).then_some((name, status))
    })
    .collect()
}

fn status_of(
    acceptance: &Acceptance,
    clusters: Option<u64>,
    releases: Option<u64>,
    before: Option<&DriftPolicyStatus>,
    now: Timestamp,
) -> DriftPolicyStatus {
    let mut accepted = match &acceptance.result {
        Ok(()) => Condition::new(ACCEPTED, Truth::True, "Accepted", "the policy is in force", now),
        Err(error) => {
            let message = format!("{error}; until it is repaired, what it selects is only reported");
            Condition::new(ACCEPTED, Truth::False, error.reason(), message, now)
        }
    };
    accepted.observed_generation = Some(acceptance.generation);
    let mut conditions = vec![accepted];
    if let Some(before) = before {
        keep_transition_times(&before.conditions, &mut conditions);
    }
    let in_force = acceptance.result.is_ok();
    let count = |number: Option<u64>| in_force.then(|| i64::try_from(number.unwrap_or_default()).unwrap_or(i64::MAX));
    DriftPolicyStatus { conditions, clusters: count(clusters), releases: count(releases), observed_generation: Some(acceptance.generation) }
}

#[cfg(test)]
mod tests {
    use holdfast_api::policy::{DriftPolicySpec, LabelSelector};
    use jiff::SignedDuration;

    use super::*;
    use crate::policy::{DefaultMode, PolicyInput, PolicySet};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn live(spec: Option<DriftPolicySpec>, generation: i64, status: Option<DriftPolicyStatus>) -> Arc<LivePolicy> {
        Arc::new(LivePolicy { input: PolicyInput { generation, uid: "u".to_owned(), spec }, status })
    }

    fn view(name: &PolicyName, policy: &LivePolicy) -> FleetView {
        let policies = PolicySet::compile([(name.clone(), &policy.input)], DefaultMode::Off);
        FleetView { complete: true, policies: Arc::new(policies), ..FleetView::default() }
    }

    fn spec(value: serde_json::Value) -> DriftPolicySpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_status_is_written_once_and_keeps_its_time() {
        let object = ObjectName { namespace: Arc::from("fleet"), name: Arc::from("all") };
        let name = PolicyName::from(&object);
        let fresh = live(Some(spec(json!({"clusterSelector": LabelSelector::default()}))), 1, None);
        let releases = BTreeMap::from([(name.clone(), 3)]);
        let first = due(&view(&name, &fresh), [(&object, &fresh)].into_iter(), &releases, at(10));
        let [(_, status)] = first.as_slice() else { panic!("{first:?}") };
        assert_eq!((status.clusters, status.releases, status.observed_generation), (Some(0), Some(3), Some(1)));
        assert_eq!((status.conditions[0].status, status.conditions[0].reason.as_str()), (Truth::True, "Accepted"));

        let written = live(fresh.input.spec.clone(), 1, Some(status.clone()));
        assert!(due(&view(&name, &written), [(&object, &written)].into_iter(), &releases, at(20)).is_empty(), "equal but for the time");

        let more = BTreeMap::from([(name.clone(), 4)]);
        let again = due(&view(&name, &written), [(&object, &written)].into_iter(), &more, at(30));
        assert_eq!(again[0].1.conditions[0].last_transition_time, at(10));
    }

    #[test]
    fn a_refused_policy_says_so_and_counts_nothing() {
        let object = ObjectName { namespace: Arc::from("fleet"), name: Arc::from("all") };
        let name = PolicyName::from(&object);
        for (spec, reason) in [
            (None, "Invalid"),
            (Some(spec(json!({"clusterSelector": {}, "interval": "10s"}))), "Invalid"),
            (Some(spec(json!({"clusterSelector": {}, "contest": {"rounds": 1}}))), "Invalid"),
        ] {
            let policy = live(spec, 2, None);
            let written = due(&view(&name, &policy), [(&object, &policy)].into_iter(), &BTreeMap::new(), at(0));
            let status = &written[0].1;
            assert_eq!((status.conditions[0].status, status.conditions[0].reason.as_str()), (Truth::False, reason));
            assert!(status.conditions[0].message.ends_with("; until it is repaired, what it selects is only reported"), "{status:?}");
            assert_eq!((status.clusters, status.releases), (None, None));
        }
    }

    #[test]
    fn nothing_is_said_about_a_generation_that_was_not_compiled_yet() {
        let object = ObjectName { namespace: Arc::from("fleet"), name: Arc::from("all") };
        let name = PolicyName::from(&object);
        let old = live(Some(spec(json!({"clusterSelector": {}}))), 1, None);
        let new = live(old.input.spec.clone(), 2, None);
        assert!(due(&view(&name, &old), [(&object, &new)].into_iter(), &BTreeMap::new(), at(0)).is_empty());
        let mut incomplete = view(&name, &old);
        incomplete.complete = false;
        assert!(due(&incomplete, [(&object, &old)].into_iter(), &BTreeMap::new(), at(0)).is_empty());
    }
}
