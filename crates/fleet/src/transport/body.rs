//! The body of an answer as it arrives.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;

use super::TransportError;
use super::lane::Slot;

/// The body of an answer. Holds the request's place on its connection until it is dropped.
pub struct ResponseBody(Source);

enum Source {
    Own { body: Incoming, _slot: Slot },
    Kube(kube::client::Body),
}

impl ResponseBody {
    pub(super) fn own(body: Incoming, slot: Slot) -> Self {
        Self(Source::Own { body, _slot: slot })
    }

    pub(super) fn kube(body: kube::client::Body) -> Self {
        Self(Source::Kube(body))
    }

    /// Reads the whole body, at most `limit` bytes of it.
    pub async fn read(self, limit: usize) -> Result<Bytes, TransportError> {
        let collected = Limited::new(self, limit).collect().await.map_err(|error| match error.downcast::<TransportError>() {
            Ok(error) => *error,
            Err(error) if error.is::<LengthLimitError>() => TransportError::TooLarge,
            Err(error) => TransportError::from_exchange(error.as_ref()),
        })?;
        Ok(collected.to_bytes())
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        match &mut self.get_mut().0 {
            Source::Own { body, .. } => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(|e| TransportError::from_exchange(&e))))
            }
            Source::Kube(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(|e| TransportError::from_exchange(&e))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Own { body, .. } => body.is_end_stream(),
            Source::Kube(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Own { body, .. } => body.size_hint(),
            Source::Kube(body) => body.size_hint(),
        }
    }
}
