//! Which server answers, and of which cluster.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use tokio::time::timeout;

use super::fetch::{Fetch, Fetched};
use crate::{meta::Meta, watch::SourceError};

/// How long one of these small answers may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// A server's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    /// For example 1.
    pub major: u32,
    /// For example 36.
    pub minor: u32,
    /// For example `v1.36.3`.
    pub git_version: String,
}

/// Asks for the server's version.
pub async fn server_version<F: Fetch>(from: &F) -> Result<ServerVersion, SourceError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Raw {
        major: String,
        minor: String,
        git_version: String,
    }
    let body = read(from, "/version", "application/json").await?;
    let raw: Raw = serde_json::from_slice(&body).map_err(|_| SourceError::BadAnswer)?;
    let (Some(major), Some(minor)) = (number(&raw.major), number(&raw.minor)) else { return Err(SourceError::BadAnswer) };
    Ok(ServerVersion { major, minor, git_version: raw.git_version })
}

/// Asks for the cluster's identity: the UID of its `kube-system` namespace, which lives as long as the cluster does.
pub async fn cluster_uid<F: Fetch>(from: &F) -> Result<Arc<str>, SourceError> {
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let body = read(from, "/api/v1/namespaces/kube-system", accept).await?;
    let meta = Meta::of_object(&body).map_err(|_| SourceError::BadAnswer)?;
    if meta.uid.is_empty() { Err(SourceError::BadAnswer) } else { Ok(Arc::from(meta.uid.as_ref())) }
}

async fn read<F: Fetch>(from: &F, path: &str, accept: &str) -> Result<bytes::Bytes, SourceError> {
    match timeout(DEADLINE, from.fetch(path, accept, None)).await {
        Ok(Ok(Fetched::Document { body, .. })) => Ok(body),
        // Nobody asked whether something changed.
        Ok(Ok(Fetched::NotModified)) => Err(SourceError::BadAnswer),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(SourceError::Timeout),
    }
}

/// The leading number of a text: some distributions write minor versions such as `27+`.
fn number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}
