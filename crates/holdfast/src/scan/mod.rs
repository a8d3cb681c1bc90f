//! `holdfast scan`: one look at a cluster with the same engine as the hub. Nothing is installed, nothing is written.

mod lists;
pub mod paint;
mod preload;
pub mod progress;
mod shapes;
pub mod survey;
pub mod table;

use std::{
    fmt,
    io::{ErrorKind, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use holdfast_api::{
    condition::Truth,
    report::{DriftReportStatus, Verdict},
};
use holdfast_hub::cluster::state::ClusterId;
use serde::Serialize;

use crate::selection::Selection;
use paint::Paint;
use survey::{Purpose, Survey};

/// There is only one cluster.
pub const CLUSTER: ClusterId = ClusterId(0);

/// Where releases are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    Cluster,
    /// In one namespace.
    Namespace(String),
}

impl Scope {
    /// Whether a namespace belongs to it.
    pub fn holds(&self, namespace: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespace(own) => own == namespace,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("in any namespace"),
            Self::Namespace(namespace) => write!(f, "in namespace {namespace}"),
        }
    }
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For machines; see the examples.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Flags of the scan.
#[derive(Debug, Args)]
pub struct ScanArguments {
    /// The releases.
    #[command(flatten)]
    selection: Selection,
    /// Compare these manifests instead of releases; `-` reads standard input.
    #[arg(long, value_name = "FILE|-", conflicts_with = "release")]
    manifest: Option<PathBuf>,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    output: Output,
    /// Log filter, for example debug.
    #[arg(long, env = "HOLDFAST_LOG", default_value = "error", value_name = "FILTER")]
    log: String,
}

/// Scans and prints. The exit status tells what was found.
pub async fn run(arguments: ScanArguments) -> ExitCode {
    if let Err(error) = crate::logs::start(&arguments.log, crate::logs::LogFormat::Text) {
        eprintln!("holdfast: {error}");
        return ExitCode::from(2);
    }
    let scanned = Box::pin(scan(&arguments)).await;
    match scanned.and_then(|statuses| print(&statuses, arguments.output).map(|()| statuses)) {
        Ok(statuses) => ExitCode::from(exit_code(&statuses)),
        Err(error) => {
            eprintln!("holdfast: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn scan(arguments: &ScanArguments) -> anyhow::Result<Vec<DriftReportStatus>> {
    // Read first: a typing mistake should not cost a connection.
    let manifests = arguments.manifest.as_deref().map(read_manifests).transpose()?;
    let reached = arguments.selection.target.reach().await?;
    let scope = arguments.selection.scope(&reached.namespace);
    let namespace = arguments.selection.namespace.clone().unwrap_or_else(|| reached.namespace.clone());
    let survey = reached.survey(scope.clone(), Purpose::Look, Survey::unguarded()).await?;
    if let Some(text) = manifests {
        return Ok(vec![survey.manifests(&text, &namespace).await?]);
    }
    let statuses = survey.releases(&scope, arguments.selection.release.as_deref()).await?;
    if statuses.is_empty() {
        let hint = if scope == Scope::Cluster { "" } else { "; -A looks in all namespaces" };
        eprintln!("holdfast: there are no Helm releases {scope}{hint}");
    }
    Ok(statuses)
}

fn read_manifests(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Prints statuses.
pub fn print(statuses: &[DriftReportStatus], output: Output) -> anyhow::Result<()> {
    print_as(output, &statuses, |paint| if statuses.is_empty() { String::new() } else { table::render(statuses, paint) })
}

/// Prints a value for machines, or what `for_people` makes of it.
pub fn print_as(output: Output, value: &impl Serialize, for_people: impl FnOnce(Paint) -> String) -> anyhow::Result<()> {
    let text = match output {
        Output::Table => for_people(Paint::for_stdout()),
        Output::Json => serde_json::to_string_pretty(value)? + "\n",
        Output::Yaml => serde_saphyr::to_string(value)?,
    };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has seen enough, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the result"),
    }
}

/// As `kubectl diff`: 0 nothing, 1 drift, above that something went wrong; here also where something could not be judged.
pub fn exit_code(statuses: &[DriftReportStatus]) -> u8 {
    let is_unknown = |status: &DriftReportStatus| {
        let condition = status.conditions.iter().find(|condition| condition.kind == "InSync");
        status.summary.unknown > 0 || condition.is_none_or(|condition| condition.status == Truth::Unknown)
    };
    let differs = |status: &DriftReportStatus| {
        status.summary.in_sync != status.summary.objects || status.findings.iter().any(|finding| finding.verdict != Verdict::InSync)
    };
    if statuses.iter().any(is_unknown) { 2 } else { u8::from(statuses.iter().any(differs)) }
}
