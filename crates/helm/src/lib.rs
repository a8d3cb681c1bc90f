//! Helm release records to desired objects.
//!
//! A release record is a Secret on the workload cluster: labels say which release, revision and status, the data
//! holds the rendered manifest. The way through this crate:
//!
//! 1. [`history`] reads the labels of all records of a release and says which revision is desired, if any;
//! 2. [`record`] decodes that one Secret's data, with a cap on every stage;
//! 3. [`documents`] splits its manifest and reads the YAML to the values Helm itself would send;
//! 4. [`objects`] flattens Lists, settles namespaces and names each object.
//!
//! Everything here is pure: no I/O, no clock, no async. A record is a claim made by whoever may write Secrets in that
//! namespace, so nothing of its content ever appears in an error or `Debug` text, and no input can take more than
//! the memory and depth that [`Limits`] allow.

pub mod documents;
pub mod history;
pub mod identity;
pub mod limits;
pub mod objects;
pub mod order;
pub mod record;
pub mod selection;
pub mod yaml;

mod base64_text;

pub use crate::{
    documents::{Document, Documents, documents},
    history::{InvalidMeta, MetaError, RecordMeta, SecretMeta, Status},
    limits::Limits,
    objects::{Cause, Named, Objects, Problem, ReleaseObject, objects},
    order::install_rank,
    record::{ApplyMethod, Chart, Ownership, Record, RecordError, decode, ownership},
    selection::{Fence, Judged, Selection, State, fence, select},
    yaml::YamlError,
};
