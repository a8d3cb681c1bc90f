//! What the hub trusts and how it identifies itself: certificates, keys and tokens, checked when they are read.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use secrecy::{ExposeSecret, SecretString};

use super::{Rejection, validity};

/// How the hub identifies itself: a client certificate, a bearer token, or both.
#[derive(Clone)]
pub struct Identity {
    certificate: Option<Arc<CertifiedKey>>,
    ends: Option<Timestamp>,
    token: Option<SecretString>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("certificate", &self.certificate.is_some())
            .field("ends", &self.ends)
            .field("token", &self.token.is_some())
            .finish()
    }
}

impl Identity {
    /// Checks the inline fields of a user. Empty texts count as absent.
    pub(super) fn new(certificate: Option<&str>, key: Option<&str>, token: Option<&str>) -> Result<Self, Rejection> {
        let certificate = match (certificate, key) {
            (None, None) => None,
            (None, Some(_)) => return Err(Rejection::BadCertificate),
            (Some(_), None) => return Err(Rejection::BadKey),
            (Some(certificate), Some(key)) => Some(Arc::new(certified(certificate, key)?)),
        };
        let token = token.map(str::trim).filter(|token| !token.is_empty()).map(SecretString::from);
        if token.as_ref().is_some_and(|token| bearer(token).is_none()) {
            return Err(Rejection::BadToken);
        }
        if certificate.is_none() && token.is_none() {
            return Err(Rejection::NoCredentials);
        }
        let ends = certificate.as_ref().and_then(|certified| validity::ends(certified.cert.first()?));
        Ok(Self { certificate, ends, token })
    }

    /// The client certificate with its private key.
    pub fn certificate(&self) -> Option<&Arc<CertifiedKey>> {
        self.certificate.as_ref()
    }

    /// Whether the client certificate is not valid any more.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.ends.is_some_and(|ends| ends < now)
    }

    /// The bearer token.
    pub fn token(&self) -> Option<&SecretString> {
        self.token.as_ref()
    }

    /// The `authorization` header of the token, marked as sensitive.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        self.token.as_ref().and_then(bearer)
    }
}

fn bearer(token: &SecretString) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).ok()?;
    header.set_sensitive(true);
    Some(header)
}

fn certified(certificate: &str, key: &str) -> Result<CertifiedKey, Rejection> {
    let chain = decode(certificate).as_deref().and_then(certificates).ok_or(Rejection::BadCertificate)?;
    let key = decode(key).and_then(|pem| PrivateKeyDer::from_pem_slice(&pem).ok()).ok_or(Rejection::BadKey)?;
    let key = any_supported_type(&key).map_err(|_| Rejection::BadKey)?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => Err(Rejection::BadKey),
        Err(_) => Err(Rejection::BadCertificate),
    }
}

/// The trust anchors of `certificate-authority-data`, together with their encodings.
pub(super) fn trust_anchors(data: &str) -> Result<(Arc<RootCertStore>, Vec<CertificateDer<'static>>), Rejection> {
    let chain = decode(data).as_deref().and_then(certificates).ok_or(Rejection::BadCa)?;
    let mut roots = RootCertStore::empty();
    // Bundles may carry certificates too old to be used beside ones that are fine.
    let (usable, _) = roots.add_parsable_certificates(chain.iter().cloned());
    if usable == 0 {
        return Err(Rejection::BadCa);
    }
    Ok((Arc::new(roots), chain))
}

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok()?;
    (!chain.is_empty()).then_some(chain)
}

/// Base64 as YAML may have folded it.
fn decode(data: &str) -> Option<Vec<u8>> {
    let compact: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD.decode(compact).ok()
}
