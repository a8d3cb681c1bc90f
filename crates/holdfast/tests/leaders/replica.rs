//! One of several hubs of a management cluster, as a process that can be stopped, paused and killed.

use std::{
    fs::File,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use holdfast_testkit::{Audit, ControlPlane, Mark, eventually};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::PATIENCE;

/// A hub with `--leader-elect`. On the management cluster it has a user of its own, so that its calls can be told from the others'.
pub struct Replica {
    process: Child,
    pub name: String,
    user: String,
    address: String,
    log: PathBuf,
}

impl Replica {
    /// Starts a hub for a namespace of a management cluster; `name` is unique there.
    pub fn start(mgmt: &ControlPlane, namespace: &str, name: &str, further: &[&str]) -> Self {
        Self::start_in_group(mgmt, namespace, name, "system:masters", further)
    }

    /// The same for an account with the rights of a group and its own.
    pub fn start_in_group(mgmt: &ControlPlane, namespace: &str, name: &str, group: &str, further: &[&str]) -> Self {
        let user = Self::user(namespace, name);
        let folder = mgmt.dir().join("replicas");
        std::fs::create_dir_all(&folder).unwrap();
        let kubeconfig = folder.join(format!("{user}.kubeconfig"));
        std::fs::write(&kubeconfig, mgmt.kubeconfig(&user, &[group]).unwrap()).unwrap();
        let log = folder.join(format!("{user}.log"));
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let process = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(["hub", "--kubeconfig"])
            .arg(kubeconfig)
            .args(["--listen", &address, "--api-listen", &address, "--allow-server", "127.0.0.0/8"])
            .args(["--namespace", namespace, "--id", name, "--log", "info,holdfast_hub=debug", "--log-format", "json"])
            .args(further)
            .stdout(Stdio::null())
            .stderr(File::options().create(true).append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        Self { process, name: name.to_owned(), user, address, log }
    }

    /// Its user on the management cluster.
    pub fn user(namespace: &str, name: &str) -> String {
        format!("{namespace}-{name}")
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap().success());
    }

    /// Stops it in mid-air; everything it waits for goes on without it.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Ends [`Replica::pause`].
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    /// Ends it without a chance to say anything.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Ends it as Kubernetes does.
    pub fn stop(mut self) {
        self.signal("-TERM");
        assert!(self.process.wait().unwrap().success(), "{}", self.tail());
    }

    /// One page of its listener.
    pub async fn page(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n").as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    /// Waits until `check` holds; panics with its last error and the end of the log otherwise.
    pub async fn wait(&self, what: &str, check: impl AsyncFn() -> Result<()>) {
        if let Err(error) = eventually(what, PATIENCE, check).await {
            panic!("{}: {error:#}\n--- hub ---\n{}", self.name, self.tail());
        }
    }

    /// Waits until `/readyz` says `ok` or `standby`.
    pub async fn wait_ready(&self, word: &str) {
        self.wait(word, async || {
            let page = self.page("/readyz").await?;
            ensure!(page.starts_with("HTTP/1.1 200") && page.ends_with(&format!("\r\n\r\n{word}\n")), "{page}");
            Ok(())
        })
        .await;
    }

    /// Waits until a sample of `/metrics` has a value.
    pub async fn wait_metric(&self, sample: &str, wanted: u64) {
        self.wait(sample, async || {
            let page = self.page("/metrics").await?;
            let value = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ').map(str::to_owned));
            let value: u64 = value.context("no such sample")?.trim().parse()?;
            ensure!(value == wanted, "it is {value}");
            Ok(())
        })
        .await;
    }

    /// Waits until it has logged a message.
    pub async fn wait_logged(&self, message: &str) {
        self.wait(message, async || {
            ensure!(self.lines().iter().any(|line| line["message"].as_str().is_some_and(|text| text.contains(message))), "not yet");
            Ok(())
        })
        .await;
    }

    /// How many writes to workload clusters it has logged.
    pub fn corrections(&self) -> usize {
        self.lines().iter().filter(|line| line["audit"] == "correction").count()
    }

    /// Its changes on the management cluster since `mark`, without those of the Lease that were refused.
    pub async fn management_writes(&self, mgmt: &ControlPlane, mark: Mark) -> Audit {
        let writes = mgmt.audit_since(mark).await.unwrap().by_user(&self.user).writes();
        writes.filter(|call| !(call.resource == "leases" && call.code == Some(409)))
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // A paused process is killed too.
        _ = self.process.kill();
        _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("log of {}: {}", self.name, self.log.display());
        }
    }
}
