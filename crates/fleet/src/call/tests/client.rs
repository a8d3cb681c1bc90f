use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::super::{ApiClient, CallError, Deadlines, Effect, Endpoint, Fetched, FieldManager, ListQuery, Shape};
use crate::clock::SystemClock;
use crate::kubeconfig;
use crate::kubeconfig::fixture::{Authority, with_token};
use crate::term::Term;
use crate::transport::tests::server::TestServer;
use crate::transport::tests::{connection, loopback};
use crate::transport::{Connection, Observed, Options, RequestObserver, Unreachable, Verb};

static CA: LazyLock<Authority> = LazyLock::new(Authority::new);

const PATIENCE: Duration = Duration::from_secs(10);

fn client(server: &TestServer) -> ApiClient {
    ApiClient::new(connection(&with_token(&server.url(), &CA, "t")), Deadlines::default())
}

fn web() -> Endpoint {
    Endpoint::new("apps", "v1", "deployments").unwrap().in_namespace("shop").unwrap().named("web").unwrap()
}

fn helm() -> FieldManager {
    FieldManager::new("helm").unwrap()
}

#[tokio::test]
async fn requests_as_the_server_sees_them() {
    let server = TestServer::start(&CA).await;
    let client = client(&server);
    let body = Bytes::from_static(b"{}");
    let collection = Endpoint::new("", "v1", "secrets").unwrap().in_namespace("shop").unwrap();
    client.get(&web(), Shape::Full).await.unwrap();
    client.get(&web(), Shape::Metadata).await.unwrap();
    client
        .list(&collection, Shape::Metadata, &ListQuery { labels: "owner=helm".into(), consistent: true, ..ListQuery::default() })
        .await
        .unwrap();
    client.create(&collection, body.clone(), &helm(), Effect::Persist).await.unwrap();
    client.apply(&web(), body.clone(), &FieldManager::new("a b").unwrap(), true, Effect::DryRun).await.unwrap();
    client.json_patch(&web(), body.clone(), &helm(), Effect::DryRun).await.unwrap();
    client.merge_patch(&web(), body.clone(), &helm(), Effect::Persist).await.unwrap();
    client.get_raw("/version", "application/json", None).await.unwrap();

    let path = "/apis/apps/v1/namespaces/shop/deployments/web";
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let json = "application/json";
    let expected = [
        ("GET", path.to_owned(), json, None),
        ("GET", path.to_owned(), metadata, None),
        ("GET", "/api/v1/namespaces/shop/secrets?labelSelector=owner%3Dhelm".to_owned(), list, None),
        ("POST", "/api/v1/namespaces/shop/secrets?fieldManager=helm".to_owned(), json, Some("application/json")),
        ("PATCH", format!("{path}?fieldManager=a%20b&force=true&dryRun=All"), json, Some("application/apply-patch+yaml")),
        ("PATCH", format!("{path}?fieldManager=helm&dryRun=All"), json, Some("application/json-patch+json")),
        ("PATCH", format!("{path}?fieldManager=helm"), json, Some("application/merge-patch+json")),
        ("GET", "/version".to_owned(), json, None),
    ];
    let seen = server.seen();
    assert_eq!(seen.len(), expected.len());
    for (seen, (method, uri, accept, content)) in seen.iter().zip(expected) {
        assert_eq!((seen.method.as_str(), seen.uri.as_str()), (method, uri.as_str()));
        assert_eq!(seen.headers["accept"], accept, "{uri}");
        assert_eq!(seen.headers.get("content-type").map(|value| value.to_str().unwrap()), content, "{uri}");
        assert_eq!(seen.body.len(), if method == "GET" { 0 } else { 2 });
    }
}

#[tokio::test]
async fn answers() {
    let server = TestServer::start(&CA).await;
    let client = client(&server);
    server.answer_next(201, "application/json", r#"{"data":"CANARY"}"#);
    let created = client.apply(&web(), Bytes::new(), &helm(), true, Effect::DryRun).await.unwrap();
    assert!(created.created());
    assert!(!format!("{created:?}").contains("CANARY"));
    assert_eq!(created.json::<Box<RawValue>>().unwrap().get(), r#"{"data":"CANARY"}"#);
    assert_eq!(created.json::<Vec<u8>>().unwrap_err(), CallError::BadAnswer);

    server.answer_next(202, "application/json", "{}");
    assert_eq!(client.get(&web(), Shape::Full).await, Err(CallError::BadAnswer));
    server.answer_next(404, "text/plain", "404 page not found\n");
    assert_eq!(client.get(&web(), Shape::Full).await, Err(CallError::KindNotServed));
    server.answer_next(302, "text/plain", "");
    assert_eq!(client.get(&web(), Shape::Full).await, Err(CallError::Redirect));
    server.answer_next(304, "text/plain", "");
    assert_eq!(client.get(&web(), Shape::Full).await, Err(CallError::BadAnswer));
}

#[tokio::test]
async fn answers_above_their_limit() {
    let server = TestServer::start(&CA).await;
    let client = client(&server);
    let nine_mebibytes = vec![b' '; 9 << 20];
    server.answer_next(200, "application/json", nine_mebibytes.clone());
    assert_eq!(client.get(&web(), Shape::Full).await, Err(CallError::TooLarge));
    // An error is known by its status, however long its text.
    server.answer_next(403, "application/json", nine_mebibytes.clone());
    assert_eq!(client.get(&web(), Shape::Full).await, Err(CallError::Forbidden));
    server.answer_next(200, "application/json", nine_mebibytes);
    let collection = Endpoint::new("", "v1", "secrets").unwrap();
    assert!(client.list(&collection, Shape::Full, &ListQuery::default()).await.is_ok());
}

#[tokio::test]
async fn conditional_reads() {
    let server = TestServer::start(&CA).await;
    let client = client(&server);
    let first = client.get_raw("/tagged", "application/json", None).await.unwrap();
    let Fetched::Fresh { etag: Some(etag), .. } = first else { panic!("{first:?}") };
    assert_eq!(client.get_raw("/tagged", "application/json", Some(&etag)).await.unwrap(), Fetched::Unchanged);
    assert!(matches!(client.get_raw("/tagged", "application/json", Some("\"v0\"")).await.unwrap(), Fetched::Fresh { .. }));
    assert_eq!(client.get_raw("no path", "application/json", None).await, Err(CallError::BadPath));
}

#[tokio::test]
async fn a_hanging_server_costs_one_deadline() {
    let server = TestServer::start(&CA).await;
    let short = Duration::from_millis(200);
    let deadlines = Deadlines { object: short, list: short, watch: short };
    let client = ApiClient::new(connection(&with_token(&server.url(), &CA, "t")), deadlines);
    let started = Instant::now();
    assert_eq!(client.get_raw("/hang", "application/json", None).await, Err(CallError::Timeout));
    assert!(matches!(client.open_watch("/hang", "application/json").await, Err(CallError::Timeout)));
    assert!(started.elapsed() < PATIENCE);
    // The connection is still good.
    assert!(client.get_raw("/version", "application/json", None).await.is_ok());
    // An open watch outlives the deadline for opening it.
    let mut lines = client.open_watch("/watch", "application/json").await.unwrap();
    tokio::time::sleep(short * 2).await;
    server.send_line("late\n");
    assert_eq!(timeout(PATIENCE, lines.next()).await.unwrap().unwrap().unwrap(), "late");
}

#[tokio::test]
async fn watches_line_by_line() {
    let server = TestServer::start(&CA).await;
    let client = client(&server);
    let mut lines = client.open_watch("/watch", Shape::Metadata.accept_one()).await.unwrap();
    for chunk in ["{\"a\":1}\n{\"b\"", ":2}\n", "\n", ""] {
        server.send_line(chunk);
    }
    let all: Vec<_> = timeout(PATIENCE, (&mut lines).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(all, [Ok(Bytes::from_static(b"{\"a\":1}")), Ok(Bytes::from_static(b"{\"b\":2}"))]);
    assert_eq!(server.seen()[0].headers["accept"], Shape::Metadata.accept_one());

    let mut cut = client.open_watch("/half", "application/json").await.unwrap();
    assert_eq!(timeout(PATIENCE, cut.next()).await.unwrap(), Some(Ok(Bytes::from_static(b"{\"type\":\"BOOKMARK\"}"))));
    assert_eq!(timeout(PATIENCE, cut.next()).await.unwrap(), Some(Err(CallError::Unreachable(Unreachable::Closed))));
    assert_eq!(timeout(PATIENCE, cut.next()).await.unwrap(), None);
}

#[tokio::test]
async fn refused_watches() {
    let server = TestServer::start(&CA).await;
    let client = client(&server);
    let body = r#"{"kind":"Status","code":422,"reason":"Invalid","message":"x","details":{"causes":[
        {"reason":"FieldValueForbidden","message":"Forbidden: gate","field":"sendInitialEvents"}]}}"#;
    server.answer_next(422, "application/json", body);
    let refused = client.open_watch("/watch", "application/json").await.err();
    assert_eq!(refused, Some(CallError::Invalid { fields: vec!["sendInitialEvents".into()] }));
    server.answer_next(410, "application/json", r#"{"kind":"Status","code":410,"reason":"Expired"}"#);
    assert_eq!(client.open_watch("/watch", "application/json").await.err(), Some(CallError::Expired));
}

#[derive(Default)]
struct Verbs(Mutex<Vec<(Verb, bool)>>);

impl RequestObserver for Verbs {
    fn observe(&self, observed: Observed) {
        self.0.lock().push((observed.verb, observed.dry_run));
    }
}

#[tokio::test]
async fn dry_runs_are_told_from_writes() {
    let server = TestServer::start(&CA).await;
    let verbs = Arc::new(Verbs::default());
    let kubeconfig = kubeconfig::parse(with_token(&server.url(), &CA, "t").as_bytes(), &loopback()).unwrap();
    let observer = Arc::clone(&verbs) as Arc<dyn RequestObserver>;
    let connection = Connection::new(&kubeconfig, &loopback(), Options::default(), observer).unwrap();
    let client = ApiClient::new(connection, Deadlines::default());
    for effect in [Effect::DryRun, Effect::Persist] {
        client.apply(&web(), Bytes::new(), &helm(), true, effect).await.unwrap();
        client.create(&web(), Bytes::new(), &helm(), effect).await.unwrap();
    }
    client.get(&web(), Shape::Full).await.unwrap();
    let expected = [(Verb::Patch, true), (Verb::Create, true), (Verb::Patch, false), (Verb::Create, false), (Verb::Get, false)];
    assert_eq!(*verbs.0.lock(), expected);
}

#[tokio::test]
async fn a_write_is_sent_during_its_term_or_not_at_all() {
    let server = TestServer::start(&CA).await;
    let term = Term::bounded(Arc::new(SystemClock));
    let client = client(&server).during(term.clone());
    let writes = async || {
        [
            client.create(&web(), Bytes::new(), &helm(), Effect::Persist).await.err(),
            client.apply(&web(), Bytes::new(), &helm(), true, Effect::Persist).await.err(),
            client.json_patch(&web(), Bytes::new(), &helm(), Effect::Persist).await.err(),
            client.merge_patch(&web(), Bytes::new(), &helm(), Effect::Persist).await.err(),
        ]
    };
    let withheld = [const { Some(CallError::Withheld) }; 4];
    assert_eq!(writes().await, withheld, "not begun");
    client.get(&web(), Shape::Full).await.unwrap();
    client.apply(&web(), Bytes::new(), &helm(), true, Effect::DryRun).await.unwrap();
    assert_eq!(server.seen().len(), 2, "reads and dry-runs need no term");
    term.extend(Term::since(&SystemClock), PATIENCE);
    assert_eq!(writes().await, [const { None }; 4]);
    assert_eq!(server.seen().len(), 6);
    term.end();
    assert_eq!(writes().await, withheld, "over");
    assert_eq!(server.seen().len(), 6);
}
