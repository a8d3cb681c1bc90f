//! Helm release records to desired objects.
//!
//! A release record is a Secret (or a ConfigMap) on the workload cluster: labels say which release, revision and status, the data
//! holds the rendered manifest. The way through this crate:
//!
//! 1. [`RecordMeta::parse`] reads the labels of every record, [`select`] says which revision of a release is desired, if
//!    any, and [`fence`] whether that still holds right before a write;
//! 2. [`decode`] decodes that one object's data, with a cap on every stage, and [`Record::confirm`] checks it against the
//!    labels;
//! 3. [`documents`] splits its manifest and reads the YAML to the values Helm itself would send;
//! 4. [`objects`] flattens Lists, settles namespaces and names each object.
//!
//! Everything here is pure: no I/O, no clock, no async. A record is a claim made by whoever may write Secrets in that
//! namespace, so nothing of its content ever appears in an error or `Debug` text, and no input can take more than
//! the memory and depth that [`Limits`] allow.

mod base64_text;
mod documents;
mod history;
mod identity;
mod limits;
mod objects;
mod record;
mod selection;
mod yaml;

pub use crate::{
    documents::{Document, Documents, documents},
    history::{InvalidMeta, MetaError, RecordMeta, Status, Store, StoredMeta},
    limits::Limits,
    objects::{Cause, Named, Objects, Problem, ReleaseObject, objects},
    record::{ApplyMethod, Chart, Record, RecordError, decode},
    selection::{Fence, Judged, Selection, State, fence, select},
    yaml::YamlError,
};
