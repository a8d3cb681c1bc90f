//! What goes into the machine and comes out of it.

use std::time::Duration;

use super::{
    source::SourceError,
    update::{Reason, Update},
};

/// A watch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Where it starts.
    pub at: StartAt,
    /// How long the server may keep it open, in seconds.
    pub timeout_seconds: u32,
}

/// Where a watch starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// With all objects as initial events.
    Initial,
    /// With the first change after this version.
    After(String),
}

/// A list request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Where the page starts; `None` for the first.
    pub continue_token: Option<String>,
}

/// What came in.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The watch was accepted.
    Opened,
    /// One line of the watch.
    Line(&'a [u8]),
    /// The watch ended without an error.
    Ended,
    /// Nothing came for as long as [`Next::Read`] said.
    Silent,
    /// The asked page.
    Page(&'a [u8]),
    /// The request or the stream failed.
    Failed(SourceError),
    /// The connection requests go through was replaced.
    Moved,
    /// The sleep is over.
    Woke,
}

/// What to do after a step: deliver the updates, count the restart, then do what is next.
#[derive(Debug, PartialEq, Eq)]
pub struct Step<T> {
    /// To deliver, in order.
    pub updates: Vec<Update<T>>,
    /// The watch starts again, for this reason.
    pub restart: Option<Reason>,
    /// What to do next.
    pub next: Next,
}

/// The one thing to do next. Everything but `Read` ends the open stream, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read the next line of the open stream.
    Read {
        /// How long it may take.
        silence: Duration,
    },
    /// Open a watch.
    Open(Open),
    /// Ask for a page.
    List(PageRequest),
    /// Wait.
    Sleep(Duration),
}
