//! An API server in memory, for the tests of the writer.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "only tests use it; clippy does not count helpers as such")]

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::ReportKey;

const BASE: &str = "/apis/holdfast.dev/v1alpha1";

type Frames = stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>;
type Answer = StreamBody<Frames>;

/// An API server that knows only reports.
#[derive(Default)]
pub struct Server {
    pub state: Mutex<ServerState>,
    /// Answers every write with 500.
    pub broken: AtomicBool,
}

#[derive(Default)]
pub struct ServerState {
    objects: BTreeMap<(String, String), Value>,
    version: u64,
    /// Writes, and reads of single objects.
    requests: Vec<String>,
    pub watches: Vec<mpsc::Sender<Bytes>>,
}

impl ServerState {
    fn put(&mut self, key: (String, String), mut object: Value, kind: &str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if kind == "DELETED" {
            self.objects.remove(&key);
        } else {
            self.objects.insert(key, object.clone());
        }
        let line = Bytes::from(format!("{}\n", json!({"type": kind, "object": object})));
        self.watches.retain(|watch| watch.try_send(line.clone()).is_ok());
        object
    }
}

impl Server {
    async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Answer>, Infallible> {
        let (parts, sent) = request.into_parts();
        let sent: Value = serde_json::from_slice(&sent.collect().await.unwrap().to_bytes()).unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let path = parts.uri.path().strip_prefix(BASE).unwrap().trim_start_matches('/').to_owned();
        let segments: Vec<&str> = path.split('/').collect();
        let (sender, receiver) = mpsc::channel(1024);
        let mut code = 200;
        match (&parts.method, segments.as_slice()) {
            (&Method::GET, ["driftreports"]) if query.contains("watch=true") => self.state.lock().watches.push(sender),
            (&Method::GET, ["driftreports"]) => {
                let state = self.state.lock();
                let items: Vec<_> = state.objects.values().collect();
                let list = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftReportList",
                    "metadata": {"resourceVersion": state.version.to_string()}, "items": items});
                sender.try_send(Bytes::from(list.to_string())).unwrap();
            }
            _ => {
                let (status, answer) = self.one(&parts.method, &segments, &sent);
                code = status;
                sender.try_send(Bytes::from(answer.to_string())).unwrap();
            }
        }
        let frames =
            stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|bytes| (Ok(Frame::data(bytes)), receiver)) });
        Ok(Response::builder().status(code).body(StreamBody::new(Box::pin(frames) as Frames)).unwrap())
    }

    fn one(&self, method: &Method, segments: &[&str], body: &Value) -> (u16, Value) {
        let mut state = self.state.lock();
        state.requests.push(format!("{method} {}", segments.get(4).copied().unwrap_or_default()));
        if self.broken.load(Ordering::Relaxed) {
            return failure(500, "InternalError");
        }
        let namespace = segments[1].to_owned();
        let name = segments.get(3).map_or_else(|| body["metadata"]["name"].as_str().unwrap().to_owned(), |name| (*name).to_owned());
        let key = (namespace, name);
        let current = state.objects.get(&key).cloned();
        let outdated = |stored: &Value| {
            let wanted = &body["metadata"]["resourceVersion"];
            !wanted.is_null() && *wanted != stored["metadata"]["resourceVersion"]
        };
        match (method, current) {
            (&Method::POST, Some(_)) => failure(409, "AlreadyExists"),
            (&Method::POST, None) => {
                let mut object = body.clone();
                object.as_object_mut().unwrap().remove("status");
                object["metadata"]["uid"] = json!(format!("uid-{}", state.version));
                (201, state.put(key, object, "ADDED"))
            }
            (_, None) => failure(404, "NotFound"),
            (&Method::GET, Some(stored)) => (200, stored),
            (&Method::DELETE, Some(stored)) => (200, state.put(key, stored, "DELETED")),
            (_, Some(stored)) if outdated(&stored) => failure(409, "Conflict"),
            (&Method::PUT, Some(mut stored)) => {
                stored["status"] = body["status"].clone();
                (200, state.put(key, stored, "MODIFIED"))
            }
            (_, Some(mut stored)) => {
                stored["metadata"]["labels"] = body["metadata"]["labels"].clone();
                stored["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"].clone();
                stored["spec"] = body["spec"].clone();
                (200, state.put(key, stored, "MODIFIED"))
            }
        }
    }

    pub fn client(self: &Arc<Self>) -> kube::Client {
        let server = Arc::clone(self);
        kube::Client::new(tower::service_fn(move |request| Arc::clone(&server).answer(request)), "default")
    }

    /// What was asked for since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().requests)
    }

    pub fn edit(&self, key: &ReportKey, change: impl FnOnce(&mut Value)) {
        let mut state = self.state.lock();
        let name = key.object_name();
        let key = (name.namespace.to_string(), name.name.to_string());
        let mut object = state.objects[&key].clone();
        change(&mut object);
        state.put(key, object, "MODIFIED");
    }

    pub fn remove(&self, key: &ReportKey) {
        let mut state = self.state.lock();
        let name = key.object_name();
        let key = (name.namespace.to_string(), name.name.to_string());
        let object = state.objects[&key].clone();
        state.put(key, object, "DELETED");
    }

    pub fn stored(&self, key: &ReportKey) -> Option<Value> {
        let name = key.object_name();
        self.state.lock().objects.get(&(name.namespace.to_string(), name.name.to_string())).cloned()
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no"}))
}
