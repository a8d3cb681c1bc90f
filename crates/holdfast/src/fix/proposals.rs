//! What would be written, shown before anybody agrees to it.

use std::{fmt::Write as _, sync::Arc};

use holdfast_api::report::Finding;
use holdfast_engine::{
    canonical::Digest,
    shown::{ShownRequest, ShownWrite},
};
use holdfast_hub::cluster::{guarded::Guarded, records::ReleaseName};
use serde::Serialize;

use crate::scan::{
    paint::{Paint, Tone},
    table,
};

/// Longest list of operations that is shown of one object.
const OPERATIONS: usize = 20;

/// A write that waits for a word.
#[derive(Debug, Serialize)]
pub struct Proposed {
    /// Namespace and name of the release.
    #[serde(serialize_with = "as_text")]
    pub release: ReleaseName,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// What would be sent.
    pub write: ShownWrite,
    /// The object.
    #[serde(skip)]
    pub guarded: Arc<Guarded>,
    /// Tells this write from any other.
    #[serde(skip)]
    pub identity: Digest,
}

fn as_text<S: serde::Serializer>(release: &ReleaseName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(release)
}

/// All proposals as people read them.
pub fn render(proposed: &[Proposed], paint: Paint) -> String {
    let mut out = String::new();
    let mut release = None;
    for proposal in proposed {
        if release.replace(&proposal.release) != Some(&proposal.release) {
            // Writing to a String cannot fail.
            _ = writeln!(out, "{}", paint.tone(Tone::Strong, &proposal.release.to_string()));
        }
        table::write_finding(&mut out, &proposal.finding, None, paint);
        write_request(&mut out, &proposal.write, "    ");
    }
    out
}

/// One write: the request, the name it is sent under, and its operations.
pub fn write_request(out: &mut String, write: &ShownWrite, indent: &str) {
    let request = match write.request {
        ShownRequest::JsonPatch => "JSON Patch",
        ShownRequest::Apply => "server-side apply of the manifest, which changes nothing else",
        ShownRequest::Create => "creation from the manifest",
    };
    let then = if write.moves_ownership { ", then the fields are given back to it in managedFields" } else { "" };
    _ = writeln!(out, "{indent}write: {request}, as {}{then}", write.manager);
    for operation in write.operations.iter().take(OPERATIONS) {
        let value = match (&operation.value, operation.op) {
            (Some(value), _) => format!(" {}", table::short(value)),
            (None, "remove") => String::new(),
            (None, _) => " (value not shown)".to_owned(),
        };
        _ = writeln!(out, "{indent}  {} {}{value}", operation.op, operation.path);
    }
    let more = write.operations.len().saturating_sub(OPERATIONS);
    if more > 0 {
        _ = writeln!(out, "{indent}  … and {more} more");
    }
}
