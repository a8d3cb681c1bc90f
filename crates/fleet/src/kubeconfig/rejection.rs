//! Why a kubeconfig is not used.

/// The first reason found not to use a kubeconfig.
///
/// Neither the variants nor their text carry any value of the Secret, so both may be shown, logged and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejection {
    /// None of the data keys a kubeconfig may stand under is present.
    #[error("the Secret has no kubeconfig under any of the expected data keys")]
    MissingKey,
    /// More than [`super::MAX_BYTES`].
    #[error("the kubeconfig is larger than 256 KiB")]
    TooLarge,
    /// Not UTF-8, not YAML, duplicate keys, or a field of the wrong type.
    #[error("the kubeconfig is not valid YAML of the expected shape")]
    NotYaml,
    /// A second YAML document follows the first.
    #[error("the kubeconfig holds more than one YAML document")]
    SeveralDocuments,
    /// `apiVersion` or `kind` name something else than a kubeconfig.
    #[error("the document is not a kubeconfig of version v1")]
    NotAKubeconfig,
    /// Two entries of one list have the same name, so which one counts depends on the reader.
    #[error("two clusters, users or contexts of the kubeconfig have the same name")]
    DuplicateName,
    /// `current-context` is missing or empty.
    #[error("the kubeconfig has no current context")]
    NoCurrentContext,
    /// `current-context` names no entry of `contexts`.
    #[error("the current context is not among the kubeconfig's contexts")]
    UnknownContext,
    /// The current context names no entry of `clusters`.
    #[error("the current context's cluster is not among the kubeconfig's clusters")]
    UnknownCluster,
    /// The current context names no entry of `users`.
    #[error("the current context's user is not among the kubeconfig's users")]
    UnknownUser,
    /// A field this reader does not know; it may change what the others mean.
    #[error("the selected context, cluster or user has a field that is not known here")]
    UnknownField,
    /// `exec`: a command to run inside the hub.
    #[error("credentials from an exec plugin are not accepted")]
    Exec,
    /// `auth-provider`: runs commands or calls URLs inside the hub.
    #[error("credentials from an auth provider are not accepted")]
    AuthProvider,
    /// `certificate-authority`, `client-certificate` or `client-key` is a path in the hub's file system.
    #[error("certificates and keys must be inline, not file paths")]
    FilePath,
    /// `tokenFile` is a path in the hub's file system.
    #[error("the token must be inline, not a file path")]
    TokenFile,
    /// `insecure-skip-tls-verify: true`.
    #[error("skipping TLS verification is not accepted")]
    InsecureSkipTls,
    /// `proxy-url`: sends the credentials through a third party.
    #[error("a proxy is not accepted")]
    ProxyUrl,
    /// `as`, `as-uid`, `as-groups` or `as-user-extra`.
    #[error("impersonation is not accepted")]
    Impersonation,
    /// `username` or `password`.
    #[error("basic authentication is not accepted")]
    BasicAuth,
    /// `server` is missing or empty.
    #[error("the selected cluster has no server")]
    NoServer,
    /// The scheme is not `https`.
    #[error("the server must be reached over https")]
    NotHttps,
    /// Not a URL of scheme, host and port alone: user information, a path, a query, a fragment or a malformed host.
    #[error("the server must be a URL of a host and an optional port, nothing else")]
    BadUrl,
    /// The host is refused by the server policy.
    #[error("the server's host is not allowed by the server policy")]
    ServerDenied,
    /// `certificate-authority-data` is missing.
    #[error("the selected cluster has no inline certificate authority")]
    NoCa,
    /// `certificate-authority-data` is not base64 of at least one usable PEM certificate.
    #[error("the inline certificate authority is not a PEM certificate")]
    BadCa,
    /// `tls-server-name` is not a host name.
    #[error("the TLS server name is not a valid host name")]
    BadTlsServerName,
    /// `client-certificate-data` is missing beside a key, or not base64 of a PEM certificate.
    #[error("the inline client certificate is missing or not a PEM certificate")]
    BadCertificate,
    /// `client-key-data` is missing beside a certificate, not a PEM private key, or not the certificate's key.
    #[error("the inline client key is missing, not a PEM private key, or not the key of the client certificate")]
    BadKey,
    /// The token cannot be sent in an HTTP header.
    #[error("the inline token has characters that cannot be sent")]
    BadToken,
    /// Neither a token nor a client certificate.
    #[error("the selected user has neither an inline token nor an inline client certificate")]
    NoCredentials,
}

impl Rejection {
    /// A stable CamelCase word for conditions, events and metric labels.
    pub fn reason(self) -> &'static str {
        match self {
            Self::MissingKey => "MissingKey",
            Self::TooLarge => "TooLarge",
            Self::NotYaml => "NotYaml",
            Self::SeveralDocuments => "SeveralDocuments",
            Self::NotAKubeconfig => "NotAKubeconfig",
            Self::DuplicateName => "DuplicateName",
            Self::NoCurrentContext => "NoCurrentContext",
            Self::UnknownContext => "UnknownContext",
            Self::UnknownCluster => "UnknownCluster",
            Self::UnknownUser => "UnknownUser",
            Self::UnknownField => "UnknownField",
            Self::Exec => "Exec",
            Self::AuthProvider => "AuthProvider",
            Self::FilePath => "FilePath",
            Self::TokenFile => "TokenFile",
            Self::InsecureSkipTls => "InsecureSkipTls",
            Self::ProxyUrl => "ProxyUrl",
            Self::Impersonation => "Impersonation",
            Self::BasicAuth => "BasicAuth",
            Self::NoServer => "NoServer",
            Self::NotHttps => "NotHttps",
            Self::BadUrl => "BadUrl",
            Self::ServerDenied => "ServerDenied",
            Self::NoCa => "NoCa",
            Self::BadCa => "BadCa",
            Self::BadTlsServerName => "BadTlsServerName",
            Self::BadCertificate => "BadCertificate",
            Self::BadKey => "BadKey",
            Self::BadToken => "BadToken",
            Self::NoCredentials => "NoCredentials",
        }
    }
}
