//! How drift is judged: nothing at rest, admission accepted, and field cases of other tools with their siblings.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "clippy allows it in test functions, not in their helpers")]

mod support;

#[path = "judgement/admission.rs"]
mod admission;
#[path = "judgement/aggregated.rs"]
mod aggregated;
#[path = "judgement/at_rest.rs"]
mod at_rest;
#[path = "judgement/autoscalers.rs"]
mod autoscalers;
#[path = "judgement/case.rs"]
mod case;
#[path = "judgement/documents.rs"]
mod documents;
#[path = "judgement/managers.rs"]
mod managers;
#[path = "judgement/owners.rs"]
mod owners;
#[path = "judgement/scalers.rs"]
mod scalers;
#[path = "judgement/secrets.rs"]
mod secrets;
#[path = "judgement/server_values.rs"]
mod server_values;
#[path = "judgement/suspects.rs"]
mod suspects;
#[path = "judgement/yields.rs"]
mod yields;
