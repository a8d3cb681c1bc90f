//! What a watch does next: a step function without I/O.
//!
//! ```text
//!            ┌────────────── Sleeping(plan) ◄───────── any failure
//!            ▼                                              ▲
//!   plan Relist ── streaming list served ─► Opening ─► InitialEvents ─┐
//!        │                                                            ▼
//!        └── not served ─► Paging ─► … ─► last page ─► Opening ─► Following
//!   plan Page(token) ─► Paging                            ▲
//!   plan Follow(version) ─────────────────────────────────┘
//! ```
//!
//! A list is either complete or it did not happen: any doubt (cut stream, expired page, unreadable object) leads back to its start
//! and a new [`Update::Reset`]. Every way back sleeps first, except the two that cannot repeat: the end of a stream that stood for a
//! while, and the change from streaming to paged lists.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{
    decode::Versioned,
    source::SourceError,
    step::{Input, Next, Open, PageRequest, StartAt, Step},
    update::{Reason, Update},
};
use crate::{
    backoff::{Backoff, BackoffPolicy},
    meta::{MetaError, StatusError, WatchEvent, parse_event, parse_list},
};

/// How long the server may keep one watch open, in seconds. Random within, so that watches opened together do not end together.
const TIMEOUT_SECONDS: std::ops::RangeInclusive<u32> = 240..=300;

/// How long beyond its timeout a watch may stay silent before it counts as dead. Bookmarks are no sign of life: some servers send none.
const GRACE: Duration = Duration::from_secs(15);

/// How long initial events may pause before the streaming list counts as one that will never end.
const INITIAL_SILENCE: Duration = Duration::from_mins(1);

/// A stream that ended earlier than this is reopened only after a delay: some faults accept a watch and close it at once.
const SETTLED: Duration = Duration::from_secs(10);

/// How lists are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// As the initial events of a watch: cheap on both sides.
    Streaming,
    /// Page by page, for servers that refuse the other.
    Paged,
}

/// How to go on after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    Relist,
    Page { token: String, version: String },
    Follow(String),
}

#[derive(Debug)]
enum Phase {
    Sleeping(Plan),
    Opening(Open),
    InitialEvents {
        opened: Instant,
        silence: Duration,
    },
    /// Waiting for a page; `done` holds the token it was asked with and the list's version, from the second page on.
    Paging {
        done: Option<(String, String)>,
    },
    Following {
        version: String,
        opened: Instant,
        silence: Duration,
    },
}

/// The state of one watch.
#[derive(Debug)]
pub struct Machine {
    listing: Listing,
    phase: Phase,
    backoff: Backoff,
    rng: SmallRng,
    live_since: Option<Instant>,
    /// What the consumer was told last; `None` before anything was.
    told: Option<Result<(), Reason>>,
    /// The version at which the last unreadable line came: a second one there means that resuming does not help.
    garbled_at: Option<String>,
}

impl Machine {
    /// A watch that has not started. `seed` decides its random numbers.
    pub fn new(listing: Listing, seed: u64) -> Self {
        Self {
            listing,
            phase: Phase::Sleeping(Plan::Relist),
            backoff: Backoff::seeded(BackoffPolicy::WATCH, seed),
            rng: SmallRng::seed_from_u64(!seed),
            live_since: None,
            told: None,
            garbled_at: None,
        }
    }

    /// How lists are asked for now.
    pub fn listing(&self) -> Listing {
        self.listing
    }

    /// The first step.
    pub fn start<T>(&mut self) -> Step<T> {
        self.go(Plan::Relist, None)
    }

    /// Takes in what happened at `now` and tells what to do. `decode` is called for every object.
    pub fn step<T>(&mut self, now: Instant, input: Input<'_>, decode: impl Fn(&RawValue) -> Result<Versioned<T>, MetaError>) -> Step<T> {
        match input {
            Input::Line(line) => self.line(now, line, decode),
            Input::Page(page) => self.page(now, page, decode),
            Input::Opened => self.opened(now),
            Input::Ended => self.ended(now),
            Input::Silent => self.silent(now),
            Input::Failed(error) => self.failed(now, error),
            Input::Moved => {
                let plan = self.resume();
                self.go(plan, Some(Reason::Moved))
            }
            Input::Woke => {
                let plan = self.resume();
                self.go(plan, None)
            }
        }
    }

    /// The plan that goes on from here with the least repeated.
    fn resume(&self) -> Plan {
        match &self.phase {
            Phase::Sleeping(plan) => plan.clone(),
            Phase::Opening(Open { at: StartAt::After(version), .. }) | Phase::Following { version, .. } => Plan::Follow(version.clone()),
            Phase::Paging { done: Some((token, version)) } => Plan::Page { token: token.clone(), version: version.clone() },
            Phase::Opening(_) | Phase::InitialEvents { .. } | Phase::Paging { done: None } => Plan::Relist,
        }
    }

    /// Starts on a plan at once.
    fn go<T>(&mut self, plan: Plan, restart: Option<Reason>) -> Step<T> {
        let next = match (plan, self.listing) {
            (Plan::Relist, Listing::Streaming) => self.open(StartAt::Initial),
            (Plan::Follow(version), _) => self.open(StartAt::After(version)),
            (Plan::Relist, Listing::Paged) => {
                self.phase = Phase::Paging { done: None };
                Next::List(PageRequest { continue_token: None })
            }
            (Plan::Page { token, version }, _) => {
                self.phase = Phase::Paging { done: Some((token.clone(), version)) };
                Next::List(PageRequest { continue_token: Some(token) })
            }
        };
        Step { updates: Vec::new(), restart, next }
    }

    fn open(&mut self, at: StartAt) -> Next {
        let open = Open { at, timeout_seconds: self.rng.random_range(TIMEOUT_SECONDS) };
        self.phase = Phase::Opening(open.clone());
        Next::Open(open)
    }

    /// Sleeps, then goes on with a plan.
    fn fail<T>(&mut self, now: Instant, reason: Reason, hint: Option<Duration>, plan: Plan) -> Step<T> {
        if let Some(since) = self.live_since.take() {
            self.backoff.was_calm_for(now.saturating_duration_since(since));
        }
        let delay = match hint {
            Some(hint) => self.backoff.next_delay_after(hint),
            None => self.backoff.next_delay(),
        };
        let updates = if self.told == Some(Err(reason)) { Vec::new() } else { vec![Update::Broken { reason }] };
        self.told = Some(Err(reason));
        self.phase = Phase::Sleeping(plan);
        Step { updates, restart: Some(reason), next: Next::Sleep(delay) }
    }

    /// Notes that changes arrive, and says so unless that is known.
    fn live<T>(&mut self, now: Instant, updates: &mut Vec<Update<T>>) {
        self.live_since.get_or_insert(now);
        if self.told != Some(Ok(())) {
            self.told = Some(Ok(()));
            updates.push(Update::Live);
        }
    }

    fn opened<T>(&mut self, now: Instant) -> Step<T> {
        let Phase::Opening(open) = &self.phase else { return self.misled(now) };
        let silence = Duration::from_secs(open.timeout_seconds.into()) + GRACE;
        let mut updates = Vec::new();
        match open.at.clone() {
            StartAt::Initial => {
                self.phase = Phase::InitialEvents { opened: now, silence };
                updates.push(Update::Reset);
                Step { updates, restart: None, next: Next::Read { silence: INITIAL_SILENCE } }
            }
            StartAt::After(version) => {
                self.phase = Phase::Following { version, opened: now, silence };
                self.live(now, &mut updates);
                Step { updates, restart: None, next: Next::Read { silence } }
            }
        }
    }

    fn line<T>(&mut self, now: Instant, line: &[u8], decode: impl Fn(&RawValue) -> Result<Versioned<T>, MetaError>) -> Step<T> {
        let Ok(event) = parse_event(line) else { return self.garbled(now) };
        let (wrap, object): (fn(T) -> Update<T>, _) = match event {
            WatchEvent::Bookmark { resource_version, ends_initial_events } => {
                return self.bookmark(now, resource_version.into_owned(), ends_initial_events);
            }
            WatchEvent::Error(status) => return self.error_event(now, &status),
            WatchEvent::Added(object) | WatchEvent::Modified(object) => match self.phase {
                Phase::InitialEvents { .. } => (Update::Listed, object),
                _ => (Update::Changed, object),
            },
            WatchEvent::Deleted(object) => (Update::Deleted, object),
        };
        let Ok(Versioned { version: seen, item }) = decode(object) else { return self.garbled(now) };
        let silence = match &mut self.phase {
            Phase::InitialEvents { .. } => INITIAL_SILENCE,
            Phase::Following { .. } if !names_a_state(&seen) => return self.garbled(now),
            Phase::Following { version, silence, .. } => {
                *version = seen;
                *silence
            }
            _ => return self.misled(now),
        };
        Step { updates: vec![wrap(item)], restart: None, next: Next::Read { silence } }
    }

    fn bookmark<T>(&mut self, now: Instant, seen: String, ends_initial_events: bool) -> Step<T> {
        if !names_a_state(&seen) {
            return self.garbled(now);
        }
        let mut updates = Vec::new();
        let silence = match &mut self.phase {
            Phase::InitialEvents { opened, silence } if ends_initial_events => {
                let (opened, silence) = (*opened, *silence);
                self.phase = Phase::Following { version: seen, opened, silence };
                updates.push(Update::ListComplete);
                self.live(now, &mut updates);
                silence
            }
            Phase::InitialEvents { .. } => INITIAL_SILENCE,
            Phase::Following { version, silence, .. } => {
                *version = seen;
                *silence
            }
            _ => return self.misled(now),
        };
        Step { updates, restart: None, next: Next::Read { silence } }
    }

    fn error_event<T>(&mut self, now: Instant, status: &StatusError) -> Step<T> {
        match status.code {
            429 => self.failed(now, SourceError::Throttled { retry_after: status.retry_after }),
            410 => self.failed(now, SourceError::Expired),
            _ if status.reason == "Expired" || status.reason == "Gone" => self.failed(now, SourceError::Expired),
            // Whatever else the server gives up on (a version from its future after a restored backup, for one), only a list is sure to help.
            _ => self.fail(now, Reason::Server, status.retry_after, Plan::Relist),
        }
    }

    fn page<T>(&mut self, now: Instant, page: &[u8], decode: impl Fn(&RawValue) -> Result<Versioned<T>, MetaError>) -> Step<T> {
        let Phase::Paging { done } = &self.phase else { return self.misled(now) };
        let Ok(list) = parse_list(page) else { return self.fail(now, Reason::BadAnswer, None, Plan::Relist) };
        let (asked, mut updates, version) = match done {
            Some((token, version)) => (Some(token.as_str()), Vec::new(), version.clone()),
            // All pages show the state of the first one's version.
            None => (None, vec![Update::Reset], list.resource_version.clone().into_owned()),
        };
        let is_repeated = list.continue_token.is_some() && list.continue_token.as_deref() == asked;
        if is_repeated || !names_a_state(&version) {
            return self.fail(now, Reason::BadAnswer, None, Plan::Relist);
        }
        for object in &list.items {
            let Ok(decoded) = decode(object) else { return self.fail(now, Reason::BadAnswer, None, Plan::Relist) };
            updates.push(Update::Listed(decoded.item));
        }
        let plan = if let Some(token) = list.continue_token {
            Plan::Page { token: token.into_owned(), version }
        } else {
            updates.push(Update::ListComplete);
            Plan::Follow(version)
        };
        Step { updates, ..self.go(plan, None) }
    }

    fn ended<T>(&mut self, now: Instant) -> Step<T> {
        match &self.phase {
            Phase::InitialEvents { .. } => self.unfinished(now),
            Phase::Following { version, opened, .. } => {
                let plan = Plan::Follow(version.clone());
                if now.saturating_duration_since(*opened) >= SETTLED {
                    self.go(plan, Some(Reason::Ended))
                } else {
                    self.fail(now, Reason::Ended, None, plan)
                }
            }
            _ => self.misled(now),
        }
    }

    fn silent<T>(&mut self, now: Instant) -> Step<T> {
        if matches!(self.phase, Phase::InitialEvents { .. }) {
            return self.unfinished(now);
        }
        let plan = self.resume();
        self.fail(now, Reason::Silent, None, plan)
    }

    /// Initial events without an end. Some servers do not know the parameter and never send the mark, so the next list is a paged one.
    fn unfinished<T>(&mut self, now: Instant) -> Step<T> {
        self.listing = Listing::Paged;
        self.fail(now, Reason::Unfinished, None, Plan::Relist)
    }

    fn failed<T>(&mut self, now: Instant, error: SourceError) -> Step<T> {
        if error == SourceError::StreamingUnsupported && self.listing == Listing::Streaming {
            self.listing = Listing::Paged;
            return self.go(Plan::Relist, Some(Reason::StreamingUnsupported));
        }
        let (hint, plan) = match error {
            SourceError::Throttled { retry_after } => (retry_after, self.resume()),
            SourceError::Unreachable
            | SourceError::Tls(_)
            | SourceError::Timeout
            | SourceError::Server
            | SourceError::Unauthorized
            | SourceError::Forbidden => (None, self.resume()),
            SourceError::Expired | SourceError::NotServed | SourceError::StreamingUnsupported | SourceError::BadAnswer => {
                (None, Plan::Relist)
            }
        };
        self.fail(now, error.into(), hint, plan)
    }

    /// An unreadable line: most likely cut, so the events since the last good one are asked for again, once.
    fn garbled<T>(&mut self, now: Instant) -> Step<T> {
        let plan = match &self.phase {
            Phase::Following { version, .. } if self.garbled_at.as_ref() != Some(version) => {
                self.garbled_at = Some(version.clone());
                Plan::Follow(version.clone())
            }
            _ => {
                self.garbled_at = None;
                Plan::Relist
            }
        };
        self.fail(now, Reason::Garbled, None, plan)
    }

    /// An input that does not belong to the phase: nothing that is known can be trusted.
    fn misled<T>(&mut self, now: Instant) -> Step<T> {
        self.fail(now, Reason::BadAnswer, None, Plan::Relist)
    }
}

/// Whether a watch can start after this version. None, and the `0` that stands for "any", let the server start wherever it likes, and
/// what was deleted before that would never be heard of.
fn names_a_state(version: &str) -> bool {
    !matches!(version, "" | "0")
}
