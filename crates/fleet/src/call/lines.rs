//! A watch as it arrives: one JSON text a line.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures::Stream;
use http_body::Body;

use super::CallError;
use crate::transport::{ResponseBody, TransportError, Unreachable};

/// The longest line of a watch, in bytes: several times the largest object a server stores.
pub const MAX_LINE: usize = 8 * 1024 * 1024;

/// The lines of a watch. Ends after the server's last whole line; an error ends it too.
pub struct WatchLines {
    body: Option<ResponseBody>,
    splitter: LineSplitter,
}

impl WatchLines {
    pub(super) fn new(body: ResponseBody) -> Self {
        Self { body: Some(body), splitter: LineSplitter::new(MAX_LINE) }
    }

    fn fail(&mut self, error: impl Into<CallError>) -> Poll<Option<Result<Bytes, CallError>>> {
        self.body = None;
        Poll::Ready(Some(Err(error.into())))
    }
}

impl Stream for WatchLines {
    type Item = Result<Bytes, CallError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            let Some(body) = this.body.as_mut() else { return Poll::Ready(None) };
            match this.splitter.next_line() {
                Ok(Some(line)) => return Poll::Ready(Some(Ok(line))),
                Ok(None) => {}
                Err(LineTooLong) => return this.fail(TransportError::TooLarge),
            }
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(chunk) = frame.into_data() {
                        this.splitter.push(chunk);
                    }
                }
                Some(Err(error)) => return this.fail(error),
                None if this.splitter.is_empty() => {
                    this.body = None;
                    return Poll::Ready(None);
                }
                // Cut off within a line.
                None => return this.fail(TransportError::Unreachable(Unreachable::Closed)),
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineTooLong;

/// Cuts chunks into lines. Lines within one chunk are not copied.
pub(super) struct LineSplitter {
    max: usize,
    partial: BytesMut,
    chunk: Bytes,
}

impl LineSplitter {
    pub(super) fn new(max: usize) -> Self {
        Self { max, partial: BytesMut::new(), chunk: Bytes::new() }
    }

    /// Adds what arrived. Only after [`Self::next_line`] returned nothing.
    pub(super) fn push(&mut self, chunk: Bytes) {
        self.chunk = chunk;
    }

    /// The next non-empty line without its line break, if one is complete.
    pub(super) fn next_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        loop {
            let Some(end) = self.chunk.iter().position(|byte| *byte == b'\n') else {
                let rest = std::mem::take(&mut self.chunk);
                self.check(rest.len())?;
                self.partial.extend_from_slice(&rest);
                return Ok(None);
            };
            self.check(end)?;
            let head = self.chunk.split_to(end);
            self.chunk.advance(1);
            let line = if self.partial.is_empty() {
                head
            } else {
                self.partial.extend_from_slice(&head);
                self.partial.split().freeze()
            };
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
    }

    /// Whether every byte so far belonged to a whole line.
    pub(super) fn is_empty(&self) -> bool {
        self.partial.is_empty() && self.chunk.is_empty()
    }

    fn check(&self, more: usize) -> Result<(), LineTooLong> {
        if self.partial.len().saturating_add(more) > self.max { Err(LineTooLong) } else { Ok(()) }
    }
}
