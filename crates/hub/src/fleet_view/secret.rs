//! From a Secret to the kubeconfig in it.

use std::sync::Arc;

use holdfast_api::CLUSTER_NAME_LABEL;
use holdfast_fleet::kubeconfig::{self, KubeconfigSecret, ServerPolicy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use super::{ClusterName, Credential, OwnerRef, SecretInput, wire::SecretObject};
use crate::management::slim::{self, PAUSED_ANNOTATION};

/// What the fleet view keeps of a Secret; `None` where it holds no kubeconfig. The data is dropped either way.
pub fn reduce(secret: SecretObject, before: Option<&SecretInput>, policy: &ServerPolicy) -> Option<SecretInput> {
    let name = secret.name_any();
    let identity = KubeconfigSecret::identify(&name, secret.labels())?;
    let cluster = cluster_name(&secret, &identity)?;
    let found = identity.find(&secret.data);
    let digest = found.ok().map(|bytes| Sha256::digest(bytes).into());
    let known = before.filter(|before| digest.is_some() && before.digest == digest);
    let credential = match (known, found) {
        (Some(known), _) => known.credential.clone(),
        (None, Ok(bytes)) => parse(bytes, policy),
        (None, Err(rejection)) => Credential::Rejected(rejection),
    };
    Some(SecretInput {
        cluster: ClusterName::new(&secret.namespace().unwrap_or_default(), &cluster),
        owner: OwnerRef {
            api_version: Arc::from("v1"),
            kind: Arc::from("Secret"),
            name: Arc::from(name),
            uid: Arc::from(secret.uid().unwrap_or_default()),
        },
        created: slim::created(&secret.metadata),
        made_for: secret.owner_references().iter().find(|owner| is_cluster(owner)).map(|owner| Arc::from(owner.uid.as_str())),
        labelled: identity.labelled,
        paused: secret.annotations().contains_key(PAUSED_ANNOTATION),
        deleting: secret.metadata.deletion_timestamp.is_some(),
        labels: Arc::new(secret.metadata.labels.unwrap_or_default()),
        digest,
        credential,
    })
}

fn is_cluster(owner: &OwnerReference) -> bool {
    owner.kind == "Cluster" && owner.api_version.split_once('/').is_some_and(|(group, _)| group == super::capi::GROUP)
}

fn parse(bytes: &[u8], policy: &ServerPolicy) -> Credential {
    match kubeconfig::parse(bytes, policy) {
        Ok(kubeconfig) => Credential::Ready(Arc::new(kubeconfig)),
        Err(rejection) => Credential::Rejected(rejection),
    }
}

/// The cluster a Secret is for.
///
/// A Secret with Holdfast's label says it by Cluster API's label, else by its own name. For one of Cluster API's, label and name must
/// agree: providers put the same label on further kubeconfigs, such as `<cluster>-user-kubeconfig`.
fn cluster_name(secret: &SecretObject, identity: &KubeconfigSecret) -> Option<String> {
    let label = secret.labels().get(CLUSTER_NAME_LABEL).filter(|label| !label.is_empty());
    if identity.labelled {
        return Some(label.or(identity.cluster.as_ref()).cloned().unwrap_or_else(|| secret.name_any()));
    }
    identity.cluster.clone().filter(|cluster| label == Some(cluster))
}
