//! What containers ask for, under a `VerticalPodAutoscaler`: within its bounds it is the autoscaler's, outside it goes to the bound.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Question, Scaler, Yield, is_field};
use crate::{equivalence::quantity, path::Segment};

/// Who sets the resources of an object's containers, and for which of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Kind and name, for people.
    pub by: String,
    /// What it may set. The rule of a container's own name goes before that of `*`; a container without one may be set freely.
    pub rules: Vec<ContainerRule>,
}

/// What a vertical autoscaler may set of one container, or of all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRule {
    /// Name of the container; `*` for those without a rule of their own.
    pub container: String,
    /// Resources it may set, such as `cpu`.
    pub resources: Vec<String>,
    /// Whether it sets limits too, which follow the requests.
    pub limits: bool,
    /// Least requests by resource, as quantities.
    pub min: BTreeMap<String, String>,
    /// Most.
    pub max: BTreeMap<String, String>,
}

impl ContainerRule {
    /// Everything the autoscaler sets where nothing else is said.
    pub fn free(container: &str) -> Self {
        Self {
            container: container.to_owned(),
            resources: ["cpu", "memory"].map(str::to_owned).to_vec(),
            limits: true,
            min: BTreeMap::new(),
            max: BTreeMap::new(),
        }
    }

    /// The bound that `live` is beyond.
    fn beyond(&self, resource: &str, live: i128) -> Option<&str> {
        let bound = |bounds: &BTreeMap<String, String>| bounds.get(resource).and_then(|text| quantity(text));
        if bound(&self.max).is_some_and(|most| live > most) {
            return self.max.get(resource).map(String::as_str);
        }
        if bound(&self.min).is_some_and(|least| live < least) { self.min.get(resource).map(String::as_str) } else { None }
    }
}

pub(super) fn answer(question: &Question<'_>) -> Option<Yield> {
    let scalers: Vec<&Resources> = question
        .scalers
        .iter()
        .filter_map(|scaler| match scaler {
            Scaler::Resources(resources) => Some(resources),
            Scaler::Replicas(_) => None,
        })
        .collect();
    if scalers.is_empty() {
        return None;
    }
    let (container, side, resource) = place(question.path.segments())?;
    // It never takes one away.
    let live = quantity(question.live?.as_str()?)?;
    let mut bound = None;
    for scaler in scalers {
        let own = scaler.rules.iter().find(|rule| rule.container == container);
        let free = ContainerRule::free(container);
        let rule = own.or_else(|| scaler.rules.iter().find(|rule| rule.container == "*")).unwrap_or(&free);
        if !rule.resources.iter().any(|known| known == resource) || (side == "limits" && !rule.limits) {
            continue;
        }
        // Bounds are about requests.
        match rule.beyond(resource, live).filter(|_| side == "requests") {
            None => return Some(Yield::Theirs(format!("{} sets it", scaler.by))),
            Some(beyond) => bound = Some(beyond.to_owned()),
        }
    }
    bound.map(|bound| Yield::Beyond(json!(bound)))
}

/// Container, `requests` or `limits`, and resource that a path leads to.
fn place(segments: &[Segment]) -> Option<(&str, &'static str, &str)> {
    let [.., containers, Segment::Key(keys), resources, side, Segment::Field(resource)] = segments else { return None };
    if !is_field(containers, "containers") || !is_field(resources, "resources") {
        return None;
    }
    let side = ["requests", "limits"].into_iter().find(|name| is_field(side, name))?;
    let container = keys.iter().find(|(key, _)| &**key == "name").and_then(|(_, name)| name.as_str())?;
    Some((container, side, resource))
}

/// Whether a quantity is larger than another one; `None` where one of them is none.
pub(super) fn is_larger(quantity_text: &Value, than: &Value) -> Option<bool> {
    let read = |value: &Value| match value {
        Value::String(text) => quantity(text),
        Value::Number(number) => quantity(&number.to_string()),
        _ => None,
    };
    Some(read(quantity_text)? > read(than)?)
}
