//! The certificates of one control plane.

use std::sync::Once;

use anyhow::{Context, Result, bail};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};

static CRYPTO: Once = Once::new();

/// Makes *ring* the process's TLS implementation, once; later calls do nothing.
pub fn install_crypto_provider() {
    CRYPTO.call_once(|| {
        // Somebody else's choice stands.
        rustls::crypto::ring::default_provider().install_default().ok();
    });
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub certificate: String,
    pub key: String,
}

/// A certificate authority for both clients and servers.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: Vec<u8>,
}

impl Authority {
    /// A new authority called `name`.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("making the authority's key")?;
        let certificate = params.self_signed(&key).context("making the authority")?;
        Ok(Self { pem: certificate.pem(), der: certificate.der().to_vec(), issuer: Issuer::new(params, key) })
    }

    /// The authority's certificate, PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// The authority's certificate, DER.
    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// A certificate that makes its holder `user` in `groups`. At most two groups: the certificate library knows an attribute once
    /// by name and once by number.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Identity> {
        let mut params = CertificateParams::default();
        match groups {
            [] => {}
            [one] => params.distinguished_name.push(DnType::OrganizationName, *one),
            [one, two] => {
                params.distinguished_name.push(DnType::OrganizationName, *one);
                params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), *two);
            }
            _ => bail!("a client certificate takes two groups at most"),
        }
        params.distinguished_name.push(DnType::CommonName, user);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    /// A certificate for a server on loopback.
    pub(crate) fn loopback_server(&self) -> Result<Identity> {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).context("naming a server")?;
        params.distinguished_name.push(DnType::CommonName, "loopback");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("making a key")?;
        let certificate = params.signed_by(&key, &self.issuer).context("issuing a certificate")?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
