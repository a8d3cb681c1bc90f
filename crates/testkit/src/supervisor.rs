//! A child process that cannot outlive this one.

use std::{
    ffi::{OsStr, OsString},
    fs::OpenOptions,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

/// How often a running program is looked at.
const POLL: Duration = Duration::from_millis(5);

/// What to start.
pub(crate) struct Launch<'a> {
    /// The program's file.
    pub program: &'a Path,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The folder that goes with the last orphaned program.
    pub work_dir: &'a Path,
    /// Where standard output is appended.
    pub out: PathBuf,
    /// Where standard error is appended.
    pub err: PathBuf,
}

/// A program run by a small shell that kills it when this process stops, asks, panics, or is itself killed.
///
/// The shell reads from a pipe whose only writing end is here: the kernel closes it whatever ends this process, so that neither
/// a destructor (a `static` has none) nor a signal handler is needed.
pub(crate) struct Supervised {
    shell: Child,
    control: Option<ChildStdin>,
}

impl Supervised {
    /// Starts the program.
    pub(crate) fn start(launch: Launch<'_>) -> Result<Self> {
        // Made here, so that a program that dies at once still leaves a file to read.
        for file in [&launch.out, &launch.err] {
            OpenOptions::new().create(true).append(true).open(file).with_context(|| format!("creating {}", file.display()))?;
        }
        let mut shell = Command::new("/bin/sh")
            .args([OsStr::new("-c"), OsStr::new(include_str!("supervisor.sh")), OsStr::new("supervisor")])
            .args([launch.work_dir.as_os_str(), launch.out.as_os_str(), launch.err.as_os_str(), launch.program.as_os_str()])
            .args(&launch.args)
            .env_clear()
            .envs(launch.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A terminal's Ctrl-C is for us: the programs follow through the pipe.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", launch.program.display()))?;
        let control = shell.stdin.take();
        Ok(Self { shell, control })
    }

    /// How the program ended, if it did.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.shell.try_wait().context("waiting for a program")
    }

    /// Waits for the program to end by itself; kills it at the deadline.
    pub(crate) async fn wait(mut self, deadline: Duration) -> Result<ExitStatus> {
        let until = Instant::now() + deadline;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() >= until {
                bail!("still running after {deadline:?}");
            }
            sleep(POLL).await;
        }
    }

    /// Suspends the program: its connections stay open and nothing answers.
    pub(crate) fn freeze(&mut self) -> Result<()> {
        self.tell("freeze\n")
    }

    /// Lets a suspended program go on.
    pub(crate) fn thaw(&mut self) -> Result<()> {
        self.tell("thaw\n")
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let control = self.control.as_mut().context("already stopped")?;
        control.write_all(line.as_bytes()).context("speaking to a supervisor")
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // A supervisor that is gone has already buried its program, so a failure here means that nothing is left to do.
        self.tell("stop\n").ok();
        self.control = None;
        self.shell.wait().ok();
    }
}
