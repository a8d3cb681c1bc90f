//! What can go wrong between sending a request and having its whole answer.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};

/// A request that got no complete answer.
///
/// Carries no text of the server, the request or the libraries underneath, so it may be shown and counted as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TransportError {
    /// No connection, or one that broke.
    #[error("{0}")]
    Unreachable(Unreachable),
    /// No connection within the connect timeout.
    #[error("connecting took too long")]
    Timeout,
    /// The TLS session was refused by one of the two sides.
    #[error("{0}")]
    Tls(TlsFault),
    /// The server sent the client elsewhere; credentials are never carried to another place.
    #[error("the server answered with a redirect")]
    Redirect,
    /// The answer exceeds the size limit of the call.
    #[error("the answer is larger than allowed")]
    TooLarge,
    /// Not sent: the [`Term`](crate::term::Term) the request was to be sent in is over.
    #[error("this process may not write now")]
    Withheld,
}

/// Why there is no working connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unreachable {
    /// The host name has no address.
    #[error("the server's name could not be resolved")]
    Name,
    /// Every address of the host name is refused by the server policy.
    #[error("the server's name leads only to addresses the server policy does not allow")]
    AddressDenied,
    /// The connection could not be opened.
    #[error("the connection could not be opened")]
    Refused,
    /// The connection ended before the answer did.
    #[error("the connection was closed before the answer was complete")]
    Closed,
    /// The peer does not speak HTTP as expected.
    #[error("the server broke the HTTP protocol")]
    Protocol,
    /// A credential plugin of the user's own kubeconfig failed; Secrets never have one.
    #[error("the credentials could not be obtained")]
    Credentials,
}

/// Why the TLS session was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TlsFault {
    /// The server's certificate is no longer valid.
    #[error("the server's certificate has expired")]
    ServerCertificateExpired,
    /// The server's certificate is not valid yet, which mostly means a wrong clock.
    #[error("the server's certificate is not valid yet")]
    ServerCertificateNotYetValid,
    /// The server's certificate was not issued by the kubeconfig's authority.
    #[error("the server's certificate was issued by an unknown authority")]
    UnknownAuthority,
    /// The server's certificate is for another name.
    #[error("the server's certificate is for another name")]
    WrongName,
    /// The server's certificate is refused for another reason.
    #[error("the server's certificate is not acceptable")]
    ServerCertificate,
    /// The server refused the client certificate.
    #[error("the server refused the client certificate")]
    ClientCertificate,
    /// No common protocol or a broken handshake.
    #[error("the TLS handshake failed")]
    Handshake,
}

impl TlsFault {
    /// A stable CamelCase word.
    pub fn reason(self) -> &'static str {
        match self {
            Self::ServerCertificateExpired => "ServerCertificateExpired",
            Self::ServerCertificateNotYetValid => "ServerCertificateNotYetValid",
            Self::UnknownAuthority => "UnknownAuthority",
            Self::WrongName => "WrongName",
            Self::ServerCertificate => "ServerCertificate",
            Self::ClientCertificate => "ClientCertificate",
            Self::Handshake => "Handshake",
        }
    }
}

impl Unreachable {
    /// A stable CamelCase word.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Name => "Name",
            Self::AddressDenied => "AddressDenied",
            Self::Refused => "Refused",
            Self::Closed => "Closed",
            Self::Protocol => "Protocol",
            Self::Credentials => "Credentials",
        }
    }
}

impl TransportError {
    /// Classifies an error of opening a connection.
    pub(super) fn from_connect(error: &(dyn Error + 'static)) -> Self {
        if let Some(tls) = find::<rustls::Error>(error) {
            return Self::Tls(TlsFault::from(tls));
        }
        if let Some(name) = find::<Unreachable>(error) {
            return Self::Unreachable(*name);
        }
        match find::<io::Error>(error).map(io::Error::kind) {
            Some(io::ErrorKind::TimedOut) => Self::Timeout,
            // What a peer does that does not speak TLS, or refuses it without an alert.
            Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) => Self::Tls(TlsFault::Handshake),
            _ => Self::Unreachable(Unreachable::Refused),
        }
    }

    /// Classifies an error of an open connection.
    pub(super) fn from_exchange(error: &(dyn Error + 'static)) -> Self {
        if let Some(tls) = find::<rustls::Error>(error) {
            return Self::Tls(TlsFault::from(tls));
        }
        // The HTTP/2 library keeps only the kind of what TLS reported. TLS 1.3 servers refuse a client certificate after the
        // handshake, and hardly anything else breaks a session then.
        if find::<io::Error>(error).is_some_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            return Self::Tls(TlsFault::ClientCertificate);
        }
        match find::<hyper::Error>(error) {
            Some(error) if error.is_parse() || error.is_user() => Self::Unreachable(Unreachable::Protocol),
            _ => Self::Unreachable(Unreachable::Closed),
        }
    }

    /// Classifies an error of kube's client, which mixes both phases.
    pub(super) fn from_kube(error: &kube::Error) -> Self {
        if find::<kube::client::AuthError>(error).is_some() {
            return Self::Unreachable(Unreachable::Credentials);
        }
        let exchange = find::<hyper::Error>(error).is_some();
        if exchange { Self::from_exchange(error) } else { Self::from_connect(error) }
    }
}

impl From<&rustls::Error> for TlsFault {
    fn from(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(certificate) => match certificate {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::ServerCertificateExpired,
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::ServerCertificateNotYetValid,
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownAuthority,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Self::WrongName,
                _ => Self::ServerCertificate,
            },
            rustls::Error::AlertReceived(
                AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRequired
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied,
            ) => Self::ClientCertificate,
            _ => Self::Handshake,
        }
    }
}

/// The first error of a type in the chain. `io::Error` hides what it wraps from `source()`, so it is opened here.
fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}
