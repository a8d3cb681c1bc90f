//! Reads and writes state Secrets.

use std::{collections::BTreeMap, sync::Arc};

use holdfast_engine::canonical::Digest;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use super::{
    chunks::{Plain, decode, encode},
    format::{StoredContests, StoredId, StoredIntent, StoredObjects},
    key::StateKey,
    part::Part,
    seal,
};
use crate::{
    fleet_view::{ClusterName, OwnerRef},
    management::{self, Failure},
};

/// Label of every state Secret: which cluster it is about, as a hash.
const OF_LABEL: &str = "holdfast.dev/state-of";
/// Annotations for people, and for finding the Secrets of clusters that are gone.
const CLUSTER_ANNOTATION: &str = "holdfast.dev/cluster";
const PART_ANNOTATION: &str = "holdfast.dev/state-part";
/// Number of the serialised form, which does not describe itself: state of another form counts as absent.
const FORMAT: u32 = 3;
/// Key of the content.
const ENTRY: &str = "state";
/// State Secrets on one page: each has at most half a mebibyte.
const PAGE: u32 = 20;
/// Names on one page of a sweep.
const SWEEP_PAGE: u32 = 500;

/// Where state is kept. Cheap to clone.
#[derive(Clone)]
pub struct StateSecrets {
    client: Client,
    /// Where the hub's key is.
    namespace: Arc<str>,
    /// The key; `None` inside where this hub may keep none.
    key: Arc<OnceCell<Option<StateKey>>>,
    /// Keys hashes where nothing is kept.
    passing: StateKey,
}

/// Whose state it is. State of another cluster, or of another incarnation of it, is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The cluster.
    pub cluster: ClusterName,
    /// What stands for it on the management cluster; owns the Secrets.
    pub owner: OwnerRef,
    /// UID of its `kube-system` namespace.
    pub uid: Arc<str>,
}

/// The state Secrets of one cluster. Cheap to clone.
#[derive(Clone)]
pub struct ClusterSecrets {
    secrets: Api<Secret>,
    key: StateKey,
    subject: Arc<Subject>,
}

/// What was kept of a cluster.
#[derive(Debug, Default)]
pub struct Kept {
    /// Shares of its objects.
    pub objects: Vec<StoredObjects>,
    /// Contests and releases.
    pub contests: StoredContests,
    /// Repairs that were begun.
    pub intents: Vec<(StoredId, StoredIntent)>,
    /// Every part that exists, readable or not.
    pub parts: BTreeMap<Part, Stored>,
}

/// One part that exists.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Resource version of its Secret.
    pub version: String,
    /// Digest of its content before it was sealed; `None` where that cannot be used.
    pub content: Option<Digest>,
}

impl StateSecrets {
    /// State of the clusters of a hub whose key is in `namespace`.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: Arc::from(namespace), key: Arc::default(), passing: StateKey::passing() }
    }

    /// Reads or makes the key. Until this succeeded nothing can be kept; where it may never succeed, nothing is.
    pub async fn ready(&self) -> Result<(), Failure> {
        let obtain = async || match StateKey::obtain(&self.client, &self.namespace).await {
            Ok(key) => Ok(Some(key)),
            Err(failure @ (Failure::Forbidden | Failure::NotFound | Failure::BadAnswer | Failure::Invalid)) => {
                tracing::warn!(
                    namespace = &*self.namespace,
                    reason = failure.as_str(),
                    "the hub's key cannot be kept: a restart will ask about everything again, and list keys are not repaired"
                );
                Ok(None)
            }
            Err(failure) => Err(failure),
        };
        self.key.get_or_try_init(obtain).await.map(|_| ())
    }

    /// The key for hashes that leave the process.
    pub fn hash_key(&self) -> &[u8; 32] {
        &self.key.get().and_then(Option::as_ref).unwrap_or(&self.passing).hashes
    }

    /// The state of one cluster; `None` where nothing is kept.
    pub fn of(&self, subject: Subject) -> Option<ClusterSecrets> {
        let key = self.key.get()?.clone()?;
        let secrets = Api::namespaced(self.client.clone(), &subject.cluster.namespace);
        Some(ClusterSecrets { secrets, key, subject: Arc::new(subject) })
    }

    /// Removes the state of all clusters that are not to be kept: they left.
    pub async fn sweep(&self, namespace: Option<&str>, keep: impl Fn(&ClusterName) -> bool) -> Result<(), Failure> {
        let secrets: Api<Secret> =
            namespace.map_or_else(|| Api::all(self.client.clone()), |namespace| Api::namespaced(self.client.clone(), namespace));
        let mut list = ListParams::default().labels(OF_LABEL).limit(SWEEP_PAGE);
        loop {
            let page = management::call(secrets.list_metadata(&list)).await?;
            for secret in &page.items {
                let (Some(namespace), Some(name)) = (secret.namespace(), secret.annotations().get(CLUSTER_ANNOTATION)) else { continue };
                if !keep(&ClusterName::new(&namespace, name)) {
                    delete(&Api::namespaced(self.client.clone(), &namespace), &secret.name_any()).await?;
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => list = list.continue_token(&token),
                None => return Ok(()),
            }
        }
    }
}

impl ClusterSecrets {
    /// Reads everything that is kept of the cluster.
    pub async fn load(&self) -> Result<Kept, Failure> {
        let mut kept = Kept::default();
        let mut list = ListParams::default().labels(&format!("{OF_LABEL}={}", hash(&self.subject.cluster))).limit(PAGE);
        loop {
            let page = management::call(self.secrets.list(&list)).await?;
            for secret in &page.items {
                self.take(&mut kept, secret);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => list = list.continue_token(&token),
                None => return Ok(kept),
            }
        }
    }

    fn take(&self, kept: &mut Kept, secret: &Secret) {
        // Its name must be the one that follows from its part: a copy under another name is nobody's.
        let part = secret.annotations().get(PART_ANNOTATION).and_then(|part| Part::parse(part));
        let Some(part) = part.filter(|part| self.name(*part) == secret.name_any()) else { return };
        let sealed = secret.data.as_ref().and_then(|data| data.get(ENTRY)).map(|bytes| &*bytes.0).unwrap_or_default();
        let plain = seal::open(&self.key.seal, &self.place(part), sealed).ok();
        let content = plain.and_then(|plain| {
            match part {
                Part::Objects(_) => kept.objects.push(decode(&plain)?),
                Part::Contests => kept.contests = decode(&plain)?,
                Part::Intent(id) => kept.intents.push((id, decode(&plain)?)),
            }
            Some(Digest::of_bytes(&plain))
        });
        kept.parts.insert(part, Stored { version: secret.resource_version().unwrap_or_default(), content });
    }

    /// Writes a part over the version that is known, or makes it; answers with its new version.
    pub async fn write(&self, plain: &Plain, version: Option<String>) -> Result<String, Failure> {
        let name = self.name(plain.part);
        let mut secret = self.secret(plain)?;
        let put = PostParams { field_manager: Some("holdfast".to_owned()), ..PostParams::default() };
        secret.metadata.resource_version = version;
        let written = match secret.metadata.resource_version {
            Some(_) => management::call(self.secrets.replace(&name, &put, &secret)).await,
            None => management::call(self.secrets.create(&put, &secret)).await,
        };
        let written = match written {
            // Somebody made, changed or removed it. What is kept is ours alone, so it is written over, once.
            Err(Failure::Conflict | Failure::AlreadyExists) => {
                secret.metadata.resource_version = management::call(self.secrets.get_metadata(&name)).await?.resource_version();
                management::call(self.secrets.replace(&name, &put, &secret)).await
            }
            Err(Failure::NotFound) if secret.metadata.resource_version.take().is_some() => {
                management::call(self.secrets.create(&put, &secret)).await
            }
            written => written,
        };
        Ok(written?.resource_version().unwrap_or_default())
    }

    /// Removes a part.
    pub async fn remove(&self, part: Part) -> Result<(), Failure> {
        delete(&self.secrets, &self.name(part)).await
    }

    /// Says that a repair of two writes is about to begin. Only when this succeeded may it.
    pub async fn declare(&self, id: StoredId, intent: &StoredIntent) -> Result<(), Failure> {
        self.write(&Plain { part: Part::Intent(id), bytes: encode(intent) }, None).await.map(|_| ())
    }

    fn secret(&self, plain: &Plain) -> Result<Secret, Failure> {
        let sealed = seal::seal(&self.key.seal, &self.place(plain.part), &plain.bytes).map_err(|_| Failure::Invalid)?;
        let annotations = [(CLUSTER_ANNOTATION, self.subject.cluster.name.to_string()), (PART_ANNOTATION, plain.part.to_string())];
        Ok(Secret {
            metadata: ObjectMeta {
                name: Some(self.name(plain.part)),
                labels: Some(BTreeMap::from([(OF_LABEL.to_owned(), hash(&self.subject.cluster))])),
                annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value)).into()),
                owner_references: Some(vec![self.subject.owner.to_owner_reference()]),
                ..ObjectMeta::default()
            },
            type_: Some("holdfast.dev/state".to_owned()),
            data: Some(BTreeMap::from([(ENTRY.to_owned(), ByteString(sealed))])),
            ..Secret::default()
        })
    }

    fn name(&self, part: Part) -> String {
        let readable: String = self.subject.cluster.name.chars().take(60).collect();
        let readable = readable.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        format!("holdfast-state-{readable}-{}-{part}", hash(&self.subject.cluster))
    }

    /// What the content is sealed for.
    fn place(&self, part: Part) -> String {
        let Subject { cluster, owner, uid } = &*self.subject;
        format!("holdfast state {FORMAT}\n{cluster}\n{}\n{uid}\n{part}", owner.uid)
    }
}

impl std::fmt::Debug for StateSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateSecrets").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ClusterSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterSecrets").field("subject", &self.subject).finish_non_exhaustive()
    }
}

async fn delete(secrets: &Api<Secret>, name: &str) -> Result<(), Failure> {
    match management::call(secrets.delete(name, &DeleteParams::default())).await {
        Ok(_) | Err(Failure::NotFound) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// A label value for a cluster.
fn hash(cluster: &ClusterName) -> String {
    let digest = Sha256::digest(cluster.to_string());
    format!("{:016x}", digest.iter().take(8).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte)))
}
