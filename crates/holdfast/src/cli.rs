//! The command line.

use std::{path::Path, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use holdfast_api::{cluster_policy::ClusterDriftPolicy, policy::DriftPolicy, report::DriftReport};
use kube::CustomResourceExt;

use crate::{explain::ExplainArguments, fix::FixArguments, hub::HubArguments, scan::ScanArguments};

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
    /// Correct what differs from what Helm releases declare, after asking, exactly as the hub would.
    #[command(after_help = "Examples:
  holdfast fix -n shop --dry-run            what would be written
  holdfast fix -n shop --release web        asks, corrects one release and verifies
  holdfast fix -A --yes -o json             for machines: the schema of DriftReport.status, `corrections` lists the writes
  holdfast fix -A --dry-run -o json         a list of what would be written: release, object, paths, write
  holdfast fix --approve prod-7 web         on the management cluster: lets the hub correct what it holds back

Only drifted fields are written, under the release's own field manager, never a new revision. What the hub would not write is not
written here either.

Exit status: 0 as declared, 1 something still differs, 2 error or something that could not be judged, 130 interrupted.")]
    Fix(FixArguments),
    /// Explain the decision about one object: what is declared, what is accepted and why, what differs and who did it, what would be written.
    #[command(after_help = "Examples:
  holdfast explain prod-7 deployment/web -n shop        from the management cluster
  holdfast explain team-a/prod-7 deploy/web -o json     where several clusters are called prod-7
  holdfast explain cm/web-settings                      on the cluster of the kubeconfig

Nothing is written; dry-runs are asked for. The cluster is reached with the kubeconfig that the hub uses.")]
    Explain(ExplainArguments),
    /// Print the custom resource definitions as YAML.
    Crds,
    /// Print a script that completes this command in a shell.
    #[command(after_help = "Examples:
  source <(holdfast completion bash)
  holdfast completion zsh > \"${fpath[1]}/_holdfast\"
  holdfast completion fish > ~/.config/fish/completions/holdfast.fish")]
    Completion {
        /// The shell.
        shell: Shell,
    },
}

/// Reads the command line. As a plugin of kubectl it calls itself what people type.
pub fn parse() -> Cli {
    let command = Cli::command();
    let program = std::env::args_os().next().unwrap_or_default();
    let is_plugin = Path::new(&program).file_stem().is_some_and(|name| name == "kubectl-holdfast");
    let command = if is_plugin { command.bin_name("kubectl holdfast") } else { command };
    Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

/// Prints the completion of a shell.
pub fn print_completion(shell: Shell) -> ExitCode {
    clap_complete::generate(shell, &mut Cli::command(), "holdfast", &mut std::io::stdout());
    ExitCode::SUCCESS
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
