//! Webhooks that start out harmless and that their own process closes once it can answer: `failurePolicy` goes from `Ignore` to `Fail`
//! when the bundle is filled in (istiod, the certificate Jobs of ingress and monitoring charts). Taking it back would open the gate
//! that the chart is there to shut.

use serde_json::Value;

use super::{Question, Yield, bundle::is_placeholder, is_field, of_webhook};
use crate::{
    manager,
    path::{Path, Segment},
    project,
};

pub(super) fn answer(question: &Question<'_>) -> Option<Yield> {
    if !matches!(of_webhook(question)?, [policy] if is_field(policy, "failurePolicy")) {
        return None;
    }
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(ToOwned::to_owned);
    if text(question.declared)? != "Ignore" || text(question.live)? != "Fail" {
        return None;
    }
    let bundle: Path = question.path.parent().join(Segment::field("clientConfig")).join(Segment::field("caBundle"));
    let declared = project::lookup(&question.desired.value, &bundle).and_then(Value::as_str);
    let closer = manager::holder(question.entries, question.path)?;
    // Whoever fills in the bundle is the webhook's own process; somebody who edits the policy alone is not.
    let fills_in = declared.is_none_or(is_placeholder) && closer.fields.has(&bundle);
    let is_release = question.writer.is_some_and(|writer| writer.wrote(closer));
    (fills_in && !is_release).then(|| Yield::Theirs(format!("{} closes the webhook when it is ready", closer.manager)))
}
