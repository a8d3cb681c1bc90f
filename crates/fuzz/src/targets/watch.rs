//! Watches: lines and pages of a server that sends anything. The input is what happens to a watch, one thing a line: a line of
//! the stream, or after a `!` the rest.

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_fleet::{
    meta::{Meta, meta_digest, parse_event, parse_list},
    watch::{
        SourceError, Update,
        decode::metadata,
        machine::{Listing, Machine},
        step::{Input, Next, StartAt, Step},
    },
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{Target, cost::within};

/// The decoder of events, lists and metadata, and the machine that decides what they mean.
pub const TARGET: Target = Target {
    name: "watch",
    seeds,
    words: &[
        "!opened\n",
        "!ended\n",
        "!silent\n",
        "!moved\n",
        "!woke\n",
        "!expired\n",
        "!refused\n",
        "!unreachable\n",
        "!throttled\n",
        "!page {\"metadata\":{\"resourceVersion\":\"9\"},\"items\":[]}\n",
        "!page {\"metadata\":{\"resourceVersion\":\"\"},\"items\":null}\n",
        "!page {\"metadata\":{}}\n",
        "!page ",
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n",
        "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"reason\":\"Expired\"}}\n",
        "{\"type\":\"ERROR\",\"object\":{\"code\":429,\"details\":{\"retryAfterSeconds\":4294967295}}}\n",
        "\"resourceVersion\":\"\"",
        "\"resourceVersion\":\"0\"",
        "\"resourceVersion\":5",
        "\"continue\":\"c\"",
        "\"object\":null",
        "\"type\":\"ADDED\"",
        "\"type\":\"DELETED\"",
        "\"type\":\"MODIFIED\"",
        "null",
        "{}",
        "[]",
        "\\u0022",
        "\\ud800",
        ",",
    ],
    check,
};

fn seeds() -> Vec<Vec<u8>> {
    let object = |name: &str, version: u32| {
        format!(
            r#"{{"kind":"PartialObjectMetadata","metadata":{{"name":"{name}","namespace":"shop","uid":"u-{name}","resourceVersion":"{version}","generation":3,"labels":{{"app":"a\"b"}},"annotations":{{"note":"line\nbreak \u00e9"}},"managedFields":[{{"manager":"helm","operation":"Apply","apiVersion":"apps/v1","time":"2026-11-30T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:spec":{{"f:replicas":{{}}}}}}}}]}}}}"#
        )
    };
    let event = |kind: &str, name: &str, version| format!(r#"{{"type":"{kind}","object":{}}}"#, object(name, version));
    let end = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
    let page = |token: &str| {
        format!(r#"!page {{"kind":"List","metadata":{{"resourceVersion":"5","continue":"{token}"}},"items":[{}]}}"#, object("a", 4))
    };
    [
        [
            "!opened",
            &event("ADDED", "a", 3),
            &event("ADDED", "b", 4),
            end,
            &event("MODIFIED", "a", 8),
            &event("DELETED", "b", 9),
            "!ended",
            "!woke",
            "!opened",
        ]
        .join("\n"),
        ["!refused", &page("more"), &page(""), "!opened", &event("MODIFIED", "a", 8), "!silent", "!woke", "!opened"].join("\n"),
        ["!opened", &event("ADDED", "a", 3), r#"{"object":{"code":410,"reason":"Expired"},"type":"ERROR"}"#, "!woke", "!opened", "!ended"]
            .join("\n"),
    ]
    .map(String::into_bytes)
    .to_vec()
}

fn check(input: &[u8]) -> Result<()> {
    for line in input.split(|byte| *byte == b'\n') {
        one_text(line.strip_prefix(b"!page ").unwrap_or(line))?;
    }
    Consumer::default().follow(input)
}

/// The borrowed reading of a text agrees with the tree, and costs no more than its escapes.
fn one_text(text: &[u8]) -> Result<()> {
    let allowed = 20 * text.len() + 4096;
    // Errors and `Debug` say where, never what: an object may be a Secret.
    if let Err(error) = within(allowed, || parse_event(text).map(|event| format!("{event:?}")))? {
        ensure!(!error.to_string().contains("shop"), "an error quotes the text");
    }
    let list = within(allowed, || parse_list(text).is_ok_and(|page| page.metas().all(|meta| meta.is_ok())))?;
    let meta = within(allowed, || Meta::of_object(text).ok())?;
    // What is not needed is skipped, and may be text that a tree cannot hold.
    let Ok(tree) = serde_json::from_slice::<Value>(text) else { return Ok(()) };
    ensure!(!list || tree.get("items").is_some(), "a list without items");
    let Some(meta) = meta else { return Ok(()) };
    let digest = meta_digest(&meta);
    ensure!(digest == meta_digest(&meta), "one object, two digests");
    // Of two equal keys the tree keeps one and the borrowed reading refuses the object.
    let said = |pointer: &str| tree.pointer(pointer).and_then(Value::as_str);
    ensure!(said("/metadata/name") == Some(&meta.name), "another name");
    ensure!(said("/metadata/namespace") == meta.namespace.as_deref(), "another namespace");
    ensure!(said("/metadata/resourceVersion").unwrap_or_default() == meta.resource_version, "another version");
    ensure!(tree.pointer("/metadata/generation").and_then(Value::as_i64) == meta.generation, "another generation");
    Ok(())
}

/// What the reader of a watch believes.
#[derive(Default)]
struct Consumer {
    is_listing: bool,
    had_list: bool,
}

impl Consumer {
    fn follow(&mut self, input: &[u8]) -> Result<()> {
        let mut now = Instant::now();
        let mut machine = Machine::new(Listing::Streaming, 1);
        self.take(&machine.start())?;
        for line in input.split(|byte| *byte == b'\n') {
            now += Duration::from_secs(7);
            let happened = match line {
                b"!opened" => Input::Opened,
                b"!ended" => Input::Ended,
                b"!silent" => Input::Silent,
                b"!moved" => Input::Moved,
                b"!woke" => Input::Woke,
                b"!expired" => Input::Failed(SourceError::Expired),
                b"!refused" => Input::Failed(SourceError::StreamingUnsupported),
                b"!unreachable" => Input::Failed(SourceError::Unreachable),
                b"!throttled" => Input::Failed(SourceError::Throttled { retry_after: Some(Duration::MAX) }),
                line => line.strip_prefix(b"!page ").map_or(Input::Line(line), Input::Page),
            };
            let step = within(100 * line.len() + 16_384, || {
                machine.step(now, happened, |object| metadata(object, |meta| meta.name.clone().into_owned()))
            })?;
            self.take(&step)?;
        }
        Ok(())
    }

    fn take(&mut self, step: &Step<String>) -> Result<()> {
        for update in &step.updates {
            match update {
                Update::Reset => self.is_listing = true,
                Update::Listed(_) => ensure!(self.is_listing, "an object of no list"),
                Update::ListComplete => {
                    ensure!(self.is_listing, "a list is complete that did not begin");
                    (self.is_listing, self.had_list) = (false, true);
                }
                Update::Live => ensure!(self.had_list && !self.is_listing, "live without a complete list"),
                Update::Changed(_) | Update::Deleted(_) | Update::Broken { .. } => {}
            }
        }
        match &step.next {
            Next::Read { silence } => ensure!(!silence.is_zero() && *silence < Duration::from_mins(10), "reads for {silence:?}"),
            Next::Sleep(delay) => ensure!(!delay.is_zero() && *delay < Duration::from_mins(10), "sleeps for {delay:?}"),
            Next::Open(open) => {
                if let StartAt::After(version) = &open.at {
                    ensure!(self.had_list, "follows without a list");
                    // Both mean "from anywhere": what was deleted in between would be missed.
                    ensure!(!version.is_empty() && version != "0", "follows from no version");
                }
            }
            Next::List(page) => ensure!(page.continue_token.as_deref() != Some(""), "asks for a page of no list"),
        }
        Ok(())
    }
}
