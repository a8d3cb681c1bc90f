//! `cargo xtask corpus`: installs charts with both Helms on real control planes and looks at each release as a user would: right after
//! the installation, under webhooks that came later or were there before, and after edits of every object that a hub is to put back.

mod charts;
mod edits;
mod leaf;
mod mutators;
mod node;
mod scan;
mod site;
mod table;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use futures::future::try_join_all;
use holdfast_testkit::{Helm, Options, programs};

use crate::{
    fleet::Fleet,
    hub::{self, Hub, Profile},
    interrupt::until_interrupted,
};
use charts::Chart;
use site::Site;
use table::{HEADER, Totals};

/// Which Helm installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Helms {
    /// Helm 3.
    #[value(name = "3")]
    V3,
    /// Helm 4.
    #[value(name = "4")]
    V4,
    /// Each chart with one and with the other.
    Both,
}

/// Options of `corpus`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folders in which charts are looked for, archives too.
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Which Helm installs.
    #[arg(long, value_enum, default_value_t = Helms::Both)]
    helm: Helms,
    /// Only these charts.
    #[arg(long = "chart", value_name = "NAME")]
    only: Vec<String>,
    /// Leave the webhooks out.
    #[arg(long)]
    skip_webhooks: bool,
    /// Chooses which leaf of an object is edited.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use this program instead of building one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Goes through all charts and prints what was found. An error where a target is missed.
pub fn run(arguments: &Arguments) -> Result<()> {
    until_interrupted(corpus(arguments))?.context("interrupted")
}

async fn corpus(arguments: &Arguments) -> Result<()> {
    let mut charts = charts::below(&arguments.folders)?;
    for only in &arguments.only {
        ensure!(charts.iter().any(|chart| chart.name == *only), "there is no chart {only}");
    }
    charts.retain(|chart| arguments.only.is_empty() || arguments.only.contains(&chart.name));
    let folder = programs::workspace()?.join("target/corpus");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let program = match &arguments.program {
        Some(program) => program.canonicalize().with_context(|| format!("looking at {}", program.display()))?,
        None => hub::build(Profile::Dev).await?,
    };
    let helms = match arguments.helm {
        Helms::V3 => vec![Helm::V3],
        Helms::V4 => vec![Helm::V4],
        Helms::Both => Helm::ALL.to_vec(),
    };
    let workloads = helms.iter().map(|helm| Options::named(Site::cluster(*helm)).with_controller_manager()).collect();
    let fleet = Fleet::start_with(workloads).await?;
    let ended = Box::pin(all(&fleet, &helms, &charts, &program, &folder, arguments)).await;
    if ended.is_err() {
        fleet.keep_logs();
    }
    let totals = ended.with_context(|| format!("the hub's log is {}", Hub::log(&folder).display()))?;
    println!("\n{totals}");
    let missed = totals.missed();
    if missed.is_empty() { Ok(()) } else { bail!("{}", missed.join("; ")) }
}

async fn all(fleet: &Fleet, helms: &[Helm], charts: &[Chart], program: &Path, folder: &Path, arguments: &Arguments) -> Result<Totals> {
    let _hub = Hub::start(program, fleet, folder).await?;
    let site = |helm: &Helm| Site::prepare(*helm, fleet, program.to_owned(), !arguments.skip_webhooks, arguments.seed);
    let sites = try_join_all(helms.iter().map(site)).await?;
    println!("{HEADER}");
    let mut totals = Totals::default();
    for found in try_join_all(sites.iter().map(|site| site.all(charts))).await? {
        totals.add(&found);
    }
    Ok(totals)
}
