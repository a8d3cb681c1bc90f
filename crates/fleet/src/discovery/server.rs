//! Of which cluster a server is.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::fetch::{Fetch, Fetched};
use crate::{meta::Meta, watch::SourceError};

/// How long this small answer may take.
const DEADLINE: Duration = Duration::from_secs(10);

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
