//! The targets, one file each.

mod fields;
mod hosts;
mod kubeconfig;
mod manifest;
mod normalise;
mod policy;
mod projection;
mod record;
mod redaction;
mod watch;

pub use {
    fields::TARGET as FIELDS, hosts::TARGET as HOSTS, kubeconfig::TARGET as KUBECONFIG, manifest::TARGET as MANIFEST,
    normalise::TARGET as NORMALISE, policy::TARGET as POLICY, projection::TARGET as PROJECTION, record::TARGET as RECORD,
    redaction::TARGET as REDACTION, watch::TARGET as WATCH,
};
