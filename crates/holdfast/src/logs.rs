//! Log output: text for people, JSON for machines. Never object bodies.

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Targets that would log whole response bodies when one cannot be decoded, or headers with credentials, or once more what every caller
/// reports anyway. Kept at these levels whatever
/// the filter says.
const QUIETED: [&str; 5] = ["kube_client=off", "kube_runtime=warn", "hyper=warn", "h2=warn", "rustls=warn"];

/// Starts logging to standard error. A filter that cannot be read is an error text.
pub fn start(filter: &str, format: LogFormat) -> Result<(), String> {
    let mut parsed = EnvFilter::try_new(filter).map_err(|_| format!("not a log filter: {filter}"))?;
    for directive in QUIETED {
        // Later directives for the same target win.
        parsed = parsed.add_directive(directive.parse().map_err(|_| "internal: bad directive".to_owned())?);
    }
    let output = match format {
        LogFormat::Text => tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours()).boxed(),
        LogFormat::Json => tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr).boxed(),
    };
    tracing_subscriber::registry().with(output.with_filter(parsed)).try_init().map_err(|error| error.to_string())
}

/// Whether colours are wanted: a terminal, and no `NO_COLOR`.
pub fn colours() -> bool {
    use std::io::IsTerminal;
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
