//! The hub as a process: built, started, looked at, stopped.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{BufRead, BufReader},
    net::{Ipv4Addr, TcpListener},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_testkit::{eventually, programs};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::fleet::{Fleet, NAMESPACE};

/// Bound for the hub's first answer.
const READY: Duration = Duration::from_mins(1);
/// Bound for one page of the hub.
const PAGE: Duration = Duration::from_secs(10);

/// Runs a program until standard input ends, which happens whatever ends this process.
const SUPERVISOR: &str = r#""$@" >/dev/null & echo $!; while read -r _; do :; done; kill $! && wait $!"#;

/// How the hub is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Quick to build.
    Dev,
    /// What is measured.
    Release,
}

/// Builds the program `holdfast`; answers where it is.
pub async fn build(profile: Profile) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = tokio::process::Command::new(cargo);
    command.kill_on_drop(true).args(["build", "--quiet", "--package", "holdfast"]).args(match profile {
        // Together, as `make demo` builds them: alone it would need its dependencies with other features, so once more.
        Profile::Dev => ["--package", "xtask"].as_slice(),
        Profile::Release => &["--release"],
    });
    ensure!(command.status().await.context("running cargo")?.success(), "cargo build --package holdfast failed");
    // This program is in a profile's folder of the same target folder.
    let own = std::env::current_exe().context("looking for the target folder")?;
    let target = own.ancestors().nth(2).context("not in a target folder")?;
    let folder = match profile {
        Profile::Dev => "debug",
        Profile::Release => "release",
    };
    Ok(target.join(folder).join("holdfast"))
}

/// What a tool that tries a hub starts with: a folder `target/NAME` of its own, and the given program or else one that is built for it.
pub async fn prepare(name: &str, program: Option<&Path>) -> Result<(PathBuf, PathBuf)> {
    let folder = programs::workspace()?.join("target").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let program = if let Some(program) = program {
        program.to_owned()
    } else {
        eprintln!("{name}: building holdfast, release profile");
        build(Profile::Release).await?
    };
    Ok((folder, program))
}

/// What a process holds, for people.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Resident memory in bytes.
    pub resident: f64,
    /// Open sockets.
    pub sockets: f64,
    /// Open descriptors of every sort.
    pub files: f64,
}

/// A running hub. Dropping it stops it as Kubernetes would; so does the death of this process.
pub struct Hub {
    shell: Child,
    pid: u32,
    address: String,
}

impl Hub {
    /// Starts the hub of a fleet with its kubeconfig and log in `folder`, and waits until it is ready.
    pub async fn start(program: &Path, fleet: &Fleet, folder: &Path) -> Result<Self> {
        let kubeconfig = folder.join("hub.kubeconfig");
        fs::write(&kubeconfig, fleet.management.kubeconfig("hub", &["system:masters"])?).context("writing the hub's kubeconfig")?;
        let log = File::create(Self::log(folder)).context("creating the hub's log")?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SUPERVISOR, "hub"])
            .arg(program)
            .args(["hub", "--kubeconfig"])
            .arg(kubeconfig)
            .args(["--listen", &address, "--api-listen", &address, "--allow-server", "127.0.0.0/8", "--log-format", "json"])
            .args(["--lease-namespace", NAMESPACE])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // A terminal's Ctrl-C is for us: the hub follows through the pipe.
            .process_group(0)
            .spawn()
            .context("starting the hub")?;
        let mut first_line = String::new();
        BufReader::new(shell.stdout.take().context("no output of the hub's shell")?)
            .read_line(&mut first_line)
            .context("starting the hub")?;
        let pid = first_line.trim().parse().context("starting the hub")?;
        let hub = Self { shell, pid, address };
        eventually("the hub is ready", READY, async || {
            let page = hub.page("/readyz").await?;
            ensure!(page.starts_with("HTTP/1.1 200"), "{}", page.lines().next().unwrap_or_default());
            Ok(())
        })
        .await?;
        Ok(hub)
    }

    /// The hub's log in `folder`.
    pub fn log(folder: &Path) -> PathBuf {
        folder.join("hub.log")
    }

    /// Where the hub listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The sum over all series of a metric.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let page = self.page("/metrics").await?;
        let mut sum = None;
        for line in page.lines() {
            let Some((series, value)) = line.trim_end().rsplit_once(' ') else { continue };
            if series.split('{').next() == Some(name) {
                let value: f64 = value.parse().with_context(|| format!("the metric {name}"))?;
                *sum.get_or_insert(0.0) += value;
            }
        }
        sum.with_context(|| format!("no metric {name}"))
    }

    /// The series of a metric that has this label, as it is printed.
    pub async fn metric_of(&self, name: &str, label: &str) -> Result<f64> {
        let page = self.page("/metrics").await?;
        let line = page.lines().find(|line| line.split('{').next() == Some(name) && line.contains(label));
        let value = line.and_then(|line| line.trim_end().rsplit_once(' ')).with_context(|| format!("no metric {name}"))?.1;
        value.parse().with_context(|| format!("the metric {name}"))
    }

    /// The most memory the process has had resident, in bytes.
    pub fn peak_rss(&self) -> Result<u64> {
        self.status("VmHWM:")
    }

    /// How many tasks the hub runs.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub async fn tasks(&self) -> Result<f64> {
        let page = self.page("/debug/tasks").await?;
        let (_, tasks) = page.split_once("\r\n\r\n").context("no list of tasks")?;
        Ok(tasks.lines().count() as f64)
    }

    /// What the process holds now.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub fn usage(&self) -> Result<Usage> {
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid)).context("the hub is gone")?;
        // A descriptor may be closed while it is looked at.
        let targets: Vec<PathBuf> = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
        let sockets = targets.iter().filter(|target| target.to_string_lossy().starts_with("socket:")).count();
        Ok(Usage { resident: self.status("VmRSS:")? as f64, sockets: sockets as f64, files: targets.len() as f64 })
    }

    /// A size from the process's status, in bytes.
    fn status(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).context("the hub is gone")?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().with_context(|| name.to_owned())?;
        Ok(kibibytes * 1024)
    }

    async fn page(&self, path: &str) -> Result<String> {
        let get = async {
            let mut stream = TcpStream::connect(&self.address).await?;
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n").as_bytes()).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            Ok(text)
        };
        tokio::time::timeout(PAGE, get).await.with_context(|| format!("no answer to {path}"))?
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // The shell kills the hub when its input ends; it stops by itself within five seconds.
        drop(self.shell.stdin.take());
        self.shell.wait().ok();
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    Ok(listener.local_addr().context("looking for a free port")?.port())
}
