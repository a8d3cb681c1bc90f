//! Watches against scripted servers, on paused time.

mod driver;
mod machine;
mod registry;
mod script;
mod target;
