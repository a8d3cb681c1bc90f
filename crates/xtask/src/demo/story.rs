//! What goes wrong, and what Holdfast makes of it. Every line is checked before it is printed.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use holdfast_api::report::{Action, Change, DeviationReason, Finding, PathFinding};
use holdfast_testkit::{Audit, ControlPlane, Helm, MutatingWebhook, Rule, Target, WebhookOptions, management::HUB_USER, mutate};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{EAST, SHOP, WEST, terminal::Terminal};
use crate::{fleet::Fleet, lookout::Lookout};

/// Where the image of a Deployment's only container is.
const IMAGE: &str = "/spec/template/spec/containers/0/image";

/// The stage.
pub struct Story<'a> {
    /// Where it is told.
    pub terminal: &'a mut Terminal,
    /// The clusters.
    pub fleet: &'a Fleet,
    /// The one with `shop`.
    pub east: &'a ControlPlane,
    /// The one with `cache`.
    pub west: &'a ControlPlane,
}

impl Story<'_> {
    /// Tells it; the webhook of the third chapter is still registered.
    pub async fn tell(mut self) -> Result<MutatingWebhook> {
        self.edited_field().await?;
        self.deleted_object().await?;
        let webhook = self.webhook().await?;
        self.drift_beside_the_webhook().await?;
        self.ending().await?;
        Ok(webhook)
    }

    async fn edited_field(&mut self) -> Result<()> {
        self.terminal.chapter("Somebody edits a field");
        let target = Target::deployment(SHOP, "shop");
        let container = json!({"name": "shop", "env": [{"name": "CHECKOUT_TIMEOUT", "value": "1ms"}]});
        let edit = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        let value = |object: &Value| object.pointer("/spec/template/spec/containers/0/env/0/value").cloned();

        let mut lookout = Lookout::open(&self.east.writer("demo")?, &target).await?;
        let mark = self.east.audit_mark().await?;
        self.east.writer("kubectl-edit")?.strategic_patch(&target, &edit).await?;
        let done = Instant::now();
        self.terminal.line("done", "kubectl-edit sets CHECKOUT_TIMEOUT of Deployment shop to 1ms (east)");
        let restored = lookout.until(|object| object.and_then(value) == Some("30s".into())).await? - done;
        let finding = self.finding(EAST, "shop", "Deployment", Action::Corrected, "env").await?;
        self.seen(&finding)?;
        let audit = self.east.audit_since(mark).await?.by_user(HUB_USER);
        self.wrote(&audit, Mended::PutBack, restored)
    }

    async fn deleted_object(&mut self) -> Result<()> {
        self.terminal.chapter("Somebody deletes an object");
        let target = Target::configmap(SHOP, "cache-config");
        let mut lookout = Lookout::open(&self.west.writer("demo")?, &target).await?;
        let mark = self.west.audit_mark().await?;
        self.west.writer("kubectl")?.delete(&target).await?;
        let done = Instant::now();
        self.terminal.line("done", "kubectl deletes ConfigMap cache-config (west)");
        let wanted = |object: &Value| object.pointer("/data/maxmemory") == Some(&"256mb".into());
        lookout.until(|object| object.is_none()).await?;
        let restored = lookout.until(|object| object.is_some_and(wanted)).await? - done;
        let finding = self.finding(WEST, "cache", "ConfigMap", Action::Recreated, "").await?;
        self.seen(&finding)?;
        let audit = self.west.audit_since(mark).await?.by_user(HUB_USER);
        self.wrote(&audit, Mended::Created, restored)
    }

    async fn webhook(&mut self) -> Result<MutatingWebhook> {
        self.terminal.chapter("A mutating webhook comes");
        let target = Target::deployment(SHOP, "cache");
        let options = WebhookOptions::new("mirror", SHOP, vec![Rule::deployments()]);
        let webhook = MutatingWebhook::start(self.west, options, mutate::mirror_images).await?;
        let mark = self.west.audit_mark().await?;
        let touch = json!({"metadata": {"annotations": {"team": "checkout"}}});
        let touched = self.west.writer("kubectl-annotate")?.merge_patch(&target, &touch).await?;
        let image = text_at(&touched, IMAGE)?;
        ensure!(image.starts_with(mutate::MIRROR), "the webhook left the image as {image}");
        self.terminal.line("done", "a webhook redirects every image to mirror.local/ (west)");
        self.terminal.line("", "kubectl-annotate touches Deployment cache, the webhook rides along");
        let accepted = self.fleet.report_when("the deviation", WEST, "cache", |status| {
            let admission = |reason| reason == DeviationReason::Admission;
            status.deviations.iter().find(|deviation| deviation.object.name == "cache" && admission(deviation.reason)).cloned()
        });
        let deviation = accepted.await?;
        self.terminal.bad("seen", &deviation.path);
        self.terminal.line("", &format!("now {image}"));
        let audit = self.west.audit_since(mark).await?.by_user(HUB_USER);
        ensure!(audit.writes().is_empty(), "the hub fights the webhook:\n{}", audit.writes());
        self.terminal.good("accepted", &format!("reason {}: the server makes this of the declared value", deviation.reason.as_str()));
        let asked = audit.dry_runs().len();
        self.terminal.line("", &format!("{asked} dry-run{} asked, 0 writes", if asked == 1 { "" } else { "s" }));
        let added = self.finding(WEST, "cache", "Deployment", Action::Reported, "annotations/team").await?;
        let path = added.paths.iter().find(|path| path.change == Change::Added).context("nothing was added")?;
        let by = path.actor.as_ref().map_or("nobody", |actor| actor.manager.as_str());
        self.terminal.line("reported", &format!("{} was added by {by}; the policy lets it stay", path.path));
        Ok(webhook)
    }

    async fn drift_beside_the_webhook(&mut self) -> Result<()> {
        self.terminal.chapter("Drift on the very object the webhook rewrote");
        let target = Target::deployment(SHOP, "cache");
        let mut lookout = Lookout::open(&self.west.writer("demo")?, &target).await?;
        let mark = self.west.audit_mark().await?;
        self.west.writer("kubectl-scale")?.merge_patch(&target, &json!({"spec": {"replicas": 7}})).await?;
        let done = Instant::now();
        self.terminal.line("done", "kubectl-scale sets 7 replicas on Deployment cache (west)");
        let restored = lookout.until(|object| object.and_then(|object| object.pointer("/spec/replicas")) == Some(&json!(1))).await? - done;
        let finding = self.finding(WEST, "cache", "Deployment", Action::Corrected, "/spec/replicas").await?;
        self.seen(&finding)?;
        let audit = self.west.audit_since(mark).await?.by_user(HUB_USER);
        self.wrote(&audit, Mended::PutBack, restored)?;
        let live = self.west.writer("demo")?.get(&target).await?;
        let image = text_at(&live, IMAGE)?;
        ensure!(image.matches(mutate::MIRROR).count() == 1, "the image is now {image}");
        self.terminal.line("", &format!("the image stays {image}"));
        Ok(())
    }

    async fn ending(&mut self) -> Result<()> {
        for (helm, plane, release) in [(Helm::V3, self.east, "shop"), (Helm::V4, self.west, "cache")] {
            let history = helm.history(plane, release, SHOP).await?;
            ensure!(history.as_array().is_some_and(|revisions| revisions.len() == 1), "{release} has a new revision: {history}");
            self.fleet.in_sync(plane.name(), release).await?;
        }
        println!("\nBoth releases are as declared, still at revision 1. The reports on the management cluster:\n");
        let columns = "CLUSTER:.spec.cluster,SOURCE:.spec.source,OBJECTS:.status.summary.objects,INSYNC:.status.summary.inSync,\
                       CORRECTED:.status.summary.corrected,DEVIATIONS:.status.summary.deviations";
        let arguments = ["get", "driftreports", "-n", crate::fleet::NAMESPACE, "-o", &format!("custom-columns={columns}")];
        for line in self.fleet.management.kubectl(&arguments).await?.lines() {
            println!("   {}", line.trim_end());
        }
        Ok(())
    }

    /// Waits until the report lists what was done about an object, at a path that contains `path`.
    async fn finding(&self, cluster: &str, release: &str, kind: &str, action: Action, path: &str) -> Result<Finding> {
        let what = format!("a {kind} listed as {action:?}");
        let listed = |finding: &&Finding| {
            let about_path = path.is_empty() || finding.paths.iter().any(|found| found.path.contains(path));
            finding.object.kind == kind && finding.action == action && about_path
        };
        self.fleet.report_when(&what, cluster, release, |status| status.findings.iter().find(listed).cloned()).await
    }

    /// Prints the declared paths of a finding with values and actors.
    fn seen(&self, finding: &Finding) -> Result<()> {
        if finding.paths.is_empty() {
            let object = format!("{} {}/{}", finding.object.kind, finding.object.namespace, finding.object.name);
            self.terminal.bad("seen", &format!("{object} is missing; a deletion leaves no trace of who"));
        }
        for path in finding.paths.iter().filter(|path| path.change != Change::Added) {
            self.terminal.bad("seen", &path.path);
            self.terminal.line("", &values(path)?);
        }
        Ok(())
    }

    /// Prints the one write of the hub, and how long after the answer to the mishap it was seen.
    fn wrote(&self, audit: &Audit, mended: Mended, after: Duration) -> Result<()> {
        let writes = audit.writes();
        let mut calls = writes.into_iter();
        let (Some(write), None) = (calls.next(), calls.next()) else { bail!("not one write but {}:\n{writes}", writes.len()) };
        let manager = write.uri.split(['?', '&']).find_map(|pair| pair.strip_prefix("fieldManager=")).unwrap_or("nobody");
        let kind = match (write.verb.as_str(), mended) {
            // Only an apply makes an object out of a patch.
            ("patch", Mended::Created) => "server-side apply",
            ("patch", Mended::PutBack) if write.uri.contains("force=true") => "server-side apply",
            (verb, _) => verb,
        };
        let (label, mishap) = match mended {
            Mended::PutBack => ("put back", "edit"),
            Mended::Created => ("created", "deletion"),
        };
        let millis = after.as_secs_f64() * 1000.0;
        self.terminal.good(label, &format!("{millis:.0} ms after the {mishap} was answered, by one {kind} as {manager}"));
        let asked = if audit.dry_runs().is_empty() { "no".to_owned() } else { audit.dry_runs().len().to_string() };
        let (gets, lists) = (audit.gets().len(), audit.lists().len());
        self.terminal.line("", &format!("calls: {gets} get, {asked} dry-run, {lists} list of release records, 1 write"));
        Ok(())
    }
}

/// What a write did.
#[derive(Clone, Copy)]
enum Mended {
    /// A field has its value again.
    PutBack,
    /// An object exists again.
    Created,
}

/// The declared and the found value, and who wrote it.
fn values(path: &PathFinding) -> Result<String> {
    let show = |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), Value::to_string);
    let actor = path.actor.as_ref().context("a finding without an actor")?;
    Ok(format!("{} declared, {} found, written by {} ({})", show(&path.desired), show(&path.live), actor.manager, actor.operation))
}

fn text_at(object: &Value, pointer: &str) -> Result<String> {
    object.pointer(pointer).and_then(Value::as_str).map(ToOwned::to_owned).with_context(|| format!("nothing at {pointer}"))
}
