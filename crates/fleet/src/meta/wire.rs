//! What list and watch answers look like around the objects.

use std::{borrow::Cow, fmt, time::Duration};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Meta, MetaError, lookup, null_as_default, optional_text};

/// Annotation of the bookmark that ends the initial events of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One line of a watch.
pub enum WatchEvent<'a> {
    /// The object came into sight: created, or its labels began to match.
    Added(&'a RawValue),
    /// The object changed.
    Modified(&'a RawValue),
    /// The object left sight: deleted, or its labels no longer match. Its content is the one before.
    Deleted(&'a RawValue),
    /// All changes up to a version were sent.
    Bookmark {
        /// The version.
        resource_version: Cow<'a, str>,
        /// Whether it ends the initial events of a streaming list.
        ends_initial_events: bool,
    },
    /// The server gives up on this watch.
    Error(StatusError),
}

/// Code and reason of a `Status`. Its message is not kept: it can carry values of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusError {
    /// HTTP status code, 0 when the server gave none.
    pub code: u16,
    /// Reason such as `Expired`; empty when the server gave none.
    pub reason: String,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
}

/// One page of a list.
pub struct ListPage<'a> {
    /// Version of the whole list.
    pub resource_version: Cow<'a, str>,
    /// Where the next page starts; `None` on the last page.
    pub continue_token: Option<Cow<'a, str>>,
    /// The objects as JSON text.
    pub items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    // Text first, decoded once the type is known: so the order of the two keys does not matter.
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Decodes one line of a watch; the keys may come in any order.
pub fn parse_event(line: &[u8]) -> Result<WatchEvent<'_>, MetaError> {
    let event: RawEvent<'_> = serde_json::from_slice(line).map_err(|error| MetaError::new("watch event", &error))?;
    match event.kind.as_ref() {
        "ADDED" => Ok(WatchEvent::Added(event.object)),
        "MODIFIED" => Ok(WatchEvent::Modified(event.object)),
        "DELETED" => Ok(WatchEvent::Deleted(event.object)),
        "BOOKMARK" => parse_bookmark(event.object),
        "ERROR" => parse_status(event.object).map(WatchEvent::Error),
        _ => Err(MetaError { what: "watch event type", line: 1, column: 1 }),
    }
}

fn parse_bookmark(object: &RawValue) -> Result<WatchEvent<'_>, MetaError> {
    #[derive(Deserialize)]
    struct Bookmark<'a> {
        #[serde(borrow)]
        metadata: BookmarkMeta<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct BookmarkMeta<'a> {
        #[serde(borrow)]
        resource_version: Cow<'a, str>,
        #[serde(borrow, default)]
        annotations: Option<&'a RawValue>,
    }
    let Bookmark { metadata } = serde_json::from_str(object.get()).map_err(|error| MetaError::new("bookmark", &error))?;
    let mark = metadata.annotations.and_then(|annotations| lookup(annotations, INITIAL_EVENTS_END));
    Ok(WatchEvent::Bookmark { resource_version: metadata.resource_version, ends_initial_events: mark.as_deref() == Some("true") })
}

fn parse_status(object: &RawValue) -> Result<StatusError, MetaError> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(default, deserialize_with = "null_as_default")]
        code: u16,
        #[serde(default, deserialize_with = "null_as_default")]
        reason: String,
        #[serde(default, deserialize_with = "null_as_default")]
        details: Details,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Details {
        #[serde(default)]
        retry_after_seconds: Option<u32>,
    }
    let status: Status = serde_json::from_str(object.get()).map_err(|error| MetaError::new("watch error", &error))?;
    Ok(StatusError {
        code: status.code,
        reason: status.reason,
        retry_after: status.details.retry_after_seconds.map(|seconds| Duration::from_secs(seconds.into())),
    })
}

/// Decodes one page of a list; the objects stay text.
pub fn parse_list(page: &[u8]) -> Result<ListPage<'_>, MetaError> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        metadata: ListMeta<'a>,
        // Required: an answer without items is not an empty list.
        #[serde(borrow, deserialize_with = "null_as_default")]
        items: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ListMeta<'a> {
        #[serde(borrow, default)]
        resource_version: Cow<'a, str>,
        #[serde(borrow, default, rename = "continue", deserialize_with = "optional_text")]
        continue_token: Option<Cow<'a, str>>,
    }
    let List { metadata, items } = serde_json::from_slice(page).map_err(|error| MetaError::new("list", &error))?;
    Ok(ListPage {
        resource_version: metadata.resource_version,
        continue_token: metadata.continue_token.filter(|token| !token.is_empty()),
        items,
    })
}

impl<'a> ListPage<'a> {
    /// Decodes the metadata of the objects.
    pub fn metas(&self) -> impl Iterator<Item = Result<Meta<'a>, MetaError>> {
        self.items.iter().copied().map(|item| Meta::of_object(item.get().as_bytes()))
    }
}

// Objects can be Secrets: Debug tells what came, not what was in it.
impl fmt::Debug for WatchEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(_) => f.write_str("Added"),
            Self::Modified(_) => f.write_str("Modified"),
            Self::Deleted(_) => f.write_str("Deleted"),
            Self::Bookmark { resource_version, .. } => f.debug_tuple("Bookmark").field(resource_version).finish(),
            Self::Error(status) => f.debug_tuple("Error").field(status).finish(),
        }
    }
}

impl fmt::Debug for ListPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListPage")
            .field("resource_version", &self.resource_version)
            .field("items", &self.items.len())
            .field("last", &self.continue_token.is_none())
            .finish()
    }
}
