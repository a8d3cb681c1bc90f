//! Reading one kubeconfig Secret again, past the watch.

use std::{fmt, sync::Arc};

use holdfast_fleet::kubeconfig::{Kubeconfig, ServerPolicy};
use kube::{Api, Client};

use super::{ClusterEntry, Credential, secret, wire::SecretObject};
use crate::management;

/// Reads kubeconfig Secrets one by one. A server that refuses credentials may know of newer ones that the watch has not shown yet.
#[derive(Clone)]
pub struct KubeconfigReader {
    client: Client,
    servers: ServerPolicy,
}

impl fmt::Debug for KubeconfigReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeconfigReader").finish_non_exhaustive()
    }
}

impl KubeconfigReader {
    /// A reader for the Secrets of the management cluster behind `client`.
    pub fn new(client: Client, servers: ServerPolicy) -> Self {
        Self { client, servers }
    }

    /// The kubeconfig of a cluster as it is stored now; `None` where there is none that may be used, or it cannot be read.
    pub async fn read(&self, entry: &ClusterEntry) -> Option<Arc<Kubeconfig>> {
        let api: Api<SecretObject> = Api::namespaced_with(self.client.clone(), &entry.name.namespace, &());
        let object = management::call(api.get(entry.secret.as_deref()?)).await.ok()?;
        let secret = secret::reduce(object, None, &self.servers)?;
        match secret.credential {
            Credential::Ready(kubeconfig) if secret.cluster == entry.name && !secret.is_of_another(&entry.owner) => Some(kubeconfig),
            _ => None,
        }
    }
}
