//! `cargo xtask demo`: three clusters on loopback, two Helm releases, a hub, and four things that go wrong.

mod story;
mod terminal;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use holdfast_testkit::{Helm, programs};
use serde_json::json;

use crate::{
    fleet::{Fleet, NAMESPACE},
    hub::{self, Hub, Profile},
    interrupt::until_interrupted,
};
use story::Story;
use terminal::Terminal;

/// Where the Helm 3 release is.
const EAST: &str = "east";
/// Where the Helm 4 release is.
const WEST: &str = "west";
/// Namespace of both releases.
const SHOP: &str = "shop";

/// Options of `demo`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Leave everything running at the end, and say how to look around.
    #[arg(long)]
    keep: bool,
    /// Show this program instead of building one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Runs the demo until it ends or is interrupted.
pub fn run(arguments: &Arguments) -> Result<()> {
    if until_interrupted(demo(arguments))?.is_none() {
        println!("\nstopped");
    }
    Ok(())
}

async fn demo(arguments: &Arguments) -> Result<()> {
    let folder = programs::workspace()?.join("target/demo");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let mut terminal = Terminal::new();
    terminal.title("Holdfast: what was deployed stays as it was declared");
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => terminal.work("build", "the program holdfast", hub::build(Profile::Dev)).await?,
    };
    let clusters = "management, east and west: kube-apiserver and etcd on 127.0.0.1";
    let fleet = terminal.work("clusters", clusters, Box::pin(Fleet::start(&[EAST, WEST]))).await?;
    let ended = play(&mut terminal, &fleet, &program, &folder, arguments.keep).await;
    if ended.is_err() {
        fleet.keep_logs();
    }
    ended.with_context(|| format!("the demo did not go as told; the hub's log is {}", Hub::log(&folder).display()))
}

async fn play(terminal: &mut Terminal, fleet: &Fleet, program: &Path, folder: &Path, keep: bool) -> Result<()> {
    let (east, west) = (fleet.workload(EAST)?, fleet.workload(WEST)?);
    let (shop, cache) = (programs::chart("shop")?, programs::chart("cache")?);
    terminal.work("east", "helm 3 install shop", Helm::V3.install(east, "shop", SHOP, &shop, &[])).await?;
    terminal.work("west", "helm 4 install cache", Helm::V4.install(west, "cache", SHOP, &cache, &[])).await?;
    terminal.work("policy", "DriftPolicy: mode Correct on every cluster", fleet.policy("Correct", &json!({}))).await?;
    let start = async {
        let hub = Hub::start(program, fleet, folder).await?;
        fleet.in_sync(EAST, "shop").await?;
        fleet.in_sync(WEST, "cache").await?;
        Ok(hub)
    };
    let hub = terminal.work("hub", "started; shop and cache are as declared", start).await?;

    // The webhook is served from here, so it lives as long as the demo.
    let _webhook = Story { terminal, fleet, east, west }.tell().await?;
    if keep {
        look_around(fleet, &hub, folder)?;
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// Says how to look around.
fn look_around(fleet: &Fleet, hub: &Hub, folder: &Path) -> Result<()> {
    fleet.write_kubeconfigs(folder)?;
    let kubectl = short(&programs::Program::Kubectl.path()?);
    let folder = short(folder);
    let kubectl = |cluster: &str| format!("{} --kubeconfig {}/{cluster}.kubeconfig", kubectl.display(), folder.display());
    println!("\nEverything is left running. From the root of the repository:\n");
    println!("  {} -n {NAMESPACE} get dr", kubectl("management"));
    println!("  {} -n {NAMESPACE} get dp,clusters,events", kubectl("management"));
    println!("  {} -n {SHOP} edit deploy shop", kubectl(EAST));
    println!("  {} -n {SHOP} delete cm cache-config", kubectl(WEST));
    println!("  curl -s {}/metrics | grep holdfast_corrections", hub.url());
    println!("  tail -f {}", Hub::log(&folder).display());
    println!("\nCtrl-C ends it and cleans up.");
    Ok(())
}

/// A path below the repository, relative to it.
fn short(path: &Path) -> PathBuf {
    let root = programs::workspace().ok();
    root.and_then(|root| path.strip_prefix(root).ok()).unwrap_or(path).to_path_buf()
}
