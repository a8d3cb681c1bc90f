//! From the server's answer to a [`CallError`].
//!
//! The server's message is free text in which a value of the object can stand anywhere, so it is matched only where a phrase must
//! begin or end, and nothing of it is kept but names and paths of a strict form.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::CallError;
use super::typed_path::first_path;

const MAX_RETRY_AFTER: u32 = 300;
const MAX_FIELDS: usize = 16;
const MAX_FIELD: usize = 512;
const MAX_NAME: usize = 253;

/// What the server says where it finds an object unfit and has no better code for it: of node ports that are taken, and of what is
/// stored when an apply should be merged into it, such as list items that somebody took the key from.
const UNFIT: [&str; 2] = ["duplicate nodePort: ", "failed to create manager for existing fields: failed to convert new object ("];

/// What the request was about, to tell its own absence from the absence of something else.
#[derive(Clone, Copy)]
pub(super) enum Asked<'a> {
    /// An object or a collection.
    Resource { plural: &'a str, name: Option<&'a str> },
    /// A path outside the resource API.
    Path,
}

#[derive(Deserialize)]
struct StatusBody {
    kind: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    name: String,
    kind: String,
    causes: Option<Vec<Cause>>,
    retry_after_seconds: u32,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
    field: String,
}

/// Classifies an answer with an error status.
pub(super) fn answer(asked: Asked<'_>, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> CallError {
    let parsed = parse(body);
    if let (StatusCode::NOT_FOUND, None) = (status, &parsed) {
        // What the API server's router says. Any other text comes from something in between, which knows nothing of objects.
        let router = body.trim_ascii() == b"404 page not found";
        return if router { CallError::KindNotServed } else { CallError::BadAnswer };
    }
    let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    classify(asked, status.as_u16(), parsed.unwrap_or_default(), retry_after)
}

impl Default for StatusBody {
    fn default() -> Self {
        Self { kind: "Status".into(), reason: String::new(), message: String::new(), details: None }
    }
}

fn parse(body: &[u8]) -> Option<StatusBody> {
    serde_json::from_slice(body).ok().filter(|status: &StatusBody| status.kind == "Status")
}

fn classify(asked: Asked<'_>, code: u16, status: StatusBody, retry_after: Option<u32>) -> CallError {
    let StatusBody { reason, message, details, .. } = status;
    // A webhook chooses the status code of its denial, so this comes before the code.
    if let Some(error) = admission(&message) {
        return error;
    }
    let details = details.unwrap_or_default();
    match code {
        401 => CallError::Unauthorized,
        403 => forbidden(&message, &details),
        404 => not_found(asked, &details),
        409 if reason == "AlreadyExists" => CallError::AlreadyExists,
        409 => CallError::Conflict,
        410 => CallError::Expired,
        413 => CallError::TooLarge,
        422 => invalid(&message, details),
        429 => {
            let hint = retry_after.or_else(|| Some(details.retry_after_seconds).filter(|seconds| *seconds > 0));
            CallError::Throttled { retry_after: hint.map(|seconds| Duration::from_secs(seconds.min(MAX_RETRY_AFTER).into())) }
        }
        500 if message.starts_with("failed to create typed patch object (") => CallError::TypedPatch { path: first_path(&message) },
        500 if reason.is_empty() && UNFIT.iter().any(|phrase| message.starts_with(phrase)) => CallError::Invalid { fields: Vec::new() },
        400..=499 => CallError::Rejected { code },
        500..=599 => CallError::Server { code },
        _ => CallError::BadAnswer,
    }
}

fn admission(message: &str) -> Option<CallError> {
    if let Some(rest) = message.strip_prefix("admission webhook \"") {
        let (name, rest) = rest.split_once('"')?;
        if rest.starts_with(" denied the request") {
            return Some(CallError::AdmissionDenied { by: clean_name(name) });
        }
        return rest.starts_with(" does not support dry run").then(|| CallError::DryRunUnsupported { webhook: clean_name(name) });
    }
    if let Some(rest) = message.strip_prefix("Internal error occurred: failed calling webhook \"") {
        let (name, _) = rest.split_once('"')?;
        return Some(CallError::AdmissionUnavailable { webhook: clean_name(name) });
    }
    let rest = forbidden_because(message)?;
    if let Some(rest) = rest.strip_prefix("ValidatingAdmissionPolicy '") {
        let (name, _) = rest.split_once('\'')?;
        return Some(CallError::AdmissionDenied { by: clean_name(name) });
    }
    rest.starts_with("violates PodSecurity ").then(|| CallError::AdmissionDenied { by: Some("PodSecurity".into()) })
}

/// What follows `KIND "NAME" is forbidden: `. Names hold no quotes, so the first match is the server's own.
fn forbidden_because(message: &str) -> Option<&str> {
    let (head, rest) = message.split_once("\" is forbidden: ")?;
    (head.matches('"').count() == 1).then_some(rest)
}

fn forbidden(message: &str, details: &Details) -> CallError {
    let terminating = details.causes.iter().flatten().any(|cause| cause.reason == "NamespaceTerminating");
    let quota = forbidden_because(message).is_some_and(|rest| {
        ["exceeded quota: ", "failed quota: ", "status unknown for quota: "].iter().any(|phrase| rest.starts_with(phrase))
    });
    match (terminating, quota) {
        (true, _) => CallError::NamespaceTerminating,
        (false, true) => CallError::QuotaExceeded,
        (false, false) => CallError::Forbidden,
    }
}

fn not_found(asked: Asked<'_>, details: &Details) -> CallError {
    let Asked::Resource { plural, name } = asked else { return CallError::KindNotServed };
    if details.kind.is_empty() && details.name.is_empty() {
        return CallError::KindNotServed;
    }
    if details.kind == "namespaces" && plural != "namespaces" {
        return CallError::NamespaceMissing;
    }
    if name == Some(details.name.as_str()) { CallError::NotFound } else { CallError::Rejected { code: 404 } }
}

fn invalid(message: &str, details: Details) -> CallError {
    let causes = details.causes.unwrap_or_default();
    // The uid in a request is the one that was read: another object lives under the name now.
    if causes.iter().any(|cause| cause.field == "metadata.uid") {
        return CallError::Conflict;
    }
    if causes.is_empty() && message == "the server rejected our request due to an error in our request" {
        return CallError::PatchMismatch;
    }
    let immutable = causes.iter().any(is_immutable);
    let mut fields: Vec<String> = Vec::new();
    for cause in causes {
        let usable = !cause.field.is_empty() && cause.field.len() <= MAX_FIELD && !cause.field.contains(char::is_control);
        if usable && fields.len() < MAX_FIELDS && !fields.contains(&cause.field) {
            fields.push(cause.field);
        }
    }
    if immutable { CallError::Immutable { fields } } else { CallError::Invalid { fields } }
}

/// The phrases by which validation says that a field cannot change. A cause of type "invalid" shows the value first and ends with
/// the phrase; one of type "forbidden" shows no value and begins with it, and may add a comparison on further lines.
fn is_immutable(cause: &Cause) -> bool {
    match cause.reason.as_str() {
        "FieldValueInvalid" => {
            [": field is immutable", ": may not change once set", ": cannot change roleRef"].iter().any(|end| cause.message.ends_with(end))
        }
        "FieldValueForbidden" => {
            let first_line = cause.message.lines().next().unwrap_or_default();
            let detail = first_line.strip_prefix("Forbidden: ").unwrap_or(first_line);
            detail.contains("immutable")
                || ["updates to ", "pod updates may not change fields", "may not be changed in an update"]
                    .iter()
                    .any(|start| detail.starts_with(start))
        }
        _ => false,
    }
}

fn clean_name(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '/');
    (!name.is_empty() && name.len() <= MAX_NAME && name.chars().all(plain)).then(|| name.to_owned())
}
