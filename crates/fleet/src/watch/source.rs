//! Where lists and watches come from.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use futures::Stream;

use super::{
    step::{Open, PageRequest},
    target::WatchKey,
};
use crate::transport::TlsFault;

/// Answers list and watch requests of one cluster.
pub trait Source: Send + Sync + 'static {
    /// A watch's lines, each one event without the line end.
    type Lines: Stream<Item = Result<Bytes, SourceError>> + Send + Unpin;

    /// Asks for one page of a list.
    fn list(&self, key: &WatchKey, page: &PageRequest) -> impl Future<Output = Result<Bytes, SourceError>> + Send;

    /// Opens a watch.
    fn watch(&self, key: &WatchKey, open: &Open) -> impl Future<Output = Result<Self::Lines, SourceError>> + Send;
}

/// Why a request was not answered. Carries nothing the server wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The version or continue token is too old.
    #[error("the requested version has expired")]
    Expired,
    /// The cluster does not serve this kind.
    #[error("the kind is not served")]
    NotServed,
    /// The credentials do not allow it.
    #[error("forbidden")]
    Forbidden,
    /// The credentials are not valid.
    #[error("unauthorized")]
    Unauthorized,
    /// The server asks to slow down.
    #[error("throttled")]
    Throttled {
        /// The time it asks to wait, if it said one.
        retry_after: Option<Duration>,
    },
    /// The server refuses to send the initial list through a watch.
    #[error("streaming lists are not supported")]
    StreamingUnsupported,
    /// No connection, or it broke.
    #[error("the server cannot be reached")]
    Unreachable,
    /// The TLS session was refused by one of the two sides.
    #[error("{0}")]
    Tls(TlsFault),
    /// No answer within the deadline.
    #[error("no answer in time")]
    Timeout,
    /// The server failed (5xx).
    #[error("the server failed")]
    Server,
    /// The answer is not what the API promises.
    #[error("the answer cannot be understood")]
    BadAnswer,
}

impl SourceError {
    /// A stable word for metrics and reports.
    pub fn category(self) -> &'static str {
        match self {
            Self::Expired => "Expired",
            Self::NotServed => "NotServed",
            Self::Forbidden => "Forbidden",
            Self::Unauthorized => "Unauthorized",
            Self::Throttled { .. } => "Throttled",
            Self::StreamingUnsupported => "StreamingUnsupported",
            Self::Unreachable => "Unreachable",
            Self::Tls(fault) => fault.reason(),
            Self::Timeout => "Timeout",
            Self::Server => "Server",
            Self::BadAnswer => "BadAnswer",
        }
    }
}
