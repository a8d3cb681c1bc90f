//! Kubeconfigs: what is accepted holds nothing but an address and inline credentials.

use std::{net::IpAddr, sync::OnceLock};

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use holdfast_fleet::kubeconfig::{Host, MAX_BYTES, ServerPolicy, parse};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Map, Value};

use crate::{Target, cost::within};

/// Kubeconfigs under the server policy `--deny-server evil.example`.
pub const TARGET: Target = Target {
    name: "kubeconfig",
    seeds,
    words: &[
        "exec: {command: x}",
        "auth-provider: {name: x}",
        "tokenFile: /x",
        "client-key: /x",
        "client-certificate: /x",
        "certificate-authority: /x",
        "insecure-skip-tls-verify: true",
        "insecure-skip-tls-verify: yes",
        "proxy-url: http://x",
        "as: x",
        "as-groups: [x]",
        "as-user-extra: {a: [x]}",
        "username: x",
        "password: x",
        "\"\\x65xec\": {}",
        "<<: *a",
        "&a ",
        "*a",
        "!!binary",
        "!!str",
        "? ",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "null",
        "https://127.0.0.1",
        "https://[::1]",
        "https://EVIL.example.",
        "https://localhost.",
        "https://2130706433",
        "http://",
        "@",
        "\\n",
        "    ",
        "\t",
        "\u{feff}",
        "\u{0}",
        "''",
        "{",
        "}",
        "#",
        "current-context: other",
        "name: one",
        "token: other",
    ],
    check,
};

const DENIED: &str = "evil.example";

/// A certificate authority, a client certificate and its key, as kubeconfigs hold them.
struct Credentials {
    authority: String,
    certificate: String,
    key: String,
}

fn credentials() -> Result<&'static Credentials> {
    static MADE: OnceLock<Option<Credentials>> = OnceLock::new();
    MADE.get_or_init(|| make().ok()).as_ref().context("no certificates")
}

fn make() -> Result<Credentials> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key)?.pem();
    let client = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["client".to_owned()])?.signed_by(&client, &Issuer::new(params, key))?.pem();
    let encode = |pem: &str| BASE64_STANDARD.encode(pem);
    Ok(Credentials { authority: encode(&authority), certificate: encode(&certificate), key: encode(&client.serialize_pem()) })
}

/// A kubeconfig that is accepted if its server is.
pub(super) fn with_server(server: &str) -> Result<String> {
    Ok(document(server, &credentials()?.authority, "token: fuzzed-token"))
}

fn document(server: &str, authority: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\npreferences: {{}}\n\
         contexts:\n- name: here\n  context:\n    cluster: one\n    user: me\n    namespace: default\n\
         - name: other\n  context: {{cluster: two, user: you}}\n\
         clusters:\n- name: one\n  cluster:\n    server: {server}\n    certificate-authority-data: {authority}\n\
         - cluster:\n    server: https://two.example\n    insecure-skip-tls-verify: true\n  name: two\n\
         users:\n- name: me\n  user:\n    {user}\n- name: you\n  user:\n    exec: {{command: date}}\n"
    )
}

fn seeds() -> Vec<Vec<u8>> {
    let Ok(own) = credentials() else { return Vec::new() };
    let by_token = document("https://one.example:6443", &own.authority, "token: fuzzed-token");
    let pair = format!("client-certificate-data: {}\n    client-key-data: {}", own.certificate, own.key);
    let by_certificate = document("https://10.1.2.3/", &own.authority, &pair);
    let as_json = serde_saphyr::from_str::<Value>(&by_token).map(|value| value.to_string()).unwrap_or_default();
    [by_token, by_certificate, as_json].map(String::into_bytes).to_vec()
}

fn check(input: &[u8]) -> Result<()> {
    let policy = ServerPolicy::new(Vec::new(), vec![DENIED.parse()?]);
    let outcome = within(1 << 23, || parse(input, &policy))?;
    let Ok(accepted) = outcome else { return Ok(()) };
    ensure!(input.len() <= MAX_BYTES, "accepted although too large");
    match &accepted.server().host {
        Host::Name(name) => ensure!(name != DENIED && name != "localhost" && !name.ends_with(".localhost"), "a denied name"),
        Host::Address(IpAddr::V4(address)) => {
            ensure!(!address.is_loopback() && !address.is_link_local() && !address.is_unspecified(), "a denied address");
        }
        Host::Address(IpAddr::V6(address)) => {
            ensure!(!address.is_loopback() && !address.is_unspecified() && address.segments().first() != Some(&0xfe80), "a denied address");
        }
    }
    let shown = format!("{accepted:?}");
    ensure!(!shown.contains("fuzzed-token"), "its token is shown");

    // Read by the same parser but as a tree, so that no field can hide behind the way the types are laid out.
    // What no field is for is skipped, and may be nothing that a tree can hold.
    let Ok(document) = serde_saphyr::from_slice::<Value>(input) else { return Ok(()) };
    let current = document.get("current-context").and_then(Value::as_str).context("accepted without a context")?;
    let context = entry(&document, "contexts", "context", current)?;
    let selected = |list, body, key| context.get(key).and_then(Value::as_str).map(|name| entry(&document, list, body, name));
    let cluster = selected("clusters", "cluster", "cluster").context("accepted without a cluster")??;
    let user = selected("users", "user", "user").context("accepted without a user")??;
    only(cluster, &["server", "tls-server-name", "certificate-authority-data", "disable-compression", "extensions"])?;
    only(user, &["client-certificate-data", "client-key-data", "token", "extensions"])
}

/// The body of the one entry of this name.
fn entry<'v>(document: &'v Value, list: &str, body: &str, name: &str) -> Result<&'v Map<String, Value>> {
    let named = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some(name);
    let mut found = document.get(list).and_then(Value::as_array).into_iter().flatten().filter(named);
    let one = found.next().context("accepted without the entry")?;
    ensure!(found.next().is_none(), "accepted with two entries of one name");
    one.get(body).and_then(Value::as_object).context("accepted without a body")
}

/// Nothing but these fields has a value.
fn only(body: &Map<String, Value>, allowed: &[&str]) -> Result<()> {
    let says_nothing = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    };
    for (name, value) in body {
        ensure!(allowed.contains(&name.as_str()) || says_nothing(value), "accepted with {name}");
    }
    Ok(())
}
