//! `cargo xtask bench`: what Holdfast costs, beside what the same calls cost when made by hand in the same run, and the targets.
//! Prints, asserts nothing about time.

mod edits;
mod failures;
mod hand;
mod table;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use holdfast_testkit::{Helm, programs};
use serde_json::json;
use tokio::time::{Duration, Instant};

use crate::{
    fleet::Fleet,
    hub::{self, Hub},
    interrupt::until_interrupted,
};
use edits::Edits;
use table::Table;

/// Namespace of the guarded release.
const GUARDED: &str = "guarded";
/// Namespace of its twin, which no policy selects: there the same work is done by hand.
const BY_HAND: &str = "by-hand";
/// Objects of a guarded release.
const OBJECTS: u32 = 1000;
/// How many of them are Deployments.
const DEPLOYMENTS: u32 = 100;

/// Options of `bench`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Edits on each of the two releases, one after another; half on ConfigMaps, half on Deployments.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=200))]
    edits: u32,
    /// Measure this program instead of building the release profile.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Measures and prints until done or interrupted.
pub fn run(arguments: &Arguments) -> Result<()> {
    until_interrupted(bench(arguments))?.context("interrupted")
}

async fn bench(arguments: &Arguments) -> Result<()> {
    let (folder, program) = hub::prepare("bench", arguments.program.as_deref()).await?;
    say("starting a management and two workload clusters");
    let fleet = Fleet::start(&["helm3", "helm4"]).await?;
    let table = measure(&fleet, &program, &folder, arguments.edits).await;
    if table.is_err() {
        fleet.keep_logs();
    }
    let table = table.with_context(|| format!("the hub's log is {}", Hub::log(&folder).display()))?;
    println!("\n{table}");
    Ok(())
}

async fn measure(fleet: &Fleet, program: &Path, folder: &Path, edits: u32) -> Result<Table> {
    let mut table = Table::default();
    fleet.write_kubeconfigs(folder)?;
    let helms = [Helm::V3, Helm::V4];
    say(&format!("installing a release of {OBJECTS} objects and a small twin on each"));
    let chart = programs::chart("bulk")?;
    let twin = edits / 2;
    let counts = [(GUARDED, OBJECTS - DEPLOYMENTS, DEPLOYMENTS), (BY_HAND, twin, twin)];
    for (helm, plane) in helms.into_iter().zip(&fleet.workloads) {
        for (namespace, maps, deployments) in counts {
            let values = format!("count={maps},deployments={deployments}");
            helm.install(plane, "bulk", namespace, &chart, &["--set", &values]).await?;
        }
    }
    // Edits as fast as they go, many objects at once: neither brake is what is measured.
    let limit = json!({"correctionsPerMinute": 6000, "blastRadius": {"percent": 100, "minObjects": 100_000}});
    fleet.policy("Correct", &json!({"releases": [{"namespace": GUARDED}], "limit": limit})).await?;

    say("starting the hub");
    let started = Instant::now();
    let hub = Hub::start(program, fleet, folder).await?;
    for plane in &fleet.workloads {
        let objects = fleet.in_sync(plane.name(), "bulk").await?;
        ensure!(objects == u64::from(OBJECTS), "{objects} objects instead of {OBJECTS}");
    }
    table.seconds(&format!("start to verdict, 2 × {OBJECTS} objects never seen before"), started.elapsed(), None);
    let objects = f64::from(OBJECTS) * 2.0;
    table.number("state, bytes an object", hub.metric("holdfast_state_bytes").await? / objects, Some(200.0));

    for (helm, plane) in helms.into_iter().zip(&fleet.workloads) {
        say(&format!("{edits} edits on {}, each beside the same by hand", plane.name()));
        let mut run = Edits::prepare(helm, plane).await?;
        let mark = plane.audit_mark().await?;
        for number in 0..edits {
            run.step(number).await?;
        }
        let calls = plane.audit_since(mark).await?;
        table.edits(if helm == Helm::V3 { "client-side release (Helm 3)" } else { "server-side release (Helm 4)" }, run.finish(&calls));
    }
    for plane in &fleet.workloads {
        fleet.in_sync(plane.name(), "bulk").await?;
    }
    table.number("peak RSS of the hub, MiB", mebibytes(hub.peak_rss()?), Some(60.0));
    say("edits of a healthy cluster, alone and while others fail");
    failures::beside_failing_clusters(fleet, &hub, &mut table).await?;
    say("an outage");
    failures::after_an_outage(fleet, &hub, OBJECTS, &mut table).await?;
    drop(hub);

    say("scanning");
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        fastest = fastest.min(scan(program, folder, "helm4")?);
    }
    table.seconds(&format!("scan of {OBJECTS} objects, best of 3"), fastest, Some(2.0));
    Ok(table)
}

/// Scans the guarded release of a cluster; answers how long it took.
fn scan(program: &Path, folder: &Path, cluster: &str) -> Result<Duration> {
    let started = Instant::now();
    let status = Command::new(program)
        .args(["scan", "-n", GUARDED, "--kubeconfig"])
        .arg(folder.join(format!("{cluster}.kubeconfig")))
        .stdout(Stdio::null())
        .status()
        .context("running the scan")?;
    ensure!(status.success(), "the scan says {status}");
    Ok(started.elapsed())
}

fn say(what: &str) {
    eprintln!("bench: {what}");
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
