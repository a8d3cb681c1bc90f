//! A planned write as people may see it: what is sent, under which name, and the values that may leave the process.

use serde::Serialize;
use serde_json::Value;

use crate::{
    object::Gvk,
    patch::{self, Op},
    plan::{Correction, Request},
    redact,
};

/// A planned write.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownWrite {
    /// The request.
    pub request: ShownRequest,
    /// Field manager it is sent under: the release's own.
    pub manager: String,
    /// How that manager's entry in `managedFields` reads: `Apply` or `Update`.
    pub operation: &'static str,
    /// Paths that are restored; none where the object is created.
    pub paths: Vec<String>,
    /// The operations of a JSON Patch, the guard of the version left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<ShownOperation>,
    /// A second write gives the restored fields back to the release in `managedFields`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub moves_ownership: bool,
}

/// Which request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ShownRequest {
    /// JSON Patch (RFC 6902) of single paths.
    JsonPatch,
    /// Forced server-side apply of the manifest, proven to change nothing else.
    Apply,
    /// Creation of the missing object.
    Create,
}

/// One operation of a JSON Patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownOperation {
    /// `add`, `replace` or `remove`.
    pub op: &'static str,
    /// JSON pointer.
    pub path: String,
    /// The value, where it may be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

impl ShownWrite {
    /// How people see `correction`, which is planned for `live`.
    pub fn of(gvk: &Gvk, live: Option<&Value>, correction: &Correction) -> Self {
        let (request, operations) = match &correction.request {
            Request::JsonPatch(ops) => (ShownRequest::JsonPatch, live.map(|live| operations(gvk, live, ops)).unwrap_or_default()),
            Request::Apply(_) => (ShownRequest::Apply, Vec::new()),
            Request::Create(_) | Request::CreateByApply(_) => (ShownRequest::Create, Vec::new()),
        };
        Self {
            request,
            manager: correction.writer.manager.clone(),
            operation: correction.writer.operation.as_str(),
            paths: correction.paths.iter().map(|path| redact::path_text(gvk, path)).collect(),
            operations,
            moves_ownership: correction.then.is_some(),
        }
    }
}

/// A pointer names list items by their place only, so each is looked up in the object as the operations before it leave it.
fn operations(gvk: &Gvk, live: &Value, ops: &[Op]) -> Vec<ShownOperation> {
    let mut work = live.clone();
    let mut shown = Vec::with_capacity(ops.len());
    for op in ops.iter().filter(|op| !op.is_version_guard()) {
        let value = redact::shown_at(gvk, &work, op.path(), op.value());
        shown.push(ShownOperation { op: op.word(), path: op.path().to_owned(), value });
        patch::apply(&mut work, op);
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manager::{Operation, Writer};

    fn shown(kind: &str, live: &Value, ops: Vec<Op>) -> Vec<ShownOperation> {
        let mut all = vec![patch::version_guard("7")];
        all.extend(ops);
        let writer = Writer { manager: "helm".into(), operation: Operation::Update };
        let correction = Correction { request: Request::JsonPatch(all), writer, paths: Vec::new(), touched: Vec::new(), then: None };
        ShownWrite::of(&Gvk::new("v1", kind), Some(live), &correction).operations
    }

    #[test]
    fn what_a_pointer_leads_through_decides_what_is_shown() {
        let live = json!({"env": [{"name": "DB_PASSWORD", "value": "x"}, {"name": "COLOR", "value": "red"}]});
        let set = |path: &str| Op::Replace { path: path.to_owned(), value: json!("CANARY") };
        let put = Op::Add { path: "/env/0".to_owned(), value: json!({"name": "FIRST", "value": "1"}) };
        let value = |ops: Vec<Op>| shown("Pod", &live, ops).pop().unwrap().value;
        assert_eq!(value(vec![set("/env/0/value")]), None);
        assert_eq!(value(vec![set("/env/1/value")]), Some(json!("CANARY")));
        // The first operation moves everything by one.
        assert_eq!(value(vec![put.clone(), set("/env/1/value")]), None);
        assert_eq!(value(vec![put, set("/env/2/value")]), Some(json!("CANARY")));
        assert_eq!(shown("Secret", &live, vec![set("/env/1/value")])[0].value, None);
    }

    #[test]
    fn the_guard_is_no_operation_of_its_own() {
        assert_eq!(shown("Pod", &json!({}), Vec::new()), []);
    }
}
