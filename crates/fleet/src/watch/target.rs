//! What is watched, and the requests for it.

use std::fmt;

use super::step::{Open, PageRequest, StartAt};
use crate::call::{Endpoint, ListQuery, Shape, query};

/// Objects a page may hold: the size client-go uses. A metadata page of Deployments is about 1.3 MB then.
const PAGE_LIMIT: u32 = 500;

/// What is watched. Two equal keys are one watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchKey {
    endpoint: Endpoint,
    labels: String,
    fields: String,
    shape: Shape,
}

impl WatchKey {
    /// All objects of a collection, metadata only.
    pub fn new(collection: Endpoint) -> Self {
        Self { endpoint: collection, labels: String::new(), fields: String::new(), shape: Shape::Metadata }
    }

    /// The same with whole objects.
    #[must_use]
    pub fn full(mut self) -> Self {
        self.shape = Shape::Full;
        self
    }

    /// Only objects whose labels match, in the API's selector syntax.
    #[must_use]
    pub fn labelled(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.labels);
        self
    }

    /// Only objects whose fields match, in the API's selector syntax.
    #[must_use]
    pub fn with_fields(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.fields);
        self
    }

    /// The collection.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The label selector; empty selects all.
    pub fn labels(&self) -> &str {
        &self.labels
    }

    /// What the server sends of each object.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The query of one page of a list.
    ///
    /// Consistent, because answers from the server's cache are never cut into pages.
    pub fn list_query(&self, page: &PageRequest) -> ListQuery {
        ListQuery {
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            limit: PAGE_LIMIT,
            continue_token: page.continue_token.clone().unwrap_or_default(),
            consistent: true,
        }
    }

    /// Path and query of a watch.
    pub fn watch_path(&self, open: &Open) -> String {
        let timeout = open.timeout_seconds.to_string();
        // Bookmarks always: without them a streaming list has no end mark, and the version of a quiet watch grows old.
        let mut pairs = vec![("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", &timeout)];
        for (name, selector) in [("labelSelector", &self.labels), ("fieldSelector", &self.fields)] {
            if !selector.is_empty() {
                pairs.push((name, selector));
            }
        }
        match &open.at {
            StartAt::Initial => pairs.extend([("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]),
            StartAt::After(version) => pairs.push(("resourceVersion", version)),
        }
        self.endpoint.path() + &query(&pairs)
    }
}

impl fmt::Display for WatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.endpoint.path())?;
        for selector in [&self.labels, &self.fields] {
            if !selector.is_empty() {
                write!(f, " [{selector}]")?;
            }
        }
        if self.shape == Shape::Full {
            f.write_str(" full")?;
        }
        Ok(())
    }
}
