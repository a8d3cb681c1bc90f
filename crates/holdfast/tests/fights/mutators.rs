//! Admission of every kind against releases of both Helms: nothing happens, somebody writes beside what is declared, something drifts, an
//! upgrade comes, the hub starts again. What admission makes of a value stands at every moment, and each column has its number of writes.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use futures::future::join_all;
use holdfast_testkit::{Admission, Audit, Helm, Mark, MutatingWebhook, Operation, Rule, Target, WebhookOptions, mutate};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    fixture::{Marker, events, metric},
    support::{World, condition, finding, path_of},
    wait_report,
};

const NAMESPACE: &str = "lab";
const IMAGE: &str = "/spec/template/spec/containers/[name=c]/image";
const NONCE: &str = "/spec/template/metadata/annotations/nonce";
const CPU_LIMIT: &str = "/spec/template/spec/containers/[name=c]/resources/limits/cpu";
const CPU_REQUEST: &str = "/spec/template/spec/containers/[name=c]/resources/requests/cpu";

/// Every path that a mutator below rewrites is declared.
const CHART: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}-web", labels: {lab: "{{ .Values.lab }}"}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {nonce: x}}
    spec:
      containers:
      - name: c
        image: "img:1"
        env: [{name: A, value: a}, {name: B, value: b}]
        resources: {limits: {cpu: "1", memory: 1Gi}, requests: {cpu: 100m}}
"#;

/// Admission of one kind.
#[derive(Clone, Copy)]
struct Mutator {
    name: &'static str,
    mutate: fn(&mut Value, &Admission),
    /// It comes after the releases and the hub.
    is_late: bool,
    /// It is down while something drifts and is put back.
    goes_down: bool,
    /// An upgrade writes what is declared, and it leaves that alone.
    ends_with_upgrade: bool,
    /// What is accepted of it, once somebody has written the object.
    accepted: &'static [&'static str],
    /// The value it makes, at a place that somebody's write cannot have changed; `None` where it is another each time.
    makes: (&'static str, fn() -> Option<Value>),
    /// Writes of the hub after somebody's write beside what is declared.
    after_touch: usize,
    /// Writes that put drift of another path back on a server-side release: one apply, or a patch and the ownership.
    writes_v4: usize,
}

impl Mutator {
    const fn new(name: &'static str, mutate: fn(&mut Value, &Admission), accepted: &'static [&'static str]) -> Self {
        let makes: (&str, fn() -> Option<Value>) =
            ("/spec/template/spec/containers/0/image", || Some(json!(format!("{}img:1", mutate::MIRROR))));
        Self { name, mutate, is_late: false, goes_down: false, ends_with_upgrade: false, accepted, makes, after_touch: 0, writes_v4: 1 }
    }

    const fn late(self) -> Self {
        Self { is_late: true, ..self }
    }

    const fn makes(self, pointer: &'static str, value: fn() -> Option<Value>) -> Self {
        Self { makes: (pointer, value), ..self }
    }

    /// The oracle differs from what is there, so an apply would touch more than what drifted.
    const fn by_position(self) -> Self {
        Self { writes_v4: 2, ..self }
    }
}

fn on_create(object: &mut Value, admission: &Admission) {
    if admission.operation == Operation::Create {
        mutate::mirror_images(object, admission);
    }
}

fn on_update(object: &mut Value, admission: &Admission) {
    if admission.operation == Operation::Update {
        mutate::mirror_images(object, admission);
    }
}

/// Does nothing in a dry-run.
fn unfaithful(object: &mut Value, admission: &Admission) {
    if !admission.dry_run {
        mutate::mirror_images(object, admission);
    }
}

fn nonce(object: &mut Value, _: &Admission) {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    object["spec"]["template"]["metadata"]["annotations"]["nonce"] = json!(CALLS.fetch_add(1, Ordering::Relaxed).to_string());
}

/// The same beside what is declared.
fn foreign_nonce(object: &mut Value, _: &Admission) {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    object["metadata"]["annotations"]["policy.example.com/patch"] = json!(CALLS.fetch_add(1, Ordering::Relaxed).to_string());
}

fn label(object: &mut Value, _: &Admission) {
    object["metadata"]["labels"]["injected.example.com/team"] = json!("a");
}

fn list_item(object: &mut Value, _: &Admission) {
    let env = object.pointer_mut("/spec/template/spec/containers/0/env").and_then(Value::as_array_mut).unwrap();
    if !env.iter().any(|variable| variable["name"] == "INJECTED") {
        env.push(json!({"name": "INJECTED", "value": "yes"}));
    }
}

fn no_cpu_limit(object: &mut Value, _: &Admission) {
    let limits = object.pointer_mut("/spec/template/spec/containers/0/resources/limits").and_then(Value::as_object_mut);
    limits.unwrap().remove("cpu");
}

fn resources(object: &mut Value, _: &Admission) {
    object["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("250m");
}

fn table() -> Vec<Mutator> {
    let plain = Mutator::new;
    vec![
        plain("mirror", mutate::mirror_images, &[IMAGE]),
        plain("mirror-late", mutate::mirror_images, &[IMAGE]).late(),
        plain("label", label, &[]).makes("/metadata/labels/injected.example.com~1team", || Some(json!("a"))),
        plain("list-item", list_item, &[])
            .makes("/spec/template/spec/containers/0/env/2", || Some(json!({"name": "INJECTED", "value": "yes"}))),
        Mutator { ends_with_upgrade: true, ..plain("on-create", on_create, &[IMAGE]).by_position() },
        plain("on-update", on_update, &[IMAGE]),
        plain("nonce", nonce, &[NONCE]).makes("/spec/template/metadata/annotations/nonce", || None).by_position(),
        plain("nonce-late", nonce, &[NONCE]).makes("/spec/template/metadata/annotations/nonce", || None).late().by_position(),
        plain("nonce-beside", foreign_nonce, &[]).makes("/metadata/annotations/policy.example.com~1patch", || None).by_position(),
        Mutator { goes_down: true, ..plain("down", mutate::mirror_images, &[IMAGE]).by_position() },
        plain("unfaithful", unfaithful, &[IMAGE]).by_position(),
        Mutator { after_touch: 1, ..plain("unfaithful-late", unfaithful, &[IMAGE]).late().by_position() },
        plain("no-cpu-limit", no_cpu_limit, &[CPU_LIMIT]).makes("/spec/template/spec/containers/0/resources/limits/cpu", || None),
        plain("resources", resources, &[CPU_REQUEST])
            .makes("/spec/template/spec/containers/0/resources/requests/cpu", || Some(json!("250m"))),
    ]
}

/// Both releases of each mutator.
fn releases(table: &[Mutator]) -> Vec<(Mutator, Helm, String)> {
    let both = [(Helm::V3, "h3"), (Helm::V4, "h4")];
    table.iter().flat_map(|mutator| both.map(|(helm, suffix)| (*mutator, helm, format!("{}-{suffix}", mutator.name)))).collect()
}

fn web(release: &str) -> Target {
    Target::deployment(NAMESPACE, &format!("{release}-web"))
}

async fn start_webhooks(world: &World, mutators: Vec<Mutator>) -> Vec<(Mutator, MutatingWebhook)> {
    let plane = world.workload;
    let starting = mutators.into_iter().map(async |mutator| {
        let options = WebhookOptions {
            object_labels: vec![("lab".to_owned(), mutator.name.to_owned())],
            fails_open: mutator.goes_down,
            ..WebhookOptions::new(&format!("lab-{}", mutator.name), NAMESPACE, vec![Rule::deployments()])
        };
        (mutator, MutatingWebhook::start(plane, options, mutator.mutate).await.unwrap())
    });
    join_all(starting).await
}

/// Runs Helm for every release, a few at a time.
async fn helm_all(world: &World, releases: &[(Mutator, Helm, String)], upgrade: bool) {
    let chart = world.chart_of_text("lab", CHART);
    let plane = world.workload;
    for some in releases.chunks(4) {
        let mut running = JoinSet::new();
        for (mutator, helm, release) in some.iter().cloned() {
            let chart = chart.clone();
            running.spawn(async move {
                let values = format!("lab={},replicas={}", mutator.name, if upgrade { 3 } else { 2 });
                let args = ["--set", &values];
                let done = if upgrade {
                    helm.upgrade(plane, &release, NAMESPACE, &chart, &args).await
                } else {
                    helm.install(plane, &release, NAMESPACE, &chart, &args).await
                };
                done.unwrap_or_else(|error| panic!("{release}: {error:#}"));
            });
        }
        running.join_all().await;
    }
}

fn accepted(status: &Value) -> Vec<&str> {
    let deviations = status["deviations"].as_array().into_iter().flatten();
    deviations.filter(|deviation| deviation["reason"] == "Admission").filter_map(|deviation| deviation["path"].as_str()).collect()
}

/// The lab with a hub.
struct Lab {
    world: World,
    marker: Marker,
    releases: Vec<(Mutator, Helm, String)>,
}

impl Lab {
    /// Waits until every report is in sync at a revision, with what is accepted then.
    async fn wait_in_sync(&self, what: &str, revision: u64, accepts: impl Fn(&Mutator) -> &'static [&'static str]) {
        for (mutator, _, release) in &self.releases {
            let what = format!("{release} is in sync, {what}");
            let is_so = |status: &Value| {
                condition(status, "InSync") == "True"
                    && status["source"]["revision"] == revision
                    && accepted(status) == accepts(mutator)
                    && status["summary"]["unknown"] == 0
            };
            wait_report(&self.world, release, &what, is_so).await;
        }
    }

    /// What stands where the mutators put something.
    async fn check_made(&self, replicas: u64) {
        let reader = self.world.writer("kubectl");
        for (mutator, _, release) in &self.releases {
            let object = reader.get(&web(release)).await.unwrap();
            let (pointer, value) = mutator.makes;
            let found = object.pointer(pointer);
            match value() {
                _ if mutator.ends_with_upgrade && replicas == 3 => assert_eq!(found, Some(&json!("img:1")), "{release}"),
                None if mutator.name == "no-cpu-limit" => assert_eq!(found, None, "{release}"),
                None => assert!(found.is_some_and(|found| found != "x"), "{release}: {found:?}"),
                wanted => assert_eq!(found, wanted.as_ref(), "{release}"),
            }
            assert_eq!(object["spec"]["replicas"], replicas, "{release}");
        }
    }

    /// The hub has gone past everything that happened; answers its calls about one release's object since `mark`.
    async fn calls(&self, mark: Mark) -> impl Fn(&str) -> (usize, Audit) + use<> {
        self.marker.pass(&self.world).await;
        let calls = self.world.of_hub(&self.world.workload.audit_since(mark).await.unwrap());
        move |release: &str| {
            let name = web(release).name;
            let writes = calls.writes().filter(|call| call.name == name);
            // A creation under a throw-away name has the name in its body only.
            let dry_runs = calls.dry_runs().filter(|call| call.name == name || call.name.starts_with(&format!("{name}x-")));
            (dry_runs.len(), writes)
        }
    }

    /// Every release took so many writes, and at most so many dry-runs, since `mark`.
    async fn check_calls(&self, what: &str, mark: Mark, most_dry_runs: usize, writes: impl Fn(&Mutator, Helm) -> usize) {
        let calls = self.calls(mark).await;
        let mut table = Vec::new();
        let mut wrong = Vec::new();
        for (mutator, helm, release) in &self.releases {
            let (dry_runs, made) = calls(release);
            table.push(format!("{release}: {} writes, {dry_runs} dry-runs", made.len()));
            let all_passed = made.iter().all(|call| call.code == Some(200));
            if made.len() != writes(mutator, *helm) || !all_passed || dry_runs > most_dry_runs {
                wrong.push(format!("{release}: {dry_runs} dry-runs, {} writes instead of {}\n{made}", made.len(), writes(mutator, *helm)));
            }
        }
        assert!(wrong.is_empty(), "{what}\n{}\n{}", wrong.join("\n"), table.join("\n"));
    }

    async fn mark(&self) -> Mark {
        self.world.workload.audit_mark().await.unwrap()
    }

    /// Somebody writes the deployments, each after the other.
    async fn patch_all(&self, manager: &str, patch: &Value) {
        let writer = self.world.writer(manager);
        for (_, _, release) in &self.releases {
            writer.merge_patch(&web(release), patch).await.unwrap();
        }
    }
}

#[tokio::test]
async fn no_mutator_makes_a_fight() {
    let mut world = World::new(NAMESPACE).await;
    world.policy("Correct", json!({})).await;
    let table = table();
    let releases = releases(&table);
    let (late, early): (Vec<Mutator>, Vec<Mutator>) = table.into_iter().partition(|mutator| mutator.is_late);
    let mut webhooks = start_webhooks(&world, early).await;
    let marker = Marker::install(&world).await;
    helm_all(&world, &releases, false).await;
    let mark = world.workload.audit_mark().await.unwrap();
    world.start_hub(&[]);
    let mut lab = Lab { world, marker, releases };

    // Nobody writes. What comes later, or with the first update, has not done anything yet.
    let at_first = |mutator: &Mutator| if mutator.is_late || mutator.name == "on-update" { &[][..] } else { mutator.accepted };
    lab.wait_in_sync("nobody wrote", 1, at_first).await;
    lab.check_calls("nobody wrote", mark, 3, |_, _| 0).await;

    // Somebody writes beside what is declared, and admission rewrites on the way.
    webhooks.extend(start_webhooks(&lab.world, late).await);
    let mark = lab.mark().await;
    lab.patch_all("kubectl-annotate", &json!({"metadata": {"annotations": {"touched": "yes"}}})).await;
    lab.wait_in_sync("somebody wrote beside it", 1, |mutator| mutator.accepted).await;
    lab.check_calls("somebody wrote beside it", mark, 4, |mutator, _| mutator.after_touch).await;
    lab.check_made(2).await;

    // Something else drifts.
    let down = webhooks.iter().find(|(mutator, _)| mutator.goes_down).unwrap();
    down.1.set_down(true);
    let mark = lab.mark().await;
    lab.patch_all("kubectl-edit", &json!({"spec": {"replicas": 7}})).await;
    drifts_are_put_back(&lab).await;
    lab.wait_in_sync("after drift", 1, |mutator| mutator.accepted).await;
    lab.check_calls("drift elsewhere", mark, 5, |mutator, helm| if helm == Helm::V3 { 1 } else { mutator.writes_v4 }).await;
    lab.check_made(2).await;
    down.1.set_down(false);

    // An upgrade changes something else.
    let mark = lab.mark().await;
    helm_all(&lab.world, &lab.releases, true).await;
    let upgraded = |mutator: &Mutator| if mutator.ends_with_upgrade { &[][..] } else { mutator.accepted };
    lab.wait_in_sync("upgraded", 2, upgraded).await;
    lab.check_calls("upgraded", mark, 4, |_, _| 0).await;
    lab.check_made(3).await;

    // Each of them is told once a value, and no writing of Helm was needed.
    for (mutator, helm, release) in &lab.releases {
        let history = helm.history(lab.world.workload, release, NAMESPACE).await.unwrap();
        assert_eq!(history.as_array().unwrap().len(), 2, "{release}");
        let told = events(&lab.world, "AdmissionChanged").await.unwrap();
        let told = told.iter().any(|event| event["note"].as_str().unwrap().contains(&format!("{release}-web")));
        assert_eq!(told, !mutator.accepted.is_empty(), "{release}");
    }
    assert!(metric(&lab.world, "holdfast_admission_changed_total").await.unwrap() >= 20);

    // A new hub starts with what this one knew.
    lab.world.stop_hub();
    let mark = lab.mark().await;
    lab.world.start_hub(&[]);
    lab.wait_in_sync("after a restart", 2, upgraded).await;
    lab.check_calls("after a restart", mark, 0, |_, _| 0).await;
    lab.check_made(3).await;
    for (_, webhook) in webhooks {
        webhook.stop().await.unwrap();
    }
}

async fn drifts_are_put_back(lab: &Lab) {
    for (_, _, release) in &lab.releases {
        let is_said = |status: &Value| {
            finding(status, "Deployment", &web(release).name).is_some_and(|found| {
                found["action"] == "Corrected"
                    && path_of(found, "/spec/replicas").is_some_and(|path| path["actor"]["manager"] == "kubectl-edit")
            })
        };
        wait_report(&lab.world, release, "put back, and said", is_said).await;
    }
    lab.world
        .wait("no drift is left", async || {
            let drifted = metric(&lab.world, "holdfast_objects{verdict=\"Drifted\"}").await?;
            ensure!(drifted == 0, "{drifted}");
            Ok(())
        })
        .await;
}
