//! A proxy before an API server that lets everything through, except what a test wants to go wrong.
//!
//! It terminates TLS with a certificate of the control plane's own authority and passes identities on: client certificates it handed
//! out itself, tokens of anybody. For each connection it opens one to the API server, so that a connection which ends there ends here.
//!
//! A proxy belongs to the runtime it was started on and ends with it. Upgraded connections (exec, port-forward) are not carried.

mod exchange;
mod fault;
mod flow;
mod link;
mod rules;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::Value;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_rustls::TlsAcceptor;

pub use self::{
    fault::{Asked, Cut, Fault, Link, Match, Reply},
    rules::Rule,
};

use self::{
    link::{Port, State},
    rules::Rules,
};
use crate::{access::Access, control_plane::ControlPlane, pki::Identity};

/// A proxy before one API server, gone when dropped.
pub struct FaultProxy {
    shared: Arc<Shared>,
    url: String,
    /// Aborted when dropped.
    _accepting: JoinSet<()>,
}

struct Shared {
    upstream: SocketAddr,
    acceptor: TlsAcceptor,
    roots: Arc<RootCertStore>,
    anonymous: Arc<ClientConfig>,
    /// The way on for each client certificate handed out.
    identities: Mutex<HashMap<Vec<u8>, Arc<ClientConfig>>>,
    state: watch::Sender<State>,
    rules: Arc<Rules>,
    accepted: AtomicU64,
    connections: AtomicU64,
}

impl FaultProxy {
    /// Starts a proxy before the API server of `plane`.
    pub fn start(plane: &ControlPlane) -> Result<Self> {
        let port = Port::take().context("taking a port for a fault proxy")?;
        let address = port.address;
        let upstream = plane.url().strip_prefix("https://").context("the control plane's address")?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(plane.authority_pem().as_bytes()).context("the authority")?).context("the authority")?;
        let roots = Arc::new(roots);
        let shared = Arc::new(Shared {
            upstream: upstream.parse().context("the control plane's address")?,
            acceptor: acceptor(&plane.serving_identity()?, &roots)?,
            anonymous: client_config(&roots, None)?,
            roots,
            identities: Mutex::default(),
            state: watch::channel(State { link: Link::Open, resets: 0 }).0,
            rules: Arc::new(Rules::new()),
            accepted: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(link::accept(Arc::clone(&shared), port));
        Ok(Self { shared, url: format!("https://{address}"), _accepting: accepting })
    }

    /// The proxy's address, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The way in of somebody, through the proxy. A user's client certificate made anywhere else is not passed on: to the API server
    /// its holder is anonymous.
    pub fn through(&self, access: &Access) -> Result<Access> {
        if let Some(identity) = access.identity() {
            let certificate = certificate(identity)?;
            let config = client_config(&self.shared.roots, Some(identity))?;
            self.shared.identities.lock().insert(certificate.to_vec(), config);
        }
        Ok(access.clone().at(&self.url))
    }

    /// Like [`ControlPlane::kubeconfig`], through the proxy.
    pub fn kubeconfig(&self, plane: &ControlPlane, user: &str, groups: &[&str]) -> Result<String> {
        Ok(self.through(&plane.access(user, groups)?)?.kubeconfig())
    }

    /// Puts a rule in force, behind those that are. The first rule that means a request is the one that strikes it.
    pub fn rule(&self, wanted: Match, fault: Fault) -> Rule {
        self.shared.rules.add(wanted, fault)
    }

    /// Shows the cluster as one of its own: with another UID of `kube-system`, by which clusters are told apart.
    pub fn pose_as(&self, uid: &str) -> Rule {
        let uid = Value::from(uid);
        let rename = move |object: &mut Value| {
            if let Some(shown) = object.pointer_mut("/metadata/uid") {
                shown.clone_from(&uid);
            }
        };
        self.rule(Match::path("/api/v1/namespaces/kube-system"), Fault::rewrite_json(rename))
    }

    /// Changes the way as a whole.
    pub fn set_link(&self, link: Link) {
        self.shared.state.send_modify(|state| state.link = link);
    }

    /// Resets every open connection; new ones are accepted.
    pub fn reset(&self) {
        self.shared.state.send_modify(|state| state.resets += 1);
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Acquire)
    }

    /// Connections open now.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Acquire)
    }

    /// Requests that are not answered to the end, such as open watches.
    pub fn open(&self, wanted: &Match) -> usize {
        self.shared.rules.open(wanted)
    }

    /// When requests came in, the first first.
    pub fn times(&self, wanted: &Match) -> Vec<Instant> {
        self.shared.rules.times(wanted)
    }

    /// Requests that came in so far.
    pub fn count(&self, wanted: &Match) -> usize {
        self.times(wanted).len()
    }
}

impl Shared {
    /// How to speak to the API server for the holder of a certificate.
    fn client_config(&self, certificate: Option<&CertificateDer<'_>>) -> Arc<ClientConfig> {
        let known = certificate.and_then(|certificate| self.identities.lock().get(certificate.as_ref()).cloned());
        known.unwrap_or_else(|| Arc::clone(&self.anonymous))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificate(identity: &Identity) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(identity.certificate.as_bytes()).context("a certificate")
}

fn key(identity: &Identity) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).context("a key")
}

/// Serves both HTTP versions and takes client certificates of the authority, or none.
fn acceptor(serving: &Identity, roots: &Arc<RootCertStore>) -> Result<TlsAcceptor> {
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider()).allow_unauthenticated();
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .context("the proxy's TLS")?
        .with_client_cert_verifier(clients.build().context("the proxy's TLS")?)
        .with_single_cert(vec![certificate(serving)?], key(serving)?)
        .context("the proxy's TLS")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn client_config(roots: &Arc<RootCertStore>, identity: Option<&Identity>) -> Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .context("the proxy's TLS")?
        .with_root_certificates(Arc::clone(roots));
    let mut config = match identity {
        Some(identity) => builder.with_client_auth_cert(vec![certificate(identity)?], key(identity)?).context("a client certificate")?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}
