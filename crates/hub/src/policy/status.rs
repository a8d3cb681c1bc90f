//! Writes to each policy what became of it: whether it is in force, for how many clusters and releases, which others decide in its place,
//! and which of its rules change nothing.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use holdfast_api::{
    cluster_policy::ClusterDriftPolicy,
    condition::{Condition, Truth, keep_transition_times},
    policy::{DriftPolicy, DriftPolicyStatus, IdleReason, IdleRule, IgnoreRule, Mode},
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
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::{
    Acceptance, PolicyError, PolicyName,
    tally::{RuleUse, Tallies, Tally, Total},
};
use crate::{
    fleet_view::{FleetReceivers, FleetView, LivePolicy, ObjectName},
    management::{self, Failure},
};

/// Whether a policy is in force.
const ACCEPTED: &str = "Accepted";
/// Whether it decides about what it selects.
const DECIDES: &str = "Decides";
/// Policies named that decide in its place.
const NAMED: usize = 3;
/// Counts move with every cluster that connects; they are gathered this long.
const GATHER: Duration = Duration::from_secs(1);

/// Writes policy statuses.
pub struct PolicyStatusWriter {
    client: Client,
    fleet: FleetReceivers,
    tallies: Tallies,
    clock: Arc<dyn Clock>,
    is_restricted: bool,
}

impl fmt::Debug for PolicyStatusWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyStatusWriter").finish_non_exhaustive()
    }
}

impl PolicyStatusWriter {
    /// A writer that does nothing until it is run. A hub that is restricted to a namespace follows policies of the whole cluster, but leaves
    /// their status to one that sees all of it: several would contradict each other.
    pub fn new(client: Client, fleet: FleetReceivers, tallies: Tallies, clock: Arc<dyn Clock>, is_restricted: bool) -> Self {
        Self { client, fleet, tallies, clock, is_restricted }
    }

    /// Writes for ever, and only where a status differs from what it should be. May be dropped at any await and run again.
    pub async fn run(&self) -> Infallible {
        let FleetReceivers { mut view, mut policies, mut cluster_policies } = self.fleet.clone();
        let mut tallies = self.tallies.subscribe();
        let mut backoff = Backoff::new(BackoffPolicy::WATCH);
        loop {
            tallies.borrow_and_update();
            let fleet = Arc::clone(&view.borrow_and_update());
            let live = policies.borrow_and_update().clone();
            let of_cluster = cluster_policies.borrow_and_update().clone().filter(|_| !self.is_restricted);
            let live: Vec<_> = live.iter().chain(&of_cluster).flat_map(|live| live.iter()).collect();
            let now = self.clock.now();
            let mut failed = false;
            for (name, status) in due(&fleet, live.iter().copied(), &self.tallies.total(), now) {
                failed |= !self.write(&name, &status).await;
            }
            let retry = if failed {
                Some(backoff.next_delay())
            } else {
                backoff.reset();
                next_end(live.iter().map(|(_, policy)| &***policy), now)
            };
            let retry = retry.map(|wait| Instant::now() + wait);
            // `changed` is cancel-safe; a closed channel means that the hub ends, which cancels this task too.
            tokio::select! {
                _ = view.changed() => {}
                _ = policies.changed() => {}
                _ = cluster_policies.changed() => {}
                _ = tallies.changed() => {}
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Whether the status stands; a policy that is gone needs none.
    async fn write(&self, name: &PolicyName, status: &DriftPolicyStatus) -> bool {
        // A count that went away must be taken away: a merge patch leaves out nothing by itself.
        let patch = Patch::Merge(json!({ "status": {
            "conditions": status.conditions, "clusters": status.clusters, "releases": status.releases, "overridden": status.overridden,
            "idleRules": status.idle_rules, "observedGeneration": status.observed_generation,
        }}));
        let (client, how) = (self.client.clone(), PatchParams::default());
        let written = if name.is_of_cluster() {
            let api: Api<ClusterDriftPolicy> = Api::all(client);
            management::call(api.patch_status(&name.name, &how, &patch)).await.map(drop)
        } else {
            let api: Api<DriftPolicy> = Api::namespaced(client, &name.namespace);
            management::call(api.patch_status(&name.name, &how, &patch)).await.map(drop)
        };
        match written {
            Ok(()) | Err(Failure::NotFound) => true,
            Err(Failure::Withheld) => false,
            Err(failure) => {
                tracing::warn!(policy = %name, failure = failure.as_str(), "cannot write the status of a policy, retrying");
                false
            }
        }
    }
}

/// When the next ignore rule ends.
fn next_end<'a>(live: impl Iterator<Item = &'a LivePolicy>, now: Timestamp) -> Option<Duration> {
    let rules = live.filter_map(|policy| policy.input.spec.as_ref()).flat_map(|spec| &spec.ignore);
    let next = rules.filter_map(|rule| rule.until).filter(|until| now < *until).min()?;
    Duration::try_from(next.duration_since(now)).ok()
}

/// The statuses that must be written.
fn due<'a>(
    view: &FleetView,
    live: impl Iterator<Item = (&'a ObjectName, &'a Arc<LivePolicy>)>,
    total: &Total,
    now: Timestamp,
) -> Vec<(PolicyName, DriftPolicyStatus)> {
    if !view.complete {
        return Vec::new();
    }
    let selected = view.policies.selected_clusters(view.clusters.values().map(AsRef::as_ref));
    live.filter_map(|(object, live)| {
        let name = PolicyName::from(object);
        // A view that lags behind the list says nothing about this generation yet.
        let acceptance = view.policies.acceptance().get(&name).filter(|acceptance| acceptance.generation == live.input.generation)?;
        let clusters = selected.get(&name).map(Vec::as_slice).unwrap_or_default();
        let known = Known { clusters: clusters.len(), is_complete: total.is_complete(clusters), tally: total.of(&name) };
        let status = status_of(acceptance, &known, live, now);
        (live.status.as_ref() != Some(&status)).then_some((name, status))
    })
    .collect()
}

/// What is known about one policy.
struct Known {
    clusters: usize,
    /// Each of these clusters has said everything.
    is_complete: bool,
    tally: Tally,
}

fn status_of(acceptance: &Acceptance, known: &Known, live: &LivePolicy, now: Timestamp) -> DriftPolicyStatus {
    let observed_generation = Some(acceptance.generation);
    let mut conditions = vec![accepted(acceptance, now)];
    let mut status = DriftPolicyStatus { observed_generation, ..DriftPolicyStatus::default() };
    if acceptance.result.is_ok() {
        let is_off = live.input.spec.as_ref().is_some_and(|spec| spec.mode == Mode::Off);
        conditions.push(decides(known, is_off, now));
        let count = |number: u64| Some(i64::try_from(number).unwrap_or(i64::MAX));
        status.clusters = count(known.clusters as u64);
        status.releases = count(known.tally.decides);
        status.overridden = count(known.tally.overridden.values().sum());
        status.idle_rules = idle_rules(known, live, now);
    }
    for condition in &mut conditions {
        condition.observed_generation = observed_generation;
    }
    if let Some(before) = &live.status {
        keep_transition_times(&before.conditions, &mut conditions);
    }
    status.conditions = conditions;
    status
}

fn accepted(acceptance: &Acceptance, now: Timestamp) -> Condition {
    match &acceptance.result {
        Ok(()) => Condition::new(ACCEPTED, Truth::True, "Accepted", "the policy is in force", now),
        Err(error) => {
            let message = format!("{error}; until it is repaired, what it selects is only reported");
            Condition::new(ACCEPTED, Truth::False, PolicyError::REASON, message, now)
        }
    }
}

/// Whether the policy decides about what it selects, and who does in its place.
fn decides(known: &Known, is_off: bool, now: Timestamp) -> Condition {
    let Tally { decides, overridden, .. } = &known.tally;
    let lost: u64 = overridden.values().sum();
    let others = || {
        let named = overridden.iter().take(NAMED).map(|(policy, count)| format!("{policy} ({count})")).collect::<Vec<_>>().join(", ");
        let more = overridden.len().saturating_sub(NAMED);
        if more > 0 { format!("{named} and {more} more") } else { named }
    };
    let (truth, reason, message) = match (decides, lost) {
        (_, 0) if is_off => (Truth::True, "Off", "the releases that it selects are not watched".to_owned()),
        (0, 0) if !known.is_complete => {
            (Truth::Unknown, "NotJudged", "not every cluster that it selects has told which releases it has".to_owned())
        }
        (0, 0) => (Truth::False, "SelectsNothing", "it selects no release".to_owned()),
        (0, _) => (Truth::False, "Overridden", format!("other policies decide about all {lost} releases that it selects: {}", others())),
        (_, 0) => (Truth::True, "Decides", format!("it decides about all {decides} releases that it selects")),
        (..) => {
            let message =
                format!("it decides about {decides} releases; other policies decide about {lost} that it selects too: {}", others());
            (Truth::True, "PartlyOverridden", message)
        }
    };
    Condition::new(DECIDES, truth, reason, message, now)
}

/// Ignore rules that change nothing. That one matches nothing can be told only once everything was judged by it.
fn idle_rules(known: &Known, live: &LivePolicy, now: Timestamp) -> Vec<IdleRule> {
    let rules = live.input.spec.as_ref().map(|spec| spec.ignore.as_slice()).unwrap_or_default();
    let uses = &known.tally.rules;
    let is_known = known.is_complete && known.tally.decides > 0 && uses.len() == rules.len();
    let idle = |(place, rule): (usize, &IgnoreRule)| {
        let found = if is_known { uses.get(place).copied() } else { None };
        let reason = match (rule.until, found) {
            (Some(until), _) if until <= now => IdleReason::Expired,
            (_, Some(RuleUse::NoObject)) => IdleReason::NoObject,
            (_, Some(RuleUse::NoPath)) => IdleReason::NoPath,
            (_, Some(RuleUse::Used) | None) => return None,
        };
        Some(IdleRule { rule: i64::try_from(place).unwrap_or(i64::MAX), reason })
    };
    rules.iter().enumerate().filter_map(idle).collect()
}

#[cfg(test)]
mod tests {
    use holdfast_api::policy::{DriftPolicySpec, LabelSelector};
    use jiff::SignedDuration;

    use super::*;
    use crate::{
        fleet_view::ClusterName,
        policy::{DefaultMode, PolicyInput, PolicySet, tally::ClusterTally},
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn live(spec: Option<DriftPolicySpec>, generation: i64, status: Option<DriftPolicyStatus>) -> Arc<LivePolicy> {
        Arc::new(LivePolicy { input: PolicyInput { generation, uid: "u".to_owned(), spec, namespaces: None }, status })
    }

    fn view(name: &PolicyName, policy: &LivePolicy) -> FleetView {
        let policies = PolicySet::compile([(name.clone(), &policy.input)], DefaultMode::Off);
        FleetView { complete: true, policies: Arc::new(policies), ..FleetView::default() }
    }

    fn spec(value: serde_json::Value) -> DriftPolicySpec {
        serde_json::from_value(value).unwrap()
    }

    /// What one cluster says.
    fn said(name: &PolicyName, decides: u64) -> Total {
        let tallies = Tallies::default();
        let policies = [(name.clone(), Tally { decides, ..Tally::default() })].into();
        tallies.set(&ClusterName::new("fleet", "one"), ClusterTally { is_judged: true, policies });
        tallies.total()
    }

    #[test]
    fn a_status_is_written_once_and_keeps_its_time() {
        let object = ObjectName { namespace: Arc::from("fleet"), name: Arc::from("all") };
        let name = PolicyName::from(&object);
        let fresh = live(Some(spec(json!({"clusterSelector": LabelSelector::default()}))), 1, None);
        let releases = said(&name, 3);
        let first = due(&view(&name, &fresh), [(&object, &fresh)].into_iter(), &releases, at(10));
        let [(_, status)] = first.as_slice() else { panic!("{first:?}") };
        assert_eq!((status.clusters, status.releases, status.observed_generation), (Some(0), Some(3), Some(1)));
        assert_eq!((status.conditions[0].status, status.conditions[0].reason.as_str()), (Truth::True, "Accepted"));

        let written = live(fresh.input.spec.clone(), 1, Some(status.clone()));
        assert!(due(&view(&name, &written), [(&object, &written)].into_iter(), &releases, at(20)).is_empty(), "equal but for the time");

        let more = said(&name, 4);
        let again = due(&view(&name, &written), [(&object, &written)].into_iter(), &more, at(30));
        assert_eq!(again[0].1.conditions[0].last_transition_time, at(10));
    }

    #[test]
    fn a_refused_policy_says_so_and_counts_nothing() {
        let object = ObjectName { namespace: Arc::from("fleet"), name: Arc::from("all") };
        let name = PolicyName::from(&object);
        for (spec, reason) in [(None, "Invalid"), (Some(spec(json!({"clusterSelector": {}, "interval": "10s"}))), "Invalid")] {
            let policy = live(spec, 2, None);
            let written = due(&view(&name, &policy), [(&object, &policy)].into_iter(), &Total::default(), at(0));
            let status = &written[0].1;
            assert_eq!((status.conditions[0].status, status.conditions[0].reason.as_str()), (Truth::False, reason));
            assert!(status.conditions[0].message.ends_with("; until it is repaired, what it selects is only reported"), "{status:?}");
            assert_eq!((status.clusters, status.releases), (None, None));
        }
    }

    /// Decides about so many, overridden by these, whether everything is known; status, reason and message.
    type Row = (u64, &'static [(&'static str, u64)], bool, Truth, &'static str, &'static str);

    #[test]
    fn the_losing_policy_says_who_decides() {
        let by = |others: &[(&str, u64)]| others.iter().map(|(name, count)| (PolicyName::new("fleet", name), *count)).collect();
        let table: [Row; 6] = [
            (0, &[], false, Truth::Unknown, "NotJudged", "not every cluster"),
            (0, &[], true, Truth::False, "SelectsNothing", "no release"),
            (3, &[], true, Truth::True, "Decides", "all 3 releases"),
            (3, &[], false, Truth::True, "Decides", "all 3 releases"),
            (3, &[("b", 2)], true, Truth::True, "PartlyOverridden", "about 2 that it selects too: fleet/b (2)"),
            (
                0,
                &[("a", 1), ("b", 2), ("c", 3), ("d", 4)],
                true,
                Truth::False,
                "Overridden",
                "all 10 releases that it selects: fleet/a (1), fleet/b (2), fleet/c (3) and 1 more",
            ),
        ];
        for (count, others, is_complete, truth, reason, text) in table {
            let known = Known { clusters: 1, is_complete, tally: Tally { decides: count, overridden: by(others), rules: Vec::new() } };
            let condition = decides(&known, false, at(0));
            assert_eq!((condition.status, condition.reason.as_str()), (truth, reason));
            assert!(condition.message.contains(text), "{}", condition.message);
        }
        let unwatched = Known { clusters: 1, is_complete: false, tally: Tally::default() };
        assert_eq!(decides(&unwatched, true, at(0)).reason, "Off", "nobody looks at these clusters");
    }

    #[test]
    fn rules_that_change_nothing_are_told_once_everything_was_judged() {
        let rules = json!([{"paths": ["/a"]}, {"paths": ["/b"], "until": at(100).to_string()}, {"paths": ["/c"]}, {"paths": ["/d"]}]);
        let policy = live(Some(spec(json!({"clusterSelector": {}, "ignore": rules}))), 1, None);
        let uses = vec![RuleUse::Used, RuleUse::Used, RuleUse::NoObject, RuleUse::NoPath];
        let told = |is_complete, decides, rules: &[RuleUse], now| -> Vec<(i64, IdleReason)> {
            let known = Known { clusters: 1, is_complete, tally: Tally { decides, rules: rules.to_vec(), ..Tally::default() } };
            idle_rules(&known, &policy, at(now)).into_iter().map(|idle| (idle.rule, idle.reason)).collect()
        };
        assert_eq!(told(true, 1, &uses, 0), [(2, IdleReason::NoObject), (3, IdleReason::NoPath)]);
        assert_eq!(told(true, 1, &uses, 100), [(1, IdleReason::Expired), (2, IdleReason::NoObject), (3, IdleReason::NoPath)]);
        assert_eq!(told(false, 1, &uses, 100), [(1, IdleReason::Expired)]);
        assert!(told(true, 0, &uses, 0).is_empty(), "it decides about nothing");
        assert!(told(true, 1, &uses[..3], 0).is_empty(), "said about other rules");
        assert_eq!(next_end([&*policy].into_iter(), at(40)), Some(Duration::from_mins(1)));
        assert_eq!(next_end([&*policy].into_iter(), at(100)), None);
    }

    #[test]
    fn nothing_is_said_about_a_generation_that_was_not_compiled_yet() {
        let object = ObjectName { namespace: Arc::from("fleet"), name: Arc::from("all") };
        let name = PolicyName::from(&object);
        let old = live(Some(spec(json!({"clusterSelector": {}}))), 1, None);
        let new = live(old.input.spec.clone(), 2, None);
        assert!(due(&view(&name, &old), [(&object, &new)].into_iter(), &Total::default(), at(0)).is_empty());
        let mut incomplete = view(&name, &old);
        incomplete.complete = false;
        assert!(due(&incomplete, [(&object, &old)].into_iter(), &Total::default(), at(0)).is_empty());
    }
}
