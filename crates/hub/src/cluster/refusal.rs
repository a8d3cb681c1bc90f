//! From a failed call to the reason users see.

use holdfast_api::report::Reason;
use holdfast_engine::answer::Refusal;
use holdfast_fleet::call::CallError;

/// The refusal a call's failure stands for.
pub fn refusal(error: &CallError) -> Refusal {
    let reason = match error {
        CallError::Forbidden => Reason::Forbidden,
        CallError::NamespaceTerminating => Reason::NamespaceTerminating,
        CallError::QuotaExceeded => Reason::QuotaExceeded,
        CallError::NamespaceMissing => Reason::NamespaceMissing,
        CallError::KindNotServed => Reason::KindNotServed,
        CallError::Immutable { .. } => Reason::Immutable,
        CallError::Invalid { .. } => Reason::Invalid,
        CallError::AdmissionDenied { .. } => Reason::AdmissionDenied,
        // 400: the server cannot make an object of the body.
        CallError::TypedPatch { .. } | CallError::BadPath | CallError::Rejected { code: 400 } => Reason::ManifestInvalid,
        CallError::DryRunUnsupported { .. } => Reason::Unverified,
        _ => Reason::ServerError,
    };
    Refusal { reason, fields: error.fields().iter().map(|field| as_shown(field)).collect() }
}

/// A field as server-side apply names it (`.spec.ports[port=80,protocol="TCP"].name`) in the form of all paths here
/// (`/spec/ports/[port=80,protocol=TCP]/name`). What has another form stays as it is.
fn as_shown(field: &str) -> String {
    if !field.starts_with('.') {
        return field.to_owned();
    }
    let mut path = String::with_capacity(field.len());
    let mut in_item = false;
    for c in field.chars() {
        match c {
            '.' if !in_item => path.push('/'),
            '[' if !in_item => {
                in_item = true;
                path.push_str("/[");
            }
            ']' if in_item => {
                in_item = false;
                path.push(c);
            }
            '"' if in_item => {}
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            _ => path.push(c),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::as_shown;

    #[test]
    fn fields_are_shown_like_paths() {
        for (field, shown) in [
            (".stringData.n", "/stringData/n"),
            (r#".spec.ports[port=80,protocol="TCP"].port"#, "/spec/ports/[port=80,protocol=TCP]/port"),
            (r#".spec.containers[name="a.b/c"].env"#, "/spec/containers/[name=a.b~1c]/env"),
            ("spec.template", "spec.template"),
        ] {
            assert_eq!(as_shown(field), shown);
        }
    }
}
