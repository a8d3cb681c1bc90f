//! Kubeconfigs from Secrets, read by an allow-list.
//!
//! Whoever may write a kubeconfig Secret must not be able to run a command in the hub, read its files, or aim its requests at the
//! hub's own surroundings. So only inline certificates, keys and tokens are accepted, only over verified TLS, only to hosts the
//! [`ServerPolicy`] allows. What the current context does not select is not looked at.

mod document;
#[cfg(test)]
pub(crate) mod fixture;
mod identity;
mod policy;
mod rejection;
mod secret;
mod server;
#[cfg(test)]
mod tests;
mod validity;

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, ServerName};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};

pub use identity::Identity;
pub use policy::{HostRule, HostRuleError, ServerPolicy};
pub use rejection::Rejection;
pub use secret::{KUBECONFIG_LABEL, KubeconfigSecret};
pub use server::{Host, Server};

use document::{ClusterBody, Selection, UserBody, filled};

/// The largest kubeconfig that is read, in bytes.
pub const MAX_BYTES: usize = 256 * 1024;

/// A checked kubeconfig: everything needed to connect, already decoded.
#[derive(Clone)]
pub struct Kubeconfig {
    server: Server,
    tls_server_name: ServerName<'static>,
    roots: Arc<RootCertStore>,
    identity: Identity,
    fingerprint: Fingerprint,
    connection_fingerprint: Fingerprint,
    place_fingerprint: Fingerprint,
}

/// A digest to tell kubeconfigs apart. It is not keyed, so it stays inside the process and is never printed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(..)")
    }
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig").field("server", &self.server).field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Reads a kubeconfig and checks it against the rules of this module and the server policy.
pub fn parse(bytes: &[u8], policy: &ServerPolicy) -> Result<Kubeconfig, Rejection> {
    if bytes.len() > MAX_BYTES {
        return Err(Rejection::TooLarge);
    }
    let Selection { cluster, user } = document::select(bytes)?;
    refuse_user(&user)?;
    refuse_cluster(&cluster)?;

    let server = Server::from_url(&filled(cluster.server).ok_or(Rejection::NoServer)?)?;
    if !policy.allows(&server.host) {
        return Err(Rejection::ServerDenied);
    }
    let tls_server_name = match filled(cluster.tls_server_name) {
        Some(name) => ServerName::try_from(name).map_err(|_| Rejection::BadTlsServerName)?,
        None => server.host.tls_name().ok_or(Rejection::BadUrl)?,
    };
    let (roots, anchors) = identity::trust_anchors(&filled(cluster.certificate_authority_data).ok_or(Rejection::NoCa)?)?;
    let certificate = filled(user.client_certificate_data);
    let key = filled(user.client_key_data);
    let token = filled(user.token);
    let identity = Identity::new(certificate.as_deref(), key.as_deref(), token.as_deref())?;

    let digest = |identity| connection_digest(&server, &tls_server_name.to_str(), &anchors, identity);
    let place = digest([None, None]);
    let digest = digest([certificate.as_deref(), key.as_deref()]);
    let token = identity.token().map(ExposeSecret::expose_secret);
    Ok(Kubeconfig {
        fingerprint: Fingerprint(part(digest.clone(), token.map(str::as_bytes)).finalize().into()),
        connection_fingerprint: Fingerprint(part(digest, Some(&[u8::from(token.is_some())])).finalize().into()),
        place_fingerprint: Fingerprint(place.finalize().into()),
        server,
        tls_server_name,
        roots,
        identity,
    })
}

impl Kubeconfig {
    /// Where the API server listens.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The name the server's certificate must carry: `tls-server-name`, else the host.
    pub fn tls_server_name(&self) -> &ServerName<'static> {
        &self.tls_server_name
    }

    /// The trust anchors for the server's certificate.
    pub fn roots(&self) -> &Arc<RootCertStore> {
        &self.roots
    }

    /// How to identify to the server.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Changes with anything that matters for a connection, but not with comments or entries that are not selected.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Equal for kubeconfigs that name the same server, as whoever.
    pub fn place_fingerprint(&self) -> Fingerprint {
        self.place_fingerprint
    }

    /// Equal for kubeconfigs that may share a connection.
    pub(crate) fn connection_fingerprint(&self) -> Fingerprint {
        self.connection_fingerprint
    }
}

fn refuse_user(user: &UserBody) -> Result<(), Rejection> {
    let set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if user.exec.is_some() {
        return Err(Rejection::Exec);
    }
    if user.auth_provider.is_some() {
        return Err(Rejection::AuthProvider);
    }
    if set(&user.client_certificate) || set(&user.client_key) {
        return Err(Rejection::FilePath);
    }
    if set(&user.token_file) {
        return Err(Rejection::TokenFile);
    }
    if set(&user.as_user)
        || set(&user.as_uid)
        || user.as_groups.as_ref().is_some_and(|groups| !groups.is_empty())
        || user.as_user_extra.as_ref().is_some_and(|extra| !extra.is_empty())
    {
        return Err(Rejection::Impersonation);
    }
    if set(&user.username) || set(&user.password) {
        return Err(Rejection::BasicAuth);
    }
    if user.unknown.is_empty() { Ok(()) } else { Err(Rejection::UnknownField) }
}

fn refuse_cluster(cluster: &ClusterBody) -> Result<(), Rejection> {
    let set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if cluster.insecure_skip_tls_verify == Some(true) {
        return Err(Rejection::InsecureSkipTls);
    }
    if set(&cluster.proxy_url) {
        return Err(Rejection::ProxyUrl);
    }
    if set(&cluster.certificate_authority) {
        return Err(Rejection::FilePath);
    }
    if cluster.unknown.is_empty() { Ok(()) } else { Err(Rejection::UnknownField) }
}

fn connection_digest(server: &Server, tls_name: &str, anchors: &[CertificateDer<'_>], identity: [Option<&str>; 2]) -> Sha256 {
    let mut digest = part(Sha256::new(), Some(server.to_string().as_bytes()));
    digest = part(digest, Some(tls_name.as_bytes()));
    for text in identity {
        digest = part(digest, text.map(str::as_bytes));
    }
    anchors.iter().fold(digest, |digest, anchor| part(digest, Some(anchor)))
}

/// Length-prefixed, so that no two lists of parts feed the same bytes.
fn part(mut digest: Sha256, bytes: Option<&[u8]>) -> Sha256 {
    match bytes {
        Some(bytes) => {
            digest.update([1]);
            digest.update(bytes.len().to_be_bytes());
            digest.update(bytes);
        }
        None => digest.update([0]),
    }
    digest
}
