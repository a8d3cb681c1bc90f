//! One user's way into one control plane.

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use kube::{Client, Config, config::AuthInfo};

use crate::pki::{Authority, Identity, install_crypto_provider};

/// How a user proves who they are.
#[derive(Clone)]
enum Credential {
    Certificate(Identity),
    Token(String),
}

/// Address, authority and credential of one user, from which clients and kubeconfigs are made.
#[derive(Clone)]
pub struct Access {
    url: String,
    authority_pem: String,
    authority_der: Vec<u8>,
    credential: Credential,
}

impl Access {
    pub(crate) fn by_certificate(url: String, authority: &Authority, identity: Identity) -> Self {
        Self::new(url, authority, Credential::Certificate(identity))
    }

    pub(crate) fn by_token(url: String, authority: &Authority, token: String) -> Self {
        Self::new(url, authority, Credential::Token(token))
    }

    fn new(url: String, authority: &Authority, credential: Credential) -> Self {
        Self { url, authority_pem: authority.pem().to_owned(), authority_der: authority.der().to_vec(), credential }
    }

    /// The same way in at another address, whose server has a certificate of the same authority.
    pub(crate) fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    /// The client certificate, if there is one.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match &self.credential {
            Credential::Certificate(identity) => Some(identity),
            Credential::Token(_) => None,
        }
    }

    /// A client on the current runtime, without hidden retries: a test counts what it sends.
    pub fn client(&self) -> Result<Client> {
        install_crypto_provider();
        let mut config = Config::new(self.url.parse().context("the control plane's address")?);
        config.root_cert = Some(vec![self.authority_der.clone()]);
        config.default_retry = false;
        config.auth_info = match &self.credential {
            Credential::Certificate(identity) => AuthInfo {
                client_certificate_data: Some(BASE64_STANDARD.encode(&identity.certificate)),
                client_key_data: Some(BASE64_STANDARD.encode(&identity.key).into()),
                ..AuthInfo::default()
            },
            Credential::Token(token) => AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() },
        };
        Client::try_from(config).context("making a client")
    }

    /// A kubeconfig with everything inline.
    pub fn kubeconfig(&self) -> String {
        let credential = match &self.credential {
            Credential::Certificate(identity) => format!(
                "client-certificate-data: {}\n    client-key-data: {}",
                BASE64_STANDARD.encode(&identity.certificate),
                BASE64_STANDARD.encode(&identity.key)
            ),
            Credential::Token(token) => format!("token: {token}"),
        };
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: default\n  cluster:\n    server: {}\n    certificate-authority-data: {}\n\
             users:\n- name: default\n  user:\n    {credential}\ncontexts:\n- name: default\n  context:\n    cluster: default\n    \
             user: default\ncurrent-context: default\n",
            self.url,
            BASE64_STANDARD.encode(&self.authority_pem),
        )
    }
}
