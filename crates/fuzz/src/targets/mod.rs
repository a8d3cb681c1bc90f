//! The targets, one file each.

mod fields;
mod hosts;
mod kubeconfig;
mod manifest;
mod policy;
mod record;
mod watch;

pub use {
    fields::TARGET as FIELDS, hosts::TARGET as HOSTS, kubeconfig::TARGET as KUBECONFIG, manifest::TARGET as MANIFEST,
    policy::TARGET as POLICY, record::TARGET as RECORD, watch::TARGET as WATCH,
};
