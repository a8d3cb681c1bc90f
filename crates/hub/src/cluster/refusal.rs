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
        CallError::TypedPatch { .. } | CallError::BadPath => Reason::ManifestInvalid,
        CallError::DryRunUnsupported { .. } => Reason::Unverified,
        _ => Reason::ServerError,
    };
    Refusal { reason, fields: error.fields().to_vec() }
}
