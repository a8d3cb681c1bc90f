mod classify;
mod client;
mod request;
