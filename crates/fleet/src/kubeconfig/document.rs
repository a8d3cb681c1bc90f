//! The kubeconfig file format, reduced to the entries the current context selects.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Rejection;

/// The whole document. Bodies of entries stay untyped until one is selected: what stands in the others must not matter.
#[derive(Deserialize)]
struct Document {
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(rename = "current-context")]
    current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Value>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<Value>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Option<Value>,
}

/// A context's body. `namespace` is a default for command lines and plays no role here.
#[derive(Deserialize)]
struct ContextBody {
    cluster: Option<String>,
    user: Option<String>,
    #[serde(rename = "namespace")]
    _namespace: Option<String>,
    #[serde(rename = "extensions")]
    _extensions: Option<Value>,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// A cluster's body: every field of the v1 format.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ClusterBody {
    pub server: Option<String>,
    pub tls_server_name: Option<String>,
    pub insecure_skip_tls_verify: Option<bool>,
    pub certificate_authority: Option<String>,
    pub certificate_authority_data: Option<String>,
    pub proxy_url: Option<String>,
    #[serde(rename = "disable-compression")]
    _disable_compression: Option<bool>,
    // Free-form data of other tools: never read, so it cannot change anything.
    #[serde(rename = "extensions")]
    _extensions: Option<Value>,
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// A user's body: every field of the v1 format.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct UserBody {
    pub client_certificate: Option<String>,
    pub client_certificate_data: Option<String>,
    pub client_key: Option<String>,
    pub client_key_data: Option<String>,
    pub token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub token_file: Option<String>,
    #[serde(rename = "as")]
    pub as_user: Option<String>,
    pub as_uid: Option<String>,
    pub as_groups: Option<Vec<String>>,
    pub as_user_extra: Option<Map<String, Value>>,
    pub username: Option<String>,
    pub password: Option<String>,
    pub auth_provider: Option<Value>,
    pub exec: Option<Value>,
    #[serde(rename = "extensions")]
    _extensions: Option<Value>,
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// What the current context selects.
pub(super) struct Selection {
    pub cluster: ClusterBody,
    pub user: UserBody,
}

/// Reads the document and follows `current-context`.
pub(super) fn select(bytes: &[u8]) -> Result<Selection, Rejection> {
    let document = read(bytes)?;
    if document.api_version.is_some_and(|version| version != "v1") || document.kind.is_some_and(|kind| kind != "Config") {
        return Err(Rejection::NotAKubeconfig);
    }
    let current = filled(document.current_context).ok_or(Rejection::NoCurrentContext)?;
    let contexts = document.contexts.unwrap_or_default().into_iter().map(|entry| (entry.name, entry.context));
    let context: ContextBody = pick(contexts, &current, Rejection::UnknownContext)?;
    if !context.unknown.is_empty() {
        return Err(Rejection::UnknownField);
    }
    let cluster_name = filled(context.cluster).ok_or(Rejection::UnknownCluster)?;
    let user_name = filled(context.user).ok_or(Rejection::UnknownUser)?;
    let clusters = document.clusters.unwrap_or_default().into_iter().map(|entry| (entry.name, entry.cluster));
    let users = document.users.unwrap_or_default().into_iter().map(|entry| (entry.name, entry.user));
    Ok(Selection {
        cluster: pick(clusters, &cluster_name, Rejection::UnknownCluster)?,
        user: pick(users, &user_name, Rejection::UnknownUser)?,
    })
}

/// An empty string means the same as an absent field in this format.
pub(super) fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn read(bytes: &[u8]) -> Result<Document, Rejection> {
    let options = serde_saphyr::options! { with_snippet: false };
    // The parser's own errors quote the document, so they end here.
    serde_saphyr::from_slice_with_options(bytes, options).map_err(|error| match error.without_snippet() {
        serde_saphyr::Error::MultipleDocuments { .. } => Rejection::SeveralDocuments,
        _ => Rejection::NotYaml,
    })
}

fn pick<T: DeserializeOwned>(
    entries: impl Iterator<Item = (String, Option<Value>)>,
    name: &str,
    unknown: Rejection,
) -> Result<T, Rejection> {
    let mut named = entries.filter(|(entry, _)| entry == name);
    let (_, body) = named.next().ok_or(unknown)?;
    if named.next().is_some() {
        return Err(Rejection::DuplicateName);
    }
    serde_json::from_value(body.ok_or(unknown)?).map_err(|_| Rejection::NotYaml)
}
