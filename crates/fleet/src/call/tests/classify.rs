//! Every body here has the form a kube-apiserver sends, with a canary wherever a value of an object can appear.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::super::classify::{Asked, answer};
use super::super::{CallError, Retry};

const CANARY: &str = "CANARY-5c1d";

const ASKED: Asked<'_> = Asked::Resource { plural: "deployments", name: Some("web") };

fn status(code: u16, reason: &str, message: &str, details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
           "message": message.replace("CANARY", CANARY), "details": details})
}

fn classify(asked: Asked<'_>, code: u16, body: &str) -> CallError {
    let error = answer(asked, StatusCode::from_u16(code).unwrap(), &HeaderMap::new(), body.as_bytes());
    let printed = format!("{error} {error:?}");
    assert!(!printed.contains(CANARY), "{printed}");
    error
}

fn of_status(code: u16, reason: &str, message: &str, details: &Value) -> CallError {
    classify(ASKED, code, &status(code, reason, message, details).to_string())
}

fn cause(reason: &str, message: &str, field: &str) -> Value {
    json!({"causes": [{"reason": reason, "message": message.replace("CANARY", CANARY), "field": field}]})
}

fn fields(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn denied(by: &str) -> CallError {
    CallError::AdmissionDenied { by: Some(by.into()) }
}

#[test]
fn credentials_and_permissions() {
    assert_eq!(of_status(401, "Unauthorized", "Unauthorized", &Value::Null), CallError::Unauthorized);
    let rbac = r#"secrets "s" is forbidden: User "jane" cannot patch resource "secrets" in API group "" in the namespace "e9""#;
    assert_eq!(of_status(403, "Forbidden", rbac, &json!({"name": "s", "kind": "secrets"})), CallError::Forbidden);
    let escalation = r#"roles.rbac.authorization.k8s.io "r" is forbidden: user "jane" (groups=["a"]) is attempting to grant RBAC permissions not currently held: exceeded quota: no"#;
    assert_eq!(of_status(403, "Forbidden", escalation, &Value::Null), CallError::Forbidden);
}

#[test]
fn namespaces_and_quotas() {
    let terminating = r#"configmaps "c" is forbidden: unable to create new content in namespace e9t because it is being terminated"#;
    let details = json!({"name": "c", "kind": "configmaps", "causes": [
        {"reason": "NamespaceTerminating", "message": "namespace e9t is being terminated", "field": "metadata.namespace"}]});
    assert_eq!(of_status(403, "Forbidden", terminating, &details), CallError::NamespaceTerminating);
    for quota in [
        r#"configmaps "c" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1"#,
        r#"pods "p" is forbidden: failed quota: q: must specify limits.cpu for: main"#,
    ] {
        assert_eq!(of_status(403, "Forbidden", quota, &Value::Null), CallError::QuotaExceeded);
    }
}

#[test]
fn what_is_missing() {
    let object = json!({"name": "web", "group": "apps", "kind": "deployments"});
    let message = r#"deployments.apps "web" not found"#;
    assert_eq!(of_status(404, "NotFound", message, &object), CallError::NotFound);
    let namespace = json!({"name": "nope", "kind": "namespaces"});
    assert_eq!(of_status(404, "NotFound", r#"namespaces "nope" not found"#, &namespace), CallError::NamespaceMissing);
    let removed_version = "the server could not find the requested resource";
    assert_eq!(of_status(404, "NotFound", removed_version, &json!({})), CallError::KindNotServed);
    assert_eq!(of_status(404, "NotFound", removed_version, &Value::Null), CallError::KindNotServed);
    assert_eq!(classify(ASKED, 404, "404 page not found\n"), CallError::KindNotServed);
    // Never "missing" when something else than the object is missing, or when it is not an API server that says so.
    let other = json!({"name": "another", "group": "apps", "kind": "deployments"});
    assert_eq!(of_status(404, "NotFound", message, &other), CallError::Rejected { code: 404 });
    assert_eq!(classify(ASKED, 404, "<html>CANARY-5c1d not found</html>"), CallError::BadAnswer);
    assert_eq!(classify(ASKED, 404, ""), CallError::BadAnswer);
    assert_eq!(classify(ASKED, 404, r#"{"error": "no such application"}"#), CallError::BadAnswer);

    let namespace_asked = Asked::Resource { plural: "namespaces", name: Some("nope") };
    let body = status(404, "NotFound", r#"namespaces "nope" not found"#, &namespace).to_string();
    assert_eq!(classify(namespace_asked, 404, &body), CallError::NotFound);
    let create = Asked::Resource { plural: "configmaps", name: None };
    assert_eq!(classify(create, 404, &body), CallError::NamespaceMissing);
    assert_eq!(classify(Asked::Path, 404, "404 page not found"), CallError::KindNotServed);
}

#[test]
fn conflicts() {
    let stale = r#"Operation cannot be fulfilled on deployments.apps "web": the object has been modified; please apply your changes to the latest version and try again"#;
    assert_eq!(of_status(409, "Conflict", stale, &json!({"name": "web"})), CallError::Conflict);
    let uid = "Operation cannot be fulfilled on configmaps \"c\": uid mismatch: the provided object specified uid 1, and no existing object was found";
    assert_eq!(of_status(409, "Conflict", uid, &Value::Null), CallError::Conflict);
    let replaced = cause("FieldValueInvalid", "Invalid value: \"b\": field is immutable", "metadata.uid");
    assert_eq!(of_status(422, "Invalid", "CANARY", &replaced), CallError::Conflict);
    assert_eq!(of_status(409, "AlreadyExists", r#"configmaps "c" already exists"#, &Value::Null), CallError::AlreadyExists);
    let test_failed = "the server rejected our request due to an error in our request";
    assert_eq!(of_status(422, "Invalid", test_failed, &json!({})), CallError::PatchMismatch);
}

#[test]
fn immutable_fields() {
    let table = [
        ("FieldValueInvalid", "Invalid value: {\"matchLabels\":{\"a\":\"CANARY\"}}: field is immutable", "spec.selector"),
        ("FieldValueInvalid", "Invalid value: [\"10.0.0.7\"]: may not change once set", "spec.clusterIPs[0]"),
        ("FieldValueInvalid", "Invalid value: {\"name\":\"CANARY\"}: cannot change roleRef", "roleRef"),
        ("FieldValueInvalid", "Invalid value: \"CANARY\": field is immutable", "type"),
        ("FieldValueInvalid", "Invalid value: {\"env\":\"CANARY\"}: field is immutable", "spec.template"),
        ("FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set", "data"),
        (
            "FieldValueForbidden",
            "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template' are forbidden",
            "spec",
        ),
        (
            "FieldValueForbidden",
            "Forbidden: spec is immutable after creation except resources.requests\n  core.PersistentVolumeClaimSpec{\n- CANARY",
            "spec",
        ),
        ("FieldValueForbidden", "Forbidden: may not be changed in an update.", "value"),
    ];
    for (reason, message, field) in table {
        let error = of_status(422, "Invalid", &format!("X is invalid: {message}"), &cause(reason, message, field));
        assert_eq!(error, CallError::Immutable { fields: fields(&[field]) }, "{message}");
    }
}

#[test]
fn invalid_fields() {
    let table = [
        ("FieldValueInvalid", "Invalid value: \"CANARY: field is immutable\": a lowercase name is needed", "metadata.labels"),
        ("FieldValueRequired", "Required value: field is immutable", "spec.ports"),
        ("FieldValueDuplicate", "Duplicate value: \"CANARY\"", "spec.ports[1].name"),
        ("FieldValueForbidden", "Forbidden: field can not be less than status.capacity", "spec.resources.requests.storage"),
        (
            "FieldValueForbidden",
            "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            "sendInitialEvents",
        ),
    ];
    for (reason, message, field) in table {
        let error = of_status(422, "Invalid", message, &cause(reason, message, field));
        assert_eq!(error, CallError::Invalid { fields: fields(&[field]) }, "{message}");
    }
    // Strict field validation would answer like this; it is never asked for.
    let strict = of_status(
        422,
        "Invalid",
        r#" "" is invalid: patch: Invalid value: "{\"data\":{\"pw\":\"CANARY\"}}": strict decoding error"#,
        &Value::Null,
    );
    assert_eq!(strict, CallError::Invalid { fields: Vec::new() });
    let many: Vec<Value> =
        (0..40).map(|n| json!({"reason": "FieldValueInvalid", "message": "x", "field": format!("spec.f[{n}]")})).collect();
    assert_eq!(of_status(422, "Invalid", "x", &json!({"causes": many})).fields().len(), 16);
}

#[test]
fn admission_says_no() {
    let texts = [
        (403, "Forbidden", "admission webhook \"deny.example.com\" denied the request: CANARY"),
        (409, "Conflict", "admission webhook \"deny.example.com\" denied the request: CANARY"),
        (400, "", "admission webhook \"deny.example.com\" denied the request without explanation"),
        (404, "NotFound", "admission webhook \"deny.example.com\" denied the request: deployments.apps \"web\" not found"),
        (422, "Invalid", "admission webhook \"deny.example.com\" denied the request: field is immutable"),
        (500, "", "admission webhook \"deny.example.com\" denied the request: CANARY"),
    ];
    for (code, reason, text) in texts {
        let details = json!({"name": "web", "kind": "deployments"});
        assert_eq!(of_status(code, reason, text, &details), denied("deny.example.com"), "{code} {text}");
    }
    let policy = "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'p.example.com' with binding 'b' denied request: CANARY";
    assert_eq!(of_status(422, "Invalid", policy, &Value::Null), denied("p.example.com"));
    assert_eq!(of_status(403, "Forbidden", policy, &Value::Null), denied("p.example.com"));
    let pod_security = "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": CANARY";
    assert_eq!(of_status(403, "Forbidden", pod_security, &Value::Null), denied("PodSecurity"));
    let odd_name = "admission webhook \"CANARY with spaces\" denied the request";
    assert_eq!(of_status(403, "Forbidden", odd_name, &Value::Null), CallError::AdmissionDenied { by: None });
}

#[test]
fn text_chosen_by_others_changes_no_class() {
    // The same phrases, but where a value stands and not where the server begins.
    let quoted = r#"secrets "s" is forbidden: User "exceeded quota: q" cannot get resource "secrets""#;
    assert_eq!(of_status(403, "Forbidden", quoted, &Value::Null), CallError::Forbidden);
    let inside = r#"Secret "s" is invalid: data: Invalid value: "x" is forbidden: ValidatingAdmissionPolicy 'CANARY' said"#;
    assert_eq!(
        of_status(422, "Invalid", inside, &cause("FieldValueInvalid", "x", "data")),
        CallError::Invalid { fields: fields(&["data"]) }
    );
    let webhook = r#"Secret "s" is invalid: data: admission webhook "CANARY" denied the request"#;
    assert_eq!(
        of_status(422, "Invalid", webhook, &cause("FieldValueInvalid", "x", "data")),
        CallError::Invalid { fields: fields(&["data"]) }
    );
}

#[test]
fn webhooks_that_fail() {
    let down = "Internal error occurred: failed calling webhook \"hook.example.com\": failed to call webhook: Post \"https://10.0.0.1/CANARY\": dial tcp: connection refused";
    assert_eq!(
        of_status(500, "InternalError", down, &Value::Null),
        CallError::AdmissionUnavailable { webhook: Some("hook.example.com".into()) }
    );
    let side_effects = "admission webhook \"se.example.com\" does not support dry run";
    assert_eq!(
        of_status(400, "BadRequest", side_effects, &Value::Null),
        CallError::DryRunUnsupported { webhook: Some("se.example.com".into()) }
    );
}

#[test]
fn what_is_unfit_is_no_failure_of_the_server() {
    let unfit = "failed to create manager for existing fields: failed to convert new object (n/s; /v1, Kind=ServiceAccount) to smd typed: \
                 .secrets: element 0: associative list with keys has an element that omits all key fields [\"CANARY\"]";
    for message in ["duplicate nodePort: {TCP 30100}", unfit] {
        assert_eq!(of_status(500, "", message, &Value::Null), CallError::Invalid { fields: Vec::new() }, "{message}");
        assert_eq!(of_status(500, "InternalError", message, &Value::Null), CallError::Server { code: 500 }, "{message}");
        assert_eq!(of_status(500, "", &format!("rpc error: {message}"), &Value::Null), CallError::Server { code: 500 }, "{message}");
    }
}

#[test]
fn manifests_that_do_not_fit_the_schema() {
    let head = "failed to create typed patch object (v/x; apps/v1, Kind=Deployment): ";
    let table = [
        (
            r#".spec.template.spec.containers[name="c"].imagePullPolcy: field not declared in schema"#,
            Some(r#".spec.template.spec.containers[name="c"].imagePullPolcy"#),
        ),
        (
            r#".spec.template.spec.containers[name="c"].env: duplicate entries for key [name="A"]"#,
            Some(r#".spec.template.spec.containers[name="c"].env"#),
        ),
        (
            r#".spec.ports[port=80,protocol="TCP"].port: expected numeric (int or float), got string"#,
            Some(r#".spec.ports[port=80,protocol="TCP"].port"#),
        ),
        (".data.pw: expected string, got &value.valueUnstructured{Value:\"CANARY\"}", Some(".data.pw")),
        ("errors:\n  .spec.a: field not declared in schema\n  .spec.b: expected string, got CANARY", Some(".spec.a")),
        (r#".metadata.finalizers[="CANARY"]: duplicate entries"#, Some(".metadata.finalizers[=]")),
        (r#".spec.items[name="a]: CANARY"].value: expected string"#, None),
        ("CANARY: expected map", None),
        ("", None),
    ];
    for (text, path) in table {
        let message = format!("{head}{text}");
        let error = answer(
            ASKED,
            StatusCode::INTERNAL_SERVER_ERROR,
            &HeaderMap::new(),
            status(500, "", &message, &Value::Null).to_string().as_bytes(),
        );
        match path {
            // Keys of list items are names of things and part of a path.
            None if text.contains("[name=") => assert!(matches!(error, CallError::TypedPatch { path: Some(_) })),
            _ => {
                assert_eq!(error, CallError::TypedPatch { path: path.map(Into::into) }, "{text}");
                assert!(!format!("{error} {error:?}").contains(CANARY));
            }
        }
    }
}

#[test]
fn the_rest_by_code() {
    assert_eq!(of_status(410, "Expired", "The provided continue parameter is too old", &Value::Null), CallError::Expired);
    assert_eq!(of_status(413, "RequestEntityTooLarge", "limit is 3145728", &Value::Null), CallError::TooLarge);
    assert_eq!(of_status(400, "BadRequest", "metadata.managedFields must be nil", &Value::Null), CallError::Rejected { code: 400 });
    assert_eq!(
        of_status(406, "NotAcceptable", "only the following media types are accepted", &Value::Null),
        CallError::Rejected { code: 406 }
    );
    assert_eq!(of_status(500, "InternalError", "Internal error occurred: CANARY", &Value::Null), CallError::Server { code: 500 });
    assert_eq!(of_status(504, "Timeout", "Timeout: request did not complete", &Value::Null), CallError::Server { code: 504 });
    assert_eq!(classify(ASKED, 503, "service unavailable"), CallError::Server { code: 503 });
    assert_eq!(classify(ASKED, 502, "<html>CANARY-5c1d</html>"), CallError::Server { code: 502 });
    assert_eq!(classify(ASKED, 403, "CANARY-5c1d"), CallError::Forbidden);
}

#[test]
fn throttling_hints_are_bounded() {
    let mut headers = HeaderMap::new();
    let body = b"Too many requests, please try again later.";
    let throttled = |headers: &HeaderMap| answer(ASKED, StatusCode::TOO_MANY_REQUESTS, headers, body).retry_after();
    assert_eq!(throttled(&headers), None);
    headers.insert("retry-after", HeaderValue::from_static("1"));
    assert_eq!(throttled(&headers), Some(Duration::from_secs(1)));
    headers.insert("retry-after", HeaderValue::from_static("86400"));
    assert_eq!(throttled(&headers), Some(Duration::from_mins(5)));
    headers.insert("retry-after", HeaderValue::from_static("Wed, 21 Oct 2026 07:28:00 GMT"));
    assert_eq!(throttled(&headers), None);
    let in_body = of_status(429, "TooManyRequests", "x", &json!({"retryAfterSeconds": 7}));
    assert_eq!(in_body.retry_after(), Some(Duration::from_secs(7)));
}

#[test]
fn retry_policy() {
    let later = [CallError::Timeout, CallError::Conflict, CallError::Server { code: 500 }, CallError::Throttled { retry_after: None }];
    assert!(later.iter().all(|error| error.retry() == Retry::Later));
    let changed = [CallError::Forbidden, CallError::QuotaExceeded, CallError::Immutable { fields: Vec::new() }, denied("x")];
    assert!(changed.iter().all(|error| error.retry() == Retry::WhenChanged));
    assert_eq!(CallError::BadPath.retry(), Retry::Never);
}
