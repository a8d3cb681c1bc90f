//! `holdfast scan`: one look at a cluster with the same engine as the hub. Nothing is installed, nothing is written.

mod survey;
mod table;

use std::{io::Read as _, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use holdfast_api::report::{DriftReportStatus, Verdict};
use holdfast_fleet::{
    call::{ApiClient, Deadlines},
    transport::{Connection, Unobserved},
};
use kube::config::{KubeConfigOptions, Kubeconfig};

use survey::{Scope, Survey};

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
    match scan(&arguments).await.and_then(|statuses| print(&statuses, arguments.output).map(|()| statuses)) {
        Ok(statuses) => ExitCode::from(exit_code(&statuses)),
        Err(error) => {
            eprintln!("holdfast: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn scan(arguments: &ScanArguments) -> anyhow::Result<Vec<DriftReportStatus>> {
    let config = config(arguments).await?;
    let namespace = arguments.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let connection = Connection::from_client_config(config, Arc::new(Unobserved)).await.context("cannot connect")?;
    let client = ApiClient::new(connection, Deadlines::default());
    let scope = if arguments.all_namespaces { Scope::Cluster } else { Scope::Namespace(namespace.clone()) };
    let survey = Survey::prepare(client, scope.clone()).await?;
    match &arguments.manifest {
        Some(file) => Ok(vec![survey.manifests(&read_manifests(file)?, &namespace).await]),
        None => survey.releases(arguments.release.as_deref()).await,
    }
}

async fn config(arguments: &ScanArguments) -> anyhow::Result<kube::Config> {
    let kubeconfig = match &arguments.kubeconfig {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    }
    .context("cannot read the kubeconfig")?;
    let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
    kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.context("cannot use the kubeconfig")
}

fn read_manifests(file: &std::path::Path) -> anyhow::Result<String> {
    if file == std::path::Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn print(statuses: &[DriftReportStatus], output: Output) -> anyhow::Result<()> {
    match output {
        Output::Table => print!("{}", table::render(statuses)),
        Output::Json => println!("{}", serde_json::to_string_pretty(statuses)?),
        Output::Yaml => print!("{}", serde_saphyr::to_string(&statuses)?),
    }
    Ok(())
}

/// As `kubectl diff`: 0 nothing, 1 drift, above that something went wrong; here also where something could not be judged.
fn exit_code(statuses: &[DriftReportStatus]) -> u8 {
    let unknown = statuses.iter().any(|status| {
        status.summary.unknown > 0 || status.conditions.iter().any(|condition| condition.kind == "InSync" && condition.status == holdfast_api::condition::Truth::Unknown)
    });
    let drift = statuses.iter().any(|status| {
        let summary = &status.summary;
        summary.drifted + summary.missing + summary.refused + summary.contested + summary.terminating > 0
            || status.findings.iter().any(|finding| finding.verdict != Verdict::InSync)
    });
    match (unknown, drift) {
        (true, _) => 2,
        (false, true) => 1,
        (false, false) => 0,
    }
}
