//! `holdfast scan` of one release, counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use holdfast_api::{
    condition::{Condition, Truth},
    report::{Action, DeviationReason, DriftReportStatus, Finding, PathFinding, Verdict},
};
use holdfast_testkit::ControlPlane;
use tokio::{
    process::Command,
    time::{Duration, Instant, timeout},
};

/// The user of scans in the audit log.
const USER: &str = "scan";
/// Bound for one scan.
const DEADLINE: Duration = Duration::from_mins(2);
/// Details told of one scan at most.
const DETAILS: usize = 12;

/// The program and whom it looks at.
pub struct Scanner {
    program: PathBuf,
    kubeconfig: PathBuf,
}

/// What a scan found.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Objects that the release declares.
    pub objects: u64,
    /// Objects told as drifted, missing, refused, contested or terminating.
    pub differing: u64,
    /// Objects that could not be judged.
    pub unknown: u64,
    /// Objects that were judged by a guess, in sync or not.
    pub inexact: u64,
    /// Those that were not judged or by a guess, which a hub does not write: kind, namespace and name.
    pub unwritten: BTreeSet<(String, String, String)>,
    /// Fields told as added by somebody.
    pub foreign: u64,
    /// Accepted differences by reason.
    pub deviations: BTreeMap<DeviationReason, u64>,
    /// What the server was asked to try.
    pub dry_runs: usize,
    /// How long it took.
    pub took: Duration,
    /// What is not as it should be, a line each.
    pub details: Vec<String>,
}

impl Scanner {
    /// A scanner of this cluster.
    pub fn new(program: PathBuf, plane: &ControlPlane) -> Result<Self> {
        let kubeconfig = plane.dir().join("scan.kubeconfig");
        std::fs::write(&kubeconfig, plane.kubeconfig(USER, &["system:masters"])?).context("writing the scan's kubeconfig")?;
        Ok(Self { program, kubeconfig })
    }

    /// Scans one release. `others_add` tells that somebody really adds fields, which is not held against the scan.
    pub async fn scan(&self, plane: &ControlPlane, namespace: &str, release: &str, others_add: bool) -> Result<Scan> {
        let mark = plane.audit_mark().await?;
        let started = Instant::now();
        let output = Command::new(&self.program)
            .args(["scan", "--output", "json", "--namespace", namespace, "--release", release, "--kubeconfig"])
            .arg(&self.kubeconfig)
            .env_clear()
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(DEADLINE, output).await.context("the scan takes too long")?.context("running the scan")?;
        let took = started.elapsed();
        let statuses: Vec<DriftReportStatus> = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("the scan says: {}", String::from_utf8_lossy(&output.stderr).trim_end()))?;
        let [status] = statuses.as_slice() else { anyhow::bail!("{} releases instead of one", statuses.len()) };
        let calls = plane.audit_since(mark).await?.by_user(USER);
        ensure!(calls.writes().is_empty(), "the scan wrote:\n{}", calls.writes());
        Ok(Scan { dry_runs: calls.dry_runs().len(), took, ..Scan::of(status, others_add) })
    }
}

impl Scan {
    fn of(status: &DriftReportStatus, others_add: bool) -> Self {
        let summary = &status.summary;
        let mut deviations: BTreeMap<DeviationReason, u64> = BTreeMap::new();
        for deviation in &status.deviations {
            *deviations.entry(deviation.reason).or_default() += 1;
        }
        // Those that only respell a value are counted and not listed; of the listed ones the report holds a bounded number.
        let listed = deviations.values().sum::<u64>() + status.deviations_truncated;
        deviations.insert(DeviationReason::Normalized, summary.deviations.saturating_sub(listed));
        let is_inexact = |finding: &&Finding| finding.message.contains("as far as can be told");
        let mut scan = Self {
            objects: summary.objects,
            differing: summary.drifted + summary.missing + summary.refused + summary.contested + summary.terminating,
            unknown: summary.unknown,
            inexact: status.findings.iter().filter(is_inexact).count() as u64,
            unwritten: status
                .findings
                .iter()
                .filter(|finding| finding.verdict == Verdict::Unknown || is_inexact(finding))
                .map(|finding| (finding.object.kind.clone(), finding.object.namespace.clone(), finding.object.name.clone()))
                .collect(),
            foreign: summary.foreign,
            deviations,
            ..Self::default()
        };
        let unclear = |condition: &&Condition| condition.kind == "InSync" && condition.status == Truth::Unknown;
        if let Some(condition) = status.conditions.iter().find(unclear) {
            scan.unknown = scan.unknown.max(1);
            scan.details.push(format!("InSync is Unknown: {} {}", condition.reason, condition.message));
        }
        let told = status.findings.iter().filter(|finding| {
            finding.verdict != Verdict::InSync || is_inexact(finding) || (finding.action == Action::Reported && !others_add)
        });
        scan.details.extend(told.take(DETAILS).map(line));
        // Without webhooks nothing but the server is left; what it does beyond another spelling is worth a look.
        let admitted = status.deviations.iter().filter(|deviation| deviation.reason == DeviationReason::Admission && !others_add);
        scan.details.extend(admitted.take(DETAILS).map(|deviation| {
            let object = &deviation.object;
            format!("{} {}/{} {} accepted: {}", object.kind, object.namespace, object.name, deviation.path, deviation.message)
        }));
        scan
    }

    /// Deviations with this reason.
    pub fn deviations(&self, reason: DeviationReason) -> u64 {
        self.deviations.get(&reason).copied().unwrap_or_default()
    }
}

fn line(finding: &Finding) -> String {
    let object = &finding.object;
    let value = |value: Option<&serde_json::Value>| value.map_or_else(|| "–".to_owned(), ToString::to_string);
    let path = |path: &PathFinding| {
        let actor = path.actor.as_ref().map_or("", |actor| actor.manager.as_str());
        format!(
            "\n        {} {} declared {} accepted {} live {} by {actor}",
            path.path,
            path.change.as_str(),
            value(path.desired.as_ref()),
            value(path.accepted.as_ref()),
            value(path.live.as_ref())
        )
    };
    let paths: String = finding.paths.iter().take(DETAILS).map(path).collect();
    format!(
        "{} {}/{} {} {}: {}{paths}",
        object.kind,
        object.namespace,
        object.name,
        finding.verdict.as_str(),
        finding.reason.as_str(),
        finding.message
    )
}
