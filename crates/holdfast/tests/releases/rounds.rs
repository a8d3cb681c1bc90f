//! Helm at work in a loop, somebody who edits all the time, and the hub in between.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use holdfast_testkit::{Audit, Call, Helm, Mark, Target, Writer, management::HUB_USER};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{
    World,
    alike::{comparable, same},
    condition,
    fixture::no_brakes,
};

/// Every object changes with every revision, so Helm writes all of them each time. Nothing rolls the Deployment out: whoever waits for
/// it waits in vain. The broken Service is refused after half of the objects were written. The Secret declares `data`: after an edit that
/// a server-side apply of `stringData` undoes, its author stays in `managedFields`, hub or no hub.
const CHART: &str = r#"
{{- range $number := until 8 }}
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ $.Release.Name }}-{{ $number }}"}
data: {color: "{{ $.Values.color }}", a: "1", b: "2", c: "3", d: "4"}
---
{{- end }}
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}"}
data: {color: {{ .Values.color | b64enc }}, a: {{ "1" | b64enc }}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}", annotations: {color: "{{ .Values.color }}"}}
spec:
  replicas: 2
  selector: {matchLabels: {app: "{{ .Release.Name }}"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}"}}
    spec: {containers: [{name: web, image: "img:{{ .Values.color }}", args: ["--color"]}]}
{{- if .Values.broken }}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}-broken"}
spec: {ports: [{port: 99999}]}
{{- end }}
"#;

/// Pace of the edits.
const BETWEEN_EDITS: Duration = Duration::from_millis(40);
/// How long edits go on after each command.
const AFTER_HELM: Duration = Duration::from_millis(300);

const KINDS: &str = "configmaps,secrets,deployments,services";

/// One Helm command, and whether it succeeds.
struct Command {
    words: Vec<String>,
    succeeds: bool,
}

fn command(words: &[&str], succeeds: bool) -> Command {
    Command { words: words.iter().map(|word| (*word).to_owned()).collect(), succeeds }
}

/// Revisions 1 to 6, until the uninstallation.
fn cycle(number: usize) -> Vec<Command> {
    let color = |step: &str| format!("color=c{number}{step}");
    vec![
        command(&["install", "--set", &color("a")], true),
        command(&["upgrade", "--set", &color("b")], true),
        command(&["upgrade", "--set", &color("c"), "--wait", "--timeout", "2s"], false),
        command(&["upgrade", "--set", &format!("{},broken=true", color("d"))], false),
        command(&["rollback", "2"], true),
        command(&["upgrade", "--set", &color("e")], true),
    ]
}

/// Edits one declared field after the other, twice each and never the same way: more, while one revision lasts, would be a contest.
async fn drift(somebody: &Writer, namespace: &str, edits: &mut u32) {
    let keys = ["color", "a", "b", "c", "d"];
    let of_configmaps =
        keys.iter().flat_map(|key| (0..8).map(move |number| (Target::configmap(namespace, &format!("web-{number}")), *key)));
    let of_deployment = ["replicas", "annotation"].map(|field| (Target::deployment(namespace, "web"), field));
    let fields: Vec<_> = of_configmaps.chain(of_deployment).chain([(Target::secret(namespace, "web"), "a")]).collect();
    for (target, field) in fields.iter().chain(&fields) {
        *edits += 1;
        let red = format!("red-{edits}");
        let patch = match (target.plural.as_str(), *field) {
            ("deployments", "replicas") => json!({"spec": {"replicas": 2 + *edits}}),
            ("deployments", _) => json!({"metadata": {"annotations": {"color": red}}}),
            ("secrets", _) => json!({"data": {"a": BASE64_STANDARD.encode(red)}}),
            (_, key) => json!({"data": {key: red}}),
        };
        // Before the installation there is nothing to edit.
        _ = somebody.merge_patch(target, &patch).await;
        tokio::time::sleep(BETWEEN_EDITS).await;
    }
    std::future::pending::<()>().await;
}

/// The guarded release and its twin.
struct Rounds {
    world: World,
    twin: String,
    helm: Helm,
    chart: PathBuf,
    start: Mark,
    /// Times between which Helm was at work, or the release failed or not there: from its first record that could be read until the
    /// last one was sent.
    hands_off: Vec<(Timestamp, Timestamp)>,
    since: Option<Timestamp>,
}

impl Rounds {
    async fn begin(helm: Helm, namespace: &str) -> Self {
        let mut world = World::new(namespace).await;
        let twin = format!("{namespace}-twin");
        world.workload.namespace(&twin).await.unwrap();
        world.policy("Correct", json!({"limit": no_brakes()})).await;
        world.start_hub(&[]);
        let chart = world.chart_of_text("web", CHART);
        let start = world.workload.audit_mark().await.unwrap();
        Self { world, twin, helm, chart, start, hands_off: Vec::new(), since: None }
    }

    /// Runs a command on both releases; both must end as expected.
    async fn run(&mut self, command: &Command) {
        let mark = self.world.workload.audit_mark().await.unwrap();
        for namespace in [&self.world.namespace, &self.twin] {
            let (verb, args) = command.words.split_first().unwrap();
            let mut all = vec![verb.as_str(), "web", "--namespace", namespace];
            if matches!(verb.as_str(), "install" | "upgrade") {
                all.push(self.chart.to_str().unwrap());
            }
            if self.helm == Helm::V4 && verb != "uninstall" {
                // What somebody holds at this moment is no reason to fail; what the hub wrote never is.
                all.push("--force-conflicts");
            }
            all.extend(args.iter().map(String::as_str));
            let result = self.helm.run(self.world.workload, &all).await;
            assert_eq!(result.is_ok(), command.succeeds, "{:?} in {namespace}: {result:?}", command.words);
        }
        let is_record = |call: &Call| call.user.starts_with("helm") && call.name.starts_with("sh.helm.release.v1.web.");
        let writes = self.world.workload.audit_since(mark).await.unwrap().writes();
        let records = writes.of_resource("secrets").in_namespace(&self.world.namespace).filter(is_record);
        let first = records.iter().filter_map(|call| call.ended).min().unwrap();
        let last = records.iter().map(|call| call.time).max().unwrap();
        let since = *self.since.get_or_insert(first);
        if command.succeeds && command.words[0] != "uninstall" {
            self.hands_off.push((since, last));
            self.since = None;
        }
    }

    /// Objects and record history end as on the twin.
    async fn ends_as_the_twin(&self) {
        self.world
            .wait("as the twin", async || {
                let (ours, theirs) = (self.objects(&self.world.namespace).await?, self.objects(&self.twin).await?);
                ensure!(ours.keys().eq(theirs.keys()), "{:?} and {:?}", ours.keys(), theirs.keys());
                for (name, ours) in &ours {
                    same(name, ours, &theirs[name])?;
                }
                Ok(())
            })
            .await;
        let report = self.world.wait_report(Some("web"), "in sync", |status| condition(status, "InSync") == "True").await;
        assert_eq!(report["status"]["summary"]["contested"], 0, "{report:#}");
        let history = async |namespace| {
            let history = self.helm.history(self.world.workload, "web", namespace).await.unwrap();
            let revisions = history.as_array().unwrap().iter();
            revisions.map(|revision| json!([revision["revision"], revision["status"], revision["chart"]])).collect::<Vec<_>>()
        };
        assert_eq!(history(&self.world.namespace).await, history(&self.twin).await);
    }

    async fn objects(&self, namespace: &str) -> Result<BTreeMap<String, Value>> {
        let args = ["get", KINDS, "--namespace", namespace, "--output", "json", "--show-managed-fields"];
        let list: Value = serde_json::from_str(&self.world.workload.kubectl(&args).await?)?;
        let objects = list["items"].as_array().unwrap().iter();
        let ours = objects.filter(|object| object["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm");
        let named = ours.map(|object| {
            let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
            (name, comparable(object.clone(), namespace, self.helm))
        });
        let found: BTreeMap<String, Value> = named.collect();
        if found.len() < 10 {
            bail!("{} objects", found.len());
        }
        Ok(found)
    }

    /// No write of the hub was decided on after a record could be seen that forbids it, and none that raced with such a record landed on
    /// what Helm had written already.
    async fn wrote_only_when_it_may(&self) {
        let calls = self.world.workload.audit_since(self.start).await.unwrap().in_namespace(&self.world.namespace);
        let hub = calls.by_user(HUB_USER);
        let is_fence = |call: &Call| call.resource == "secrets" && call.verb == "list" && call.uri.contains("name%3Dweb");
        let fences = hub.lists().filter(is_fence);
        let writes = hub.writes();
        let (mut landed, mut raced) = (0, 0);
        for write in &writes {
            landed += usize::from(write.code.is_some_and(|code| code < 300));
            let Some((from, _)) = self.hands_off.iter().find(|(from, to)| *from < write.time && write.time < *to) else { continue };
            raced += 1;
            let reads = hub.gets().filter(|call| same_object(call, write));
            let read = last_before(&reads, write.time);
            let read = read.unwrap_or_else(|| panic!("{} {} without a read", write.verb, write.uri));
            let in_time = fences.iter().any(|fence| read.time <= fence.time && fence.time < *from);
            assert!(in_time, "began at {} although a record of {from} was there: {} {}\n{calls}", write.time, write.verb, write.uri);
            let helms = calls.filter(|call| call.user.starts_with("helm") && same_object(call, write)).writes();
            let overwritten = helms.iter().find(|helm| helm.ended.is_some_and(|ended| read.time < ended && ended < write.time));
            if let (Some(helm), true) = (overwritten, write.code.is_some_and(|code| code < 300)) {
                panic!("{} {} landed on what Helm wrote at {}", write.verb, write.uri, helm.time);
            }
        }
        println!("{:?}: {} writes, {landed} landed, {raced} raced with Helm", self.helm, writes.len());
        assert!(landed > 20, "the hub had little to do: {landed}");
    }
}

fn same_object(one: &Call, other: &Call) -> bool {
    // The audit log does not name what a creation that failed would have made.
    (&one.group, &one.resource, &one.name) == (&other.group, &other.resource, &other.name) && !other.name.is_empty()
}

fn last_before(calls: &Audit, time: Timestamp) -> Option<&Call> {
    calls.iter().filter(|call| call.time < time).max_by_key(|call| call.time)
}

#[tokio::test]
async fn helm_3_in_a_loop_ends_as_without_the_hub() {
    in_a_loop("rounds3", Helm::V3).await;
}

#[tokio::test]
async fn helm_4_in_a_loop_ends_as_without_the_hub() {
    in_a_loop("rounds4", Helm::V4).await;
}

async fn in_a_loop(namespace: &str, helm: Helm) {
    let mut rounds = Rounds::begin(helm, namespace).await;
    let (somebody, mut edits) = (rounds.world.writer("somebody"), 0);
    for number in 0..2 {
        for command in cycle(number) {
            // Edits go on while Helm works, and for a while after.
            tokio::select! {
                biased;
                () = async {
                    rounds.run(&command).await;
                    tokio::time::sleep(AFTER_HELM).await;
                } => {}
                () = drift(&somebody, namespace, &mut edits) => {}
            }
        }
        rounds.ends_as_the_twin().await;
        if number == 0 {
            rounds.run(&command(&["uninstall"], true)).await;
        }
    }
    rounds.wrote_only_when_it_may().await;
}
