//! `holdfast hub`.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use holdfast_fleet::kubeconfig::{HostRule, ServerPolicy};
use holdfast_hub::{
    leadership,
    policy::DefaultMode,
    run::{HubError, HubOptions, run as run_hub},
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    kubeconfig,
    logs::{self, LogFormat},
};

/// What is done about releases that no policy selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum DefaultModeArgument {
    /// They are not watched.
    #[default]
    Off,
    /// They are watched and reported.
    Warn,
}

/// Flags of the hub; each also as an environment variable.
#[derive(Debug, Args)]
pub struct HubArguments {
    /// Kubeconfig of the management cluster; else KUBECONFIG, else the service account of the pod.
    #[arg(long, env = "HOLDFAST_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Address of /metrics, /healthz and /readyz.
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// Address of everything else; the same as --listen merges both.
    #[arg(long, env = "HOLDFAST_API_LISTEN", default_value = "127.0.0.1:8081")]
    api_listen: SocketAddr,
    /// Allow servers that are denied by default, such as loopback addresses: a host name or CIDR. Repeatable.
    #[arg(long, env = "HOLDFAST_ALLOW_SERVER", value_name = "HOST|CIDR", value_delimiter = ',')]
    allow_server: Vec<HostRule>,
    /// Deny servers: a host name or CIDR. Repeatable.
    #[arg(long, env = "HOLDFAST_DENY_SERVER", value_name = "HOST|CIDR", value_delimiter = ',')]
    deny_server: Vec<HostRule>,
    /// Name of this process in Events and logs; else the host name.
    #[arg(long, env = "HOLDFAST_ID")]
    id: Option<String>,
    /// There may be several hubs: the one that holds the Lease works, the others take over when it is gone for 25 seconds.
    #[arg(long, env = "HOLDFAST_LEADER_ELECT")]
    leader_elect: bool,
    /// Namespace of the Lease; else that of the pod, else --namespace, else holdfast-system.
    #[arg(long, env = "HOLDFAST_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    lease_namespace: Option<String>,
    /// Only this namespace of the management cluster.
    #[arg(long, env = "HOLDFAST_NAMESPACE")]
    namespace: Option<String>,
    /// What is done about releases that no policy selects.
    #[arg(long, env = "HOLDFAST_DEFAULT_MODE", value_enum, default_value_t)]
    default_mode: DefaultModeArgument,
    /// Log filter, for example `info` or `holdfast_hub=debug,info`.
    #[arg(long, env = "HOLDFAST_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// How log lines look.
    #[arg(long, env = "HOLDFAST_LOG_FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
}

/// Runs the hub until it is told to stop.
pub async fn run(arguments: HubArguments) -> ExitCode {
    if let Err(error) = logs::start(&arguments.log, arguments.log_format) {
        eprintln!("holdfast: {error}");
        return ExitCode::from(2);
    }
    match hub(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the hub ends");
            ExitCode::FAILURE
        }
    }
}

async fn hub(arguments: HubArguments) -> anyhow::Result<()> {
    let config = kubeconfig::load_or_in_cluster(arguments.kubeconfig.as_deref()).await?;
    let lease = leadership::Options {
        namespace: arguments
            .lease_namespace
            .or_else(pod_namespace)
            .or_else(|| arguments.namespace.clone())
            .unwrap_or_else(|| "holdfast-system".to_owned()),
        id: arguments.id.or_else(host_name).unwrap_or_else(|| "holdfast".to_owned()),
        elect: arguments.leader_elect,
    };
    let options = HubOptions {
        config,
        listen: arguments.listen,
        api_listen: arguments.api_listen,
        lease,
        namespace: arguments.namespace,
        default_mode: match arguments.default_mode {
            DefaultModeArgument::Off => DefaultMode::Off,
            DefaultModeArgument::Warn => DefaultMode::Warn,
        },
        servers: ServerPolicy::new(arguments.allow_server, arguments.deny_server),
    };
    let stop = CancellationToken::new();
    let mut hub = Box::pin(run_hub(options, stop.clone()));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // Cancel-safe: signals are kept, and the hub is polled again below.
    tokio::select! {
        ended = &mut hub => return ended.map_err(without_credentials),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stop.cancel();
    // A second signal, or five seconds, end the wait.
    tokio::select! {
        ended = &mut hub => ended.map_err(without_credentials),
        _ = terminate.recv() => anyhow::bail!("stopped at once by a second signal"),
        _ = interrupt.recv() => anyhow::bail!("stopped at once by a second signal"),
        () = tokio::time::sleep(Duration::from_secs(5)) => anyhow::bail!("tasks did not end within five seconds"),
    }
}

/// The client's own reason may repeat what the kubeconfig says, or what a credential helper printed.
fn without_credentials(error: HubError) -> anyhow::Error {
    match error {
        HubError::Client(_) => anyhow::anyhow!("{error}: its certificates or credentials cannot be used"),
        error => error.into(),
    }
}

/// Where every pod finds it.
fn pod_namespace() -> Option<String> {
    one_line("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
}

fn host_name() -> Option<String> {
    one_line("/proc/sys/kernel/hostname")
}

fn one_line(file: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
