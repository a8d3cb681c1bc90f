//! What is watched, and the request lines for it.

use std::fmt::{self, Write};

use super::machine::{Open, PageRequest, StartAt};

/// Objects a page may hold: the size client-go uses. A metadata page of Deployments is about 1.3 MB then.
const PAGE_LIMIT: u32 = 500;

/// What the server sends of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// Only the metadata.
    Metadata,
    /// The whole object.
    Full,
}

/// What is watched. Two equal keys are one watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchKey {
    /// API group; empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Resource name as in paths, for example `deployments`.
    pub plural: String,
    /// Only in this namespace; `None` watches all.
    pub namespace: Option<String>,
    /// Only objects whose labels match, in the API's selector syntax.
    pub label_selector: Option<String>,
    /// Only objects whose fields match, in the API's selector syntax.
    pub field_selector: Option<String>,
    /// What the server sends of each object.
    pub form: Form,
}

impl WatchKey {
    /// All objects of a kind in all namespaces, metadata only.
    pub fn metadata(group: &str, version: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            namespace: None,
            label_selector: None,
            field_selector: None,
            form: Form::Metadata,
        }
    }

    /// The same with whole objects.
    #[must_use]
    pub fn full(mut self) -> Self {
        self.form = Form::Full;
        self
    }

    /// Only in this namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only objects whose labels match.
    #[must_use]
    pub fn labelled(mut self, selector: &str) -> Self {
        self.label_selector = Some(selector.to_owned());
        self
    }

    /// Only objects whose fields match.
    #[must_use]
    pub fn with_fields(mut self, selector: &str) -> Self {
        self.field_selector = Some(selector.to_owned());
        self
    }

    /// The `Accept` header of a list.
    ///
    /// Plain JSON comes last for aggregated API servers that cannot send metadata alone: both decode.
    pub fn list_accept(&self) -> &'static str {
        match self.form {
            Form::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            Form::Full => "application/json",
        }
    }

    /// The `Accept` header of a watch. Not that of a list: with the `…List` form servers answer 200 and never send an event.
    pub fn watch_accept(&self) -> &'static str {
        match self.form {
            Form::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            Form::Full => "application/json",
        }
    }

    /// Path and query of one page of a list.
    pub fn list_path(&self, page: &PageRequest) -> String {
        let mut query = Query::new(self);
        query.add("limit", &PAGE_LIMIT.to_string());
        if let Some(token) = &page.continue_token {
            query.add("continue", token);
        }
        query.path
    }

    /// Path and query of a watch.
    pub fn watch_path(&self, open: &Open) -> String {
        let mut query = Query::new(self);
        query.add("watch", "true");
        // Always: without bookmarks a streaming list has no end mark, and a quiet watch's version grows old.
        query.add("allowWatchBookmarks", "true");
        query.add("timeoutSeconds", &open.timeout_seconds.to_string());
        match &open.at {
            StartAt::Initial => {
                query.add("sendInitialEvents", "true");
                query.add("resourceVersionMatch", "NotOlderThan");
            }
            StartAt::After(version) => query.add("resourceVersion", version),
        }
        query.path
    }
}

impl fmt::Display for WatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        write!(f, ":{}", self.version)?;
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace}")?;
        }
        for selector in [&self.label_selector, &self.field_selector].into_iter().flatten() {
            write!(f, " [{selector}]")?;
        }
        if self.form == Form::Full {
            f.write_str(" full")?;
        }
        Ok(())
    }
}

/// A path and query under construction. Every part is percent-encoded: names come from other people's manifests.
struct Query {
    path: String,
    separator: char,
}

impl Query {
    fn new(key: &WatchKey) -> Self {
        let mut query = Self { path: String::with_capacity(128), separator: '?' };
        query.path.push_str(if key.group.is_empty() { "/api" } else { "/apis" });
        let namespace = key.namespace.as_deref();
        let segments = [
            (!key.group.is_empty()).then_some(key.group.as_str()),
            Some(&key.version),
            namespace.map(|_| "namespaces"),
            namespace,
            Some(&key.plural),
        ];
        for segment in segments.into_iter().flatten() {
            query.path.push('/');
            query.encode(segment);
        }
        for (name, selector) in [("labelSelector", &key.label_selector), ("fieldSelector", &key.field_selector)] {
            if let Some(selector) = selector {
                query.add(name, selector);
            }
        }
        query
    }

    fn add(&mut self, name: &str, value: &str) {
        self.path.push(self.separator);
        self.separator = '&';
        self.path.push_str(name);
        self.path.push('=');
        self.encode(value);
    }

    fn encode(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => self.path.push(char::from(byte)),
                // Writing to a String cannot fail.
                _ => _ = write!(self.path, "%{byte:02X}"),
            }
        }
    }
}
