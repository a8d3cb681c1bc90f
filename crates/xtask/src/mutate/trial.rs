//! The mutations of one object, one after another: each is made, and its undoing by the hub waited for.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use holdfast_api::report::{Deviation, DeviationReason, DriftReportStatus, Finding, Verdict};
use holdfast_testkit::{Helm, Writer, eventually, managed_fields_without_times, mutation::content, status_code, status_message};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use super::{
    Site,
    fixtures::{self, Claims, Copy},
    log::covers,
    plan::{self, How, Mutation},
    table::Outcome,
};
use crate::fleet::NAMESPACE as FLEET;

/// From here on the report is asked what became of a mutation.
const SLOW: Duration = Duration::from_secs(3);
/// For how long a correction is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// For how long a line of the hub's log is waited for.
const SAID: Duration = Duration::from_secs(30);
/// For how long the second write of a correction, which says who holds what, is waited for.
const OWNERSHIP: Duration = Duration::from_secs(3);
/// When what is beside the owned fields counts as left there.
const SETTLED: Duration = Duration::from_secs(2);
/// Characters of a refusal that are told.
const TOLD: usize = 200;

/// What the server made of one try.
enum Made {
    /// What was there.
    Nothing,
    /// Something else.
    Something,
    /// Nothing, because of this.
    Refused(String),
}

/// One copy on one cluster.
pub struct Trial<'a> {
    site: &'a Site<'a>,
    release: &'a str,
    copy: Copy,
    /// As the hub's log calls it.
    logged: String,
    editor: Writer,
    claims: Claims,
    before: Value,
}

impl<'a> Trial<'a> {
    /// Reads what stands there.
    pub async fn open(site: &'a Site<'a>, release: &'a str, copy: Copy) -> Result<Self> {
        let editor = site.plane.writer("kubectl-edit")?;
        let before = editor.get(&copy.target).await?;
        let claims = Claims::of(&fixtures::asking(site.plane)?, &copy, release).await?;
        let kind = before.get("kind").and_then(Value::as_str).unwrap_or_default();
        let namespace = copy.target.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let logged = format!("{FLEET}/{} {kind} {namespace}{}", site.plane.name(), copy.target.name);
        Ok(Self { site, release, copy, logged, editor, claims, before })
    }

    /// Every mutation that the copy allows.
    pub fn mutations(&self) -> Vec<Mutation> {
        plan::mutations(&self.claims.places(&self.before), &self.before)
    }

    fn owned<'o>(&self, object: &'o Value) -> BTreeMap<String, Option<&'o Value>> {
        let leaves = self.claims.places(object).into_iter().filter(|place| place.is_leaf);
        leaves.map(|place| (place.path, object.pointer(&place.pointer))).collect()
    }

    /// The object's plural and name.
    pub fn name(&self) -> String {
        format!("{}/{}", self.copy.target.plural, self.copy.target.name)
    }

    /// Makes a mutation and waits until it is undone. The object is as before afterwards, whatever became of it.
    pub async fn run(&mut self, mutation: &Mutation) -> Result<Outcome> {
        let known = self.site.log.writes(&self.logged)?;
        let mut refused = None;
        let mut is_made = false;
        for patch in &mutation.tries {
            match self.make(patch).await.with_context(|| format!("{}: {mutation}", self.name()))? {
                Made::Nothing => refused = None,
                Made::Refused(why) => {
                    refused.get_or_insert(why);
                }
                Made::Something => {
                    is_made = true;
                    break;
                }
            }
        }
        if !is_made {
            return Ok(refused.map_or(Outcome::NoEffect, Outcome::CannotBe));
        }
        let mut outcome = self.undone(mutation).await?;
        if !matches!(outcome, Outcome::Refused(_) | Outcome::Yielded(_) | Outcome::Missed(_)) && !self.is_named(known, mutation).await? {
            outcome = Outcome::Missed("undone, and not named".to_owned());
        }
        if matches!(outcome, Outcome::Refused(_) | Outcome::Yielded(_) | Outcome::Missed(_) | Outcome::Beside(_)) {
            self.put_back().await.with_context(|| format!("{}: putting back after {mutation}", self.name()))?;
        }
        Ok(outcome)
    }

    async fn make(&self, patch: &Value) -> Result<Made> {
        let told_by = |after: &Value| if content(after) == content(&self.before) { Made::Nothing } else { Made::Something };
        match self.editor.json_patch(&self.copy.target, patch).await {
            Ok(after) => Ok(told_by(&after)),
            // What nobody checked as thoroughly makes the server fail, or even break the connection: it is refused as well.
            Err(error) => match (status_code(&error), error.downcast_ref::<kube::Error>()) {
                (Some(400 | 403 | 422 | 500), _) => Ok(Made::Refused(told(&error))),
                (None, Some(kube::Error::Service(_) | kube::Error::HyperError(_))) => {
                    let now = self.editor.get(&self.copy.target).await?;
                    Ok(if content(&now) == content(&self.before) { Made::Refused(told(&error)) } else { Made::Something })
                }
                _ => Err(error),
            },
        }
    }

    /// Whether the hub says that it put this back. It says so after the write.
    async fn is_named(&self, known: usize, mutation: &Mutation) -> Result<bool> {
        let until = Instant::now() + SAID;
        while !self.site.log.names(&self.logged, known, &mutation.path)? {
            if Instant::now() > until {
                return Ok(false);
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(true)
    }

    async fn undone(&mut self, mutation: &Mutation) -> Result<Outcome> {
        let made = Instant::now();
        let mut pause = Duration::from_millis(20);
        let wanted = content(&self.before);
        let mut said = String::new();
        while made.elapsed() < PATIENCE {
            sleep(pause).await;
            pause = (pause * 3 / 2).min(Duration::from_millis(500));
            let now = self.editor.get(&self.copy.target).await?;
            if content(&now) == wanted {
                return self.traces(now).await;
            }
            // What was renamed stays as an addition, and what the server did about a mutation is not its release's.
            if !matches!(mutation.how, How::Reorder | How::Beside) && self.owned(&now) == self.owned(&self.before) {
                if made.elapsed() > SETTLED {
                    return Ok(Outcome::Beside(difference(&wanted, &content(&now))));
                }
                continue;
            }
            if made.elapsed() > SLOW {
                let report = self.site.fleet.report(self.site.plane.name(), self.release).await?;
                if let Some(deviation) = self.yielded(&report, mutation) {
                    return Ok(Outcome::Yielded(format!("{} {}", deviation.path, deviation.message)));
                }
                if let Some(finding) = self.finding(&report) {
                    said = format!("{:?} {:?} {}", finding.verdict, finding.reason, paths(finding));
                    if finding.verdict == Verdict::Refused && is_about(finding, mutation) {
                        return Ok(Outcome::Refused(said));
                    }
                }
            }
        }
        let now = self.editor.get(&self.copy.target).await?;
        Ok(Outcome::Missed(format!("{said} | {}", difference(&wanted, &content(&now)))))
    }

    /// Waits until those hold it who held it before.
    async fn traces(&mut self, mut now: Value) -> Result<Outcome> {
        let wanted = managed_fields_without_times(&self.before);
        let restored = Instant::now();
        while managed_fields_without_times(&now) != wanted {
            if restored.elapsed() > OWNERSHIP {
                let found = managed_fields_without_times(&now);
                self.before = now;
                return Ok(Outcome::Traced(difference(&json!(wanted), &json!(found))));
            }
            sleep(Duration::from_millis(100)).await;
            now = self.editor.get(&self.copy.target).await?;
        }
        self.before = now;
        Ok(Outcome::Restored)
    }

    fn finding<'r>(&self, report: &'r DriftReportStatus) -> Option<&'r Finding> {
        let kind = self.before.get("kind").and_then(Value::as_str)?;
        report.findings.iter().find(|finding| finding.object.kind == kind && finding.object.name == self.copy.target.name)
    }

    fn yielded<'r>(&self, report: &'r DriftReportStatus, mutation: &Mutation) -> Option<&'r Deviation> {
        let kind = self.before.get("kind").and_then(Value::as_str)?;
        report.deviations.iter().find(|deviation| {
            let is_here = deviation.object.kind == kind && deviation.object.name == self.copy.target.name;
            let concerns = covers(&deviation.path, &mutation.path) || covers(&mutation.path, &deviation.path);
            deviation.reason == DeviationReason::Yielded && is_here && concerns
        })
    }

    /// Undoes by force what the hub did not: by an update, else by making the object anew.
    async fn put_back(&mut self) -> Result<()> {
        let before = self.before.clone();
        let updated = self.editor.update(&self.copy.target, |object| {
            let metadata = |object: &Value, name: &str| object.pointer(&format!("/metadata/{name}")).cloned().unwrap_or_default();
            let kept = ["resourceVersion", "managedFields"].map(|name| (name, metadata(object, name)));
            *object = before;
            if let Some(members) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
                members.extend(kept.map(|(name, value)| (name.to_owned(), value)));
            }
        });
        match updated.await {
            Ok(now) if content(&now) == content(&self.before) => self.before = now,
            _ => self.make_anew().await?,
        }
        Ok(())
    }

    async fn make_anew(&mut self) -> Result<()> {
        let target = &self.copy.target;
        let without = json!({"metadata": {"finalizers": null}});
        self.editor.merge_patch(target, &without).await?;
        self.editor.delete(target).await?;
        let sent = fixtures::as_sent(&self.copy.declared, self.release);
        let helm = self.site.plane.writer("helm")?;
        let made = match self.site.helm {
            Helm::V3 => helm.create(target, &sent).await,
            Helm::V4 => helm.apply(target, &sent).await,
        };
        match made {
            Err(error) if status_code(&error) != Some(409) => return Err(error),
            _ => {}
        }
        // The hub may have made it too, or may be about to correct what is new about it.
        let report = async || {
            let report = self.site.fleet.report(self.site.plane.name(), self.release).await?;
            let finding = self.finding(&report).filter(|finding| finding.verdict != Verdict::InSync);
            ensure!(finding.is_none(), "{:?}", finding.map(|finding| (finding.verdict, finding.reason)));
            Ok(())
        };
        eventually("the new object is in sync", PATIENCE, report).await?;
        self.before = self.editor.get(target).await?;
        Ok(())
    }
}

fn is_about(finding: &Finding, mutation: &Mutation) -> bool {
    let mut about = finding.paths.iter().map(|path| path.path.as_str());
    // A renamed item is another item to its release.
    about.any(|path| covers(path, &mutation.path) || covers(&mutation.path, path)) || mutation.how == How::Reorder
}

fn paths(finding: &Finding) -> String {
    finding.paths.iter().take(3).map(|path| path.path.as_str()).collect::<Vec<_>>().join(" ")
}

fn told(error: &anyhow::Error) -> String {
    status_message(error).map_or_else(|| format!("{error:#}"), ToOwned::to_owned).chars().take(TOLD).collect()
}

/// Where two values first differ, for people.
fn difference(wanted: &Value, found: &Value) -> String {
    let absent = Value::Null;
    match (wanted, found) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names = a.keys().chain(b.keys());
            let name = names.find(|name| a.get(*name) != b.get(*name));
            name.map(|name| format!("/{name}{}", difference(a.get(name).unwrap_or(&absent), b.get(name).unwrap_or(&absent))))
                .unwrap_or_default()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let index = a.iter().zip(b).position(|(a, b)| a != b);
            let item = |items: &[Value], index| items.get(index).cloned().unwrap_or_default();
            index.map(|index| format!("/{index}{}", difference(&item(a, index), &item(b, index)))).unwrap_or_default()
        }
        _ => format!(": {wanted} is {found}").chars().take(TOLD).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_told() {
        let (one, other) = (json!({"a": 1, "b": [1, {"c": 2}]}), json!({"a": 1, "b": [1, {"c": 3}]}));
        assert_eq!(difference(&one, &other), "/b/1/c: 2 is 3");
        assert_eq!(difference(&one, &json!({"b": [1]})), "/a: 1 is null");
    }
}
