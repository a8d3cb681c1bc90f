//! The program, run as a user of its own on a shared control plane.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use holdfast_api::report::{DriftReportStatus, Finding, PathFinding};
use holdfast_testkit::{Audit, ControlPlane, Helm, Mark, Options, programs};
use tokio::{io::AsyncWriteExt, process::Command, sync::OnceCell};

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// One test's namespace and the user who scans it.
pub struct Fixture {
    /// The cluster.
    pub plane: &'static ControlPlane,
    /// The test's own namespace, also part of the user's name.
    pub namespace: String,
    user: String,
    kubeconfig: PathBuf,
    mark: Mark,
}

/// What the program said.
pub struct Outcome {
    /// Exit status.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Fixture {
    /// A new namespace, and a user who may do everything.
    pub async fn new(namespace: &str) -> Self {
        Self::with_groups(namespace, &["system:masters"]).await
    }

    /// A new namespace, and a user of these groups.
    pub async fn with_groups(namespace: &str, groups: &[&str]) -> Self {
        let plane = PLANE.get_or_init(|| async { ControlPlane::start(Options::named("scan")).await.unwrap() }).await;
        plane.namespace(namespace).await.unwrap();
        let user = format!("scan-{namespace}");
        let kubeconfig = plane.dir().join(format!("{user}.kubeconfig"));
        std::fs::write(&kubeconfig, plane.kubeconfig(&user, groups).unwrap()).unwrap();
        Self { plane, namespace: namespace.to_owned(), user, kubeconfig, mark: plane.audit_mark().await.unwrap() }
    }

    /// Installs a chart of `e2e/charts` into the namespace.
    pub async fn install(&self, helm: Helm, release: &str, chart: &str, args: &[&str]) {
        helm.install(self.plane, release, &self.namespace, &programs::chart(chart).unwrap(), args).await.unwrap();
    }

    /// Installs one template as a chart.
    pub async fn install_text(&self, helm: Helm, release: &str, template: &str) {
        let chart = self.plane.dir().join(format!("chart-{}-{release}", self.namespace));
        std::fs::create_dir_all(chart.join("templates")).unwrap();
        std::fs::write(chart.join("Chart.yaml"), format!("apiVersion: v2\nname: {release}\nversion: 0.1.0\n")).unwrap();
        std::fs::write(chart.join("templates/all.yaml"), template).unwrap();
        helm.install(self.plane, release, &self.namespace, &chart, &[]).await.unwrap();
    }

    /// Scans the namespace.
    pub async fn scan(&self, args: &[&str]) -> Outcome {
        self.run(&[&["-n", &self.namespace], args].concat(), "").await
    }

    /// Scans the namespace; answers with the exit status and what was found.
    pub async fn statuses(&self, args: &[&str]) -> (i32, Vec<DriftReportStatus>) {
        let outcome = self.scan(&[args, &["-o", "json"]].concat()).await;
        let statuses = serde_json::from_str(&outcome.out).unwrap_or_else(|error| panic!("{error}: {}{}", outcome.out, outcome.err));
        (outcome.code, statuses)
    }

    /// Runs `holdfast scan` with this text as standard input.
    pub async fn run(&self, args: &[&str], input: &str) -> Outcome {
        run_with(&self.kubeconfig, args, input).await
    }

    /// What the user asked of the server so far.
    pub async fn calls(&self) -> Audit {
        self.plane.audit_since(self.mark).await.unwrap().by_user(&self.user)
    }

    /// The one promise of every scan.
    pub async fn wrote_nothing(&self) {
        let calls = self.calls().await;
        assert!(!calls.is_empty(), "nothing was asked at all");
        assert!(calls.writes().is_empty(), "{}", calls.writes());
    }
}

/// Runs `holdfast scan` with a kubeconfig.
pub async fn run_with(kubeconfig: &Path, args: &[&str], input: &str) -> Outcome {
    let mut program = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .arg("scan")
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = program.stdin.take().unwrap();
    // A program that fails early does not read.
    _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = program.wait_with_output().await.unwrap();
    Outcome {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The finding about an object.
pub fn finding<'a>(status: &'a DriftReportStatus, kind: &str, name: &str) -> Option<&'a Finding> {
    status.findings.iter().find(|finding| finding.object.kind == kind && finding.object.name == name)
}

/// The finding's entry for a path.
pub fn path_of<'a>(finding: &'a Finding, path: &str) -> Option<&'a PathFinding> {
    finding.paths.iter().find(|entry| entry.path == path)
}

/// The manager that a path's finding names.
pub fn manager(path: &PathFinding) -> &str {
    path.actor.as_ref().map(|actor| actor.manager.as_str()).unwrap_or_default()
}

/// The `InSync` condition as `status reason`.
pub fn in_sync(status: &DriftReportStatus) -> String {
    let condition = status.conditions.iter().find(|condition| condition.kind == "InSync").unwrap();
    let truth = serde_json::to_value(condition.status).unwrap();
    format!("{} {}", truth.as_str().unwrap(), condition.reason)
}
