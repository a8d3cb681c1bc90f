//! `holdfast scan`: one look at a cluster with the same engine as the hub. Nothing is installed, nothing is written.

mod lists;
mod paint;
mod preload;
mod progress;
mod shapes;
mod survey;
mod table;

use std::{
    fmt,
    io::{ErrorKind, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use holdfast_api::{
    condition::Truth,
    report::{DriftReportStatus, Verdict},
};
use holdfast_fleet::{
    call::{ApiClient, Deadlines},
    transport::{Connection, Unobserved},
};
use holdfast_hub::cluster::state::ClusterId;

use crate::kubeconfig;
use paint::Paint;
use survey::Survey;

/// There is only one cluster.
const CLUSTER: ClusterId = ClusterId(0);

/// Where releases are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    /// Everywhere.
    Cluster,
    /// In one namespace.
    Namespace(String),
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
enum Output {
    /// For people.
    #[default]
    Table,
    /// A list of `DriftReport.status`.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Flags of the scan.
#[derive(Debug, Args)]
pub struct ScanArguments {
    /// Releases of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Releases of this namespace; else that of the kubeconfig's context.
    #[arg(short = 'n', long, conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// Only this release.
    #[arg(long)]
    release: Option<String>,
    /// Compare these manifests instead of releases; `-` reads standard input.
    #[arg(long, value_name = "FILE|-", conflicts_with = "release")]
    manifest: Option<PathBuf>,
    /// Kubeconfig; else KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long)]
    context: Option<String>,
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
    let config = kubeconfig::load(arguments.kubeconfig.as_deref(), arguments.context.clone()).await?;
    let namespace = arguments.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let scope = if arguments.all_namespaces { Scope::Cluster } else { Scope::Namespace(namespace.clone()) };
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let connection = Connection::from_client_config(config, Arc::new(Unobserved)).await?;
    let survey = Survey::prepare(ApiClient::new(connection, Deadlines::default()), scope.clone())
        .await
        .map_err(|error| anyhow::anyhow!("{server}: {error:#}; --context and --kubeconfig choose another cluster"))?;
    if let Some(text) = manifests {
        return Ok(vec![survey.manifests(&text, &namespace).await?]);
    }
    let statuses = survey.releases(arguments.release.as_deref()).await?;
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

fn print(statuses: &[DriftReportStatus], output: Output) -> anyhow::Result<()> {
    let text = match output {
        Output::Table if statuses.is_empty() => String::new(),
        Output::Table => table::render(statuses, Paint::for_stdout()),
        Output::Json => serde_json::to_string_pretty(statuses)? + "\n",
        Output::Yaml => serde_saphyr::to_string(&statuses)?,
    };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has seen enough, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the result"),
    }
}

/// As `kubectl diff`: 0 nothing, 1 drift, above that something went wrong; here also where something could not be judged.
fn exit_code(statuses: &[DriftReportStatus]) -> u8 {
    let is_unknown = |status: &DriftReportStatus| {
        let condition = status.conditions.iter().find(|condition| condition.kind == "InSync");
        status.summary.unknown > 0 || condition.is_none_or(|condition| condition.status == Truth::Unknown)
    };
    let differs = |status: &DriftReportStatus| {
        status.summary.in_sync != status.summary.objects || status.findings.iter().any(|finding| finding.verdict != Verdict::InSync)
    };
    if statuses.iter().any(is_unknown) { 2 } else { u8::from(statuses.iter().any(differs)) }
}
