//! Which identities may be taken from a manifest.
//!
//! Kinds, names and namespaces end up in request paths, logs and reports, and a manifest is written by anyone who may
//! write a Secret. What could not be the identity of a stored object is refused here.

/// Whether `kind` can be a kind: a letter, then letters and digits, at most 63.
pub fn is_kind(kind: &str) -> bool {
    kind.len() <= 63 && kind.starts_with(|c: char| c.is_ascii_alphabetic()) && kind.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Whether `api_version` can be a version, or a group and a version.
pub fn is_api_version(api_version: &str) -> bool {
    let part =
        |text: &str| !text.is_empty() && text.len() <= 253 && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'));
    match api_version.split_once('/') {
        Some((group, version)) => part(group) && part(version),
        None => part(api_version),
    }
}

/// Whether `name` can be an object's name. The rule is the widest one the API server has for any kind (a path segment,
/// as for RBAC objects), without control characters.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && !matches!(name, "." | "..")
        && !name.contains(|c: char| matches!(c, '/' | '%') || c.is_control())
}

/// Whether `namespace` can be a namespace's name: an RFC 1123 label.
pub fn is_namespace(namespace: &str) -> bool {
    namespace.len() <= 63
        && !namespace.starts_with('-')
        && !namespace.ends_with('-')
        && !namespace.is_empty()
        && namespace.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::{is_api_version, is_kind, is_name, is_namespace};

    #[test]
    fn kinds_and_versions() {
        assert!(is_kind("Deployment") && is_kind("HTTPRoute2"));
        assert!(!is_kind("") && !is_kind("2Kind") && !is_kind("A/b") && !is_kind("A\nB") && !is_kind(&"A".repeat(64)));
        assert!(is_api_version("v1") && is_api_version("apps/v1") && is_api_version("test.example/v1beta1"));
        assert!(!is_api_version("") && !is_api_version("/v1") && !is_api_version("a/b/v1") && !is_api_version("apps/../v1"));
    }

    #[test]
    fn names_stay_inside_their_path_segment() {
        assert!(is_name("web") && is_name("system:node") && is_name("a.b") && is_name("UPPER case"));
        assert!(!is_name("") && !is_name("..") && !is_name("a/b") && !is_name("a%2fb") && !is_name("a\nb") && !is_name(&"a".repeat(254)));
        assert!(is_namespace("kube-system") && is_namespace("0"));
        assert!(!is_namespace("") && !is_namespace("-a") && !is_namespace("A") && !is_namespace("a.b") && !is_namespace("a/b"));
    }
}
