//! Which Secrets hold a kubeconfig, and under which data key.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;

use super::Rejection;

/// The label a user puts on a Secret to have its cluster watched.
pub const KUBECONFIG_LABEL: &str = "holdfast.dev/kubeconfig";

/// What Cluster API appends to a cluster's name for the Secret of its kubeconfig. Secrets of other purposes carry the same label
/// and type, so the suffix decides.
const SUFFIX: &str = "-kubeconfig";
const CLUSTER_API_KEY: &str = "value";
const LABELLED_KEYS: [&str; 3] = ["value", "kubeconfig", "config"];

/// What a Secret's name and labels say about the kubeconfig in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeconfigSecret {
    /// The Cluster API cluster the name belongs to, if it has the suffix. Whether that cluster exists is for the caller to see.
    pub cluster: Option<String>,
    /// Marked by [`KUBECONFIG_LABEL`]: watched also without a cluster object.
    pub labelled: bool,
}

impl KubeconfigSecret {
    /// `None` when the Secret is not meant to hold a kubeconfig.
    pub fn identify(name: &str, labels: &BTreeMap<String, String>) -> Option<Self> {
        let cluster = name.strip_suffix(SUFFIX).filter(|cluster| !cluster.is_empty()).map(str::to_owned);
        let labelled = labels.get(KUBECONFIG_LABEL).is_some_and(|value| value == "true");
        (cluster.is_some() || labelled).then_some(Self { cluster, labelled })
    }

    /// The kubeconfig among the Secret's data.
    pub fn find<'a>(&self, data: &'a BTreeMap<String, ByteString>) -> Result<&'a [u8], Rejection> {
        let keys: &[&str] = if self.labelled { &LABELLED_KEYS } else { &[CLUSTER_API_KEY] };
        keys.iter().find_map(|key| data.get(*key)).map(|value| value.0.as_slice()).ok_or(Rejection::MissingKey)
    }
}
