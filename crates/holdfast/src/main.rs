//! Holdfast keeps a fleet of Kubernetes clusters as declared.

mod cli;
mod explain;
mod fix;
mod hub;
mod kubeconfig;
mod logs;
mod scan;
mod selection;

use std::process::ExitCode;

use cli::Command;

/// Small allocations of many sizes, freed from other threads than those that made them: what jemalloc is good at.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = cli::parse();
    holdfast_fleet::supervisor::install_panic_hook();
    // Two providers could be in the tree; the first call decides, so it comes before anything else.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("holdfast: the TLS provider cannot be installed");
        return ExitCode::from(2);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("holdfast: no runtime: {error}");
            return ExitCode::from(2);
        }
    };
    let code = match cli.command {
        Command::Hub(arguments) => runtime.block_on(Box::pin(hub::run(arguments))),
        Command::Scan(arguments) => runtime.block_on(Box::pin(scan::run(arguments))),
        Command::Fix(arguments) => runtime.block_on(Box::pin(fix::run(arguments))),
        Command::Explain(arguments) => runtime.block_on(Box::pin(explain::run(arguments))),
        Command::Completion { shell } => cli::print_completion(shell),
        Command::Crds => cli::print_crds(),
    };
    // Calls that do not end must not hold up the process.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    code
}
