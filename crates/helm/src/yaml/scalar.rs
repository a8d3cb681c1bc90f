//! What a scalar means: go-yaml 2's resolution, rule by rule.

use std::borrow::Cow;

use serde_json::Value;

use super::{YamlError, number};
use crate::base64_text;

/// Prefix that `!!` stands for.
pub(super) const CORE: &str = "tag:yaml.org,2002:";

/// A resolved scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// Above the range of `i64`.
    Unsigned(u64),
    Float(f64),
    Text(Cow<'a, str>),
}

impl Scalar<'_> {
    /// The JSON value that travels.
    pub(super) fn into_value(self) -> Result<Value, YamlError> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(bool) => Value::Bool(bool),
            Self::Int(int) => Value::from(int),
            Self::Unsigned(int) => Value::Number(number::from_unsigned(int).ok_or(YamlError::NotANumber)?),
            Self::Float(float) => Value::Number(number::from_float(float).ok_or(YamlError::NotANumber)?),
            Self::Text(text) => Value::String(text.into_owned()),
        })
    }

    /// The key of a JSON object.
    pub(super) fn into_key(self) -> Result<String, YamlError> {
        match self {
            Self::Text(text) => Ok(text.into_owned()),
            Self::Bool(bool) => Ok(bool.to_string()),
            Self::Int(int) => Ok(int.to_string()),
            Self::Float(float) => Ok(number::key(float)),
            Self::Null | Self::Unsigned(_) => Err(YamlError::BadKey),
        }
    }
}

/// Resolves a scalar; `plain` means neither quoted nor a block.
pub(super) fn resolve<'a>(text: &'a str, plain: bool, tag: Option<&str>) -> Result<Scalar<'a>, YamlError> {
    let core = match tag {
        None if plain => return Ok(untagged(text)),
        None => return Ok(Scalar::Text(text.into())),
        Some(tag) => tag.strip_prefix(CORE),
    };
    match (core, untagged(text)) {
        (Some("bool"), scalar @ Scalar::Bool(_))
        | (Some("int"), scalar @ (Scalar::Int(_) | Scalar::Unsigned(_)))
        | (Some("float"), scalar @ Scalar::Float(_))
        | (Some("null"), scalar @ Scalar::Null) => Ok(scalar),
        #[allow(clippy::cast_precision_loss, reason = "the tag asks for a float")]
        (Some("float"), Scalar::Int(int)) => Ok(Scalar::Float(int as f64)),
        // go-yaml would check a `!!timestamp` and keep its text; nobody writes one in a manifest.
        (Some("bool" | "int" | "float" | "null" | "timestamp"), _) => Err(YamlError::BadTag),
        (Some("binary"), _) => base64_text::decode(text.as_bytes()).map(|bytes| Scalar::Text(utf8(&bytes).into())).ok_or(YamlError::BadTag),
        // `!!str`, and every tag go-yaml does not know.
        _ => Ok(Scalar::Text(text.into())),
    }
}

/// Resolves a plain scalar without a tag. Timestamps stay text.
fn untagged(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let number = match text.as_bytes().first() {
        Some(b'.') => separated(text).and_then(|text| decimal(&text)).map(Scalar::Float),
        Some(b'+' | b'-' | b'0'..=b'9') => signed_or_digits(&text.replace('_', "")),
        _ => None,
    };
    number.unwrap_or_else(|| Scalar::Text(text.into()))
}

fn signed_or_digits<'a>(text: &str) -> Option<Scalar<'a>> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'+') => (false, text.get(1..)?),
        Some(b'-') => (true, text.get(1..)?),
        _ => (false, text),
    };
    if let Some(magnitude) = magnitude(digits) {
        let int = if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
        match int {
            Some(int) => return Some(Scalar::Int(int)),
            // Go parses unsigned numbers without a sign only.
            None if digits.len() == text.len() => return Some(Scalar::Unsigned(magnitude)),
            None => {}
        }
    }
    if let Some(float) = decimal(text) {
        return Some(Scalar::Float(float));
    }
    // go-yaml tries `0b` once more on its own and so lets a sign stand behind it.
    let (sign, binary) = match text.strip_prefix("0b")?.as_bytes() {
        [b'-', binary @ ..] => (-1, binary),
        [b'+', binary @ ..] => (1, binary),
        _ => return None,
    };
    let magnitude = i64::try_from(radix(std::str::from_utf8(binary).ok()?, 2)?).ok()?;
    Some(Scalar::Int(sign * magnitude))
}

/// An unsigned integer the way Go reads one with its base in a prefix: `0x`, `0o`, `0b`, or a bare `0` for octal.
fn magnitude(digits: &str) -> Option<u64> {
    let Some(rest) = digits.strip_prefix('0') else { return radix(digits, 10) };
    match rest.as_bytes() {
        [] => Some(0),
        [b'b' | b'B', _, ..] => radix(rest.get(1..)?, 2),
        [b'o' | b'O', _, ..] => radix(rest.get(1..)?, 8),
        [b'x' | b'X', _, ..] => radix(rest.get(1..)?, 16),
        _ => radix(rest, 8),
    }
}

fn radix(digits: &str, base: u32) -> Option<u64> {
    // The standard parser takes a leading `+`, Go does not.
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, base).ok() }
}

/// A decimal float. Too large a number is none, as in Go; too small a one is zero.
fn decimal(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let starts_well = unsigned.starts_with(|c: char| c.is_ascii_digit()) || matches!(unsigned.as_bytes(), [b'.', b'0'..=b'9', ..]);
    let well_formed = starts_well && unsigned.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if well_formed { text.parse().ok().filter(|float: &f64| float.is_finite()) } else { None }
}

/// Removes underscores from a float that starts with its point, where each stands between two digits.
fn separated(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(text.into());
    }
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let mut run = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_');
    run.all(|(at, _)| digit(at.checked_sub(1)) && digit(at.checked_add(1))).then(|| text.replace('_', "").into())
}

/// Text of `bytes` as Go makes it: one replacement character for every byte that is no UTF-8.
fn utf8(bytes: &[u8]) -> String {
    bytes.utf8_chunks().fold(String::new(), |mut text, chunk| {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
        text
    })
}
