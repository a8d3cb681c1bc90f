//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use holdfast_api::{cluster_policy::ClusterDriftPolicy, policy::DriftPolicy, report::DriftReport};
use kube::CustomResourceExt;

use crate::{hub::HubArguments, scan::ScanArguments};

/// Keeps a fleet of Kubernetes clusters as declared.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, about, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch the management cluster and keep every selected workload cluster as declared.
    #[command(after_help = "Examples:
  holdfast hub --kubeconfig management.yaml
  holdfast hub --default-mode Warn --log-format json        report drift of every release, even without a policy
  holdfast hub --allow-server 127.0.0.0/8                   for clusters on this machine")]
    Hub(HubArguments),
    /// Compare Helm releases with what is live, once, without writing anything.
    #[command(after_help = "Examples:
  holdfast scan -A                          every release of the current cluster
  holdfast scan -n shop --release web       one release
  holdfast scan -A -o json                  for machines: the schema of DriftReport.status
  helm template . | holdfast scan -n shop --manifest -

Exit status: 0 in sync, 1 drift, 2 error or something that could not be judged.")]
    Scan(ScanArguments),
    /// Print the custom resource definitions as YAML.
    Crds,
}

/// Prints the CRDs.
pub fn print_crds() -> ExitCode {
    for definition in [DriftPolicy::crd(), ClusterDriftPolicy::crd(), DriftReport::crd()] {
        match serde_saphyr::to_string(&definition) {
            Ok(text) => print!("---\n{text}"),
            Err(error) => {
                eprintln!("holdfast: {error}");
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::SUCCESS
}
