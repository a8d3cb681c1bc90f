//! Addresses of objects and collections on an API server.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but the characters RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A part of an address that cannot stand in a path: empty, `.`, `..`, or with `/` or `%` in it (the API server's own rule).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {part} cannot stand in the path of a request")]
pub struct EndpointError {
    /// Which part: `version`, `plural`, `namespace`, `name` or `subresource`.
    pub part: &'static str,
}

/// One collection, or with a name one object, or with a subresource a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    group: String,
    version: String,
    plural: String,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

impl Endpoint {
    /// A collection over all namespaces, or of a cluster-scoped kind. The core group is the empty text.
    pub fn new(group: &str, version: &str, plural: &str) -> Result<Self, EndpointError> {
        Ok(Self {
            group: if group.is_empty() { String::new() } else { segment(group, "group")? },
            version: segment(version, "version")?,
            plural: segment(plural, "plural")?,
            namespace: None,
            name: None,
            subresource: None,
        })
    }

    /// The same kind in one namespace.
    pub fn in_namespace(mut self, namespace: &str) -> Result<Self, EndpointError> {
        self.namespace = Some(segment(namespace, "namespace")?);
        Ok(self)
    }

    /// One object.
    pub fn named(mut self, name: &str) -> Result<Self, EndpointError> {
        self.name = Some(segment(name, "name")?);
        Ok(self)
    }

    /// A part of an object, such as `scale`.
    pub fn subresource(mut self, subresource: &str) -> Result<Self, EndpointError> {
        self.subresource = Some(segment(subresource, "subresource")?);
        Ok(self)
    }

    /// The plural name of the kind.
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// The name of the object, if it is one object.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The path of the request.
    pub fn path(&self) -> String {
        let mut path = if self.group.is_empty() { String::from("/api") } else { format!("/apis/{}", encoded(&self.group)) };
        let namespace = self.namespace.as_deref().map(|namespace| ["namespaces", namespace]);
        let segments = [self.version.as_str()]
            .into_iter()
            .chain(namespace.into_iter().flatten())
            .chain([self.plural.as_str()])
            .chain(self.name.as_deref())
            .chain(self.subresource.as_deref());
        for segment in segments {
            path.push('/');
            path.extend(encoded(segment));
        }
        path
    }
}

/// A query of `key=value` pairs in the order given, with its leading `?`; empty without pairs.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let mut query = String::new();
    for (key, value) in pairs {
        query.push(if query.is_empty() { '?' } else { '&' });
        query.push_str(key);
        query.push('=');
        query.extend(encoded(value));
    }
    query
}

fn encoded(text: &str) -> percent_encoding::PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

fn segment(text: &str, part: &'static str) -> Result<String, EndpointError> {
    if matches!(text, "" | "." | "..") || text.contains(['/', '%']) {
        return Err(EndpointError { part });
    }
    Ok(text.to_owned())
}
