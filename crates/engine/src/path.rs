//! Field paths as users read and write them: RFC 6901 segments, list items by their keys
//! (`/spec/ports/[port=80,protocol=TCP]/nodePort`), set items (`[=value]`) and the order of a list (`[#order]`).

use std::{cmp::Ordering, fmt};

use serde_json::Value;

use crate::canonical::canonical;

/// One step of a [`Path`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// A field of an object or a key of a map.
    Field(Box<str>),
    /// The item of a list whose key fields have these values; sorted by field name.
    Key(Box<[(Box<str>, Value)]>),
    /// The item of a set with this value.
    Item(Value),
    /// The relative order of a list's declared items. Only ever the last segment.
    Order,
}

impl Segment {
    /// A field segment.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// A list item with one text key, such as `[name=web]`.
    pub fn key(name: &str, value: &str) -> Self {
        Self::Key(Box::new([(name.into(), Value::String(value.to_owned()))]))
    }

    /// Reads one member name of a `fieldsV1` object: `f:name`, `k:{…}` or `v:…`.
    /// `None` for `.` and for anything else (indices never occur in what the server writes).
    pub fn from_fields_v1(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::field(rest)),
            "v" => serde_json::from_str(rest).ok().map(Self::Item),
            "k" => {
                let Ok(Value::Object(keys)) = serde_json::from_str(rest) else { return None };
                // No key would name every item.
                if keys.is_empty() {
                    return None;
                }
                let mut keys: Vec<(Box<str>, Value)> = keys.into_iter().map(|(name, value)| (name.into(), value)).collect();
                keys.sort_by(|a, b| a.0.cmp(&b.0));
                Some(Self::Key(keys.into()))
            }
            _ => None,
        }
    }

    /// Writes the member name that `fieldsV1` uses. `None` for [`Segment::Order`], which the server does not know.
    pub fn to_fields_v1(&self) -> Option<String> {
        match self {
            Self::Field(name) => Some(format!("f:{name}")),
            Self::Item(value) => Some(format!("v:{value}")),
            Self::Key(keys) => {
                let object: serde_json::Map<String, Value> = keys.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
                Some(format!("k:{}", Value::Object(object)))
            }
            Self::Order => None,
        }
    }
}

impl PartialOrd for Segment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Segment {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |segment: &Self| match segment {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Item(_) => 2,
            Self::Order => 3,
        };
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Item(a), Self::Item(b)) => compare(a, b),
            (Self::Key(a), Self::Key(b)) => {
                let pairs = a.iter().zip(b).map(|((a, left), (b, right))| a.cmp(b).then_with(|| compare(left, right)));
                pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

/// A total order that tells apart whatever `==` tells apart: `5` and `"5"` are two items of a set.
fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Number(left), Value::Number(right)) => {
            let by_size = left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal);
            by_size.then_with(|| left.to_string().cmp(&right.to_string()))
        }
        _ => canonical(a).cmp(&canonical(b)),
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write_escaped(f, name, false),
            Self::Order => f.write_str("[#order]"),
            Self::Item(value) => {
                f.write_str("[=")?;
                write_value(f, value)?;
                f.write_str("]")
            }
            Self::Key(keys) => {
                f.write_str("[")?;
                for (index, (name, value)) in keys.iter().enumerate() {
                    if index > 0 {
                        f.write_str(",")?;
                    }
                    write_escaped(f, name, true)?;
                    f.write_str("=")?;
                    write_value(f, value)?;
                }
                f.write_str("]")
            }
        }
    }
}

fn write_value(f: &mut fmt::Formatter<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::String(text) => write_escaped(f, text, true),
        other => write_escaped(f, &other.to_string(), true),
    }
}

fn write_escaped(f: &mut fmt::Formatter<'_>, text: &str, in_key: bool) -> fmt::Result {
    use fmt::Write as _;
    for c in text.chars() {
        match c {
            '~' => f.write_str("~0")?,
            '/' => f.write_str("~1")?,
            ']' | ',' | '=' | '\\' if in_key => {
                f.write_char('\\')?;
                f.write_char(c)?;
            }
            _ => f.write_char(c)?,
        }
    }
    Ok(())
}

/// A place in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Vec<Segment>);

impl Path {
    /// The whole object.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// A path of plain fields.
    pub fn of_fields(fields: &[&str]) -> Self {
        Self(fields.iter().map(|field| Segment::field(field)).collect())
    }

    /// The steps.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Goes one step down.
    pub fn push(&mut self, segment: Segment) {
        self.0.push(segment);
    }

    /// Goes one step up.
    pub fn pop(&mut self) -> Option<Segment> {
        self.0.pop()
    }

    /// This path and one step more.
    #[must_use]
    pub fn join(&self, segment: Segment) -> Self {
        let mut path = self.clone();
        path.push(segment);
        path
    }

    /// The path without its last step.
    #[must_use]
    pub fn parent(&self) -> Self {
        Self(self.0.split_last().map(|(_, rest)| rest.to_vec()).unwrap_or_default())
    }

    /// Whether `self` is `other` or lies above it.
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The path as text without the values of set items, which are data.
    pub fn without_items(&self) -> String {
        let mut text = String::new();
        for segment in &self.0 {
            match segment {
                Segment::Item(_) => text.push_str("/[=…]"),
                // Writing to a String cannot fail.
                other => _ = fmt::Write::write_fmt(&mut text, format_args!("/{other}")),
            }
        }
        text
    }
}

impl FromIterator<Segment> for Path {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        Self(segments.into_iter().collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.0 {
            write!(f, "/{segment}")?;
        }
        Ok(())
    }
}

/// Why a text is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Only the empty path may lack the leading slash.
    #[error("a path starts with /")]
    NoSlash,
    /// `~` stands only before 0 or 1.
    #[error("~ in a path is followed by 0 or 1")]
    Escape,
    /// An unclosed or empty `[…]`.
    #[error("a list item is written [key=value] or [=value]")]
    Item,
    /// More than 64 segments.
    #[error("a path has at most 64 segments")]
    TooLong,
}

/// A path in which `*` stands for any one segment. It covers what it matches and everything below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<PatternSegment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternSegment {
    Any,
    /// Compared as text: a number key of a list item is written like its text form.
    Text(String),
}

impl Pattern {
    /// Reads a pattern; the empty text covers the whole object.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let rest = text.strip_prefix('/').ok_or(PathError::NoSlash)?;
        let segments = rest.split('/').map(PatternSegment::parse).collect::<Result<Vec<_>, _>>()?;
        if segments.len() > 64 { Err(PathError::TooLong) } else { Ok(Self(segments)) }
    }

    /// Whether `path` lies at or below what this pattern describes.
    pub fn covers(&self, path: &Path) -> bool {
        path.segments().len() >= self.0.len()
            && self.0.iter().zip(path.segments()).all(|(wanted, segment)| match wanted {
                PatternSegment::Any => true,
                PatternSegment::Text(text) => *text == segment.to_string(),
            })
    }

    /// Whether a path lies at or below what this pattern describes, or the other way round.
    pub fn meets(&self, path: &Path) -> bool {
        let fits = |(wanted, segment): (&PatternSegment, &Segment)| match wanted {
            PatternSegment::Any => true,
            PatternSegment::Text(text) => *text == segment.to_string(),
        };
        self.0.iter().zip(path.segments()).all(fits)
    }
}

impl PatternSegment {
    fn parse(text: &str) -> Result<Self, PathError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            if c == '~' && !matches!(chars.next(), Some('0' | '1')) {
                return Err(PathError::Escape);
            }
        }
        match text.strip_prefix('[') {
            None | Some("#order]") => Ok(Self::Text(text.to_owned())),
            Some(inner) => {
                let body = inner.strip_suffix(']').filter(|body| !ends_escaping(body)).ok_or(PathError::Item)?;
                let mut pairs = split_unescaped(body, ',');
                if pairs.iter().any(|pair| split_unescaped(pair, '=').len() != 2) {
                    return Err(PathError::Item);
                }
                // Users may write the keys in any order; paths print them sorted.
                pairs.sort_by(|a, b| split_unescaped(a, '=').first().cmp(&split_unescaped(b, '=').first()));
                Ok(Self::Text(format!("[{}]", pairs.join(","))))
            }
        }
    }
}

/// Whether a text ends in a backslash that escapes what comes next: an odd number of them.
fn ends_escaping(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Splits at `separator` where no backslash stands before it; keeps the backslashes.
fn split_unescaped(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == separator && !escaped {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(segments: &[&str]) -> Path {
        segments.iter().map(|text| Segment::from_fields_v1(text).unwrap()).collect()
    }

    #[test]
    fn prints_as_documented() {
        for (segments, printed) in [
            (vec!["f:spec", "f:replicas"], "/spec/replicas"),
            (vec!["f:metadata", "f:annotations", "f:example.com/owner"], "/metadata/annotations/example.com~1owner"),
            (vec!["f:spec", "f:ports", r#"k:{"protocol":"TCP","port":80}"#, "f:nodePort"], "/spec/ports/[port=80,protocol=TCP]/nodePort"),
            (vec!["f:metadata", "f:finalizers", r#"v:"a/b""#], "/metadata/finalizers/[=a~1b]"),
            (vec!["f:volumeMounts", r#"k:{"mountPath":"/a]b,c=d\\e"}"#], r"/volumeMounts/[mountPath=~1a\]b\,c\=d\\e]"),
            (vec!["f:volumeMounts", r#"k:{"mountPath":"C:\\"}"#], r"/volumeMounts/[mountPath=C:\\]"),
            (vec!["f:set", "v:5"], "/set/[=5]"),
        ] {
            let path = path(&segments);
            assert_eq!(path.to_string(), printed);
            assert!(Pattern::parse(printed).unwrap().covers(&path), "{printed} covers itself");
        }
        assert_eq!(Path::root().to_string(), "");
    }

    #[test]
    fn fields_v1_names_survive_a_round_trip() {
        for text in ["f:spec", r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"v:"x""#, "v:5"] {
            assert_eq!(Segment::from_fields_v1(text).unwrap().to_fields_v1().unwrap(), text);
        }
        for text in [".", "i:0", "nothing", "k:[]", "k:{}", "v:{"] {
            assert_eq!(Segment::from_fields_v1(text), None, "{text}");
        }
    }

    #[test]
    fn patterns_cover_below_and_star_is_one_segment() {
        let image = path(&["f:spec", "f:containers", r#"k:{"name":"web"}"#, "f:image"]);
        for (pattern, covered) in [
            ("", true),
            ("/spec", true),
            ("/spec/containers/*/image", true),
            ("/spec/containers/[name=web]/image", true),
            ("/*/*/*/image", true),
            ("/spec/*/image", false),
            ("/spec/containers/[name=other]/image", false),
            ("/spec/containers/*/image/x", false),
            ("/spe", false),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().covers(&image), covered, "{pattern}");
        }
        for (pattern, meets) in [("/spec/containers/*/image/x", true), ("/spec/containers", true), ("/spec/volumes", false), ("", true)] {
            assert_eq!(Pattern::parse(pattern).unwrap().meets(&image), meets, "{pattern}");
        }
        let port = path(&["f:ports", r#"k:{"port":80,"protocol":"TCP"}"#]);
        assert!(Pattern::parse("/ports/[protocol=TCP,port=80]").unwrap().covers(&port), "key order is free");
    }

    #[test]
    fn bad_patterns_are_refused() {
        for (text, error) in [
            ("spec", PathError::NoSlash),
            ("/a~2", PathError::Escape),
            ("/a~", PathError::Escape),
            ("/[name=web", PathError::Item),
            (r"/[name=web\]", PathError::Item),
            (r"/[name=web\\\]", PathError::Item),
            ("/[]", PathError::Item),
            ("/[name]", PathError::Item),
        ] {
            assert_eq!(Pattern::parse(text), Err(error), "{text}");
        }
        assert_eq!(Pattern::parse(&"/a".repeat(65)), Err(PathError::TooLong));
    }

    #[test]
    fn segments_sort_by_size_and_type() {
        let sorted = [json!("10"), json!("5"), json!(5), json!(10)].map(Segment::Item);
        assert!(sorted.is_sorted() && sorted.windows(2).all(|pair| pair[0] != pair[1] && pair[0] < pair[1]));
        let port = |text: &str| Segment::from_fields_v1(text).unwrap();
        assert!(port(r#"k:{"port":80}"#) < port(r#"k:{"port":443}"#) && port(r#"k:{"port":80}"#) != port(r#"k:{"port":"80"}"#));
    }

    #[test]
    fn order_prints_like_an_item() {
        let mut path = Path::of_fields(&["spec", "env"]);
        path.push(Segment::Order);
        assert_eq!(path.to_string(), "/spec/env/[#order]");
        assert!(Pattern::parse("/spec/env/[#order]").unwrap().covers(&path));
        assert_eq!(Segment::Item(json!(5)).to_string(), "[=5]");
    }
}
