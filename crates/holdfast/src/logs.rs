//! Log output: text for people, JSON for machines. Never object bodies.

use clap::ValueEnum;
use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, filter_fn},
    layer::{Filter, SubscriberExt},
    util::SubscriberInitExt,
};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Crates that would log whole response bodies when one cannot be decoded, what servers say, or headers with credentials, or once more what every caller
/// reports anyway. Kept at these levels whatever the filter says, in all their modules.
const QUIETED: [(&str, LevelFilter); 10] = [
    ("kube_client", LevelFilter::OFF),
    ("kube_runtime", LevelFilter::OFF),
    ("hyper", LevelFilter::WARN),
    ("hyper_util", LevelFilter::WARN),
    ("hyper_rustls", LevelFilter::WARN),
    ("h2", LevelFilter::WARN),
    ("rustls", LevelFilter::WARN),
    ("tokio_rustls", LevelFilter::WARN),
    ("tower", LevelFilter::WARN),
    ("tower_http", LevelFilter::WARN),
];

/// Starts logging to standard error. A filter that cannot be read is an error text.
pub fn start(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter = self::filter(filter)?;
    let output = match format {
        LogFormat::Text => tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours()).boxed(),
        LogFormat::Json => tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr).boxed(),
    };
    tracing_subscriber::registry().with(output.with_filter(filter)).try_init().map_err(|error| error.to_string())
}

/// What the user wants, less what must be quiet.
fn filter<S: tracing::Subscriber>(wanted: &str) -> Result<impl Filter<S> + use<S>, String>
where
    EnvFilter: Filter<S>,
{
    let wanted = EnvFilter::try_new(wanted).map_err(|_| format!("not a log filter: {wanted}"))?;
    // A filter of its own: as directives of the other one, longer targets such as `kube_client::client=trace` would override these.
    Ok(filter_fn(|metadata| may_log(metadata.target(), *metadata.level())).and(wanted))
}

/// Whether a target may log at this level at all.
fn may_log(target: &str, level: Level) -> bool {
    let name = target.split_once("::").map_or(target, |(name, _)| name);
    QUIETED.iter().find(|(quieted, _)| *quieted == name).is_none_or(|(_, most)| level <= *most)
}

/// Whether colours are wanted: a terminal, and no `NO_COLOR`.
pub fn colours() -> bool {
    use std::io::IsTerminal;
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_filter_brings_back_what_must_be_quiet() {
        for (target, level, expected) in [
            ("kube_client::client", Level::ERROR, false),
            ("kube_client", Level::TRACE, false),
            ("kube_runtime::watcher", Level::ERROR, false),
            ("hyper::proto::h1::io", Level::TRACE, false),
            ("hyper_util::client::legacy", Level::DEBUG, false),
            ("h2", Level::DEBUG, false),
            ("h2::codec::framed_read", Level::ERROR, true),
            ("rustls::client::hs", Level::DEBUG, false),
            ("tower::buffer::worker", Level::INFO, false),
            ("tower_http::trace::on_request", Level::WARN, true),
            // Names that only begin alike are others.
            ("h2x::codec", Level::TRACE, true),
            ("holdfast_hub::cluster::actor", Level::TRACE, true),
            ("holdfast", Level::DEBUG, true),
        ] {
            assert_eq!(may_log(target, level), expected, "{target} at {level}");
        }
    }

    #[test]
    fn a_longer_target_does_not_override() {
        struct Lines(std::sync::mpsc::Sender<Vec<u8>>);
        impl std::io::Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.send(bytes.to_vec()).unwrap();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        let (writer, lines) = std::sync::mpsc::channel();
        let output = tracing_subscriber::fmt::layer().with_writer(move || Lines(writer.clone()));
        let filter = filter("kube_client::client=trace,hyper=trace,info").unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(output.with_filter(filter)), || {
            tracing::trace!(target: "kube_client::client", "CANARY");
            tracing::error!(target: "kube_client::client", "CANARY");
            tracing::debug!(target: "hyper::proto", "CANARY");
            tracing::debug!(target: "holdfast_hub", "not asked for");
            tracing::info!(target: "holdfast_hub", "asked for");
        });
        let text = String::from_utf8(lines.try_iter().flatten().collect()).unwrap();
        assert!(text.contains("asked for") && !text.contains("not asked for") && !text.contains("CANARY"), "{text}");
    }
}
