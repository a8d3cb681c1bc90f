//! Pull secrets that a controller adds to a `ServiceAccount`: taking them away makes it create new ones without end.

use serde_json::Value;

use super::{Question, Yield, beside};
use crate::manager;

/// Controllers that add pull secrets of any name.
const CONTROLLERS: [&str; 4] =
    ["openshift-controller-manager", "kube-controller-manager", "imagepullsecret-patcher", "imagepullsecrets-controller"];

pub(super) fn answer(question: &Question<'_>) -> Option<Yield> {
    if !question.is_any("", &["ServiceAccount"]) || !question.is_at(&["imagePullSecrets"]) {
        return None;
    }
    let (Some(Value::Array(live)), Some(Value::Array(declared))) = (question.live, question.declared) else { return None };
    let by_controller =
        manager::holder(question.entries, question.path).is_some_and(|holder| CONTROLLERS.contains(&holder.manager.as_str()));
    let account = &question.desired.key.name;
    let may_stand =
        |item: &Value| by_controller || item.get("name").and_then(Value::as_str).is_some_and(|name| is_dockercfg(name, account));
    let (is_theirs, extras) = beside(declared, live, may_stand);
    if is_theirs {
        let note = if extras.is_empty() { "the same pull secrets in another order" } else { "a controller adds pull secrets" };
        return Some(Yield::theirs(note));
    }
    // Whoever took a declared one away may have added others: only what a name proves stays.
    let extras: Vec<&Value> = extras
        .into_iter()
        .filter(|item| item.get("name").and_then(Value::as_str).is_some_and(|name| is_dockercfg(name, account)))
        .collect();
    (!extras.is_empty()).then(|| Yield::Beyond(declared.iter().chain(extras).cloned().collect()))
}

/// `OpenShift`'s pull secret of an account: its name, `-dockercfg-` and five letters or digits.
fn is_dockercfg(name: &str, account: &str) -> bool {
    let rest = name.strip_prefix(account).and_then(|rest| rest.strip_prefix("-dockercfg-"));
    rest.is_some_and(|rest| rest.len() == 5 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}
