//! Lists, watches and discovery over an [`ApiClient`].

use std::pin::Pin;

use bytes::Bytes;
use futures::{Stream, StreamExt};

use super::{
    source::{Source, SourceError},
    step::{Open, PageRequest, StartAt},
    target::WatchKey,
};
use crate::{
    call::{self, ApiClient, CallError},
    discovery::{Fetch, Fetched},
};

impl Source for ApiClient {
    type Lines = Pin<Box<dyn Stream<Item = Result<Bytes, SourceError>> + Send>>;

    async fn list(&self, key: &WatchKey, page: &PageRequest) -> Result<Bytes, SourceError> {
        let answer = ApiClient::list(self, key.endpoint(), key.shape(), &key.list_query(page)).await?;
        Ok(answer.into_bytes())
    }

    async fn watch(&self, key: &WatchKey, open: &Open) -> Result<Self::Lines, SourceError> {
        match self.open_watch(&key.watch_path(open), key.shape().accept_one()).await {
            Ok(lines) => Ok(lines.map(|line| line.map_err(SourceError::from)).boxed()),
            Err(error) if open.at == StartAt::Initial && refuses_parameters(&error) => Err(SourceError::StreamingUnsupported),
            Err(error) => Err(error.into()),
        }
    }
}

impl Fetch for ApiClient {
    async fn fetch(&self, path: &str, accept: &str, etag: Option<&str>) -> Result<Fetched, SourceError> {
        match self.get_raw(path, accept, etag).await? {
            call::Fetched::Fresh { body, etag } => Ok(Fetched::Document { body, etag }),
            call::Fetched::Unchanged => Ok(Fetched::NotModified),
        }
    }
}

/// Whether the server found fault with the request's parameters. Those of a streaming list are the only ones a server may not know.
fn refuses_parameters(error: &CallError) -> bool {
    matches!(error, CallError::Invalid { .. } | CallError::Rejected { code: 400 })
}

impl From<CallError> for SourceError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unreachable(_) => Self::Unreachable,
            CallError::Tls(fault) => Self::Tls(fault),
            CallError::Timeout => Self::Timeout,
            CallError::Unauthorized => Self::Unauthorized,
            CallError::Forbidden => Self::Forbidden,
            CallError::KindNotServed | CallError::NotFound | CallError::NamespaceMissing => Self::NotServed,
            CallError::Expired => Self::Expired,
            CallError::Throttled { retry_after } => Self::Throttled { retry_after },
            CallError::Server { .. } | CallError::AdmissionUnavailable { .. } => Self::Server,
            // None of the others answers a read.
            _ => Self::BadAnswer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complaints_about_parameters_mean_that_streaming_is_refused() {
        for error in [CallError::Invalid { fields: vec!["sendInitialEvents".to_owned()] }, CallError::Rejected { code: 400 }] {
            assert!(refuses_parameters(&error), "{error:?}");
        }
        for error in [
            CallError::Forbidden,
            CallError::Timeout,
            CallError::Rejected { code: 406 },
            CallError::Server { code: 500 },
            CallError::Expired,
        ] {
            assert!(!refuses_parameters(&error), "{error:?}");
        }
    }
}
