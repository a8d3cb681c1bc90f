//! Real control planes for end-to-end tests, `cargo xtask demo` and benchmarks.
//!
//! - [`ControlPlane`] starts etcd, kube-apiserver and, if asked, kube-controller-manager on loopback, and hands out clients and
//!   kubeconfigs for any user. Nothing outlives the process that started it, however that process ends.
//! - [`Audit`] tells what each user asked of the API server, dry-runs apart from writes.
//! - [`Writer`] writes any object as any field manager, through the main resource, `/scale` and `/status`; a [`Target`] names the object.
//! - [`Helm`] runs the two Helms; [`release`] makes release records by hand.
//! - [`management`] fills a management cluster: Cluster API objects and kubeconfig Secrets.
//! - [`mutation`] knows other values for the fields of an object.
//! - [`eventually`] waits.
//! - [`FaultProxy`] stands before an API server and lets happen to requests, answers and connections what a test wants to go wrong.
//! - [`MutatingWebhook`] is an admission webhook served by the test; [`mutate`] has ready-made mutations.
//!
//! Tests of one binary share their control planes and keep apart by namespace:
//!
//! ```no_run
//! use holdfast_testkit::{ControlPlane, Options};
//! use tokio::sync::OnceCell;
//!
//! static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
//!
//! async fn plane() -> &'static ControlPlane {
//!     PLANE.get_or_init(|| async { ControlPlane::start(Options::named("scan")).await.unwrap() }).await
//! }
//! ```
//!
//! A client belongs to the runtime it was made on, and `#[tokio::test]` gives every test its own: make clients per test.
//!
//! Everything written goes to a folder below `target/testkit`, which is removed at the end. After a panic its logs stay, and the path
//! is printed: tests that fail must panic (assert, unwrap), because a returned `Err` is invisible here. With
//! `HOLDFAST_TESTKIT_KEEP=1` logs always stay.

mod access;
mod api_server;
mod apply;
mod audit;
mod command;
mod control_plane;
mod controller_manager;
mod etcd;
mod fault_proxy;
mod helm;
mod json_diff;
pub mod management;
pub mod mutate;
pub mod mutation;
mod pki;
pub mod programs;
pub mod release;
mod rest;
mod server;
mod supervisor;
mod target;
mod wait;
mod webhook;
mod work_dir;
mod writer;

pub use access::Access;
pub use apply::{Kinds, parse as parse_yaml};
pub use audit::{Audit, Call, Mark};
pub use control_plane::{ControlPlane, Options};
pub use fault_proxy::{Asked, Cut, Fault, FaultProxy, Link, Match, Reply, Rule as FaultRule};
pub use helm::Helm;
pub use pki::{Authority, install_crypto_provider};
pub use rest::{status_code, status_message};
pub use target::Target;
pub use wait::eventually;
pub use webhook::{Admission, MutatingWebhook, Operation, Rule, WebhookOptions};
pub use writer::{Writer, managed_fields_without_times};
