//! Connections to workload clusters: who may be connected to, how, what they serve, and what changes there.

pub mod backoff;
pub mod call;
pub mod clock;
pub mod discovery;
pub mod kubeconfig;
pub mod meta;
pub mod supervisor;
pub mod term;
pub mod transport;
pub mod watch;
