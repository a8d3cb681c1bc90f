//! Decides which values may leave the process. Reports and messages show only what passes here; logs show no value at all.
//!
//! A value is left out by kind (whatever has `Secret` in its kind), by the name of a field, variable, key or flag on the
//! way to it or inside it, and by content (private keys, credentials in a URL, tokens, `password=…` inside a text). That
//! a text in a ConfigMap holds a password under a harmless name cannot be known: such a value is shown, cut to
//! [`SHOWN`] bytes. Leaving out too much costs a reader a look at the object; showing too much cannot be undone, so words
//! are matched anywhere (`author` hides like `auth`).

use std::fmt;

use serde_json::{Map, Value};

use crate::{object::Gvk, path::Path};

/// Longest text or JSON that a report shows of one value, in bytes.
pub const SHOWN: usize = 256;

/// Words in a field, key or variable name that mark its value as secret.
const SECRET_NAMES: [&str; 32] = [
    "encryptionkey",
    "encryption_key",
    "encryption-key",
    "masterkey",
    "master_key",
    "master-key",
    "licensekey",
    "license_key",
    "license-key",
    "webhookurl",
    "webhook_url",
    "webhook-url",
    "password",
    "_pass",
    "salt",
    "signing",
    "accountkey",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "accesskey",
    "access_key",
    "access-key",
    "credential",
    "private",
    "auth",
    "dsn",
];

/// Annotations in which tools keep a whole earlier version of the object: kubectl and others, kapp, Rancher.
const WHOLE_OBJECTS: [&str; 3] = ["last-applied", "kapp.k14s.io/original", "objectset.rio.cattle.io/applied"];

/// Words that mark a text when `=` or `:` follows, as in a configuration file or a connection string.
const SECRET_SETTINGS: [&str; 11] =
    ["password", "passwd", "passphrase", "pwd", "secret", "token", "apikey", "api_key", "api-key", "credential", "authorization"];

/// Beginnings of well-known tokens and keys.
const SECRET_BEGINNINGS: [&str; 17] = [
    "eyJ",
    "AKIA",
    "AIza",
    "ya29.",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "npm_",
    "dckr_pat_",
    "hvs.",
    "SG.",
    "xox",
    "sk-",
];

/// What a text may have anywhere that holds a secret: keys and certificates, addresses that are passwords, hashes of passwords.
const SECRET_PARTS: [&str; 7] = ["-----BEGIN", "hooks.slack.com/services/", "$apr1$", "$2a$", "$2b$", "$2y$", "{SHA}"];

/// Stands for a value in `Debug` output.
pub struct Hidden;

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// The value as a report may show it, or nothing.
pub fn shown(gvk: &Gvk, path: &Path, value: Option<&Value>) -> Option<Value> {
    let value = value?;
    if is_secret(gvk, path) || mentions_secret(value) {
        return None;
    }
    let text = value.to_string();
    if text.len() <= SHOWN { Some(value.clone()) } else { Some(Value::String(format!("({} bytes)", text.len()))) }
}

/// The same for a JSON pointer into `object`, which names list items by their place: whatever an item on the way calls itself counts
/// as part of the path.
pub fn shown_at(gvk: &Gvk, object: &Value, pointer: &str, value: Option<&Value>) -> Option<Value> {
    let mut at = Some(object);
    for token in pointer.split('/').skip(1) {
        let is_item = at.is_some_and(Value::is_array);
        let token = token.replace("~1", "/").replace("~0", "~");
        at = at.and_then(|at| match at {
            Value::Object(members) => members.get(&token),
            Value::Array(items) => token.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => None,
        });
        if is_item && at.and_then(Value::as_object).is_some_and(calls_itself_secret) {
            return None;
        }
    }
    let path = Path::of_fields(&pointer.split('/').skip(1).collect::<Vec<_>>());
    shown(gvk, &path, value)
}

/// The path as it may be shown: a set item is its own value, and the key of an item may be one.
pub fn path_text(gvk: &Gvk, path: &Path) -> String {
    let text = path.to_string();
    if is_secret(gvk, path) || holds_secret(&text) { path.without_items() } else { text }
}

/// Whether values at this path are secret by kind or by name.
pub fn is_secret(gvk: &Gvk, path: &Path) -> bool {
    let text = path.to_string();
    // A whole earlier version of the object, Secret or not, may hide in this annotation.
    gvk.kind.contains("Secret") || names_secret(&text)
}

fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().chain(&WHOLE_OBJECTS).any(|word| name.contains(word)) || is_word(&name, "pass")
}

/// Whether a name has this word on its own: `DB_PASS`, not `passthrough` or `compass`.
fn is_word(name: &str, word: &str) -> bool {
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == word)
}

/// Something with a telling name or content inside a value.
fn mentions_secret(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            members.iter().any(|(name, member)| (names_secret(name) && !member.is_boolean()) || mentions_secret(member))
                || calls_itself_secret(members)
        }
        // `--password`, `hunter2`: a flag and its value are neighbours.
        Value::Array(items) => {
            items.iter().any(|item| mentions_secret(item) || item.as_str().is_some_and(|text| text.starts_with('-') && names_secret(text)))
        }
        Value::String(text) => holds_secret(text),
        _ => false,
    }
}

/// An environment variable, a header, an item of a list of settings.
fn calls_itself_secret(members: &Map<String, Value>) -> bool {
    ["name", "key"].iter().any(|field| members.get(*field).and_then(Value::as_str).is_some_and(names_secret))
}

fn holds_secret(text: &str) -> bool {
    SECRET_PARTS.iter().any(|part| text.contains(part))
        || SECRET_BEGINNINGS.iter().any(|beginning| {
            text.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '=' | ':' | ',')).any(|word| word.starts_with(beginning))
        })
        || has_user_info(text)
        || has_setting(&text.to_ascii_lowercase())
}

/// `scheme://user:word@host`.
fn has_user_info(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let host = rest.split(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'')).next().unwrap_or_default();
        host.contains('@')
    })
}

/// `db_password = …`, `"token": …`: one of the words, the rest of its name, perhaps quotes and blanks, then `=` or `:`.
fn has_setting(text: &str) -> bool {
    SECRET_SETTINGS.iter().any(|word| {
        text.split(word).skip(1).any(|rest| {
            let after_name = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
            after_name.trim_start_matches([' ', '\t', '"', '\'', '\\']).starts_with(['=', ':'])
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::path::Segment;

    #[test]
    fn secrets_by_kind_name_and_content() {
        let deployment = Gvk::new("apps/v1", "Deployment");
        let env = |name: &str| Path::of_fields(&["spec", "env"]).join(Segment::key("name", name)).join(Segment::field("value"));
        assert_eq!(shown(&deployment, &env("DB_PASSWORD"), Some(&json!("x"))), None);
        assert_eq!(shown(&deployment, &env("COLOR"), Some(&json!("x"))), Some(json!("x")));
        for kind in ["Secret", "SealedSecret"] {
            assert_eq!(shown(&Gvk::new("v1", kind), &Path::of_fields(&["data", "p"]), Some(&json!("eA=="))), None);
        }
        let last_applied = Path::of_fields(&["metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"]);
        assert_eq!(shown(&deployment, &last_applied, Some(&json!("{}"))), None);
    }

    #[test]
    fn what_is_inside_counts() {
        let shown = |value: serde_json::Value| shown(&Gvk::new("v1", "ConfigMap"), &Path::of_fields(&["data", "a"]), Some(&value));
        for secret in [
            json!({"containers": [{"env": [{"name": "API_TOKEN", "value": "x"}]}]}),
            json!("-----BEGIN KEY"),
            json!("tls: |\n  -----BEGIN KEY"),
            json!("postgres://app:hunter2@db:5432/app"),
            json!("url=https://hunter2@host/x and more"),
            json!("db:\n  password: hunter2\n"),
            json!("{\"db_password\" : \"hunter2\"}"),
            json!("Server=db;Pwd=hunter2;"),
            json!("Authorization: Bearer abc"),
            json!("jwt eyJhbGciOi"),
            json!(["--password", "hunter2"]),
            json!(["--db-password=hunter2"]),
            json!([{"secretKey": "hunter2"}]),
            json!([{"name": "DB_PASS", "value": "hunter2"}]),
            json!({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}),
            json!({"annotations": {"kapp.k14s.io/original": "{}"}}),
            json!({"annotations": {"objectset.rio.cattle.io/applied": "H4sI"}}),
            json!({"spec": {"encryptionKey": "hunter2"}}),
            json!("url: https://hooks.slack.com/services/T0/B0/hunter2"),
            json!("admin:$2y$05$abc"),
            json!("key AIzaSyA"),
        ] {
            assert_eq!(shown(secret.clone()), None, "{secret}");
        }
        for harmless in [
            json!("sla: 12h\n"),
            json!({"passthrough": "all", "compass": "north", "bypass": 1}),
            json!("img:1"),
            json!("mirror.example/auth/nginx:1.27"),
            json!("a@example.com"),
            json!(["--color", "red"]),
            json!(5),
        ] {
            assert_eq!(shown(harmless.clone()), Some(harmless));
        }
    }

    #[test]
    fn a_path_shows_no_key_that_is_a_secret() {
        let item = |text: &str| Path::of_fields(&["spec", "entries"]).join(Segment::Item(json!(text)));
        assert_eq!(path_text(&Gvk::new("v1", "ConfigMap"), &item("red")), "/spec/entries/[=red]");
        for (kind, path) in [("SealedSecret", item("red")), ("Gate", item("eyJhbGciOi"))] {
            assert_eq!(path_text(&Gvk::new("v1", kind), &path), "/spec/entries/[=…]", "{kind}");
        }
    }

    #[test]
    fn long_values_are_measured_not_shown() {
        let long = json!("x".repeat(300));
        assert_eq!(shown(&Gvk::new("v1", "ConfigMap"), &Path::of_fields(&["data", "a"]), Some(&long)), Some(json!("(302 bytes)")));
    }
}
