//! Every target, each as a test of its own so that they run side by side: a fixed sequence of inputs, or new ones for
//! `HOLDFAST_FUZZ_SECONDS`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "helpers of tests, outside of any test function")]

use std::time::Duration;

use holdfast_fuzz::{Effort, Target, run, targets};

/// `inputs` is what an ordinary test run tries: a few seconds' worth.
fn fuzz(target: &Target, inputs: u32) {
    let effort = match std::env::var("HOLDFAST_FUZZ_SECONDS") {
        Ok(seconds) => Effort::Timed(Duration::from_secs(seconds.parse().unwrap())),
        Err(_) => Effort::Fixed { inputs },
    };
    match run(target, effort) {
        Ok(tried) => println!("{}: {tried} inputs", target.name),
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn fields() {
    fuzz(&targets::FIELDS, 1500);
}

#[test]
fn hosts() {
    fuzz(&targets::HOSTS, 600);
}

#[test]
fn kubeconfig() {
    fuzz(&targets::KUBECONFIG, 8000);
}

#[test]
fn manifest() {
    fuzz(&targets::MANIFEST, 600);
}

#[test]
fn normalise() {
    fuzz(&targets::NORMALISE, 1500);
}

#[test]
fn policy() {
    fuzz(&targets::POLICY, 1000);
}

#[test]
fn projection() {
    fuzz(&targets::PROJECTION, 1500);
}

#[test]
fn record() {
    fuzz(&targets::RECORD, 1500);
}

#[test]
fn redaction() {
    fuzz(&targets::REDACTION, 1500);
}

#[test]
fn watch() {
    fuzz(&targets::WATCH, 1500);
}
