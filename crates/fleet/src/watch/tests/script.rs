//! A server that answers by script and records what it was asked.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::{
    call::Endpoint,
    meta::MetaError,
    watch::{
        Source, SourceError, Versioned, WatchKey,
        decode::metadata,
        step::{Open, PageRequest},
    },
};

/// What a test's consumer keeps of an object: `name@version`.
pub fn decode(object: &RawValue) -> Result<Versioned<String>, MetaError> {
    metadata(object, |meta| format!("{}@{}", meta.name, meta.resource_version))
}

pub fn decode_for(_: &WatchKey, object: &RawValue) -> Result<Versioned<String>, MetaError> {
    decode(object)
}

pub fn object(name: &str, version: u32) -> String {
    format!(r#"{{"kind":"PartialObjectMetadata","metadata":{{"name":"{name}","uid":"u","resourceVersion":"{version}"}}}}"#)
}

pub fn event(kind: &str, name: &str, version: u32) -> String {
    format!(r#"{{"type":"{kind}","object":{}}}"#, object(name, version))
}

/// The same event with its keys the other way round.
pub fn event_reversed(kind: &str, name: &str, version: u32) -> String {
    format!(r#"{{"object":{},"type":"{kind}"}}"#, object(name, version))
}

pub fn bookmark(version: u32) -> String {
    format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{version}"}}}}}}"#)
}

pub fn end_mark(version: u32) -> String {
    format!(
        r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#
    )
}

pub fn error(code: u16, reason: &str) -> String {
    format!(
        r#"{{"type":"ERROR","object":{{"kind":"Status","status":"Failure","message":"secret text","reason":"{reason}","code":{code}}}}}"#
    )
}

pub fn page(version: u32, token: &str, names: &[&str]) -> String {
    let items: Vec<_> = names.iter().map(|name| object(name, version)).collect();
    format!(r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{}]}}"#, items.join(","))
}

/// A part of a watch.
#[derive(Clone, Debug)]
pub enum Part {
    Line(String),
    After(Duration),
    Fail(SourceError),
    /// Says nothing any more and stays open.
    Silence,
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub enum Answer {
    Watch(Vec<Part>),
    Page(String),
    Refuse(SourceError),
    /// Never answers.
    Hang,
}

/// A watch of these lines that stays open.
pub fn open(lines: impl IntoIterator<Item = String>) -> Answer {
    Answer::Watch(lines.into_iter().map(Part::Line).chain([Part::Silence]).collect())
}

/// A watch of these lines that ends.
pub fn ending(lines: impl IntoIterator<Item = String>) -> Answer {
    Answer::Watch(lines.into_iter().map(Part::Line).collect())
}

/// One recorded request.
#[derive(Clone, Debug)]
pub struct Call {
    pub at: Instant,
    pub path: String,
}

impl Call {
    /// What kind of request it was, in short.
    pub fn short(&self) -> String {
        let value = |name: &str| {
            let (_, rest) = self.path.split_once(&format!("{name}="))?;
            Some(rest.split('&').next().unwrap_or(rest).to_owned())
        };
        if self.path.contains("sendInitialEvents=true") {
            "stream".to_owned()
        } else if let Some(version) = value("resourceVersion") {
            format!("watch {version}")
        } else if let Some(token) = value("continue") {
            format!("page {token}")
        } else {
            "list".to_owned()
        }
    }
}

type Respond = dyn Fn(usize, &str) -> Answer + Send + Sync;

/// The scripted server.
pub struct Script {
    calls: Mutex<Vec<Call>>,
    respond: Box<Respond>,
}

impl Script {
    /// Answers the n-th request, of this short form, by `respond`.
    pub fn new(respond: impl Fn(usize, &str) -> Answer + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { calls: Mutex::default(), respond: Box::new(respond) })
    }

    /// Answers in this order, then never again.
    pub fn of(answers: Vec<Answer>) -> Arc<Self> {
        Self::new(move |n, _| answers.get(n).cloned().unwrap_or(Answer::Hang))
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    pub fn shorts(&self) -> Vec<String> {
        self.calls().iter().map(Call::short).collect()
    }

    async fn answer(&self, path: String) -> Answer {
        let call = Call { at: Instant::now(), path };
        let short = call.short();
        let n = {
            let mut calls = self.calls.lock();
            calls.push(call);
            calls.len() - 1
        };
        match (self.respond)(n, &short) {
            Answer::Hang => std::future::pending().await,
            answer => answer,
        }
    }
}

impl Source for Script {
    type Lines = Pin<Box<dyn Stream<Item = Result<Bytes, SourceError>> + Send>>;

    async fn list(&self, key: &WatchKey, page: &PageRequest) -> Result<Bytes, SourceError> {
        match self.answer(list_path(key, page)).await {
            Answer::Page(text) => Ok(Bytes::from(text)),
            Answer::Refuse(error) => Err(error),
            other => panic!("a list was answered by {other:?}"),
        }
    }

    async fn watch(&self, key: &WatchKey, open: &Open) -> Result<Self::Lines, SourceError> {
        match self.answer(key.watch_path(open)).await {
            Answer::Watch(parts) => Ok(stream::iter(parts).filter_map(play).boxed()),
            Answer::Refuse(error) => Err(error),
            other => panic!("a watch was answered by {other:?}"),
        }
    }
}

/// A list request as one text.
fn list_path(key: &WatchKey, page: &PageRequest) -> String {
    let query = key.list_query(page);
    let token = if query.continue_token.is_empty() { String::new() } else { format!("&continue={}", query.continue_token) };
    format!("{}?limit={}{token}", key.endpoint().path(), query.limit)
}

/// A key of all objects of a kind.
pub fn key(group: &str, version: &str, plural: &str) -> WatchKey {
    WatchKey::new(Endpoint::new(group, version, plural).unwrap())
}

async fn play(part: Part) -> Option<Result<Bytes, SourceError>> {
    match part {
        Part::Line(line) => Some(Ok(Bytes::from(line))),
        Part::Fail(error) => Some(Err(error)),
        Part::After(delay) => {
            tokio::time::sleep(delay).await;
            None
        }
        Part::Silence => std::future::pending().await,
    }
}
