//! The built program against real control planes; see `support`.

#![allow(clippy::unwrap_used, reason = "clippy allows it in test functions, not in their helpers")]

mod support;
