//! `cargo xtask fuzz`: the fuzz targets for as long as one likes, with new inputs every time.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::{Parser, value_parser};

/// How long, and what.
#[derive(Parser)]
pub struct Arguments {
    /// Seconds for each target; as many run side by side as there are cores.
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u64).range(1..))]
    seconds: u64,
    /// One target, by its name under crates/fuzz/src/targets; without it all.
    target: Option<String>,
}

/// Runs the tests of crates/fuzz, which say which input fails and where it is saved.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--quiet", "--package", "holdfast-fuzz", "--test", "fuzz", "--", "--nocapture"]);
    if let Some(target) = &arguments.target {
        cargo.args(["--exact", target]);
    }
    let status = cargo.env("HOLDFAST_FUZZ_SECONDS", arguments.seconds.to_string()).status().context("running cargo")?;
    ensure!(status.success(), "a target failed");
    Ok(())
}
