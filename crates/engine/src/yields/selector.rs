//! Selectors of webhooks that a cloud narrows so that its own namespaces stay reachable. AKS does so moments after any write and in
//! changing order (facts: ten times a second if it is fought); a selector is atomic, so the path as a whole differs.

use serde_json::{Value, json};

use super::{Question, Yield, beside, is_field, of_webhook, same_item};

/// With this annotation AKS leaves a configuration alone.
const AKS_DISABLED: &str = "admissions.enforcer/disabled";

pub(super) fn answer(question: &Question<'_>) -> Option<Yield> {
    let is_selector =
        matches!(of_webhook(question)?, [selector] if is_field(selector, "namespaceSelector") || is_field(selector, "objectSelector"));
    let (Some(Value::Object(live)), Some(Value::Object(declared)), true) = (question.live, question.declared, is_selector) else {
        return None;
    };
    let expressions =
        |selector: &serde_json::Map<String, Value>| selector.get("matchExpressions").and_then(Value::as_array).cloned().unwrap_or_default();
    let labels = |selector: &serde_json::Map<String, Value>| selector.get("matchLabels").cloned().unwrap_or_else(|| json!({}));
    let may_stand = |expression: &Value| question.annotation(AKS_DISABLED) != Some("true") && is_of_cloud(expression);
    let found = expressions(live);
    let wanted = expressions(declared);
    let (is_theirs, extras) = beside(&wanted, &found, may_stand);
    if is_theirs && labels(live) == labels(declared) {
        let note = if extras.is_empty() {
            "the same expressions in another order"
        } else {
            "the cloud keeps the webhook out of its own namespaces"
        };
        return Some(Yield::theirs(note));
    }
    if extras.is_empty() {
        return None;
    }
    // What the cloud added stays: it would only be added again.
    let mut target = declared.clone();
    target.insert("matchExpressions".to_owned(), wanted.iter().chain(extras).cloned().collect());
    Some(Yield::Beyond(Value::Object(target)))
}

/// The expressions that AKS adds, now and in earlier years. Each only takes system namespaces out.
fn is_of_cloud(expression: &Value) -> bool {
    [
        json!({"key": "control-plane", "operator": "NotIn", "values": ["true"]}),
        json!({"key": "control-plane", "operator": "DoesNotExist"}),
        json!({"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]}),
    ]
    .iter()
    .any(|known| same_item(known, expression))
}
