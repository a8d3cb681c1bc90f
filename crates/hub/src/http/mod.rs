//! What the hub answers over HTTP: metrics and probes on one address, the task list on another that is loopback by default.

#[cfg(test)]
mod tests;

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use holdfast_fleet::{supervisor::Supervisor, term::Term};
use tokio::{net::TcpListener, sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{fleet_view::FleetView, metrics::Metrics};

/// How long requests under way may take when the hub ends.
const DRAIN: Duration = Duration::from_secs(2);

/// Why the hub cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Accepting connections failed.
    #[error("the HTTP server ended")]
    Serve(#[source] std::io::Error),
}

impl HttpError {
    /// A stable word.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "Listen",
            Self::Serve(_) => "Serve",
        }
    }
}

/// What the answers come from. Cheap to clone.
#[derive(Clone)]
pub struct Sources {
    /// The page of `/metrics`.
    pub metrics: Arc<Metrics>,
    /// `/readyz` says yes once the view is complete …
    pub fleet: watch::Receiver<Arc<FleetView>>,
    /// … and whether this hub leads or stands by.
    pub term: watch::Receiver<Option<Term>>,
    /// `/healthz` says yes while no task failed that the hub cannot do without; `/debug/tasks` lists all.
    pub supervisor: Supervisor,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

/// A bound listener; bound before anything else starts, so that a wrong address ends the hub at once.
#[derive(Debug)]
pub struct Listener {
    inner: TcpListener,
    routes: Router,
}

impl Listener {
    /// The listener of `--listen`: metrics and probes. It may face the cluster's network, so it shows nothing else.
    pub async fn public(address: SocketAddr, sources: Sources) -> Result<Self, HttpError> {
        Self::bind(address, public_routes().with_state(sources)).await
    }

    /// The listener of `--api-listen`.
    ///
    /// What it shows needs no token, so on an address that is not loopback it answers only what [`Listener::public`] does.
    pub async fn api(address: SocketAddr, sources: Sources) -> Result<Self, HttpError> {
        let routes = if address.ip().is_loopback() { public_routes().merge(private_routes()) } else { public_routes() };
        Self::bind(address, routes.with_state(sources)).await
    }

    async fn bind(address: SocketAddr, routes: Router) -> Result<Self, HttpError> {
        let inner = TcpListener::bind(address).await.map_err(|source| HttpError::Listen { address, source })?;
        Ok(Self { inner, routes })
    }

    /// The address it listens on, with the port the system chose where none was given.
    pub fn address(&self) -> Option<SocketAddr> {
        self.inner.local_addr().ok()
    }

    /// Serves until `token` is cancelled, then finishes what is under way for at most two seconds.
    pub async fn serve(self, token: CancellationToken) -> Result<(), HttpError> {
        let stop = token.clone().cancelled_owned();
        let server = std::future::IntoFuture::into_future(axum::serve(self.inner, self.routes).with_graceful_shutdown(stop));
        tokio::pin!(server);
        tokio::select! {
            biased;
            ended = &mut server => ended.map_err(HttpError::Serve),
            () = token.cancelled() => match timeout(DRAIN, &mut server).await {
                Ok(ended) => ended.map_err(HttpError::Serve),
                // A client that holds its connection open does not hold up the hub.
                Err(_) => Ok(()),
            },
        }
    }
}

fn public_routes() -> Router<Sources> {
    Router::new().route("/metrics", get(metrics)).route("/healthz", get(healthz)).route("/readyz", get(readyz))
}

fn private_routes() -> Router<Sources> {
    Router::new().route("/debug/tasks", get(tasks))
}

async fn metrics(State(sources): State<Sources>) -> Response {
    ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], sources.metrics.page()).into_response()
}

async fn healthz(State(sources): State<Sources>) -> Response {
    match sources.supervisor.failure() {
        None => "ok\n".into_response(),
        Some(task) => (StatusCode::SERVICE_UNAVAILABLE, format!("task {task} failed\n")).into_response(),
    }
}

async fn readyz(State(sources): State<Sources>) -> Response {
    let leads = sources.term.borrow().as_ref().is_some_and(Term::holds);
    match (sources.fleet.borrow().complete, leads) {
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "the management cluster was not read completely yet\n").into_response(),
        (true, true) => "ok\n".into_response(),
        // Ready to take over, and a roll-out must not wait for more.
        (true, false) => "standby\n".into_response(),
    }
}

async fn tasks(State(sources): State<Sources>) -> Response {
    let lines: Vec<String> = sources
        .supervisor
        .dump()
        .into_iter()
        .map(|task| format!("{:?}\t{}s\trestarts={}\t{}\n", task.state, task.age.as_secs(), task.restarts, task.path))
        .collect();
    lines.concat().into_response()
}
