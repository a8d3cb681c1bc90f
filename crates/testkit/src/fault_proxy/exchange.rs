//! One connection as HTTP: each request is forwarded over a connection of its own to the API server, or is not.

use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Request, Response, Uri, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::Incoming,
    client::conn::http2::{self as client, SendRequest},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::{io::DuplexStream, net::TcpStream};
use tokio_rustls::TlsConnector;

use super::{
    Shared,
    fault::{Asked, Fault, Reply},
    flow::{Broken, flow},
    link::Resets,
    rules::Exchange,
};

/// What API servers allow on one connection.
const STREAMS: u32 = 100;
/// Lists in one flight.
const WINDOW: u32 = 4 * 1024 * 1024;

type Body = UnsyncBoxBody<Bytes, Broken>;

/// Serves one connection until either side ends it.
pub(super) async fn serve(inner: DuplexStream, upstream: TcpStream, shared: &Arc<Shared>, resets: Resets) {
    // Either side may break its connection at any time; whoever looks at it notices at its own end.
    try_serve(inner, upstream, shared, resets).await.ok();
}

async fn try_serve(inner: DuplexStream, upstream: TcpStream, shared: &Arc<Shared>, resets: Resets) -> Result<()> {
    let downstream = shared.acceptor.accept(inner).await.context("the client's TLS")?;
    let (_, session) = downstream.get_ref();
    let speaks_h2 = session.alpn_protocol() == Some(b"h2");
    let config = shared.client_config(session.peer_certificates().and_then(<[_]>::first));

    let name = ServerName::try_from("127.0.0.1").context("naming the API server")?;
    let upstream = TlsConnector::from(config).connect(name, upstream).await.context("the API server's TLS")?;
    let (sender, driver) = client::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .handshake(TokioIo::new(upstream))
        .await
        .context("connecting to the API server")?;

    let service = service_fn(|request| answer(request, sender.clone(), Arc::clone(shared), resets.clone()));
    let io = TokioIo::new(downstream);
    let served = async {
        if speaks_h2 {
            http2::Builder::new(TokioExecutor::new()).max_concurrent_streams(STREAMS).serve_connection(io, service).await
        } else {
            http1::Builder::new().serve_connection(io, service).await
        }
    };
    // The API server's end is the client's end.
    tokio::select! {
        served = served => served.context("the client's connection"),
        ended = driver => ended.context("the API server's connection"),
    }
}

async fn answer(
    request: Request<Incoming>,
    sender: SendRequest<Incoming>,
    shared: Arc<Shared>,
    resets: Resets,
) -> Result<Response<Body>, Broken> {
    let (mut head, body) = request.into_parts();
    let mut exchange = shared.rules.opened(Asked::of(&head));
    let fault = exchange.at_head();
    match &fault {
        Some(Fault::Hang) => return std::future::pending().await,
        Some(Fault::Answer(reply)) => return Ok(ready_made(reply)),
        Some(Fault::Break) => return Err(Broken),
        Some(Fault::Reset) => {
            resets.reset();
            return std::future::pending().await;
        }
        _ => {}
    }
    if let Some(Fault::Rewrite(_)) = &fault {
        // What is known of the true body says nothing about the other one.
        head.headers.remove(header::IF_NONE_MATCH);
    }
    let answered = forward(head, body, sender, &shared).await?;
    match fault {
        Some(Fault::Swallow) => {
            answered.into_body().collect().await.ok();
            std::future::pending().await
        }
        Some(Fault::Rewrite(rewrite)) => {
            let (mut head, body) = answered.into_parts();
            head.headers.remove(header::ETAG);
            let whole = body.collect().await.map_err(|_| Broken)?.to_bytes();
            Ok(Response::from_parts(head, full(rewrite(&whole))))
        }
        _ => Ok(pass(answered, exchange, resets)),
    }
}

/// Sends a request on to the API server; answers with its answer, whose headers say nothing about lengths and connections.
async fn forward(
    mut head: http::request::Parts,
    body: Incoming,
    mut sender: SendRequest<Incoming>,
    shared: &Shared,
) -> Result<Response<Incoming>, Broken> {
    let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    head.uri = Uri::builder().scheme("https").authority(shared.upstream.to_string()).path_and_query(path).build().map_err(|_| Broken)?;
    head.version = http::Version::HTTP_2;
    strip(&mut head.headers);
    // Bodies are looked into.
    head.headers.remove(header::ACCEPT_ENCODING);
    head.headers.remove(header::HOST);
    let mut answered = sender.send_request(Request::from_parts(head, body)).await.map_err(|_| Broken)?;
    strip(answered.headers_mut());
    answered.headers_mut().remove(header::CONTENT_LENGTH);
    Ok(answered)
}

/// Headers about one connection.
fn strip(headers: &mut HeaderMap) {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::TE] {
        headers.remove(name);
    }
}

fn pass(answered: Response<Incoming>, exchange: Exchange, resets: Resets) -> Response<Body> {
    let (mut head, body) = answered.into_parts();
    // Whatever the client speaks.
    head.version = http::Version::HTTP_11;
    let frames = flow(body, exchange, resets).map(|piece| piece.map(Frame::data));
    Response::from_parts(head, StreamBody::new(frames).boxed_unsync())
}

fn ready_made(reply: &Reply) -> Response<Body> {
    let mut response = Response::new(full(reply.body.clone()));
    // Anything a test writes that is no status or header would only hide what it is about.
    *response.status_mut() = http::StatusCode::from_u16(reply.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &reply.headers {
        if let (Ok(name), Ok(value)) = (name.parse::<header::HeaderName>(), value.parse()) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}
