use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::LazyLock;

use k8s_openapi::ByteString;
use secrecy::ExposeSecret;

use super::fixture::{Authority, document, encode, with_certificate, with_token};
use super::*;

const SERVER: &str = "https://api.example.com:6443";
const CANARY: &str = "CANARY-7f3a";

static CA: LazyLock<Authority> = LazyLock::new(Authority::new);

fn open() -> ServerPolicy {
    ServerPolicy::default()
}

fn policy(allow: &[&str], deny: &[&str]) -> ServerPolicy {
    let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    ServerPolicy::new(rules(allow), rules(deny))
}

fn reject(text: &str) -> Rejection {
    parse(text.as_bytes(), &open()).unwrap_err()
}

fn ca_line() -> String {
    format!("certificate-authority-data: {}", encode(&CA.pem))
}

/// A kubeconfig that is fine but for one more line in the cluster.
fn cluster_with(line: &str) -> String {
    document(&[format!("server: {SERVER}"), ca_line(), line.into()], &["token: abc".into()])
}

/// A kubeconfig that is fine but for one more line in the user.
fn user_with(line: &str) -> String {
    document(&[format!("server: {SERVER}"), ca_line()], &["token: abc".into(), line.into()])
}

fn server_is(server: &str) -> String {
    document(&[format!("server: {server}"), ca_line()], &["token: abc".into()])
}

#[test]
fn accepts_inline_token() {
    let read = parse(with_token(SERVER, &CA, "abc").as_bytes(), &open()).unwrap();
    assert_eq!(read.server().to_string(), "api.example.com:6443");
    assert_eq!(read.identity().token().unwrap().expose_secret(), "abc");
    assert!(read.identity().certificate().is_none());
    assert_eq!(read.tls_server_name().to_str(), "api.example.com");
}

#[test]
fn accepts_inline_certificate() {
    let read = parse(with_certificate(SERVER, &CA, &CA.client()).as_bytes(), &open()).unwrap();
    assert!(read.identity().certificate().is_some());
    assert!(read.identity().token().is_none());
}

#[test]
fn accepts_what_is_harmless() {
    let accepted = [
        with_token(SERVER, &CA, "abc").replace("apiVersion: v1\nkind: Config\n", ""),
        with_token(SERVER, &CA, "abc") + "preferences: {}\nextensions: []\n",
        cluster_with("extensions: [{name: minikube, extension: {version: v1}}]"),
        cluster_with("insecure-skip-tls-verify: false"),
        cluster_with("disable-compression: true"),
        cluster_with("proxy-url: ''"),
        cluster_with("tls-server-name: kubernetes"),
        user_with("exec: null"),
        user_with("as-groups: []"),
        user_with("username: ''"),
        format!("---\n{}", with_token(SERVER, &CA, "abc")),
        server_is("https://api.example.com"),
        server_is("https://API.example.com./"),
        server_is("https://10.1.2.3:443"),
        server_is("https://[2001:db8::1]:6443"),
    ];
    for text in accepted {
        assert!(parse(text.as_bytes(), &open()).is_ok(), "{:?} for {text}", parse(text.as_bytes(), &open()).unwrap_err());
    }
}

#[test]
fn json_is_read_too() {
    let text = format!(
        r#"{{"current-context":"c","contexts":[{{"name":"c","context":{{"cluster":"k","user":"u"}}}}],
            "clusters":[{{"name":"k","cluster":{{"server":"{SERVER}","certificate-authority-data":"{}"}}}}],
            "users":[{{"name":"u","user":{{"token":"abc"}}}}]}}"#,
        encode(&CA.pem)
    );
    assert!(parse(text.as_bytes(), &open()).is_ok());
}

#[test]
fn folded_base64_is_read() {
    let folded: Vec<String> = encode(&CA.pem).as_bytes().chunks(64).map(|chunk| String::from_utf8_lossy(chunk).into_owned()).collect();
    let ca = format!("certificate-authority-data: |\n      {}", folded.join("\n      "));
    let text = document(&[format!("server: {SERVER}"), ca], &["token: abc".into()]);
    assert!(parse(text.as_bytes(), &open()).is_ok());
}

#[test]
fn other_entries_do_not_matter() {
    let text = with_token(SERVER, &CA, "abc")
        .replace("users:\n", "users:\n- name: other\n  user: {exec: {command: /bin/sh}}\n- name: odd\n  user: 7\n")
        .replace("clusters:\n", "clusters:\n- name: other\n  cluster: {server: 'http://127.0.0.1', insecure-skip-tls-verify: true}\n")
        .replace("contexts:\n", "contexts:\n- name: other\n  context: {cluster: nowhere, user: nobody}\n");
    assert!(parse(text.as_bytes(), &open()).is_ok());
}

#[test]
fn every_cause_has_its_rejection() {
    use Rejection as R;
    let pair = CA.client();
    let other = CA.client();
    let good = with_token(SERVER, &CA, "abc");
    let cluster = [format!("server: {SERVER}"), ca_line()];
    let certificate = format!("client-certificate-data: {}", encode(&pair.certificate));
    let key = format!("client-key-data: {}", encode(&pair.key));
    let user = |lines: &[&str]| document(&cluster, &lines.iter().map(ToString::to_string).collect::<Vec<_>>());
    let table: Vec<(R, String)> = vec![
        (R::TooLarge, format!("{good}# {}", "x".repeat(MAX_BYTES))),
        (R::NotYaml, "{".into()),
        (R::NotYaml, format!("just text {CANARY}")),
        (R::NotYaml, user_with(&format!("password: [{CANARY}]"))),
        (R::NotYaml, user_with(&format!("token: {CANARY}"))),
        (R::NotYaml, user_with("exec: *nothing")),
        (R::NotYaml, cluster_with("insecure-skip-tls-verify: 'true'")),
        (R::SeveralDocuments, format!("{good}---\n{good}")),
        (R::SeveralDocuments, format!("{good}...\n---\nusers: []\n")),
        (R::NotAKubeconfig, good.replace("kind: Config", "kind: Secret")),
        (R::NotAKubeconfig, good.replace("apiVersion: v1", "apiVersion: v2")),
        (R::DuplicateName, good.replace("users:\n", &format!("users:\n- name: me\n  user: {{token: {CANARY}}}\n"))),
        (R::DuplicateName, good.replace("clusters:\n", "clusters:\n- name: one\n  cluster: {}\n")),
        (R::DuplicateName, good.replace("contexts:\n", "contexts:\n- name: here\n  context: {}\n")),
        (R::NoCurrentContext, good.replace("current-context: here\n", "")),
        (R::NoCurrentContext, good.replace("current-context: here", "current-context: ''")),
        (R::NoCurrentContext, "{}".into()),
        (R::UnknownContext, good.replace("current-context: here", "current-context: there")),
        (R::UnknownCluster, good.replace("    cluster: one", "    cluster: two")),
        (R::UnknownCluster, good.replace("    cluster: one\n", "")),
        (R::UnknownUser, good.replace("    user: me", "    user: you")),
        (R::UnknownField, cluster_with(&format!("certificate-authority-file: {CANARY}"))),
        (R::UnknownField, user_with(&format!("Exec: {{command: {CANARY}}}"))),
        (R::UnknownField, user_with("tokenfile: /var/run/token")),
        (R::UnknownField, good.replace("    user: me\n", "    user: me\n    impersonate: root\n")),
        (R::Exec, user_with(&format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: {CANARY}}}"))),
        (R::Exec, user_with("exec: {}")),
        (R::Exec, user_with("exec: /bin/sh")),
        (R::Exec, user_with("<<: {exec: {command: /bin/sh}}")),
        (
            R::Exec,
            good.replace("    token: abc\n", "    <<: *plugin\n")
                .replace("users:\n", "users:\n- name: other\n  user: &plugin {exec: {command: x}}\n"),
        ),
        (R::NotYaml, good.replace("token: abc", "token: 12345")),
        (R::AuthProvider, user_with("auth-provider: {name: gcp}")),
        (R::AuthProvider, user_with("auth-provider: {name: oidc, config: {idp-issuer-url: 'https://x'}}")),
        (R::FilePath, cluster_with("certificate-authority: /etc/ssl/ca.crt")),
        (R::FilePath, user_with("client-certificate: /proc/self/environ")),
        (R::FilePath, user_with("client-key: ../key.pem")),
        (R::TokenFile, user_with("tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token")),
        (R::InsecureSkipTls, cluster_with("insecure-skip-tls-verify: true")),
        (R::InsecureSkipTls, cluster_with("insecure-skip-tls-verify: yes")),
        (R::ProxyUrl, cluster_with("proxy-url: http://proxy.example.com:3128")),
        (R::ProxyUrl, cluster_with("proxy-url: socks5://127.0.0.1")),
        (R::Impersonation, user_with("as: root")),
        (R::Impersonation, user_with("as-uid: '0'")),
        (R::Impersonation, user_with("as-groups: ['system:masters']")),
        (R::Impersonation, user_with("as-user-extra: {reason: [a]}")),
        (R::BasicAuth, user_with("username: admin")),
        (R::BasicAuth, user_with(&format!("password: {CANARY}"))),
        (R::NoServer, document(&[ca_line()], &["token: abc".into()])),
        (R::NotHttps, server_is("http://api.example.com")),
        (R::NotHttps, server_is("ftp://api.example.com")),
        (R::NoCa, document(&[format!("server: {SERVER}")], &["token: abc".into()])),
        (R::BadCa, cluster_with("x: y").replace(&ca_line(), "certificate-authority-data: '%%%'").replace("    x: y\n", "")),
        (R::BadCa, good.replace(&encode(&CA.pem), &encode(CANARY))),
        (R::BadCa, good.replace(&encode(&CA.pem), &encode(&pair.key))),
        (R::BadTlsServerName, cluster_with("tls-server-name: 'not a name'")),
        (R::BadCertificate, user(&[&key])),
        (R::BadCertificate, user(&["client-certificate-data: bm9wZQ==", &key])),
        (R::BadKey, user(&[&certificate])),
        (R::BadKey, user(&[&certificate, &format!("client-key-data: {}", encode(CANARY))])),
        (R::BadKey, user(&[&certificate, &format!("client-key-data: {}", encode(&other.key))])),
        (R::BadToken, good.replace("token: abc", "token: \"a\\nb\"")),
        (R::NoCredentials, user(&["token: ''"])),
        (R::NoCredentials, user(&["extensions: []"])),
    ];
    let mut seen = Vec::new();
    for (expected, text) in table {
        let rejection = reject(&text);
        assert_eq!(rejection, expected, "for {text}");
        assert!(!format!("{rejection} {rejection:?}").contains(CANARY));
        seen.push(expected.reason());
    }
    seen.dedup();
    assert!(seen.len() >= 27, "{seen:?}");
}

#[test]
fn bad_urls() {
    let bad = [
        "https://user@api.example.com",
        "https://user:pass@api.example.com",
        "https://api.example.com/k8s/clusters/c-1",
        "https://api.example.com/?watch=true",
        "https://api.example.com/#fragment",
        "https://api.example.com:0",
        "https://api.example.com:99999",
        "https://api.example.com:",
        "https://",
        "https://api..example.com",
        "https://1.2.3.4.5",
        "https://256.1.1.1",
        "https://0x",
        "https://[fe80::1%25eth0]",
        "https://[::1",
        "api.example.com:6443",
        "//api.example.com",
    ];
    for server in bad {
        let rejection = reject(&server_is(&format!("'{server}'")));
        // A bare `0x` is zero to the system's resolver.
        let expected = if server == "https://0x" { Rejection::ServerDenied } else { Rejection::BadUrl };
        assert_eq!(rejection, expected, "{server}");
    }
}

#[test]
fn surroundings_are_denied_in_every_spelling() {
    let denied = [
        "127.0.0.1",
        "127.8.9.10:6443",
        "localhost",
        "LOCALHOST.:6443",
        "metadata.localhost",
        "0.0.0.0",
        "0",
        "0.1.2.3",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "169.254.169.254",
        "2852039166",
        "0xa9.0xfe.43518",
        "255.255.255.255",
        "224.0.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[febf::1]",
        "[ff02::1]",
        "[fd00:ec2::254]",
    ];
    for host in denied {
        assert_eq!(reject(&server_is(&format!("'https://{host}'"))), Rejection::ServerDenied, "{host}");
    }
}

#[test]
fn allow_rules_open_the_surroundings() {
    let allowed = [
        ("127.0.0.1:6443", "127.0.0.1"),
        ("127.0.0.1:6443", "127.0.0.0/8"),
        ("2130706433", "127.0.0.0/8"),
        ("localhost:6443", "localhost"),
        ("localhost:6443", "127.0.0.0/8"),
        ("[::1]:6443", "::1"),
        ("[::1]:6443", "[::1]"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("127.0.0.1", "::ffff:127.0.0.0/104"),
        ("169.254.1.1", "169.254.0.0/16"),
    ];
    for (host, rule) in allowed {
        let text = server_is(&format!("'https://{host}'"));
        assert!(parse(text.as_bytes(), &policy(&[rule], &[])).is_ok(), "{host} with {rule}");
    }
    let still_denied = [("127.0.0.1", "127.0.0.2"), ("[::1]", "127.0.0.1"), ("localhost", "localhost.example.com")];
    for (host, rule) in still_denied {
        let text = server_is(&format!("'https://{host}'"));
        assert_eq!(parse(text.as_bytes(), &policy(&[rule], &[])).unwrap_err(), Rejection::ServerDenied, "{host} with {rule}");
    }
}

#[test]
fn the_longest_network_decides() {
    let exclusive = policy(&["10.1.0.0/16", "api.example.com"], &["0.0.0.0/0", "::/0"]);
    let judged = |address: &str| exclusive.allows_address(None, address.parse::<IpAddr>().unwrap());
    assert!(judged("10.1.2.3"));
    assert!(judged("::ffff:10.1.2.3"));
    assert!(!judged("10.2.2.3"));
    assert!(!judged("2001:db8::1"));
    // A denied network is denied under any name, allowed or not.
    assert!(!exclusive.allows_address(Some("api.example.com"), "10.2.2.3".parse().unwrap()));
    assert!(!policy(&["10.0.0.0/8"], &["10.0.0.0/8"]).allows_address(None, "10.1.1.1".parse().unwrap()));
    assert!(!policy(&[], &["api.example.com"]).allows(&Host::Name("api.example.com".into())));
}

#[test]
fn resolved_addresses_are_judged_again() {
    let default = open();
    assert!(default.allows(&Host::Name("rebind.example.com".into())));
    assert!(!default.allows_address(Some("rebind.example.com"), "169.254.169.254".parse().unwrap()));
    assert!(default.allows_address(Some("api.example.com"), "10.0.0.1".parse().unwrap()));
    assert!(policy(&["tunnel.example.com"], &[]).allows_address(Some("tunnel.example.com"), "127.0.0.1".parse().unwrap()));
}

#[test]
fn malformed_rules() {
    for text in ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "a b", "host/8", "10.0.0.0/-1", "*.example.com"] {
        assert!(text.parse::<HostRule>().is_err(), "{text}");
    }
}

#[test]
fn nothing_secret_is_printed() {
    let pair = CA.client();
    let text = with_certificate(SERVER, &CA, &pair)
        .replace("users:\n- name: me\n  user:\n", &format!("users:\n- name: me\n  user:\n    token: {CANARY}\n"));
    let read = parse(text.as_bytes(), &open()).unwrap();
    let printed = format!("{read:?} {:?} {:?}", read.identity(), read.fingerprint());
    assert!(!printed.contains(CANARY));
    assert!(!printed.contains("PRIVATE"));
    assert!(printed.contains("api.example.com"));
}

#[test]
fn a_new_token_is_told_from_a_new_connection() {
    let read = |text: String| parse(text.as_bytes(), &open()).unwrap();
    let first = read(with_token(SERVER, &CA, "one"));
    let same = read(with_token(SERVER, &CA, "one") + "# another comment\n");
    let token = read(with_token(SERVER, &CA, "two"));
    let server = read(with_token("https://api.example.com:6444", &CA, "two"));
    let authority = read(with_token(SERVER, &Authority::new(), "two"));
    let certificate = read(with_certificate(SERVER, &CA, &CA.client()));
    let tls_name = read(cluster_with("tls-server-name: other").replace("token: abc", "token: two"));
    assert_eq!(first.fingerprint(), same.fingerprint());
    assert_ne!(first.fingerprint(), token.fingerprint());
    assert_eq!(first.connection_fingerprint(), token.connection_fingerprint());
    for other in [server, authority, certificate, tls_name] {
        assert_ne!(first.fingerprint(), other.fingerprint());
        assert_ne!(first.connection_fingerprint(), other.connection_fingerprint());
    }
}

#[test]
fn secrets_by_name_and_label() {
    let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<BTreeMap<_, _>>();
    let capi = labels(&[("cluster.x-k8s.io/cluster-name", "prod")]);
    let marked = labels(&[(KUBECONFIG_LABEL, "true")]);
    let data = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), ByteString(key.as_bytes().to_vec()))).collect::<BTreeMap<_, _>>();

    let cluster = KubeconfigSecret::identify("prod-kubeconfig", &capi).unwrap();
    assert_eq!(cluster.cluster.as_deref(), Some("prod"));
    assert_eq!(cluster.find(&data(&["value", "config"])).unwrap(), b"value");
    assert_eq!(cluster.find(&data(&["kubeconfig", "config"])).unwrap_err(), Rejection::MissingKey);

    for other in ["prod-ca", "prod-etcd", "prod-sa", "prod-proxy", "prod-apiserver-etcd-client", "-kubeconfig"] {
        assert_eq!(KubeconfigSecret::identify(other, &capi), None, "{other}");
    }
    assert_eq!(KubeconfigSecret::identify("edge", &labels(&[(KUBECONFIG_LABEL, "false")])), None);

    let edge = KubeconfigSecret::identify("edge", &marked).unwrap();
    assert_eq!(edge, KubeconfigSecret { cluster: None, labelled: true });
    for key in ["value", "kubeconfig", "config"] {
        assert_eq!(edge.find(&data(&[key, "other"])).unwrap(), key.as_bytes());
    }
    assert_eq!(edge.find(&data(&["token"])).unwrap_err(), Rejection::MissingKey);
}
