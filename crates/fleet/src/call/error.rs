//! What became of a call that did not succeed.

use std::fmt;
use std::time::Duration;

use crate::transport::{TlsFault, TransportError, Unreachable};

/// A call that did not succeed.
///
/// Built from the status code, the reason, the causes and fixed phrases of the server's answer. The message itself is dropped: it
/// can quote whole objects. What is kept (field paths, names of webhooks, policies) may be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No connection, or one that broke.
    #[error("{0}")]
    Unreachable(Unreachable),
    /// The deadline passed.
    #[error("the server did not answer in time")]
    Timeout,
    /// TLS was refused by one of the two sides.
    #[error("{0}")]
    Tls(TlsFault),
    /// A 3xx answer.
    #[error("the server answered with a redirect")]
    Redirect,
    /// An answer, a request or a line of a watch above its size limit.
    #[error("the request or its answer is larger than allowed")]
    TooLarge,
    /// An answer that is not what an API server sends.
    #[error("the answer is not one of a Kubernetes API server")]
    BadAnswer,
    /// The path of the request is not well-formed.
    #[error("the request has no valid path")]
    BadPath,
    /// Not sent: the [`Term`](crate::term::Term) of this process is over.
    #[error("this process may not write now")]
    Withheld,
    /// 401: the credentials are not, or no longer, accepted.
    #[error("the server does not accept the credentials")]
    Unauthorized,
    /// 403 of access control, or of an admission plugin not named below.
    #[error("the server forbids the request")]
    Forbidden,
    /// 403: the namespace is being deleted and takes no new objects.
    #[error("the namespace is being terminated")]
    NamespaceTerminating,
    /// 403 of a resource quota.
    #[error("a resource quota is exceeded")]
    QuotaExceeded,
    /// 404 of the very object asked for.
    #[error("the object does not exist")]
    NotFound,
    /// 404 of the group, the version or the kind. Says nothing about objects.
    #[error("the server does not serve this kind")]
    KindNotServed,
    /// 404 of the namespace a new object was meant for.
    #[error("the namespace does not exist")]
    NamespaceMissing,
    /// 409: the object is not the one that was read, by version or by uid.
    #[error("the object has changed since it was read")]
    Conflict,
    /// 409 of a create.
    #[error("the object exists already")]
    AlreadyExists,
    /// 422: a field may not be changed.
    #[error("a field cannot be changed{}", At(fields))]
    Immutable {
        /// The fields the server names.
        fields: Vec<String>,
    },
    /// 422: validation.
    #[error("the server finds the object invalid{}", At(fields))]
    Invalid {
        /// The fields the server names.
        fields: Vec<String>,
    },
    /// 422 of a JSON patch that does not fit the live object: a failed `test`, or a position that is gone.
    #[error("the patch does not fit the object any more")]
    PatchMismatch,
    /// A webhook or an admission policy said no.
    #[error("admission denied the request{}", By(by.as_deref()))]
    AdmissionDenied {
        /// The webhook's or the policy's name.
        by: Option<String>,
    },
    /// A webhook that must answer did not.
    #[error("an admission webhook did not answer{}", By(webhook.as_deref()))]
    AdmissionUnavailable {
        /// The webhook's name.
        webhook: Option<String>,
    },
    /// A webhook with side effects is in the way of a dry-run.
    #[error("a webhook does not support dry-runs{}", By(webhook.as_deref()))]
    DryRunUnsupported {
        /// The webhook's name.
        webhook: Option<String>,
    },
    /// 500 of server-side apply: the manifest does not fit the kind's schema (unknown field, duplicate key, wrong type).
    #[error("the manifest does not fit the kind's schema{}", At(path.as_slice()))]
    TypedPatch {
        /// The first offending field, as the server writes paths.
        path: Option<String>,
    },
    /// 429.
    #[error("the server asks to slow down")]
    Throttled {
        /// How long the server wants to be left alone, at most five minutes.
        retry_after: Option<Duration>,
    },
    /// 410: the resource version or the `continue` token is too old.
    #[error("the resource version has expired")]
    Expired,
    /// Another 4xx answer.
    #[error("the server rejected the request with status {code}")]
    Rejected {
        /// The HTTP status.
        code: u16,
    },
    /// Another 5xx answer.
    #[error("the server failed with status {code}")]
    Server {
        /// The HTTP status.
        code: u16,
    },
}

/// When it makes sense to send a failed call again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// After a back-off, or after looking again: the obstacle passes by itself.
    Later,
    /// When the desired state, the live object or the cluster's rules change; until then only rarely.
    WhenChanged,
    /// Not in this form.
    Never,
}

impl CallError {
    /// A stable CamelCase word for reasons of reports, metric labels and logs.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "Unreachable",
            Self::Timeout => "Timeout",
            Self::Tls(fault) => fault.reason(),
            Self::Redirect => "Redirect",
            Self::TooLarge => "TooLarge",
            Self::BadAnswer => "BadAnswer",
            Self::BadPath => "BadPath",
            Self::Withheld => "Withheld",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::NotFound => "NotFound",
            Self::KindNotServed => "KindNotServed",
            Self::NamespaceMissing => "NamespaceMissing",
            Self::Conflict => "Conflict",
            Self::AlreadyExists => "AlreadyExists",
            Self::Immutable { .. } => "Immutable",
            Self::Invalid { .. } => "Invalid",
            Self::PatchMismatch => "PatchMismatch",
            Self::AdmissionDenied { .. } => "AdmissionDenied",
            Self::AdmissionUnavailable { .. } => "AdmissionUnavailable",
            Self::DryRunUnsupported { .. } => "DryRunUnsupported",
            Self::TypedPatch { .. } => "ManifestInvalid",
            Self::Throttled { .. } => "Throttled",
            Self::Expired => "Expired",
            Self::Rejected { .. } => "Rejected",
            Self::Server { .. } => "ServerError",
        }
    }

    /// The retry policy, the same for every caller.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unreachable(_)
            | Self::Timeout
            | Self::Tls(_)
            | Self::BadAnswer
            | Self::Redirect
            | Self::Withheld
            | Self::Unauthorized
            | Self::NotFound
            | Self::Conflict
            | Self::AlreadyExists
            | Self::PatchMismatch
            | Self::AdmissionUnavailable { .. }
            | Self::Throttled { .. }
            | Self::Expired
            | Self::Server { .. } => Retry::Later,
            Self::Forbidden
            | Self::NamespaceTerminating
            | Self::QuotaExceeded
            | Self::KindNotServed
            | Self::NamespaceMissing
            | Self::Immutable { .. }
            | Self::Invalid { .. }
            | Self::AdmissionDenied { .. }
            | Self::DryRunUnsupported { .. }
            | Self::TypedPatch { .. }
            | Self::TooLarge
            | Self::Rejected { .. } => Retry::WhenChanged,
            Self::BadPath => Retry::Never,
        }
    }

    /// The server's own idea of when to come back.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after } => *retry_after,
            _ => None,
        }
    }

    /// The field paths the server named, if any.
    pub fn fields(&self) -> &[String] {
        match self {
            Self::Immutable { fields } | Self::Invalid { fields } => fields,
            Self::TypedPatch { path } => path.as_slice(),
            _ => &[],
        }
    }

    /// Whether the cluster itself could not be talked to, as opposed to an answer about one request.
    pub fn is_connection(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Timeout | Self::Tls(_) | Self::Redirect | Self::BadAnswer)
    }
}

impl From<TransportError> for CallError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Unreachable(cause) => Self::Unreachable(cause),
            TransportError::Timeout => Self::Timeout,
            TransportError::Tls(fault) => Self::Tls(fault),
            TransportError::Redirect => Self::Redirect,
            TransportError::TooLarge => Self::TooLarge,
            TransportError::Withheld => Self::Withheld,
        }
    }
}

struct At<'a>(&'a [String]);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " at {}", self.0.join(", ")) }
    }
}

struct By<'a>(Option<&'a str>);

impl fmt::Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}
