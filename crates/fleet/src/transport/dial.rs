//! Opening one connection: name, address policy, TCP, TLS, HTTP version.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::Shared;
use http::Uri;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tower::Service;

use super::{ConnectError, Options, TransportError, Unreachable};
use crate::kubeconfig::{Kubeconfig, ServerPolicy};

const H2: &[u8] = b"h2";
const H1: &[u8] = b"http/1.1";

/// How much of one stream the server may send before it is read.
const STREAM_WINDOW: u32 = 256 * 1024;
/// As much as all streams of a connection together, so that one watch nobody reads cannot stall the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * super::MAX_STREAMS;

/// The tasks that move the bytes of open connections. Each ends with its socket or with its last sender and stream, and all end
/// with the set; errors reach the requests.
pub(super) type Drivers = Mutex<JoinSet<()>>;

/// The sending half of an open connection.
pub(super) enum Sender {
    H2(Http2),
    H1(http1::SendRequest<Full<Bytes>>),
}

/// An HTTP/2 connection. Its requests learn only that it broke; why, its driver knows.
#[derive(Clone)]
pub(super) struct Http2 {
    pub(super) sender: http2::SendRequest<Full<Bytes>>,
    pub(super) cause: Shared<oneshot::Receiver<TransportError>>,
}

/// Opens connections to one server.
pub(super) struct Dialer {
    http: HttpConnector<PolicyResolver>,
    tls: TlsConnector,
    address: Uri,
    tls_name: ServerName<'static>,
    options: Options,
}

impl Dialer {
    pub(super) fn new(kubeconfig: &Kubeconfig, policy: &ServerPolicy, options: Options) -> Result<Self, ConnectError> {
        // The policy may have changed since the kubeconfig was read, and addresses are not resolved again.
        if !policy.allows(&kubeconfig.server().host) {
            return Err(ConnectError::ServerDenied);
        }
        let mut http = HttpConnector::new_with_resolver(PolicyResolver::new(policy.clone()));
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(options.connect_timeout));
        // HTTP/1.1 has no pings of its own.
        http.set_keepalive(Some(options.ping_interval));
        http.set_keepalive_interval(Some(options.ping_timeout));
        let address = format!("https://{}/", kubeconfig.server()).parse().map_err(|_| ConnectError::Address)?;
        Ok(Self {
            http,
            tls: TlsConnector::from(Arc::new(tls_config(kubeconfig)?)),
            address,
            tls_name: kubeconfig.tls_server_name().clone(),
            options,
        })
    }

    /// Opens a connection in whichever HTTP version the server prefers, HTTP/2 first, and leaves its driver in the set.
    pub(super) async fn dial(&self, drivers: &Drivers) -> Result<Sender, TransportError> {
        // On the heap, because a handshake is large and rare, and every request would carry its place.
        let open = Box::pin(self.open(drivers));
        tokio::time::timeout(self.options.connect_timeout, open).await.map_err(|_| TransportError::Timeout)?
    }

    async fn open(&self, drivers: &Drivers) -> Result<Sender, TransportError> {
        let tcp = self.http.clone().call(self.address.clone()).await.map_err(|error| TransportError::from_connect(&error))?;
        let tls = self.tls.connect(self.tls_name.clone(), tcp.into_inner()).await;
        let tls = tls.map_err(|error| TransportError::from_connect(&error))?;
        let speaks_h2 = tls.get_ref().1.alpn_protocol() == Some(H2);
        let io = TokioIo::new(tls);
        let broken = |error: hyper::Error| TransportError::from_exchange(&error);
        if speaks_h2 {
            let (sender, driver) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .keep_alive_interval(self.options.ping_interval)
                .keep_alive_timeout(self.options.ping_timeout)
                .keep_alive_while_idle(true)
                .handshake(io)
                .await
                .map_err(broken)?;
            let (tell, cause) = oneshot::channel();
            keep(drivers, async move {
                if let Err(error) = driver.await {
                    // Nobody may be left to hear it.
                    tell.send(TransportError::from_exchange(&error)).ok();
                }
            });
            Ok(Sender::H2(Http2 { sender, cause: cause.shared() }))
        } else {
            let (sender, driver) = http1::Builder::new().handshake(io).await.map_err(broken)?;
            keep(drivers, driver.map(drop));
            Ok(Sender::H1(sender))
        }
    }
}

fn keep(drivers: &Drivers, driver: impl Future<Output = ()> + Send + 'static) {
    let mut drivers = drivers.lock();
    // Forgets those that have ended.
    while drivers.try_join_next().is_some() {}
    drivers.spawn(driver);
}

fn tls_config(kubeconfig: &Kubeconfig) -> Result<ClientConfig, ConnectError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|_| ConnectError::Tls)?
        .with_root_certificates(Arc::clone(kubeconfig.roots()));
    let mut config = match kubeconfig.identity().certificate() {
        Some(certificate) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(certificate)))),
        None => builder.with_no_client_auth(),
    };
    // A resumed session checks no certificate: one that has expired, or whose authority is not trusted any more, would still be good.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![H2.to_vec(), H1.to_vec()];
    Ok(config)
}

/// The system's resolver without the addresses the policy refuses: a name is only as good as where it leads at this moment.
#[derive(Clone)]
pub(super) struct PolicyResolver {
    policy: Arc<ServerPolicy>,
}

impl PolicyResolver {
    pub(super) fn new(policy: ServerPolicy) -> Self {
        Self { policy: Arc::new(policy) }
    }
}

impl Service<Name> for PolicyResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Unreachable;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let policy = Arc::clone(&self.policy);
        Box::pin(async move {
            // The port is put in by the connector.
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(|_| Unreachable::Name)?.collect();
            if found.is_empty() {
                return Err(Unreachable::Name);
            }
            let allowed: Vec<_> = found.into_iter().filter(|found| policy.allows_address(Some(name.as_str()), found.ip())).collect();
            if allowed.is_empty() { Err(Unreachable::AddressDenied) } else { Ok(allowed.into_iter()) }
        })
    }
}
