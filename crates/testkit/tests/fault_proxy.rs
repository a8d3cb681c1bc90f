//! The fault proxy, as a plain client meets it: one control plane serves all tests of this file.

#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy allows it in test functions, not in their helpers")]

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::{AsyncBufReadExt, TryStreamExt, io::Lines};
use holdfast_testkit::{
    ControlPlane, Cut, Fault, FaultProxy, Link, Match, Options, Reply, Target, Writer, eventually, management::HUB_USER, status_code,
};
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::timeout};

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// What never comes does not come within this time.
const NEVER: Duration = Duration::from_millis(300);
/// What comes, comes within this time.
const SOON: Duration = Duration::from_secs(20);

/// A namespace with a ConfigMap `a`, a proxy, and a client through it.
struct Scene {
    plane: &'static ControlPlane,
    proxy: FaultProxy,
    client: Client,
    direct: Writer,
    a: Target,
    collection: String,
}

impl Scene {
    async fn new(namespace: &str) -> Self {
        let plane = PLANE.get_or_init(|| async { ControlPlane::start(Options::named("proxied")).await.unwrap() }).await;
        plane.namespace(namespace).await.unwrap();
        let direct = plane.writer("direct").unwrap();
        let a = Target::configmap(namespace, "a");
        direct.create(&a, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await.unwrap();
        let proxy = FaultProxy::start(plane).unwrap();
        let client = proxy.through(&plane.access(HUB_USER, &["system:masters"]).unwrap()).unwrap().client().unwrap();
        let collection = a.collection_path();
        Self { plane, proxy, client, direct, a, collection }
    }

    async fn get(&self) -> Result<Value> {
        self.fetch(&self.a.path()).await
    }

    async fn fetch(&self, path: &str) -> Result<Value> {
        Ok(self.client.request(Request::get(path).body(Vec::new())?).await?)
    }

    async fn text(&self, path: &str) -> Result<String> {
        Ok(self.client.request_text(Request::get(path).body(Vec::new())?).await?)
    }

    /// A watch that begins with the ConfigMap, and its first line read.
    async fn watch(&self) -> Watch {
        let request = Request::get(format!("{}?watch=true", self.collection)).body(Vec::new()).unwrap();
        let lines = self.client.request_stream(request).await.unwrap();
        Watch { lines: Box::pin(lines).lines_of() }
    }

    async fn touch(&self, value: &str) {
        self.direct.merge_patch(&self.a, &json!({"data": {"k": value}})).await.unwrap();
    }
}

type Reader = std::pin::Pin<Box<dyn futures::AsyncBufRead + Send>>;

struct Watch {
    lines: Lines<Reader>,
}

trait LinesOf {
    fn lines_of(self) -> Lines<Reader>;
}

impl<R: futures::AsyncBufRead + Send + 'static> LinesOf for std::pin::Pin<Box<R>> {
    fn lines_of(self) -> Lines<Reader> {
        let reader: Reader = self;
        reader.lines()
    }
}

impl Watch {
    /// The next line; `None` at a clean end.
    async fn line(&mut self) -> Result<Option<String>> {
        Ok(timeout(SOON, self.lines.try_next()).await??)
    }

    /// The value `k` of the ConfigMap in the next line.
    async fn value(&mut self) -> String {
        let event: Value = serde_json::from_str(&self.line().await.unwrap().unwrap()).unwrap();
        event.pointer("/object/data/k").unwrap().as_str().unwrap().to_owned()
    }

    async fn is_silent(&mut self) -> bool {
        timeout(NEVER, self.lines.try_next()).await.is_err()
    }
}

#[tokio::test]
async fn without_faults_it_is_not_there() {
    let scene = Scene::new("plain").await;
    let mark = scene.plane.audit_mark().await.unwrap();
    assert_eq!(scene.get().await.unwrap(), scene.direct.get(&scene.a).await.unwrap());
    let through = Writer::new(scene.client.clone(), "through");
    through.merge_patch(&scene.a, &json!({"data": {"k": "w"}})).await.unwrap();
    assert_eq!(through.get(&Target::configmap("plain", "b")).await.map_err(|error| status_code(&error)).unwrap_err(), Some(404));
    let audit = scene.plane.audit_since(mark).await.unwrap().in_namespace("plain").by_user(HUB_USER);
    assert_eq!((audit.gets().len(), audit.writes().len()), (2, 1), "the identity goes with the request: {audit}");

    let mut watch = scene.watch().await;
    assert_eq!(watch.value().await, "w");
    scene.touch("x").await;
    assert_eq!(watch.value().await, "x");
    let watches = Match::watches(&scene.collection);
    assert_eq!((scene.proxy.open(&watches), scene.proxy.count(&watches)), (1, 1));
    assert!(scene.proxy.connections() >= 1 && scene.proxy.accepted() >= 1);
    drop(watch);
    let closed = async || {
        ensure!(scene.proxy.open(&Match::any()) == 0);
        Ok(())
    };
    eventually("a dropped watch is closed", SOON, closed).await.unwrap();

    scene
        .plane
        .apply_yaml("setup", r#"{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa", "namespace": "plain"}}"#)
        .await
        .unwrap();
    let account = scene.proxy.through(&scene.plane.service_account("plain", "sa").await.unwrap()).unwrap().client().unwrap();
    let refused = Writer::new(account, "sa").get(&scene.a).await.unwrap_err();
    assert!(format!("{refused:?}").contains("system:serviceaccount:plain:sa"), "tokens go through: {refused:?}");
    let poses = scene.proxy.pose_as("another");
    let uid = async || scene.fetch("/api/v1/namespaces/kube-system").await.unwrap()["metadata"]["uid"].take();
    assert_eq!(uid().await, "another");
    drop(poses);
    assert_ne!(uid().await, "another");
    let kubeconfig = scene.proxy.kubeconfig(scene.plane, "ann", &[]).unwrap();
    assert!(kubeconfig.contains(scene.proxy.url()) && !kubeconfig.contains(scene.plane.url()));
}

#[tokio::test]
async fn requests_are_struck_by_method_path_query_and_number() {
    let scene = Scene::new("struck").await;
    let refused = |error: anyhow::Error| status_code(&error).unwrap();
    let twice = scene.proxy.rule(
        Match::path(&scene.a.path()).method(Method::GET).first(2),
        Fault::Answer(Reply::status(429, "TooManyRequests", "a canary").retry_after(1)),
    );
    assert_eq!(scene.get().await.map_err(refused).unwrap_err(), 429);
    scene.touch("not a GET").await;
    let gone = scene.proxy.rule(Match::prefix("/api/v1/namespaces/struck"), Fault::status(410, "Expired", "too old"));
    assert_eq!(scene.get().await.map_err(refused).unwrap_err(), 429, "the first rule in force is the one");
    assert_eq!(scene.get().await.map_err(refused).unwrap_err(), 410);
    assert_eq!((twice.end(), gone.end()), (2, 1));
    assert!(scene.get().await.is_ok(), "a rule ends with its guard");

    let plain = scene.proxy.rule(Match::any().query("limit", "1"), Fault::Answer(Reply::text(503, "service unavailable")));
    assert!(scene.fetch(&scene.collection).await.is_ok());
    assert!(scene.fetch(&format!("{}?limit=1", scene.collection)).await.unwrap_err().to_string().contains("service unavailable"));
    drop(plain);

    let empty = scene.proxy.rule(
        Match::lists(&scene.collection),
        Fault::rewrite_json(|list| {
            list.as_object_mut().unwrap().insert("items".to_owned(), json!([]));
        }),
    );
    assert_eq!(scene.fetch(&scene.collection).await.unwrap().pointer("/items"), Some(&json!([])));
    drop(empty);
    assert_eq!(scene.proxy.count(&Match::path(&scene.a.path())), 4);
}

#[tokio::test]
async fn answers_never_come_or_come_too_late_to_matter() {
    let scene = Scene::new("never").await;
    for (fault, arrives) in [(Fault::Hang, false), (Fault::Swallow, true)] {
        let name = format!("{fault:?}");
        let rule = scene.proxy.rule(Match::any().method(Method::PATCH), fault);
        let through = Writer::new(scene.client.clone(), "through");
        let patch = json!({"data": {name.to_lowercase(): "sent"}});
        assert!(timeout(NEVER, through.merge_patch(&scene.a, &patch)).await.is_err(), "{name}");
        assert_eq!(rule.end(), 1);
        let stored = async || {
            let object = scene.direct.get(&scene.a).await?;
            let is_stored = object.pointer(&format!("/data/{}", name.to_lowercase())).is_some();
            ensure!(is_stored == arrives, "{object}");
            Ok(())
        };
        eventually(&name, SOON, stored).await.unwrap();
    }
    for fault in [Fault::Break, Fault::Reset] {
        let name = format!("{fault:?}");
        let before = scene.proxy.accepted();
        let rule = scene.proxy.rule(Match::path(&scene.a.path()).first(1), fault);
        assert!(scene.get().await.map_err(|error| status_code(&error)).unwrap_err().is_none(), "{name}");
        scene.get().await.unwrap();
        assert_eq!(rule.end(), 1, "{name}");
        assert!(scene.proxy.accepted() >= before, "{name}");
    }
}

#[tokio::test]
async fn bodies_are_cut_and_drip() {
    let scene = Scene::new("bodies").await;
    let whole = scene.text(&scene.a.path()).await.unwrap();
    let cut = |cut| scene.proxy.rule(Match::path(&scene.a.path()), Fault::Cut(cut));
    let rule = cut(Cut::after_bytes(10));
    let broken = scene.text(&scene.a.path()).await;
    assert!(broken.is_err(), "broken off: {broken:?}");
    drop(rule);
    let rule = cut(Cut::after_bytes(10).cleanly());
    assert_eq!(Some(scene.text(&scene.a.path()).await.unwrap().as_str()), whole.get(..10));
    drop(rule);
    let rule = cut(Cut::in_line(0).cleanly());
    let half = scene.text(&scene.a.path()).await.unwrap();
    assert!(!half.is_empty() && half.len() < whole.len() && whole.starts_with(&half), "{half}");
    drop(rule);

    let rule = scene.proxy.rule(Match::path(&scene.a.path()), Fault::Drip { bytes_per_second: 1 });
    assert!(timeout(NEVER, scene.text(&scene.a.path())).await.is_err());
    drop(rule);
    let rule = scene.proxy.rule(Match::path(&scene.a.path()), Fault::Drip { bytes_per_second: 100_000 });
    assert_eq!(scene.text(&scene.a.path()).await.unwrap(), whole);
    drop(rule);
    let rule = scene.proxy.rule(Match::path(&scene.a.path()), Fault::Stall);
    assert!(timeout(NEVER, scene.text(&scene.a.path())).await.is_err());
    drop(rule);
    assert_eq!(scene.text(&scene.a.path()).await.unwrap(), whole);
}

#[tokio::test]
async fn open_watches_are_struck_too() {
    let scene = Scene::new("watches").await;
    let watches = || Match::watches(&scene.collection);

    let mut watch = scene.watch().await;
    assert_eq!(watch.value().await, "v");
    let stall = scene.proxy.rule(watches().already_open(), Fault::Stall);
    scene.touch("stalled").await;
    assert!(watch.is_silent().await);
    assert_eq!(scene.watch().await.value().await, "stalled", "another watch is not struck");
    assert_eq!(stall.end(), 1);
    assert_eq!(watch.value().await, "stalled", "nothing was lost");

    let expired = scene.proxy.rule(watches(), Fault::expired_in_stream());
    let status: Value = serde_json::from_str(&watch.line().await.unwrap().unwrap()).unwrap();
    assert_eq!((status.pointer("/type"), status.pointer("/object/code")), (Some(&json!("ERROR")), Some(&json!(410))));
    assert_eq!(watch.line().await.unwrap(), None, "the end");
    assert!(scene.watch().await.line().await.unwrap().unwrap().contains("Expired"), "a new one begins with it");
    assert_eq!(expired.end(), 2);

    let mut watch = scene.watch().await;
    assert_eq!(watch.value().await, "stalled");
    let injected = scene.proxy.rule(watches(), Fault::Inject { line: "between".to_owned(), last: false });
    scene.touch("after").await;
    let mut lines = [watch.line().await.unwrap().unwrap(), watch.line().await.unwrap().unwrap()];
    lines.sort_by_key(String::len);
    assert!(lines.first().unwrap() == "between" && lines.last().unwrap().contains("after"), "{lines:?}");
    drop(injected);

    let turned = scene.proxy.rule(
        watches(),
        Fault::rewrite_lines(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            format!(r#"{{"object":{},"type":{}}}"#, event["object"], event["type"])
        }),
    );
    scene.touch("turned").await;
    assert!(watch.line().await.unwrap().unwrap().starts_with(r#"{"object":{"#));
    drop(turned);
    scene.touch("as sent").await;
    assert!(watch.line().await.unwrap().unwrap().starts_with(r#"{"type":"#));

    let cut = scene.proxy.rule(watches(), Fault::Cut(Cut::in_line(1)));
    scene.touch("whole").await;
    assert_eq!(watch.value().await, "whole");
    scene.touch("cut").await;
    assert!(watch.line().await.is_err(), "in the middle of a line");
    drop(cut);

    for (fault, clean) in [(Fault::End, true), (Fault::Break, false), (Fault::Reset, false)] {
        let mut watch = scene.watch().await;
        watch.value().await;
        let name = format!("{fault:?}");
        let rule = scene.proxy.rule(watches().already_open(), fault);
        assert_eq!(watch.line().await.ok(), clean.then_some(None), "{name}");
        assert_eq!(rule.end(), 1, "{name}");
    }
    eventually("nothing is left", SOON, async || {
        ensure!(scene.proxy.open(&Match::any()) == 0);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_way_as_a_whole_fails_and_heals() {
    let scene = Scene::new("links").await;
    let mut watch = scene.watch().await;
    watch.value().await;
    for (link, resets, answers) in [
        (Link::Refused, true, false),
        (Link::Reset, true, false),
        (Link::Silent, false, false),
        (Link::Drip { bytes_per_second: 1 }, false, false),
        (Link::Drip { bytes_per_second: 1_000_000 }, false, true),
    ] {
        scene.proxy.set_link(link);
        let answer = timeout(NEVER, scene.get()).await;
        assert_eq!(matches!(answer, Ok(Ok(_))), answers, "{link:?}: {answer:?}");
        if resets {
            assert!(matches!(answer, Ok(Err(_))), "{link:?} is noticed at once: {answer:?}");
            assert!(watch.line().await.is_err(), "{link:?}: open connections too");
        }
        scene.proxy.set_link(Link::Open);
        eventually("it heals", SOON, async || scene.get().await).await.unwrap();
        if !resets {
            scene.touch(&format!("{link:?}")).await;
            assert_eq!(watch.value().await, format!("{link:?}"), "open connections stay");
        }
        if resets {
            watch = scene.watch().await;
            watch.value().await;
        }
    }
    scene.proxy.reset();
    assert!(watch.line().await.is_err());
    scene.get().await.unwrap();
    let Scene { client, proxy, .. } = scene;
    drop((client, watch));
    eventually("no connection is left", SOON, async || match proxy.connections() {
        0 => Ok(()),
        left => bail!("{left} left"),
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn http_2_goes_through_too() {
    let scene = Scene::new("http2").await;
    let file = scene.plane.dir().join("proxied.kubeconfig");
    std::fs::write(&file, scene.proxy.kubeconfig(scene.plane, "ann", &["system:masters"]).unwrap()).unwrap();
    let kubectl = async |verb: &[&str]| {
        let options = ["--kubeconfig", file.to_str().unwrap(), "-n", "http2", "--request-timeout", "20s"];
        scene.plane.kubectl(&[verb, &options].concat()).await
    };
    let mark = scene.plane.audit_mark().await.unwrap();
    assert_eq!(kubectl(&["get", "configmaps", "-o", "name"]).await.unwrap().trim(), "configmap/a");
    assert!(!scene.plane.audit_since(mark).await.unwrap().by_user("ann").lists().is_empty());
    for (fault, said) in [
        (Fault::status(403, "Forbidden", "said by the proxy"), &["said by the proxy"][..]),
        (Fault::Answer(Reply::text(500, "plain text")), &["InternalError"]),
        (Fault::Break, &["INTERNAL_ERROR"]),
        (Fault::Cut(Cut::after_bytes(10)), &["INTERNAL_ERROR"]),
        (Fault::Cut(Cut::after_bytes(10).cleanly()), &["unexpected"]),
        // What a client calls it depends on whether it was reading or writing at that moment.
        (Fault::Reset, &["reset", "unexpected EOF", "broken pipe"]),
    ] {
        let name = format!("{fault:?}");
        let rule = scene.proxy.rule(Match::lists(&scene.collection), fault);
        let answer = format!("{:?}", kubectl(&["get", "configmaps"]).await.unwrap_err());
        assert!(said.iter().any(|said| answer.contains(said)), "{name}: {answer}");
        assert!(rule.end() > 0, "{name}");
    }
    let event =
        json!({"type": "ADDED", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "put-in", "namespace": "http2"}}});
    let put_in = scene.proxy.rule(Match::watches(&scene.collection), Fault::Inject { line: event.to_string(), last: true });
    let watched = kubectl(&["get", "configmaps", "-o", "name", "--watch"]).await;
    assert!(format!("{watched:?}").contains("configmap/put-in"), "{watched:?}");
    assert_eq!(put_in.end(), 1);
}
