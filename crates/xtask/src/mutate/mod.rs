//! `cargo xtask mutate`: changes, removes and adds at every field that Helm releases own, on real control planes that a real hub guards,
//! and tells of each whether it was found and undone.

mod fixtures;
mod log;
mod plan;
mod table;
mod trial;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use holdfast_testkit::{ControlPlane, Helm, eventually};
use serde_json::json;
use tokio::time::{Duration, Instant};

use crate::{
    fleet::Fleet,
    hub::{self, Hub},
    interrupt::until_interrupted,
};
use fixtures::{Copy, Fixture, Wanted};
use log::Log;
use plan::Mutation;
use table::{Outcome, Table};
use trial::Trial;

/// Namespace of the releases.
const NAMESPACE: &str = "mutate";
/// Bound for the first judgement of everything.
const FIRST_SIGHT: Duration = Duration::from_mins(5);
/// Time between two words on how far it is.
const PROGRESS: Duration = Duration::from_secs(20);
/// Mutations named on the terminal for each end; the file has them all.
const NAMED: usize = 40;

/// Options of `mutate`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// At most this many mutations for each fixture, spread evenly and the same each time.
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Only these kinds.
    #[arg(long, value_delimiter = ',')]
    kind: Vec<String>,
    /// Only releases of this Helm.
    #[arg(long, value_parser = clap::value_parser!(u8).range(3..=4))]
    helm: Option<u8>,
    /// Objects of a cluster that are mutated at the same time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Use this program instead of building the release profile.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Mutates and prints until done or interrupted; an error where anything was missed.
pub fn run(arguments: &Arguments) -> Result<()> {
    until_interrupted(mutate(arguments))?.context("interrupted")
}

async fn mutate(arguments: &Arguments) -> Result<()> {
    let (folder, program) = hub::prepare("mutate", arguments.program.as_deref()).await?;
    let helms: Vec<(Helm, &str)> = [(Helm::V3, "helm3", 3), (Helm::V4, "helm4", 4)]
        .into_iter()
        .filter(|(.., version)| arguments.helm.is_none_or(|wanted| wanted == *version))
        .map(|(helm, name, _)| (helm, name))
        .collect();
    let fleet = Fleet::start(&helms.iter().map(|(_, name)| *name).collect::<Vec<_>>()).await?;
    let ended = all(&fleet, &helms, arguments, &program, &folder).await;
    if ended.is_err() {
        fleet.keep_logs();
    }
    ended.with_context(|| format!("the hub's log is {}", Hub::log(&folder).display()))
}

async fn all(fleet: &Fleet, helms: &[(Helm, &str)], arguments: &Arguments, program: &Path, folder: &Path) -> Result<()> {
    fleet.write_kubeconfigs(folder)?;
    let wanted = Wanted { sample: arguments.sample, kinds: arguments.kind.clone() };
    for plane in &fleet.workloads {
        fixtures::prepare(plane).await?;
    }
    let fixtures = fixtures::load(fleet.workloads.first().context("no cluster")?, &wanted).await?;
    ensure!(!fixtures.is_empty(), "no fixture of these kinds");
    let releases: BTreeSet<&str> = fixtures.iter().map(|fixture| fixture.release.as_str()).collect();
    let mutations: usize = fixtures.iter().flat_map(|fixture| &fixture.shares).map(Vec::len).sum();
    say(&format!("{} fixtures in {} releases, {mutations} mutations on each cluster", fixtures.len(), releases.len()));
    try_join_all(helms.iter().map(async |(helm, cluster)| {
        let plane = fleet.workload(cluster)?;
        for release in &releases {
            helm.install(plane, release, NAMESPACE, &fixtures::chart(&fixtures, release, plane)?, &[]).await?;
        }
        anyhow::Ok(())
    }))
    .await?;

    let hub = Hub::start(program, fleet, folder).await?;
    guard(fleet).await?;
    for (_, cluster) in helms {
        for release in &releases {
            judged(fleet, cluster, release).await?;
        }
    }
    let started = Instant::now();
    let log = Log::new(Hub::log(folder));
    let sites: Vec<Site<'_>> = helms
        .iter()
        .map(|(helm, cluster)| Ok(Site { fleet, plane: fleet.workload(cluster)?, helm: *helm, log: &log }))
        .collect::<Result<_>>()?;
    let tables = try_join_all(sites.iter().map(|site| site.mutate(&fixtures, arguments.jobs))).await?;
    say(&format!("{mutations} mutations on each cluster took {:.0} s", started.elapsed().as_secs_f64()));
    drop(hub);
    let missed: usize = tables.iter().map(Table::missed).sum();
    for ((_, cluster), table) in helms.iter().zip(&tables) {
        print(cluster, table, folder)?;
    }
    if missed == 0 { Ok(()) } else { bail!("{missed} mutations were missed") }
}

/// Has everything corrected and everything added removed, however often and however much at once.
async fn guard(fleet: &Fleet) -> Result<()> {
    let rules = json!({
        "contest": {"rounds": 20, "window": "1s"},
        "limit": {"correctionsPerMinute": 6000, "blastRadius": {"percent": 100, "minObjects": 100_000}},
        "foreign": "Remove",
    });
    fleet.policy("Correct", &rules).await?;
    ensure!(fleet.is_accepted("everything").await?, "the hub does not accept the policy");
    Ok(())
}

/// Waits until everything of a release is as declared.
async fn judged(fleet: &Fleet, cluster: &str, release: &str) -> Result<()> {
    eventually(&format!("{cluster}/{release} in sync"), FIRST_SIGHT, async || {
        let status = fleet.report(cluster, release).await?;
        let summary = &status.summary;
        let findings: Vec<String> = status
            .findings
            .iter()
            .take(5)
            .map(|finding| {
                let paths: Vec<&str> = finding.paths.iter().map(|path| path.path.as_str()).collect();
                format!("{}/{} {:?} {}", finding.object.kind, finding.object.name, finding.reason, paths.join(" "))
            })
            .collect();
        ensure!(summary.objects > 0 && summary.in_sync == summary.objects, "{summary:?} {findings:?}");
        Ok(())
    })
    .await
}

/// A cluster and who works on it.
struct Site<'a> {
    fleet: &'a Fleet,
    plane: &'a ControlPlane,
    helm: Helm,
    log: &'a Log,
}

type Ended<'a> = (&'a Fixture, String, Vec<(Mutation, Outcome)>);

impl Site<'_> {
    async fn mutate(&self, fixtures: &[Fixture], jobs: u16) -> Result<Table> {
        let mut table = Table::default();
        for fixture in fixtures {
            table.fixture(&fixture.kind, fixture.leaves);
        }
        let copies = fixtures.iter().flat_map(|fixture| (0..fixture.shares.len()).map(move |number| (fixture, number)));
        let mut ends = stream::iter(copies).map(|(fixture, number)| self.mutate_copy(fixture, number)).buffer_unordered(usize::from(jobs));
        let (mut done, mut told) = (0, Instant::now());
        while let Some((fixture, object, ends)) = ends.try_next().await? {
            done += ends.len();
            for (mutation, outcome) in ends {
                table.add(&fixture.kind, &object, &mutation, &outcome);
            }
            if told.elapsed() > PROGRESS {
                say(&format!("{}: {done} done", self.plane.name()));
                told = Instant::now();
            }
        }
        Ok(table)
    }

    async fn mutate_copy<'f>(&self, fixture: &'f Fixture, number: usize) -> Result<Ended<'f>> {
        let declared = fixture.copy(number)?;
        let target = self.plane.targets_of(std::slice::from_ref(&declared), NAMESPACE).await?.pop().context("no target")?;
        let mut trial = Trial::open(self, &fixture.release, Copy { declared, target }).await?;
        let mutations = trial.mutations();
        let mut ends = Vec::new();
        for index in fixture.shares.get(number).into_iter().flatten() {
            let mutation = mutations.get(*index).with_context(|| format!("{} is not like the other copies", trial.name()))?;
            let outcome = trial.run(mutation).await?;
            if let Outcome::Missed(why) = &outcome {
                say(&format!("{}: {}: missed: {mutation}: {why}", self.plane.name(), trial.name()));
            }
            ends.push((mutation.clone(), outcome));
        }
        Ok((fixture, trial.name(), ends))
    }
}

/// Prints the figures and the first names of every end; a file gets all names.
fn print(cluster: &str, table: &Table, folder: &Path) -> Result<()> {
    println!("\n{cluster}\n{table}");
    let mut all = String::new();
    for (end, list) in table.named() {
        println!("{end}: {}", list.len());
        for name in list.iter().take(NAMED) {
            println!("  {name}");
        }
        all.extend([format!("{end}: {}\n", list.len())]);
        all.extend(list.iter().map(|name| format!("  {name}\n")));
    }
    let file = folder.join(format!("{cluster}.txt"));
    fs::write(&file, all).with_context(|| format!("writing {}", file.display()))?;
    println!("every name: {}", file.display());
    Ok(())
}

fn say(what: &str) {
    eprintln!("mutate: {what}");
}
