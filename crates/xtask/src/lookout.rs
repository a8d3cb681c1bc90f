//! A watch on one object, to see when something about it becomes true.

use std::{pin::Pin, time::Duration};

use anyhow::{Context, Result, bail};
use futures::{Stream, StreamExt};
use holdfast_testkit::{Target, Writer};
use http::Request;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::{Instant, timeout};

/// Bound for what is waited for.
const SOON: Duration = Duration::from_mins(1);

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Value>>> + Send>>;

/// An open watch. It begins with what happens after it was opened.
pub struct Lookout {
    events: Events,
}

impl Lookout {
    /// Watches one object through the client of a writer.
    pub async fn open(through: &Writer, target: &Target) -> Result<Self> {
        // The version of the list: that of an object that was not written for long may be too old to watch from.
        let collection = format!("{}?fieldSelector=metadata.name%3D{}", target.collection_path(), target.name);
        let list = Request::get(&collection).body(Vec::new()).context("building a list")?;
        let list: Value = through.client().request(list).await.context("listing")?;
        let version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str).context("a list without a version")?;
        let request =
            Request::get(format!("{collection}&watch=true&resourceVersion={version}")).body(Vec::new()).context("building a watch")?;
        let events = through.client().request_events::<Value>(request).await.context("watching")?;
        Ok(Self { events: Box::pin(events) })
    }

    /// Waits for an event after which `wanted` holds of the object (`None`: deleted); answers when that was seen.
    pub async fn until(&mut self, wanted: impl Fn(Option<&Value>) -> bool) -> Result<Instant> {
        let seen = async {
            loop {
                let holds = match self.events.next().await.context("the watch ended")?.context("watching")? {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => wanted(Some(&object)),
                    WatchEvent::Deleted(_) => wanted(None),
                    WatchEvent::Bookmark(_) => false,
                    WatchEvent::Error(status) => bail!("the watch failed: {}", status.code),
                };
                if holds {
                    return Ok(Instant::now());
                }
            }
        };
        timeout(SOON, seen).await.with_context(|| format!("not seen within {SOON:?}"))?
    }
}
