//! Certificates and kubeconfigs for the tests of this crate.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd};

/// A certificate authority that lasts for one test.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn server(&self, names: &[&str]) -> Pair {
        self.issue(names, ExtendedKeyUsagePurpose::ServerAuth, 2060)
    }

    pub(crate) fn expired_server(&self, names: &[&str]) -> Pair {
        self.issue(names, ExtendedKeyUsagePurpose::ServerAuth, 2001)
    }

    pub(crate) fn client(&self) -> Pair {
        self.issue(&["client"], ExtendedKeyUsagePurpose::ClientAuth, 2060)
    }

    fn issue(&self, names: &[&str], purpose: ExtendedKeyUsagePurpose, last_year: i32) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![purpose];
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

pub(crate) fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

/// A kubeconfig of the given cluster and user fields, one `key: value` a line.
pub(crate) fn document(cluster: &[String], user: &[String]) -> String {
    let block = |lines: &[String]| lines.iter().flat_map(|line| ["    ", line, "\n"]).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
         contexts:\n- name: here\n  context:\n    cluster: one\n    user: me\n\
         clusters:\n- name: one\n  cluster:\n{}\
         users:\n- name: me\n  user:\n{}",
        block(cluster),
        block(user),
    )
}

/// A kubeconfig with a token.
pub(crate) fn with_token(server: &str, authority: &Authority, token: &str) -> String {
    let cluster = [format!("server: {server}"), format!("certificate-authority-data: {}", encode(&authority.pem))];
    document(&cluster, &[format!("token: {token}")])
}

/// A kubeconfig with a client certificate.
pub(crate) fn with_certificate(server: &str, authority: &Authority, pair: &Pair) -> String {
    let cluster = [format!("server: {server}"), format!("certificate-authority-data: {}", encode(&authority.pem))];
    let user = [format!("client-certificate-data: {}", encode(&pair.certificate)), format!("client-key-data: {}", encode(&pair.key))];
    document(&cluster, &user)
}
