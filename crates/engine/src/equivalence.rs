//! Tells a value that the server spells another way from one that somebody changed. Used to *name* an accepted
//! difference (`Normalized` or `Admission`), never to decide whether something drifted.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

/// Whether `answered` is `declared` with other spelling, server defaults added, or empty fields dropped.
pub fn equivalent(declared: Option<&Value>, answered: Option<&Value>) -> bool {
    match (declared, answered) {
        (Some(a), Some(b)) => same(a, b),
        (Some(only), None) | (None, Some(only)) => is_empty(only),
        (None, None) => true,
    }
}

/// Whether both are the same but for nulls: of custom resources the server keeps some and drops others, as their schema says.
pub fn same_without_nulls(declared: &Value, live: &Value) -> bool {
    match (declared, live) {
        (Value::Object(a), Value::Object(b)) => {
            let set = |members: &serde_json::Map<String, Value>| members.values().filter(|member| !member.is_null()).count();
            set(a) == set(b)
                && a.iter().all(|(name, value)| value.is_null() || b.get(name).is_some_and(|other| same_without_nulls(value, other)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_without_nulls(a, b)),
        _ => declared == live,
    }
}

fn same(declared: &Value, answered: &Value) -> bool {
    if declared == answered || (is_empty(declared) && is_empty(answered)) {
        return true;
    }
    match (declared, answered) {
        (Value::Object(a), Value::Object(b)) => a.iter().all(|(name, value)| equivalent(Some(value), b.get(name))),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Null, _) => true,
        (Value::String(_) | Value::Number(_), Value::String(_) | Value::Number(_)) => {
            let (a, b) = (text(declared), text(answered));
            a == b || quantity(&a).is_some_and(|a| Some(a) == quantity(&b)) || is_same_base64(&a, &b)
        }
        _ => false,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_empty),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(true) => false,
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// Base64 with line breaks is the same bytes.
fn is_same_base64(a: &str, b: &str) -> bool {
    let decoded = |text: &str| STANDARD.decode(text.split_ascii_whitespace().collect::<String>()).ok();
    decoded(a).is_some_and(|bytes| Some(bytes) == decoded(b))
}

/// A Kubernetes quantity in billionths, after `k8s.io/apimachinery/pkg/api/resource`.
pub(crate) fn quantity(text: &str) -> Option<i128> {
    let unit_at = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let (scale, divisor): (i128, i128) = match unit {
        "n" => (1, 1),
        "u" => (1_000, 1),
        "m" => (1_000_000, 1),
        "" => (1_000_000_000, 1),
        _ if unit.starts_with(['e', 'E']) && unit.contains('-') => {
            let places: u32 = unit.trim_start_matches(['e', 'E', '-']).parse().ok()?;
            (1_000_000_000, 10_i128.checked_pow(places.min(18))?)
        }
        _ => (factor(unit)?.checked_mul(1_000_000_000)?, 1),
    };
    let negative = number.starts_with('-');
    let unsigned = number.trim_start_matches(['-', '+']);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.len() > 12 || whole.len() > 18 {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let places = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let value = digits.checked_mul(scale)?.checked_div(places.checked_mul(divisor)?)?;
    Some(if negative { -value } else { value })
}

fn factor(unit: &str) -> Option<i128> {
    let decimal = ["k", "M", "G", "T", "P", "E"].iter().position(|known| *known == unit).map(|power| (1000_i128, power));
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == unit).map(|power| (1024_i128, power));
    if let Some((base, power)) = decimal.or(binary) {
        return base.checked_pow(u32::try_from(power).ok()? + 1);
    }
    let exponent: u32 = unit.strip_prefix(['e', 'E'])?.trim_start_matches('+').parse().ok()?;
    10_i128.checked_pow(exponent.min(18))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_server_respells() {
        for (declared, answered) in [
            (json!("1000m"), json!("1")),
            (json!(1), json!("1")),
            (json!("1.5Gi"), json!("1536Mi")),
            (json!("1000M"), json!("1G")),
            (json!("1e3"), json!("1k")),
            (json!("1e-1"), json!("100m")),
            (json!("YWI=\n"), json!("YWI=")),
            (json!({"a": null}), json!({"a": {"defaulted": 1}})),
            (json!([{"storage": "1Gi"}]), json!([{"storage": "1Gi", "volumeMode": "Filesystem"}])),
        ] {
            assert!(equivalent(Some(&declared), Some(&answered)), "{declared} {answered}");
        }
        assert!(equivalent(Some(&json!([])), None) && equivalent(Some(&json!(false)), None));
    }

    #[test]
    fn nulls_alone_make_no_difference() {
        let declared = json!({"a": [{"b": 1}, 2], "c": {}});
        for (live, same) in [
            (json!({"a": [{"b": 1, "n": null}, 2], "c": {"n": null}, "n": null}), true),
            (json!({"a": [{"b": 1, "n": 0}, 2], "c": {}}), false),
            (json!({"a": [{"b": null}, 2], "c": {}}), false),
            (json!({"a": [{"b": 1}, 2, null], "c": {}}), false),
            (json!({"a": [{"b": 1}, 2]}), false),
        ] {
            assert_eq!(same_without_nulls(&declared, &live), same, "{live}");
        }
    }

    #[test]
    fn what_somebody_changed() {
        for (declared, answered) in [
            (json!("nginx:1"), json!("mirror/nginx:1")),
            (json!("1000m"), json!("999m")),
            (json!([1, 2]), json!([1])),
            (json!({"a": 1}), json!({"b": 1})),
            (json!(true), json!(false)),
            (json!("a b c"), json!("abc")),
        ] {
            assert!(!equivalent(Some(&declared), Some(&answered)), "{declared} {answered}");
        }
        assert!(!equivalent(Some(&json!("x")), None));
    }
}
