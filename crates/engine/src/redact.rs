//! Decides which values may leave the process. Reports and messages show only what passes here.

use serde_json::Value;

use crate::{object::Gvk, path::Path};

/// Longest text or JSON that a report shows of one value, in bytes.
const SHOWN: usize = 256;

/// Words in a field or variable name that mark its value as secret.
const SECRET_WORDS: [&str; 10] = ["password", "passwd", "secret", "token", "apikey", "api_key", "api-key", "credential", "private", "auth"];

/// The value as a report may show it, or nothing.
pub fn shown(gvk: &Gvk, path: &Path, value: Option<&Value>) -> Option<Value> {
    let value = value?;
    if is_secret(gvk, path) || mentions_secret(value) {
        return None;
    }
    let text = value.to_string();
    if text.len() <= SHOWN { Some(value.clone()) } else { Some(Value::String(format!("({} bytes)", text.len()))) }
}

/// Whether values at this path are secret by kind or by name.
pub fn is_secret(gvk: &Gvk, path: &Path) -> bool {
    if gvk.is("", "Secret") {
        return true;
    }
    let text = path.to_string().to_ascii_lowercase();
    // A whole earlier version of the object, Secret or not, may hide in this annotation.
    text.contains("last-applied-configuration") || SECRET_WORDS.iter().any(|word| text.contains(word))
}

/// A container or variable with a telling name inside an atomic value.
fn mentions_secret(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            let named_secret = |name: &str| {
                let name = name.to_ascii_lowercase();
                SECRET_WORDS.iter().any(|word| name.contains(word))
            };
            members.iter().any(|(name, member)| (named_secret(name) && !member.is_boolean()) || mentions_secret(member))
                || members.get("name").and_then(Value::as_str).is_some_and(|name| members.contains_key("value") && named_secret(name))
        }
        Value::Array(items) => items.iter().any(mentions_secret),
        Value::String(text) => text.contains("-----BEGIN"),
        _ => false,
    }
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
        assert_eq!(shown(&Gvk::new("v1", "Secret"), &Path::of_fields(&["data", "p"]), Some(&json!("eA=="))), None);
        let whole = json!({"containers": [{"env": [{"name": "API_TOKEN", "value": "x"}]}]});
        assert_eq!(shown(&deployment, &Path::of_fields(&["spec"]), Some(&whole)), None);
        assert_eq!(shown(&deployment, &Path::of_fields(&["data", "tls"]), Some(&json!("-----BEGIN KEY"))), None);
    }

    #[test]
    fn long_values_are_measured_not_shown() {
        let long = json!("x".repeat(300));
        assert_eq!(shown(&Gvk::new("v1", "ConfigMap"), &Path::of_fields(&["data", "a"]), Some(&long)), Some(json!("(302 bytes)")));
    }
}
