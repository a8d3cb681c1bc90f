//! The hub: what the management cluster says about the fleet, and what Holdfast says back.
//!
//! `fleet_view` and `policy` read clusters, credentials and policies into one value. `reports` and `events` write what was found.
//! `metrics` and `http` show it to machines.

pub mod fleet_view;
pub mod management;
pub mod policy;
pub mod reports;
