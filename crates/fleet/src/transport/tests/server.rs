//! A TLS server on loopback that answers a few fixed paths.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use http::{Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_rustls::TlsAcceptor;

use crate::kubeconfig::fixture::{Authority, Pair};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// One request as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) version: Version,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

/// What the server offers and asks for.
pub(crate) struct Setup<'a> {
    pub(crate) pair: Pair,
    pub(crate) alpn: &'a [&'a str],
    /// Whose client certificates are demanded.
    pub(crate) client_authority: Option<&'a Authority>,
}

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: tokio::task::JoinHandle<()>,
}

struct Shared {
    connections: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
    // Each text sent here goes to every open watch; an empty one ends them.
    lines: broadcast::Sender<Bytes>,
    disconnect: broadcast::Sender<()>,
    answers: Mutex<Vec<(StatusCode, &'static str, Bytes)>>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.accepting.abort();
        drop(self.shared.disconnect.send(()));
    }
}

impl TestServer {
    /// A server certified for `127.0.0.1` that speaks both HTTP versions.
    pub(crate) async fn start(authority: &Authority) -> Self {
        Self::with(Setup { pair: authority.server(&["127.0.0.1"]), alpn: &["h2", "http/1.1"], client_authority: None }).await
    }

    pub(crate) async fn with(setup: Setup<'_>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls(&setup)));
        let shared = Arc::new(Shared {
            connections: AtomicUsize::new(0),
            seen: Mutex::new(Vec::new()),
            lines: broadcast::channel(64).0,
            disconnect: broadcast::channel(1).0,
            answers: Mutex::new(Vec::new()),
        });
        let accepting = tokio::spawn(accept(listener, acceptor, Arc::clone(&shared)));
        Self { address, shared, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Connections whose TLS handshake succeeded.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }

    pub(crate) fn send_line(&self, line: &str) {
        self.shared.lines.send(Bytes::from(line.to_owned())).unwrap();
    }

    /// Closes every open connection.
    pub(crate) fn disconnect(&self) {
        self.shared.disconnect.send(()).unwrap();
    }

    /// The next request is answered with this instead of what its path says.
    pub(crate) fn answer_next(&self, status: u16, content_type: &'static str, body: impl Into<Bytes>) {
        self.shared.answers.lock().push((StatusCode::from_u16(status).unwrap(), content_type, body.into()));
    }
}

fn tls(setup: &Setup<'_>) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = match setup.client_authority {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
            builder.with_client_cert_verifier(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let chain = vec![CertificateDer::from_pem_slice(setup.pair.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(setup.pair.key.as_bytes()).unwrap();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = setup.alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    config
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        tokio::spawn(serve(tcp, acceptor.clone(), Arc::clone(&shared)));
    }
}

async fn serve(tcp: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut disconnect = shared.disconnect.subscribe();
    let Ok(tls) = acceptor.accept(tcp).await else { return };
    shared.connections.fetch_add(1, Ordering::SeqCst);
    let h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(tls);
    let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
    let connection = async {
        if h2 {
            // The limit of real API servers.
            let mut server = http2::Builder::new(TokioExecutor::new());
            drop(server.timer(TokioTimer::new()).max_concurrent_streams(100).serve_connection(io, service).await);
        } else {
            drop(http1::Builder::new().serve_connection(io, service).await);
        }
    };
    tokio::select! {
        () = connection => {}
        _ = disconnect.recv() => {}
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    shared.seen.lock().push(Seen {
        method: head.method.to_string(),
        uri: head.uri.path_and_query().unwrap().to_string(),
        version: head.version,
        headers: head.headers.clone(),
        body,
    });
    let scripted = shared.answers.lock().pop();
    if let Some((status, content_type, body)) = scripted {
        return Ok(Response::builder().status(status).header("content-type", content_type).body(full(body)).unwrap());
    }
    let response = match head.uri.path() {
        "/redirect" => Response::builder().status(302).header("location", "/elsewhere").body(full("")),
        "/big" => Response::builder().body(full(vec![b'x'; 1024 * 1024])),
        "/hang" => std::future::pending().await,
        "/slow" => {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Response::builder().body(full("{}"))
        }
        "/half" => Response::builder().body(full(r#"{"type":"BOOKMARK"}"#.to_owned() + "\n{\"type\":")),
        "/watch" => Response::builder().body(follow(shared.lines.subscribe())),
        "/tagged" if head.headers.get("if-none-match").is_some_and(|tag| tag == "\"v1\"") => Response::builder().status(304).body(full("")),
        "/tagged" => Response::builder().header("etag", "\"v1\"").body(full("{}")),
        _ => Response::builder().header("content-type", "application/json").body(full("{}")),
    };
    Ok(response.unwrap())
}

fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).boxed_unsync()
}

fn follow(lines: broadcast::Receiver<Bytes>) -> Body {
    let lines = stream::unfold(lines, |mut lines| async move {
        match lines.recv().await {
            Ok(line) if !line.is_empty() => Some((Ok(Frame::data(line)), lines)),
            _ => None,
        }
    });
    StreamBody::new(lines.boxed()).boxed_unsync()
}
