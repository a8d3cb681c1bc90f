//! What the cluster said about one object.

use bytes::Bytes;
use holdfast_api::report::Reason;
use holdfast_engine::answer::{Answer, Fence, Live, Refusal};
use holdfast_fleet::call::{self, CallError};
use serde_json::Value;

use crate::{cluster::refusal::refusal, metrics::OracleOutcome};

/// An answer, reduced to what a decision may depend on.
pub(super) type Said = Result<Value, Refusal>;

/// What has been learnt so far; a [`Case`] borrows from it.
#[derive(Default)]
pub(super) struct Facts {
    pub absent: bool,
    pub live: Option<Said>,
    pub live_text: Bytes,
    pub oracle: Option<Said>,
    pub oracle_again: Option<Said>,
    pub create: Option<Said>,
    pub claims: Option<Said>,
    pub merged: Option<Said>,
    pub proof: Option<Said>,
    pub proof_again: Option<Said>,
    pub fence: Fence,
    /// The cluster answered a call, so a later one without an answer is about that call.
    pub answered: bool,
    pub unreachable: Option<CallError>,
    pub stale_leave: bool,
}

impl Facts {
    /// Reduces an answer, and keeps in mind when the cluster itself could not be talked to.
    pub fn said(&mut self, answer: Result<call::Answer, CallError>) -> Said {
        let error = match answer.and_then(|answer| answer.json()) {
            Ok(object) => {
                self.answered = true;
                return Ok(object);
            }
            Err(error) => error,
        };
        let refusal = refusal(&error);
        match error {
            // A slow webhook makes one call time out; it says nothing about the cluster.
            CallError::Timeout | CallError::BadAnswer | CallError::Redirect if self.answered => {}
            _ if error.is_connection() || error == CallError::Unauthorized => self.unreachable = Some(error),
            _ => self.answered = true,
        }
        Err(refusal)
    }

    pub fn live(&self) -> Live<'_> {
        match &self.live {
            _ if self.absent => Live::Absent,
            None => Live::NotRead,
            Some(Ok(live)) => Live::Present(live),
            Some(Err(refusal)) => Live::Unreadable(refusal),
        }
    }
}

pub(super) const fn outcome(said: &Said) -> OracleOutcome {
    match said {
        Ok(_) => OracleOutcome::Answered,
        Err(Refusal { reason: Reason::ServerError, .. }) => OracleOutcome::Failed,
        Err(_) => OracleOutcome::Refused,
    }
}

pub(super) const fn answer(said: Option<&Said>) -> Answer<'_> {
    match said {
        None => Answer::NotAsked,
        Some(Ok(value)) => Answer::Given(value),
        Some(Err(refusal)) => Answer::Refused(refusal),
    }
}
