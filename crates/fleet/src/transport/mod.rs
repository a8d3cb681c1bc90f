//! Connections to API servers.
//!
//! A [`Connection`] carries requests to one server over two groups of connections, one for watches and one for everything else, so
//! that a burst of requests never waits behind watches. Each connection is HTTP/2 with at most [`MAX_STREAMS`] streams and pings
//! while idle; a server without HTTP/2 is spoken to over HTTP/1.1. Nothing is retried, redirects are errors, and the bearer token
//! can be exchanged while streams stay open.
//!
//! There are no deadlines here except for connecting: the callers in [`crate::call`] set them.

mod body;
mod dial;
mod fault;
mod lane;
mod observer;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, USER_AGENT};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use tokio::time::Instant;

pub use body::ResponseBody;
pub use fault::{TlsFault, TransportError, Unreachable};
pub use observer::{Observed, RequestObserver, Unobserved, Verb};

use crate::kubeconfig::{Fingerprint, Kubeconfig, ServerPolicy};
use crate::term::Term;
use dial::Dialer;
use lane::Pool;

/// Streams on one connection. API servers allow 100 and reset what is above.
pub const MAX_STREAMS: u32 = 80;

const AGENT: &str = concat!("holdfast/", env!("CARGO_PKG_VERSION"));

/// Limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// For name resolution, TCP, TLS and the HTTP handshake together.
    pub connect_timeout: Duration,
    /// After this long without a byte the server is pinged.
    pub ping_interval: Duration,
    /// A ping unanswered for this long ends the connection and all its streams.
    pub ping_timeout: Duration,
    /// Connections for watches; together they carry [`MAX_STREAMS`] times as many.
    pub watch_connections: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(10),
            // 640 kinds: more than any cluster serves that we have seen.
            watch_connections: 8,
        }
    }
}

/// Why a connection cannot even be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The server policy refuses the host.
    #[error("the server's host is not allowed by the server policy")]
    ServerDenied,
    /// Host and port do not make a URL.
    #[error("the server's address cannot be written as a URL")]
    Address,
    /// The TLS settings contradict each other.
    #[error("the TLS settings are not usable")]
    Tls,
    /// The user's own kubeconfig cannot be turned into a client; its credential plugin may have failed.
    #[error("the kubeconfig cannot be used")]
    Client,
}

impl ConnectError {
    /// A stable CamelCase word.
    pub fn reason(self) -> &'static str {
        match self {
            Self::ServerDenied => "ServerDenied",
            Self::Address => "Address",
            Self::Tls => "Tls",
            Self::Client => "Client",
        }
    }
}

/// Requests to one API server. Cheap to clone; all clones share the connections.
#[derive(Clone)]
pub struct Connection {
    stack: Arc<Stack>,
    observer: Arc<dyn RequestObserver>,
}

enum Stack {
    Own(Own),
    Kube(kube::Client),
}

struct Own {
    authority: Authority,
    authorization: ArcSwapOption<HeaderValue>,
    identity: Fingerprint,
    watches: Pool,
    requests: Pool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stack.as_ref() {
            Stack::Own(own) => f.debug_struct("Connection").field("server", &own.authority).finish_non_exhaustive(),
            Stack::Kube(_) => f.debug_struct("Connection").finish_non_exhaustive(),
        }
    }
}

impl Connection {
    /// Prepares connections to the server of a checked kubeconfig. The first request opens one.
    pub fn new(
        kubeconfig: &Kubeconfig,
        policy: &ServerPolicy,
        options: Options,
        observer: Arc<dyn RequestObserver>,
    ) -> Result<Self, ConnectError> {
        let dialer = Arc::new(Dialer::new(kubeconfig, policy, options)?);
        let own = Own {
            authority: kubeconfig.server().to_string().parse().map_err(|_| ConnectError::Address)?,
            authorization: ArcSwapOption::from(kubeconfig.identity().authorization().map(Arc::new)),
            identity: kubeconfig.connection_fingerprint(),
            watches: Pool::new(Arc::clone(&dialer), options.watch_connections.max(1)),
            requests: Pool::new(dialer, 1),
        };
        Ok(Self { stack: Arc::new(Stack::Own(own)), observer })
    }

    /// Uses a kubeconfig the user vouches for, as command lines do: credential plugins run, files are read, proxies are used.
    ///
    /// Never to be called with a kubeconfig from a Secret.
    pub async fn from_client_config(mut config: kube::Config, observer: Arc<dyn RequestObserver>) -> Result<Self, ConnectError> {
        config.default_retry = false;
        // A credential plugin is run here and blocks until it ends.
        let client = tokio::task::spawn_blocking(move || kube::Client::try_from(config)).await;
        let client = client.map_err(|_| ConnectError::Client)?.map_err(|_| ConnectError::Client)?;
        Ok(Self { stack: Arc::new(Stack::Kube(client)), observer })
    }

    /// Goes on with the token of `next` if that is all that differs, and says so; else changes nothing.
    ///
    /// Requests sent from now on carry it; open streams are not touched.
    pub fn swap_token(&self, next: &Kubeconfig) -> bool {
        match self.stack.as_ref() {
            Stack::Own(own) if own.identity == next.connection_fingerprint() => {
                own.authorization.store(next.identity().authorization().map(Arc::new));
                true
            }
            _ => false,
        }
    }

    /// Sends one request, whose URI is a path and a query, and returns the head of the answer with the body to be read.
    ///
    /// A request with a [`Term`] among its extensions is sent during that term or not at all.
    pub async fn send(&self, verb: Verb, dry_run: bool, request: Request<Bytes>) -> Result<Response<ResponseBody>, TransportError> {
        let mut count = Count { observer: self.observer.as_ref(), started: Instant::now(), verb, dry_run, status: None };
        let answer = match self.stack.as_ref() {
            Stack::Own(own) => own.send(verb, request).await,
            Stack::Kube(client) => send_by_kube(client, request).await,
        }?;
        count.status = Some(answer.status());
        // "Not modified" answers a conditional request and leads nowhere.
        if answer.status().is_redirection() && answer.status() != StatusCode::NOT_MODIFIED {
            return Err(TransportError::Redirect);
        }
        Ok(answer)
    }
}

/// Tells the observer when it is dropped, so that a request given up by its caller counts too.
struct Count<'a> {
    observer: &'a dyn RequestObserver,
    started: Instant,
    verb: Verb,
    dry_run: bool,
    status: Option<StatusCode>,
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        let Self { verb, dry_run, status, .. } = *self;
        self.observer.observe(Observed { verb, dry_run, status, elapsed: self.started.elapsed() });
    }
}

impl Own {
    async fn send(&self, verb: Verb, request: Request<Bytes>) -> Result<Response<ResponseBody>, TransportError> {
        let mut request = request.map(Full::new);
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(Scheme::HTTPS);
        parts.authority = Some(self.authority.clone());
        *request.uri_mut() = Uri::from_parts(parts).map_err(|_| TransportError::Unreachable(Unreachable::Protocol))?;
        decorate(request.headers_mut());
        if let Some(authorization) = self.authorization.load_full() {
            request.headers_mut().insert(AUTHORIZATION, HeaderValue::clone(&authorization));
        }
        let pool = if verb == Verb::Watch { &self.watches } else { &self.requests };
        let (response, slot) = pool.send(request).await?;
        Ok(response.map(|body| ResponseBody::own(body, slot)))
    }
}

async fn send_by_kube(client: &kube::Client, request: Request<Bytes>) -> Result<Response<ResponseBody>, TransportError> {
    in_term(&request)?;
    let mut request = request.map(kube::client::Body::from);
    decorate(request.headers_mut());
    let response = client.send(request).await.map_err(|error| TransportError::from_kube(&error))?;
    Ok(response.map(ResponseBody::kube))
}

/// To be asked last, when nothing is left to wait for.
fn in_term<B>(request: &Request<B>) -> Result<(), TransportError> {
    if request.extensions().get::<Term>().is_none_or(Term::holds) { Ok(()) } else { Err(TransportError::Withheld) }
}

fn decorate(headers: &mut http::HeaderMap) {
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    // Nothing here decompresses, so nothing can be inflated beyond its size limit.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}
