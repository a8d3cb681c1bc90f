//! Plain requests with JSON bodies, each with a deadline.

use std::time::Duration;

use anyhow::{Context, Result};
use http::{Method, Request, StatusCode};
use kube::Client;
use serde_json::Value;

/// A loopback server under load answers in well under this.
const DEADLINE: Duration = Duration::from_secs(30);

/// The kinds of patches, by media type.
#[derive(Clone, Copy)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// The HTTP status that made a call of this crate fail, if the server answered.
pub fn status_code(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

/// What the server said of a call of this crate that it refused.
pub fn status_message(error: &anyhow::Error) -> Option<&str> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(&status.message),
        _ => None,
    }
}

/// Whether the object, or what it would be in, is not there.
pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
    status_code(error) == Some(StatusCode::NOT_FOUND.as_u16())
}

/// Runs a remote call with the deadline of all.
pub(crate) async fn within_deadline<T>(what: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(DEADLINE, call).await.with_context(|| format!("{what} took more than {DEADLINE:?}"))?
}

pub(crate) async fn get(client: &Client, path: &str) -> Result<Value> {
    send(client, Method::GET, path, "application/json", Vec::new()).await
}

pub(crate) async fn get_text(client: &Client, path: &str) -> Result<String> {
    let request = Request::get(path).body(Vec::new()).context("building a request")?;
    within_deadline(path, async { Ok(client.request_text(request).await?) }).await
}

pub(crate) async fn post(client: &Client, path: &str, body: &Value) -> Result<Value> {
    send(client, Method::POST, path, "application/json", serde_json::to_vec(body)?).await
}

pub(crate) async fn put(client: &Client, path: &str, body: &Value) -> Result<Value> {
    send(client, Method::PUT, path, "application/json", serde_json::to_vec(body)?).await
}

pub(crate) async fn patch(client: &Client, path: &str, patch_type: PatchType, body: &Value) -> Result<Value> {
    send(client, Method::PATCH, path, patch_type.media_type(), serde_json::to_vec(body)?).await
}

pub(crate) async fn delete(client: &Client, path: &str) -> Result<Value> {
    send(client, Method::DELETE, path, "application/json", Vec::new()).await
}

async fn send(client: &Client, method: Method, path: &str, media_type: &str, body: Vec<u8>) -> Result<Value> {
    let what = format!("{method} {path}");
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, media_type)
        .header(http::header::ACCEPT, "application/json")
        .body(body)
        .with_context(|| format!("building {what}"))?;
    within_deadline(&what, async { client.request::<Value>(request).await.with_context(|| what.clone()) }).await
}
