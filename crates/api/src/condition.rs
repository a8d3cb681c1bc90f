//! Conditions in the shape of `metav1.Condition`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `True`, `False` or `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Truth {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// It could not be told; the reason says why.
    Unknown,
}

/// One condition, as every Kubernetes tool reads them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Name, for example `InSync`.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    pub kind: String,
    /// Whether it holds.
    pub status: Truth,
    /// One word of a closed list that programs can match on.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// One sentence for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When `status` last changed, RFC 3339.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_transition_time: jiff::Timestamp,
    /// Generation of the object that this was said about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// A condition that starts to hold at `now`.
    pub fn new(kind: &str, status: Truth, reason: &str, message: impl Into<String>, now: jiff::Timestamp) -> Self {
        Self {
            kind: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.into(),
            last_transition_time: now,
            observed_generation: None,
        }
    }
}

/// Gives each condition of `next` the transition time it had in `previous` when its status did not change.
pub fn keep_transition_times(previous: &[Condition], next: &mut [Condition]) {
    for condition in next {
        if let Some(old) = previous.iter().find(|old| old.kind == condition.kind && old.status == condition.status) {
            condition.last_transition_time = old.last_transition_time;
        }
    }
}
