#![allow(clippy::disallowed_methods, reason = "the peers of the connections under test end with their test")]

pub(crate) mod server;

use std::sync::LazyLock;

use http::Version;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tower::Service;

use super::dial::PolicyResolver;
use super::*;
use crate::kubeconfig::fixture::{Authority, with_certificate, with_token};
use crate::kubeconfig::{self, Host};
use server::{Setup, TestServer};

static CA: LazyLock<Authority> = LazyLock::new(Authority::new);

const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn loopback() -> ServerPolicy {
    let rules = ["127.0.0.0/8", "::1"].map(|rule| rule.parse().unwrap());
    ServerPolicy::new(rules.to_vec(), Vec::new())
}

pub(crate) fn connection(text: &str) -> Connection {
    connection_with(text, Options::default(), Arc::new(Unobserved))
}

fn connection_with(text: &str, options: Options, observer: Arc<dyn RequestObserver>) -> Connection {
    let kubeconfig = kubeconfig::parse(text.as_bytes(), &loopback()).unwrap();
    Connection::new(&kubeconfig, &loopback(), options, observer).unwrap()
}

fn request(path: &str) -> Request<Bytes> {
    Request::get(path).body(Bytes::new()).unwrap()
}

async fn read(connection: &Connection, path: &str) -> Result<Bytes, TransportError> {
    let response = timeout(PATIENCE, connection.send(Verb::Get, false, request(path))).await.unwrap()?;
    response.into_body().read(1 << 20).await
}

async fn watch(connection: &Connection) -> ResponseBody {
    let response = timeout(PATIENCE, connection.send(Verb::Watch, false, request("/watch"))).await.unwrap().unwrap();
    response.into_body()
}

async fn next_chunk(body: &mut ResponseBody) -> Option<Result<Bytes, TransportError>> {
    use http_body_util::BodyExt;
    let frame = timeout(PATIENCE, body.frame()).await.unwrap()?;
    Some(frame.map(|frame| frame.into_data().unwrap()))
}

#[tokio::test]
async fn a_burst_of_requests_shares_one_http2_connection() {
    let server = TestServer::start(&CA).await;
    let connection = connection(&with_token(&server.url(), &CA, "one"));
    let burst = (0..200).map(|_| read(&connection, "/slow"));
    for answer in futures::future::join_all(burst).await {
        assert_eq!(answer.unwrap(), "{}");
    }
    assert_eq!(server.connections(), 1);
    let seen = server.seen();
    assert_eq!(seen.len(), 200);
    assert!(seen.iter().all(|seen| seen.version == Version::HTTP_2));
    assert_eq!(seen[0].headers["authorization"], "Bearer one");
    assert_eq!(seen[0].headers["user-agent"], AGENT);
    assert_eq!(seen[0].headers["accept-encoding"], "identity");
}

#[tokio::test]
async fn watches_have_their_own_connections_and_open_more_when_full() {
    let server = TestServer::start(&CA).await;
    let connection = connection(&with_token(&server.url(), &CA, "one"));
    let mut bodies = futures::future::join_all((0..170).map(|_| watch(&connection))).await;
    assert_eq!(server.connections(), 3);
    assert_eq!(read(&connection, "/ok").await.unwrap(), "{}");
    assert_eq!(server.connections(), 4);
    server.send_line("line\n");
    for body in &mut bodies {
        assert_eq!(next_chunk(body).await.unwrap().unwrap(), "line\n");
    }
    // Ended watches give their places back.
    drop(bodies);
    let _again = futures::future::join_all((0..100).map(|_| watch(&connection))).await;
    assert_eq!(server.connections(), 4);
}

#[tokio::test]
async fn more_watches_than_allowed_wait_for_one_to_end() {
    let server = TestServer::start(&CA).await;
    let options = Options { watch_connections: 1, ..Options::default() };
    let connection = connection_with(&with_token(&server.url(), &CA, "one"), options, Arc::new(Unobserved));
    let mut bodies = futures::future::join_all((0..MAX_STREAMS).map(|_| watch(&connection))).await;
    let waiting = watch(&connection);
    tokio::pin!(waiting);
    assert!(timeout(Duration::from_millis(100), &mut waiting).await.is_err());
    bodies.pop();
    waiting.await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn servers_without_http2_are_spoken_to_in_http1() {
    for alpn in [&["http/1.1"][..], &[]] {
        let setup = Setup { pair: CA.server(&["127.0.0.1"]), alpn, client_authority: None };
        let server = TestServer::with(setup).await;
        let connection = connection(&with_token(&server.url(), &CA, "one"));
        for _ in 0..5 {
            assert_eq!(read(&connection, "/api?limit=1").await.unwrap(), "{}");
            // Lets the connection's driver see that the answer is complete.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(server.connections(), 1);
        let mut bodies = futures::future::join_all((0..10).map(|_| watch(&connection))).await;
        server.send_line("line\n");
        for body in &mut bodies {
            assert_eq!(next_chunk(body).await.unwrap().unwrap(), "line\n");
        }
        assert_eq!(server.connections(), 11);
        let seen = server.seen();
        assert!(seen.iter().all(|seen| seen.version == Version::HTTP_11));
        assert_eq!(seen[0].uri, "/api?limit=1");
        assert_eq!(seen[0].headers["host"], server.address.to_string());
    }
}

#[tokio::test]
async fn a_new_token_leaves_open_streams_alone() {
    let server = TestServer::start(&CA).await;
    let connection = connection(&with_token(&server.url(), &CA, "one"));
    let mut body = watch(&connection).await;
    read(&connection, "/before").await.unwrap();
    let next = kubeconfig::parse(with_token(&server.url(), &CA, "two").as_bytes(), &loopback()).unwrap();
    assert!(connection.swap_token(&next));
    read(&connection, "/after").await.unwrap();
    server.send_line("still here\n");
    assert_eq!(next_chunk(&mut body).await.unwrap().unwrap(), "still here\n");
    assert_eq!(server.connections(), 2);
    let tokens: Vec<_> = server.seen().iter().map(|seen| seen.headers["authorization"].to_str().unwrap().to_owned()).collect();
    assert_eq!(tokens, ["Bearer one", "Bearer one", "Bearer two"]);
}

#[tokio::test]
async fn anything_but_a_new_token_needs_a_new_connection() {
    let server = TestServer::start(&CA).await;
    let connection = connection(&with_token(&server.url(), &CA, "one"));
    let others = [
        with_token("https://127.0.0.2:6443", &CA, "two"),
        with_token(&server.url(), &Authority::new(), "two"),
        with_certificate(&server.url(), &CA, &CA.client()),
    ];
    for text in others {
        let next = kubeconfig::parse(text.as_bytes(), &loopback()).unwrap();
        assert!(!connection.swap_token(&next));
    }
    read(&connection, "/ok").await.unwrap();
    assert_eq!(server.seen()[0].headers["authorization"], "Bearer one");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let server = TestServer::start(&CA).await;
    let connection = connection(&with_token(&server.url(), &CA, "one"));
    assert_eq!(read(&connection, "/redirect").await, Err(TransportError::Redirect));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn answers_are_read_up_to_their_limit() {
    let server = TestServer::start(&CA).await;
    let connection = connection(&with_token(&server.url(), &CA, "one"));
    for (limit, fits) in [(1 << 20, true), ((1 << 20) - 1, false), (0, false)] {
        let response = connection.send(Verb::Get, false, request("/big")).await.unwrap();
        let read = response.into_body().read(limit).await;
        assert_eq!(read.map(|body| body.len()), if fits { Ok(1 << 20) } else { Err(TransportError::TooLarge) });
    }
}

#[tokio::test]
async fn a_closed_connection_ends_its_streams_and_the_next_request_opens_another() {
    let server = TestServer::start(&CA).await;
    let connection = connection(&with_token(&server.url(), &CA, "one"));
    let mut body = watch(&connection).await;
    read(&connection, "/ok").await.unwrap();
    server.disconnect();
    assert_eq!(next_chunk(&mut body).await, Some(Err(TransportError::Unreachable(Unreachable::Closed))));
    read(&connection, "/ok").await.unwrap();
    watch(&connection).await;
    assert_eq!(server.connections(), 4);
}

#[tokio::test]
async fn a_watch_outlives_the_connection_it_was_opened_on() {
    let server = TestServer::start(&CA).await;
    let connection = connection(&with_token(&server.url(), &CA, "one"));
    let mut body = watch(&connection).await;
    drop(connection);
    server.send_line("still here\n");
    assert_eq!(next_chunk(&mut body).await.unwrap().unwrap(), "still here\n");
}

#[tokio::test]
async fn a_silent_connection_is_given_up_by_pings() {
    let server = TestServer::start(&CA).await;
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", relay.local_addr().unwrap());
    let (freeze, mut frozen) = tokio::sync::oneshot::channel::<()>();
    let upstream = server.address;
    let relaying = tokio::spawn(async move {
        let (mut near, _) = relay.accept().await.unwrap();
        let mut far = TcpStream::connect(upstream).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
            _ = &mut frozen => {}
        }
        // Both sockets stay open, and nothing moves.
        std::future::pending::<()>().await;
        drop((near, far));
    });
    let short = Duration::from_millis(100);
    let options = Options { ping_interval: short, ping_timeout: short, ..Options::default() };
    let connection = connection_with(&with_token(&url, &CA, "one"), options, Arc::new(Unobserved));
    let mut body = watch(&connection).await;
    freeze.send(()).unwrap();
    assert!(next_chunk(&mut body).await.unwrap().is_err());
    relaying.abort();
}

#[tokio::test]
async fn tls_faults_are_told_apart() {
    type Text<'a> = Box<dyn Fn(&str) -> String + 'a>;
    let both = &["h2", "http/1.1"][..];
    let stranger = Authority::new();
    let plain = |pair| Setup { pair, alpn: both, client_authority: None };
    let demanding = || Setup { pair: CA.server(&["127.0.0.1"]), alpn: both, client_authority: Some(&CA) };
    let token = |url: &str| with_token(url, &CA, "t");
    let cases: Vec<(Setup<'_>, Text<'_>, TlsFault)> = vec![
        (plain(CA.expired_server(&["127.0.0.1"])), Box::new(token), TlsFault::ServerCertificateExpired),
        (plain(CA.server(&["other.example.com"])), Box::new(token), TlsFault::WrongName),
        (plain(stranger.server(&["127.0.0.1"])), Box::new(token), TlsFault::UnknownAuthority),
        (Setup { alpn: &["other"], ..plain(CA.server(&["127.0.0.1"])) }, Box::new(token), TlsFault::Handshake),
        (demanding(), Box::new(token), TlsFault::ClientCertificate),
        (demanding(), Box::new(|url| with_certificate(url, &CA, &stranger.client())), TlsFault::ClientCertificate),
    ];
    for (setup, text, fault) in cases {
        let server = TestServer::with(setup).await;
        let connection = connection(&text(&server.url()));
        assert_eq!(read(&connection, "/").await, Err(TransportError::Tls(fault)));
        assert!(server.seen().is_empty());
    }
}

#[tokio::test]
async fn client_certificates_are_presented() {
    let setup = Setup { pair: CA.server(&["127.0.0.1"]), alpn: &["h2"], client_authority: Some(&CA) };
    let server = TestServer::with(setup).await;
    let connection = connection(&with_certificate(&server.url(), &CA, &CA.client()));
    read(&connection, "/").await.unwrap();
    assert!(!server.seen()[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn the_tls_server_name_replaces_the_host() {
    let setup = Setup { pair: CA.server(&["kubernetes"]), alpn: &["h2"], client_authority: None };
    let server = TestServer::with(setup).await;
    let text = with_token(&server.url(), &CA, "t").replace("    server:", "    tls-server-name: kubernetes\n    server:");
    read(&connection(&text), "/").await.unwrap();
}

#[tokio::test]
async fn servers_that_do_not_answer() {
    let quick = Options { connect_timeout: Duration::from_millis(200), ..Options::default() };
    let refusing = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain_address = plain.local_addr().unwrap();
    let answering = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        let (mut tcp, _) = plain.accept().await.unwrap();
        tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await;
    });
    let cases = [
        (refusing, TransportError::Unreachable(Unreachable::Refused)),
        (silent.local_addr().unwrap(), TransportError::Timeout),
        (plain_address, TransportError::Tls(TlsFault::Handshake)),
    ];
    for (address, expected) in cases {
        let connection = connection_with(&with_token(&format!("https://{address}"), &CA, "t"), quick, Arc::new(Unobserved));
        assert_eq!(read(&connection, "/").await, Err(expected), "{address}");
    }
    answering.abort();
}

#[tokio::test]
async fn a_caller_who_gives_up_while_connecting_does_not_fail_the_others() {
    let server = TestServer::start(&CA).await;
    let connection = connection(&with_token(&server.url(), &CA, "t"));
    let mut first = Box::pin(read(&connection, "/first"));
    // Polled once: it begins to connect, and is dropped while the second waits for it.
    assert!(futures::poll!(&mut first).is_pending());
    let mut second = Box::pin(read(&connection, "/second"));
    assert!(futures::poll!(&mut second).is_pending());
    drop(first);
    assert_eq!(second.await.unwrap(), "{}");
}

#[tokio::test]
async fn the_policy_is_applied_again_where_it_matters() {
    let kubeconfig = kubeconfig::parse(with_token("https://127.0.0.1:6443", &CA, "t").as_bytes(), &loopback()).unwrap();
    let refused = Connection::new(&kubeconfig, &ServerPolicy::default(), Options::default(), Arc::new(Unobserved));
    assert_eq!(refused.unwrap_err(), ConnectError::ServerDenied);

    let resolve = async |policy: ServerPolicy, name: &str| {
        let addresses = PolicyResolver::new(policy).call(name.parse().unwrap()).await;
        addresses.map(|addresses| addresses.map(|address| address.ip()).collect::<Vec<_>>())
    };
    assert_eq!(resolve(ServerPolicy::default(), "localhost").await, Err(Unreachable::AddressDenied));
    let mut allowed = resolve(loopback(), "localhost").await.unwrap();
    allowed.retain(|address| !address.is_loopback());
    assert!(allowed.is_empty());
    let by_name = ServerPolicy::new(vec!["localhost".parse().unwrap()], Vec::new());
    assert!(by_name.allows(&Host::Name("localhost".into())));
    assert!(resolve(by_name, "localhost").await.is_ok());
    assert_eq!(resolve(loopback(), "no-such-host.invalid").await, Err(Unreachable::Name));
}

#[derive(Default)]
struct Recorder(Mutex<Vec<(Verb, bool, Option<u16>)>>);

impl RequestObserver for Recorder {
    fn observe(&self, observed: Observed) {
        self.0.lock().push((observed.verb, observed.dry_run, observed.status.map(|status| status.as_u16())));
    }
}

#[tokio::test]
async fn every_request_is_counted_once() {
    let server = TestServer::start(&CA).await;
    let recorder = Arc::new(Recorder::default());
    let observer = Arc::clone(&recorder) as Arc<dyn RequestObserver>;
    let connection = connection_with(&with_token(&server.url(), &CA, "t"), Options::default(), observer);
    connection.send(Verb::Patch, true, request("/")).await.unwrap();
    read(&connection, "/redirect").await.unwrap_err();
    let given_up = timeout(Duration::from_millis(50), connection.send(Verb::List, false, request("/hang"))).await;
    assert!(given_up.is_err());
    watch(&connection).await;
    let expected =
        [(Verb::Patch, true, Some(200)), (Verb::Get, false, Some(302)), (Verb::List, false, None), (Verb::Watch, false, Some(200))];
    assert_eq!(*recorder.0.lock(), expected);
}

#[tokio::test]
async fn the_users_own_kubeconfig_goes_through_kubes_client() {
    let server = TestServer::start(&CA).await;
    let text = with_token(&server.url(), &CA, "mine");
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await.unwrap();
    let connection = Connection::from_client_config(config, Arc::new(Unobserved)).await.unwrap();
    assert_eq!(read(&connection, "/ok").await.unwrap(), "{}");
    assert_eq!(read(&connection, "/redirect").await, Err(TransportError::Redirect));
    let mut body = watch(&connection).await;
    server.send_line("line\n");
    assert_eq!(next_chunk(&mut body).await.unwrap().unwrap(), "line\n");
    let seen = server.seen();
    assert_eq!(seen[0].headers["authorization"], "Bearer mine");
    assert_eq!(seen[0].headers["user-agent"], AGENT);

    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let config = kube::Config::new(format!("https://{gone}").parse().unwrap());
    let connection = Connection::from_client_config(config, Arc::new(Unobserved)).await.unwrap();
    assert_eq!(read(&connection, "/").await, Err(TransportError::Unreachable(Unreachable::Refused)));
}

#[tokio::test]
async fn nothing_secret_is_printed() {
    let connection = connection(&with_token("https://127.0.0.1:6443", &CA, "CANARY-token"));
    let printed = format!("{connection:?}");
    assert!(printed.contains("127.0.0.1:6443"));
    assert!(!printed.contains("CANARY"));
}
