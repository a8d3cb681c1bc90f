//! What a consumer of a watch learns.

use super::source::SourceError;

/// What a consumer learns, in order.
///
/// Between `Reset` and `ListComplete` the list is incomplete and nothing may be concluded from an object's absence. At `ListComplete`
/// every object known before and not `Listed` since the last `Reset` is gone. A `Reset` may come again at any time, also within a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update<T> {
    /// A list begins: forget which objects this list has shown so far, keep everything known.
    Reset,
    /// The list holds this object.
    Listed(T),
    /// The list is complete.
    ListComplete,
    /// The object appeared or changed.
    Changed(T),
    /// The object left the watch: deleted, or its labels no longer match. Within a list: it is not part of it after all.
    Deleted(T),
    /// Changes arrive as they happen from here on.
    Live,
    /// No changes arrive until the next `Live`.
    Broken {
        /// Why.
        reason: Reason,
    },
}

/// Why a watch was started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The server ended the stream, as it does after the time we asked for.
    Ended,
    /// The version or continue token was too old.
    Expired,
    /// Nothing arrived for longer than the watch may last.
    Silent,
    /// The initial events stopped without their end mark.
    Unfinished,
    /// The stream gave something that cannot be understood.
    Garbled,
    /// The connection was replaced, for example by new credentials.
    Moved,
    /// The kind is not served.
    NotServed,
    /// The credentials do not allow it.
    Forbidden,
    /// The credentials are not valid.
    Unauthorized,
    /// The server asked to slow down.
    Throttled,
    /// The server refuses streaming lists.
    StreamingUnsupported,
    /// The server cannot be reached, or the connection broke.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// The server failed.
    Server,
    /// An answer cannot be understood.
    BadAnswer,
}

impl Reason {
    /// Every reason, in the order of declaration.
    pub const ALL: [Self; 15] = [
        Self::Ended,
        Self::Expired,
        Self::Silent,
        Self::Unfinished,
        Self::Garbled,
        Self::Moved,
        Self::NotServed,
        Self::Forbidden,
        Self::Unauthorized,
        Self::Throttled,
        Self::StreamingUnsupported,
        Self::Unreachable,
        Self::Timeout,
        Self::Server,
        Self::BadAnswer,
    ];

    /// Whether it may be the whole server that fails, and not what is watched.
    pub fn is_of_server(self) -> bool {
        matches!(self, Self::Unreachable | Self::Timeout | Self::Unauthorized | Self::Throttled | Self::Server)
    }

    /// A stable word for metrics and reports.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ended => "Ended",
            Self::Expired => "Expired",
            Self::Silent => "Silent",
            Self::Unfinished => "Unfinished",
            Self::Garbled => "Garbled",
            Self::Moved => "Moved",
            Self::NotServed => "NotServed",
            Self::Forbidden => "Forbidden",
            Self::Unauthorized => "Unauthorized",
            Self::Throttled => "Throttled",
            Self::StreamingUnsupported => "StreamingUnsupported",
            Self::Unreachable => "Unreachable",
            Self::Timeout => "Timeout",
            Self::Server => "Server",
            Self::BadAnswer => "BadAnswer",
        }
    }
}

impl From<SourceError> for Reason {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Expired => Self::Expired,
            SourceError::NotServed => Self::NotServed,
            SourceError::Forbidden => Self::Forbidden,
            SourceError::Unauthorized => Self::Unauthorized,
            SourceError::Throttled { .. } => Self::Throttled,
            SourceError::StreamingUnsupported => Self::StreamingUnsupported,
            SourceError::Unreachable | SourceError::Tls(_) => Self::Unreachable,
            SourceError::Timeout => Self::Timeout,
            SourceError::Server => Self::Server,
            SourceError::BadAnswer => Self::BadAnswer,
        }
    }
}
