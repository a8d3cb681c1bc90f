//! Certificate bundles that an injector fills in: reverting one breaks every call of the webhook until it is injected again.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{Question, Yield, is_field, of_webhook};

/// Annotations that ask cert-manager's injector (and its first API group) for a bundle.
const CERT_MANAGER: [&str; 4] = [
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "certmanager.k8s.io/inject-ca-from",
];
/// Annotations that ask `OpenShift`'s service CA operator for one; the value is `true`.
const SERVICE_CA: [&str; 2] = ["service.beta.openshift.io/inject-cabundle", "service.alpha.openshift.io/inject-cabundle"];
/// Label that asks `OpenShift`'s network operator for the trusted bundle; the value is `true`.
const TRUSTED_CA: &str = "config.openshift.io/inject-trusted-cabundle";

pub(super) fn answer(question: &Question<'_>) -> Option<Yield> {
    // An injector fills in and never takes away.
    let Some(Value::String(bundle)) = question.live else { return None };
    if is_placeholder(bundle) {
        return None;
    }
    if question.is_any("", &["ConfigMap"]) {
        return of_config_map(question);
    }
    if !is_bundle(question) {
        return None;
    }
    let wants = |name: &&&str| question.annotation(name).is_some_and(|value| !value.is_empty() && value != "false");
    if let Some(annotation) = CERT_MANAGER.iter().find(wants) {
        return Some(Yield::Theirs(format!("cert-manager injects it ({annotation})")));
    }
    if is_service_ca(question) {
        return Some(Yield::theirs("OpenShift's service CA injects it"));
    }
    // What is declared is no bundle, so somebody has to put one there: most often the webhook's own process, or a Job beside it.
    let declared = question.declared.and_then(Value::as_str)?;
    is_placeholder(declared).then(|| Yield::Theirs("the manifest leaves it to be filled in".to_owned()))
}

/// Whether the path is a certificate bundle of an API server's client.
fn is_bundle(question: &Question<'_>) -> bool {
    if let Some(below) = of_webhook(question) {
        return matches!(below, [config, bundle] if is_field(config, "clientConfig") && is_field(bundle, "caBundle"));
    }
    (question.is_any("apiextensions.k8s.io", &["CustomResourceDefinition"])
        && question.is_at(&["spec", "conversion", "webhook", "clientConfig", "caBundle"]))
        || (question.is_any("apiregistration.k8s.io", &["APIService"]) && question.is_at(&["spec", "caBundle"]))
}

fn of_config_map(question: &Question<'_>) -> Option<Yield> {
    if is_service_ca(question) && question.is_at(&["data", "service-ca.crt"]) {
        return Some(Yield::theirs("OpenShift's service CA injects it"));
    }
    let is_trusted = question.label(TRUSTED_CA) == Some("true") && question.is_at(&["data", "ca-bundle.crt"]);
    is_trusted.then(|| Yield::theirs("OpenShift's network operator injects it"))
}

fn is_service_ca(question: &Question<'_>) -> bool {
    SERVICE_CA.iter().any(|name| question.annotation(name) == Some("true"))
}

/// Whether a declared bundle is none: charts write `""`, or a line break (`Cg==`) where the API demands a value.
pub(crate) fn is_placeholder(bundle: &str) -> bool {
    bundle.trim().is_empty() || STANDARD.decode(bundle.trim()).is_ok_and(|bytes| bytes.iter().all(u8::is_ascii_whitespace))
}
