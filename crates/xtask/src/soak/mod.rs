//! `cargo xtask soak`: a real hub over real control planes that everything happens to, again and again, and what the hub costs after
//! each round. What grows from round to round leaks.

mod churn;
mod sample;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use holdfast_testkit::{Helm, programs};
use serde_json::json;
use tokio::time::{Duration, Instant, sleep_until};

use crate::{
    fleet::Fleet,
    hub::{self, Hub},
    interrupt::until_interrupted,
};
use churn::{Churn, DEPLOYMENTS, RELEASE, SHOP};
use sample::{Sample, verdict};

/// Time between two samples.
const ROUND: Duration = Duration::from_mins(1);

/// Options of `soak`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Rounds of a minute each, after one to warm up.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Workload clusters; each is an API server and an etcd of its own, about 300 MiB.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    clusters: u32,
    /// Objects of the release on each cluster.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(50..=5000))]
    objects: u32,
    /// Run this program instead of building the release profile.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Runs until the time is over or it is interrupted.
pub fn run(arguments: &Arguments) -> Result<()> {
    until_interrupted(soak(arguments))?.context("interrupted")
}

async fn soak(arguments: &Arguments) -> Result<()> {
    let (folder, program) = hub::prepare("soak", arguments.program.as_deref()).await?;
    say(&format!("starting a management and {} workload clusters", arguments.clusters));
    let names: Vec<String> = (1..=arguments.clusters).map(|number| format!("soak-{number}")).collect();
    let fleet = Fleet::start(&names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let ended = rounds(&fleet, arguments, &program, &folder).await;
    if ended.is_err() {
        fleet.keep_logs();
    }
    ended.with_context(|| format!("the hub's log is {}", Hub::log(&folder).display()))
}

async fn rounds(fleet: &Fleet, arguments: &Arguments, program: &std::path::Path, folder: &std::path::Path) -> Result<()> {
    let chart = programs::chart("bulk")?;
    let values = format!("count={},deployments={DEPLOYMENTS}", arguments.objects - DEPLOYMENTS);
    for (helm, plane) in Helm::ALL.into_iter().cycle().zip(&fleet.workloads) {
        helm.install(plane, RELEASE, SHOP, &chart, &["--set", &values]).await?;
    }
    // Chaos edits more than people do.
    let limit = json!({"correctionsPerMinute": 6000, "blastRadius": {"percent": 100, "minObjects": 100_000}});
    fleet.policy("Correct", &json!({"interval": "30s", "limit": limit})).await?;
    let hub = Hub::start(program, fleet, folder).await?;
    let mut churn = Churn::prepare(fleet, &chart, arguments.objects).await?;
    churn.calm().await?;

    let started = Instant::now();
    println!("\n{}", Sample::HEADER);
    let mut first = None;
    let mut last = None;
    // The first round fills pools and caches; from its end on everything is as it will be.
    for round in 0..=arguments.minutes {
        churn.round(round, Instant::now() + ROUND.mul_f64(0.7)).await?;
        churn.calm().await?;
        sleep_until(started + ROUND * (round + 1)).await;
        let sample = Sample::take(&hub, started.elapsed()).await?;
        println!("{sample}");
        first.get_or_insert_with(|| sample.clone());
        last = Some(sample);
    }
    let (first, last) = first.zip(last).context("no sample")?;
    let (table, grown) = verdict(&first, &last);
    println!("\n{table}");
    if grown.is_empty() { Ok(()) } else { bail!("grown although nothing is there that was not there before: {}", grown.join(", ")) }
}

fn say(what: &str) {
    eprintln!("soak: {what}");
}
