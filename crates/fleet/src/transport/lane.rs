//! Connections shared by many requests, and how many requests may share one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::dial::{Dialer, Drivers, Http2, Sender};
use super::{MAX_STREAMS, TransportError, Unreachable, in_term};

type Outgoing = Request<Full<Bytes>>;

/// How long a failed request waits to hear why its connection broke. The driver ends at the same moment; a single reset stream
/// leaves it running.
const CAUSE_PATIENCE: Duration = Duration::from_millis(50);

/// A request without an answer, which comes back if it never left.
struct Failure {
    error: TransportError,
    unsent: Option<Box<Outgoing>>,
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        Self { error, unsent: None }
    }
}

impl From<TrySendError<Outgoing>> for Failure {
    fn from(mut error: TrySendError<Outgoing>) -> Self {
        let unsent = error.take_message().map(Box::new);
        Self { error: TransportError::from_exchange(error.error()), unsent }
    }
}

/// A group of lanes for one sort of traffic, grown on demand.
pub(super) struct Pool {
    dialer: Arc<Dialer>,
    // Counts what all lanes together may carry, so that whoever holds a permit finds room in a lane or room for a new one.
    room: Arc<Semaphore>,
    lanes: Mutex<Vec<Arc<Lane>>>,
}

/// The right to one stream of a lane, given back when dropped.
pub(super) struct Slot {
    lane: Arc<Lane>,
    // Given back before the pool's permit, see `Pool::room`.
    _stream: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
}

/// One HTTP/2 connection, opened on demand and again after it broke; or, with a server that lacks HTTP/2, one HTTP/1.1 connection
/// for each request in flight.
struct Lane {
    streams: Arc<Semaphore>,
    // An async lock: whoever finds no connection opens one while the others wait for it, and if that caller gives up, the next
    // waiter takes over.
    shared: tokio::sync::Mutex<Option<Http2>>,
    // Connections in use stay listed; they are told from free ones by being ready.
    exclusive: Mutex<Vec<http1::SendRequest<Full<Bytes>>>>,
    lacks_h2: AtomicBool,
    drivers: Drivers,
}

impl Pool {
    pub(super) fn new(dialer: Arc<Dialer>, max_lanes: usize) -> Self {
        let room = Arc::new(Semaphore::new(max_lanes.saturating_mul(MAX_STREAMS as usize)));
        Self { dialer, room, lanes: Mutex::new(Vec::new()) }
    }

    /// Sends one request on a lane with room, waiting for room if there is none. The slot lasts as long as the answer is read.
    pub(super) async fn send(&self, request: Outgoing) -> Result<(Response<Incoming>, Slot), TransportError> {
        let slot = self.slot().await?;
        let response = slot.lane.send(&self.dialer, request).await?;
        Ok((response, slot))
    }

    async fn slot(&self) -> Result<Slot, TransportError> {
        // Neither semaphore is ever closed.
        let closed = |_| TransportError::Unreachable(Unreachable::Closed);
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(closed)?;
        let mut lanes = self.lanes.lock();
        for lane in lanes.iter() {
            if let Ok(stream) = Arc::clone(&lane.streams).try_acquire_owned() {
                return Ok(Slot { lane: Arc::clone(lane), _stream: stream, _room: room });
            }
        }
        let lane = Arc::new(Lane::new());
        let stream = Arc::clone(&lane.streams).try_acquire_owned().map_err(|_| TransportError::Unreachable(Unreachable::Closed))?;
        lanes.push(Arc::clone(&lane));
        Ok(Slot { lane, _stream: stream, _room: room })
    }
}

impl Lane {
    fn new() -> Self {
        Self {
            streams: Arc::new(Semaphore::new(MAX_STREAMS as usize)),
            shared: tokio::sync::Mutex::new(None),
            exclusive: Mutex::new(Vec::new()),
            lacks_h2: AtomicBool::new(false),
            drivers: Drivers::default(),
        }
    }

    async fn send(&self, dialer: &Dialer, request: Outgoing) -> Result<Response<Incoming>, TransportError> {
        // A connection that was closed (servers retire them on purpose) may take a request and hand it back unsent. Only then is
        // it given to a new connection: a request of which a byte may have left is never repeated.
        match self.attempt(dialer, request).await {
            Ok(response) => Ok(response),
            Err(Failure { unsent: Some(request), .. }) => self.attempt(dialer, *request).await.map_err(|failure| failure.error),
            Err(Failure { error, .. }) => Err(error),
        }
    }

    async fn attempt(&self, dialer: &Dialer, request: Outgoing) -> Result<Response<Incoming>, Failure> {
        let sender = self.sender(dialer).await?;
        in_term(&request)?;
        match sender {
            Sender::H2(mut connection) => match connection.sender.try_send_request(request).await {
                Ok(response) => Ok(response),
                Err(error) => {
                    let mut failure = Failure::from(error);
                    if failure.error == TransportError::Unreachable(Unreachable::Closed)
                        && let Ok(Ok(cause)) = tokio::time::timeout(CAUSE_PATIENCE, connection.cause).await
                    {
                        failure.error = cause;
                    }
                    Err(failure)
                }
            },
            Sender::H1(mut sender) => {
                let response = sender.try_send_request(origin_form(request)).await?;
                self.exclusive.lock().push(sender);
                Ok(response)
            }
        }
    }

    async fn sender(&self, dialer: &Dialer) -> Result<Sender, TransportError> {
        if let Some(sender) = self.free_exclusive() {
            return Ok(Sender::H1(sender));
        }
        if self.lacks_h2.load(Ordering::Relaxed) {
            // The server may have learnt HTTP/2 since; then the lane goes back to one shared connection.
            let sender = dialer.dial(&self.drivers).await?;
            self.lacks_h2.store(matches!(sender, Sender::H1(_)), Ordering::Relaxed);
            return Ok(sender);
        }
        let mut shared = self.shared.lock().await;
        if let Some(connection) = shared.as_ref().filter(|connection| !connection.sender.is_closed()) {
            return Ok(Sender::H2(connection.clone()));
        }
        match dialer.dial(&self.drivers).await? {
            Sender::H2(connection) => {
                *shared = Some(connection.clone());
                Ok(Sender::H2(connection))
            }
            Sender::H1(sender) => {
                self.lacks_h2.store(true, Ordering::Relaxed);
                Ok(Sender::H1(sender))
            }
        }
    }

    fn free_exclusive(&self) -> Option<http1::SendRequest<Full<Bytes>>> {
        let mut senders = self.exclusive.lock();
        senders.retain(|sender| !sender.is_closed());
        let free = senders.iter().position(http1::SendRequest::is_ready)?;
        Some(senders.swap_remove(free))
    }
}

/// HTTP/1.1 wants the path alone and the host as a header.
fn origin_form(mut request: Outgoing) -> Outgoing {
    if let Some(host) = request.uri().authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(path);
    }
    request
}
