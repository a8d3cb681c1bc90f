//! Tasks of the workspace beyond building and testing: generated files, demo, fuzzing, benchmarks. `cargo xtask help` lists them.

mod bench;
mod corpus;
mod demo;
mod fleet;
mod fuzz;
mod generate;
mod hub;
mod interrupt;
mod lookout;
mod mutate;
mod soak;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Tasks of the workspace", disable_version_flag = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure latency, memory and calls beside the targets.
    Bench(bench::Arguments),
    /// Install charts and see whether anything is told that is not so, or missed.
    Corpus(corpus::Arguments),
    /// Play through drift and its correction on real control planes.
    Demo(demo::Arguments),
    /// Let everything happen to a hub for a while and see whether it grows.
    Soak(soak::Arguments),
    /// Change every field of every kind and see whether it is found and put back.
    Mutate(mutate::Arguments),
    /// Try new inputs on everything that reads what others wrote.
    Fuzz(fuzz::Arguments),
    /// Write the files under manifests/ that follow from the code.
    Gen(generate::Arguments),
}

fn main() -> ExitCode {
    let ended = match Arguments::parse().task {
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Corpus(arguments) => corpus::run(&arguments),
        Task::Demo(arguments) => demo::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::Mutate(arguments) => mutate::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Gen(arguments) => generate::run(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
