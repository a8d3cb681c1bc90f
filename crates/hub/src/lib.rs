//! The hub: what the management cluster says about the fleet, and what Holdfast says back.
//!
//! `fleet_view` and `policy` read clusters, credentials and policies into one value. `reports` and `events` write what was found.
//! `state_secrets` keeps what a restart must not forget. `metrics` and `http` show it to machines. `cluster` judges and corrects one workload cluster; `run` starts and stops it all.

pub mod cluster;
pub mod events;
pub mod fleet_view;
pub mod http;
pub mod leadership;
pub mod management;
pub mod metrics;
pub mod policy;
pub mod reports;
pub mod run;
pub mod state_secrets;
mod text;
