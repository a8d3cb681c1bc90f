//! Every target, each as a test of its own so that they run side by side: a fixed sequence of inputs, or new ones for
//! `HOLDFAST_FUZZ_SECONDS`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "helpers of tests, outside of any test function")]

use std::time::Duration;

use holdfast_fuzz::{Effort, Target, run, targets};

/// Inputs for each target in an ordinary test run: about a second.
const INPUTS: u32 = 800;

fn fuzz(target: &Target) {
    let effort = match std::env::var("HOLDFAST_FUZZ_SECONDS") {
        Ok(seconds) => Effort::Timed(Duration::from_secs(seconds.parse().unwrap())),
        Err(_) => Effort::Fixed { inputs: INPUTS },
    };
    match run(target, effort) {
        Ok(tried) => println!("{}: {tried} inputs", target.name),
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn fields() {
    fuzz(&targets::FIELDS);
}

#[test]
fn hosts() {
    fuzz(&targets::HOSTS);
}

#[test]
fn kubeconfig() {
    fuzz(&targets::KUBECONFIG);
}

#[test]
fn manifest() {
    fuzz(&targets::MANIFEST);
}

#[test]
fn policy() {
    fuzz(&targets::POLICY);
}

#[test]
fn record() {
    fuzz(&targets::RECORD);
}

#[test]
fn watch() {
    fuzz(&targets::WATCH);
}
