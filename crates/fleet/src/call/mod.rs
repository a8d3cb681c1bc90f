//! Calls to an API server, each with a deadline.
//!
//! An [`ApiClient`] turns addresses ([`Endpoint`]) and choices into requests on a [`Connection`], and answers into bytes or a
//! [`CallError`]. It decodes nothing, retries nothing and logs nothing. Field validation is left at the server's default: the
//! strict mode makes the server quote whole objects in its errors.

mod answer;
mod classify;
mod endpoint;
mod error;
mod lines;
mod request;
#[cfg(test)]
mod tests;
mod typed_path;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::request::Builder;
use http::{Method, Request, Response, StatusCode};

pub use answer::{Answer, Fetched};
pub(crate) use endpoint::query;
pub use endpoint::{Endpoint, EndpointError};
pub use error::{CallError, Retry};
pub use lines::{MAX_LINE, WatchLines};
pub use request::{Effect, FieldManager, FieldManagerError, ListQuery, Shape};

use crate::term::Term;
use crate::transport::{Connection, ResponseBody, TransportError, Verb};
use classify::Asked;

/// The largest single object read, in bytes. Servers store at most 1.5 MiB; the JSON text may be longer.
const MAX_OBJECT: usize = 8 * 1024 * 1024;
/// The largest list, or answer of another path, in bytes.
const MAX_LIST: usize = 64 * 1024 * 1024;

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
/// JSON is YAML, and this type accepts it on every server version.
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// How long calls may take, from sending to the last byte.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// Reading or writing one object.
    pub object: Duration,
    /// Lists and discovery.
    pub list: Duration,
    /// From asking for a watch to the head of its answer; the stream itself has no deadline.
    pub watch: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        // Above the 10 s a server gives a webhook by default, so that a slow webhook is told from a slow server.
        Self { object: Duration::from_secs(15), list: Duration::from_mins(1), watch: Duration::from_secs(30) }
    }
}

/// Typed calls over one connection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ApiClient {
    connection: Connection,
    deadlines: Deadlines,
    term: Option<Term>,
}

impl ApiClient {
    /// Calls over a connection.
    pub fn new(connection: Connection, deadlines: Deadlines) -> Self {
        Self { connection, deadlines, term: None }
    }

    /// Writes only during this term; a later one fails with [`CallError::Withheld`] and is not sent. Dry-runs are no writes.
    #[must_use]
    pub fn during(mut self, term: Term) -> Self {
        self.term = Some(term);
        self
    }

    /// The connection the calls go over.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Reads one object.
    pub async fn get(&self, endpoint: &Endpoint, shape: Shape) -> Result<Answer, CallError> {
        let request = Request::get(endpoint.path()).header(ACCEPT, shape.accept_one());
        self.object(Verb::Get, Effect::Persist, endpoint, request, Bytes::new()).await
    }

    /// Reads one page of a collection.
    pub async fn list(&self, endpoint: &Endpoint, shape: Shape, query: &ListQuery) -> Result<Answer, CallError> {
        let request = Request::get(endpoint.path() + &query.query()).header(ACCEPT, shape.accept_list());
        let request = request.body(Bytes::new()).map_err(|_| CallError::BadPath)?;
        let call = self.call(Verb::List, false, asked(endpoint), request, MAX_LIST);
        let (head, body) = within(self.deadlines.list, call).await?;
        if head.status == StatusCode::OK { Ok(Answer::new(false, body)) } else { Err(CallError::BadAnswer) }
    }

    /// Creates an object in the collection; nothing happens to one that exists.
    pub async fn create(&self, collection: &Endpoint, body: Bytes, manager: &FieldManager, effect: Effect) -> Result<Answer, CallError> {
        let request = Request::post(write_uri(collection, manager, effect, false)).header(CONTENT_TYPE, JSON);
        self.object(Verb::Create, effect, collection, request, body).await
    }

    /// Server-side apply of a manifest, creating the object if it does not exist. With `force`, fields held by others are taken over.
    pub async fn apply(
        &self,
        endpoint: &Endpoint,
        manifest: Bytes,
        manager: &FieldManager,
        force: bool,
        effect: Effect,
    ) -> Result<Answer, CallError> {
        let request = Request::patch(write_uri(endpoint, manager, effect, force)).header(CONTENT_TYPE, APPLY_PATCH);
        self.object(Verb::Patch, effect, endpoint, request, manifest).await
    }

    /// A JSON patch (RFC 6902) of an existing object.
    pub async fn json_patch(&self, endpoint: &Endpoint, patch: Bytes, manager: &FieldManager, effect: Effect) -> Result<Answer, CallError> {
        let request = Request::patch(write_uri(endpoint, manager, effect, false)).header(CONTENT_TYPE, JSON_PATCH);
        self.object(Verb::Patch, effect, endpoint, request, patch).await
    }

    /// A JSON merge patch (RFC 7386) of an existing object.
    pub async fn merge_patch(
        &self,
        endpoint: &Endpoint,
        patch: Bytes,
        manager: &FieldManager,
        effect: Effect,
    ) -> Result<Answer, CallError> {
        let request = Request::patch(write_uri(endpoint, manager, effect, false)).header(CONTENT_TYPE, MERGE_PATCH);
        self.object(Verb::Patch, effect, endpoint, request, patch).await
    }

    /// Deletes an object in the background: what it owns goes after it. `options` are `DeleteOptions`, which say which object exactly.
    pub async fn delete(&self, endpoint: &Endpoint, options: Bytes) -> Result<Answer, CallError> {
        let request = Request::delete(endpoint.path()).header(CONTENT_TYPE, JSON);
        self.object(Verb::Delete, Effect::Persist, endpoint, request, options).await
    }

    /// Reads a path outside the resource API, such as discovery; with the tag of an earlier answer only if it changed.
    pub async fn get_raw(&self, path_and_query: &str, accept: &str, etag: Option<&str>) -> Result<Fetched, CallError> {
        let mut request = Request::get(path_and_query).header(ACCEPT, accept);
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let request = request.body(Bytes::new()).map_err(|_| CallError::BadPath)?;
        let call = self.call(Verb::Get, false, Asked::Path, request, MAX_LIST);
        let (head, body) = within(self.deadlines.list, call).await?;
        match head.status {
            StatusCode::NOT_MODIFIED if etag.is_some() => Ok(Fetched::Unchanged),
            StatusCode::OK => {
                let etag = head.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
                Ok(Fetched::Fresh { body, etag })
            }
            _ => Err(CallError::BadAnswer),
        }
    }

    /// Opens a watch. The caller builds the query and sees to it that a silent stream is given up.
    pub async fn open_watch(&self, path_and_query: &str, accept: &str) -> Result<WatchLines, CallError> {
        let request = Request::get(path_and_query).header(ACCEPT, accept).body(Bytes::new()).map_err(|_| CallError::BadPath)?;
        let open = async {
            let response = self.connection.send(Verb::Watch, false, request).await?;
            match response.status() {
                StatusCode::OK => Ok(WatchLines::new(response.into_body())),
                status if status.is_success() => Err(CallError::BadAnswer),
                _ => Err(failure(Asked::Path, response).await),
            }
        };
        within(self.deadlines.watch, open).await
    }

    async fn object(&self, verb: Verb, effect: Effect, endpoint: &Endpoint, request: Builder, body: Bytes) -> Result<Answer, CallError> {
        let mut request = request.body(body).map_err(|_| CallError::BadPath)?;
        if let Some(term) = self.term.as_ref().filter(|_| verb != Verb::Get && effect == Effect::Persist) {
            request.extensions_mut().insert(term.clone());
        }
        let call = self.call(verb, effect == Effect::DryRun, asked(endpoint), request, MAX_OBJECT);
        let (head, body) = within(self.deadlines.object, call).await?;
        match head.status {
            StatusCode::OK => Ok(Answer::new(false, body)),
            StatusCode::CREATED => Ok(Answer::new(true, body)),
            _ => Err(CallError::BadAnswer),
        }
    }

    async fn call(
        &self,
        verb: Verb,
        dry_run: bool,
        asked: Asked<'_>,
        mut request: Request<Bytes>,
        limit: usize,
    ) -> Result<(http::response::Parts, Bytes), CallError> {
        if request.method() != Method::GET {
            request.headers_mut().entry(ACCEPT).or_insert(http::HeaderValue::from_static(JSON));
        }
        let response = self.connection.send(verb, dry_run, request).await?;
        if response.status().is_client_error() || response.status().is_server_error() {
            return Err(failure(asked, response).await);
        }
        let (head, body) = response.into_parts();
        Ok((head, body.read(limit).await?))
    }
}

async fn within<T>(deadline: Duration, call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    tokio::time::timeout(deadline, call).await.unwrap_or(Err(CallError::Timeout))
}

async fn failure(asked: Asked<'_>, response: Response<ResponseBody>) -> CallError {
    let (head, body) = response.into_parts();
    match body.read(MAX_OBJECT).await {
        Ok(body) => classify::answer(asked, head.status, &head.headers, &body),
        // The status says enough.
        Err(TransportError::TooLarge) => classify::answer(asked, head.status, &head.headers, &[]),
        Err(error) => error.into(),
    }
}

fn asked(endpoint: &Endpoint) -> Asked<'_> {
    Asked::Resource { plural: endpoint.plural(), name: endpoint.name() }
}

fn write_uri(endpoint: &Endpoint, manager: &FieldManager, effect: Effect, force: bool) -> String {
    let mut pairs = vec![("fieldManager", manager.as_str())];
    if force {
        pairs.push(("force", "true"));
    }
    if effect == Effect::DryRun {
        pairs.push(("dryRun", "All"));
    }
    endpoint.path() + &endpoint::query(&pairs)
}
