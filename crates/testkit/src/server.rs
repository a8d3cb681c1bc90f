//! Starting a server on a free loopback port and knowing when it is ready.

use std::{
    ffi::OsString,
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

use crate::{
    programs::Program,
    supervisor::{Launch, Supervised},
    work_dir::WorkDir,
};

/// Time for a server to become ready, generous because a test machine compiles beside it.
const READY: Duration = Duration::from_mins(2);
/// How often readiness is asked.
const POLL: Duration = Duration::from_millis(50);
/// Somebody may take a free port before the server does.
const PORT_ATTEMPTS: usize = 5;

/// A running server.
pub(crate) struct Server {
    program: Supervised,
    name: &'static str,
    log: PathBuf,
}

impl Server {
    /// Starts a server with a log file in `dir`.
    pub(crate) fn start(program: Program, work: &WorkDir, dir: &Path, args: Vec<OsString>) -> Result<Self> {
        let log = dir.join(format!("{}.log", program.file_name()));
        let program_path = program.path()?;
        let launch = Launch { program: &program_path, args, env: Vec::new(), work_dir: work.path(), out: log.clone(), err: log.clone() };
        Ok(Self { program: Supervised::start(launch)?, name: program.file_name(), log })
    }

    /// Asks until `ready` answers yes. An error if the server ends before, or takes too long.
    pub(crate) async fn wait_until(&mut self, ready: impl AsyncFn() -> bool) -> Result<()> {
        let until = Instant::now() + READY;
        loop {
            // Ended first: another server on the same port could answer for ours.
            if self.program.ended()?.is_some() {
                bail!("{} ended: {}", self.name, self.last_words());
            }
            if ready().await {
                return Ok(());
            }
            if Instant::now() >= until {
                bail!("{} is not ready after {READY:?}; see {}", self.name, self.log.display());
            }
            sleep(POLL).await;
        }
    }

    /// Whether the server ended because its port was taken.
    pub(crate) fn lost_its_port(&mut self) -> bool {
        matches!(self.program.ended(), Ok(Some(_))) && self.log_text().contains("address already in use")
    }

    /// Suspends the server.
    pub(crate) fn freeze(&mut self) -> Result<()> {
        self.program.freeze()
    }

    /// Lets a suspended server go on.
    pub(crate) fn thaw(&mut self) -> Result<()> {
        self.program.thaw()
    }

    fn log_text(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    fn last_words(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Runs `start` with free ports until it does not fail for a taken one. `start` gives the server and whether it became ready.
pub(crate) async fn on_free_port<T>(start: impl AsyncFn(u16) -> Result<(T, Server, Result<()>)>) -> Result<(T, Server)> {
    let mut attempt = 1;
    loop {
        let (value, mut server, outcome) = start(free_port()?).await?;
        match outcome {
            Ok(()) => return Ok((value, server)),
            Err(_) if attempt < PORT_ATTEMPTS && server.lost_its_port() => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// `--name=value` for each pair.
pub(crate) fn flags<const N: usize>(pairs: [(&str, &dyn AsFlag); N]) -> Vec<OsString> {
    pairs
        .into_iter()
        .map(|(name, value)| {
            let mut flag = OsString::from(format!("--{name}="));
            value.append_to(&mut flag);
            flag
        })
        .collect()
}

/// What can be a flag's value.
pub(crate) trait AsFlag {
    /// Adds the value to the flag.
    fn append_to(&self, flag: &mut OsString);
}

impl AsFlag for &str {
    fn append_to(&self, flag: &mut OsString) {
        flag.push(self);
    }
}

impl AsFlag for String {
    fn append_to(&self, flag: &mut OsString) {
        flag.push(self);
    }
}

impl AsFlag for PathBuf {
    fn append_to(&self, flag: &mut OsString) {
        flag.push(self);
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    Ok(listener.local_addr().context("looking for a free port")?.port())
}
