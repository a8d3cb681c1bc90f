//! Replicas: within its bounds any number is the autoscaler's; one outside goes to the nearest bound, never to the manifest's, which
//! could be an outage under load.

use std::{cmp::Reverse, ops::RangeInclusive};

use serde_json::{Value, json};

use super::{Question, Scaler, Yield};

/// Annotations by which Cluster API's objects are handed to the cluster autoscaler.
const NODE_GROUP: [&str; 2] =
    ["cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size", "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"];

/// Who sets an object's replicas, and to which numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Kind and name, for people.
    pub by: String,
    /// The numbers it may set.
    pub ranges: Vec<RangeInclusive<i64>>,
}

impl Replicas {
    /// One that sets what lies between two bounds.
    pub fn between(by: String, min: i64, max: i64) -> Self {
        Self { by, ranges: vec![min..=max] }
    }

    fn allows(&self, replicas: i64) -> bool {
        self.ranges.iter().any(|range| range.contains(&replicas))
    }
}

pub(super) fn answer(question: &Question<'_>) -> Option<Yield> {
    if !question.is_at(&["spec", "replicas"]) {
        return None;
    }
    let node_group = node_group(question);
    let scalers: Vec<&Replicas> = question
        .scalers
        .iter()
        .filter_map(|scaler| match scaler {
            Scaler::Replicas(replicas) => Some(replicas),
            Scaler::Resources(_) => None,
        })
        .chain(&node_group)
        .collect();
    let there = question.live.and_then(Value::as_i64);
    if let Some(scaler) = scalers.iter().find(|scaler| there.is_some_and(|there| scaler.allows(there))) {
        return Some(Yield::Theirs(format!("{} scales it", scaler.by)));
    }
    let from = there.or_else(|| question.declared.and_then(Value::as_i64))?;
    // KEDA scales by an autoscaler of its own and beyond its bounds: what one of them allows is allowed.
    let bounds = scalers.iter().flat_map(|scaler| &scaler.ranges).map(|range| from.min(*range.end()).max(*range.start()));
    let nearest = bounds.min_by_key(|bound| (bound.abs_diff(from), Reverse(*bound)))?;
    Some(Yield::Beyond(json!(nearest)))
}

/// The cluster autoscaler scales a node group within the bounds that its annotations declare.
fn node_group(question: &Question<'_>) -> Option<Replicas> {
    if question.desired.key.gvk.group != "cluster.x-k8s.io" {
        return None;
    }
    let [min, max] = NODE_GROUP.map(|name| question.annotation(name).and_then(|bound| bound.parse().ok()));
    Some(Replicas::between("the cluster autoscaler".to_owned(), min?, max?))
}
