//! The key of a hub: seals state Secrets and keys every hash that leaves the process. Kept in the Secret `holdfast-state-key` of the
//! hub's own namespace, made at the first start. Where it was lost, another is made and older state counts as absent.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};
use sha2::Sha256;

use crate::management::{self, Failure};

/// Name of the Secret.
const NAME: &str = "holdfast-state-key";
/// Its key.
const ENTRY: &str = "key";

/// The hub's key. Never prints.
#[derive(Clone)]
pub struct StateKey {
    /// Keys hashes in reports.
    pub hashes: [u8; 32],
    /// Seals state.
    pub seal: [u8; 32],
}

impl StateKey {
    /// One for this process only.
    pub fn passing() -> Self {
        Self::derived(&rand::random())
    }

    fn derived(root: &[u8; 32]) -> Self {
        Self { hashes: subkey(root, b"hashes in reports"), seal: subkey(root, b"state Secrets") }
    }

    /// Reads the hub's key, or makes it.
    pub async fn obtain(client: &Client, namespace: &str) -> Result<Self, Failure> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        match management::call(secrets.get(NAME)).await {
            Ok(secret) => Self::of(&secret),
            Err(Failure::NotFound) => Self::make(&secrets).await,
            Err(failure) => Err(failure),
        }
    }

    async fn make(secrets: &Api<Secret>) -> Result<Self, Failure> {
        let root: [u8; 32] = rand::random();
        let secret = Secret {
            metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
            type_: Some("holdfast.dev/state-key".to_owned()),
            immutable: Some(true),
            data: Some(BTreeMap::from([(ENTRY.to_owned(), ByteString(root.to_vec()))])),
            ..Secret::default()
        };
        match management::call(secrets.create(&PostParams::default(), &secret)).await {
            Ok(_) => Ok(Self::derived(&root)),
            // Another replica was faster.
            Err(Failure::AlreadyExists) => Self::of(&management::call(secrets.get(NAME)).await?),
            Err(failure) => Err(failure),
        }
    }

    fn of(secret: &Secret) -> Result<Self, Failure> {
        let root = secret.data.as_ref().and_then(|data| data.get(ENTRY)).and_then(|bytes| <[u8; 32]>::try_from(&*bytes.0).ok());
        root.map(|root| Self::derived(&root)).ok_or(Failure::BadAnswer)
    }
}

impl std::fmt::Debug for StateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateKey")
    }
}

fn subkey(root: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    // A key of any length is one.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(root) else { return *root };
    mac.update(purpose);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_purpose_has_a_key_of_its_own() {
        let (one, two) = (StateKey::derived(&[1; 32]), StateKey::derived(&[2; 32]));
        assert_ne!(one.hashes, one.seal);
        assert_ne!(one.hashes, two.hashes);
        assert_eq!(one.seal, StateKey::derived(&[1; 32]).seal, "the same after a restart");
        assert_eq!(format!("{one:?}"), "StateKey");
    }

    #[test]
    fn a_secret_that_holds_no_key_is_not_taken_for_one() {
        let holding = |bytes: Vec<u8>| Secret { data: Some(BTreeMap::from([(ENTRY.to_owned(), ByteString(bytes))])), ..Secret::default() };
        assert!(StateKey::of(&holding(vec![1; 32])).is_ok());
        for bad in [holding(vec![1; 31]), holding(Vec::new()), Secret::default()] {
            assert_eq!(StateKey::of(&bad).unwrap_err(), Failure::BadAnswer);
        }
    }
}
