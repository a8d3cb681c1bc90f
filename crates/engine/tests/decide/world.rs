//! One object, the server that serves it, and a shell that carries the decision's steps out.

use std::{fmt::Write as _, sync::Arc};

use holdfast_api::{
    policy::Foreign,
    report::{Actor, PathFinding, Reason},
};
use holdfast_engine::{
    answer::{Answer, Fence, Live, Refusal},
    canonical::Digest,
    case::{Baseline, Case, Desired, Permit, Word},
    contest::Ledger,
    decide::{self, Judgement, Step},
    fields, foreign,
    manager::{Operation, Writer},
    normalise::{Release, as_written, is_owned_otherwise, normalise},
    object::{Gvk, ObjectKey},
    owned::OwnedSet,
    patch::{self, Builder},
    path::{Path, Pattern, Segment},
    plan::{Correction, Request},
    project, reduced,
    yields::Scaler,
};
use jiff::Timestamp;
use serde_json::{Value, json};

/// When the release was deployed, in the tests' time.
pub const DEPLOYED: &str = "2026-01-01T00:00:00Z";
/// When somebody drifted.
pub const LATER: &str = "2026-01-02T00:00:00Z";

/// Everything a decision may come to know, and what the server would answer.
pub struct World {
    pub desired: Desired,
    pub owned: Option<OwnedSet>,
    pub baseline: Option<Baseline>,
    pub live: Option<Value>,
    pub unreadable: Option<Refusal>,
    pub oracle: Option<Refusal>,
    pub create: Option<Refusal>,
    pub claims: Option<Refusal>,
    /// The refusal of the dry-run merge.
    pub merged: Option<Refusal>,
    pub proof: Option<Refusal>,
    pub fence: Fence,
    pub permit: Permit,
    pub ignored: Vec<Pattern>,
    pub enforced: Vec<Pattern>,
    pub scalers: Vec<Scaler>,
    pub suspects: Vec<String>,
    pub ledger: Option<Ledger>,
    pub writer: Option<Writer>,
    pub prefer: Option<Operation>,
    pub deployed_at: Option<Timestamp>,
    pub seen: bool,
    pub vouched: bool,
    pub word: Word,
    pub also: Option<String>,
    pub held: Option<Reason>,
    /// What is done about fields that somebody added.
    pub foreign: Foreign,
    pub now: Timestamp,
    /// Admission on every write.
    pub webhook: fn(&mut Value),
    /// Admission on creation only.
    pub create_webhook: fn(&mut Value),
    /// What else happens on a real write, beyond what a dry-run says.
    pub surprise: fn(&mut Value),
}

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub fn path(segments: &[&str]) -> Path {
    segments.iter().map(|text| Segment::from_fields_v1(text).unwrap_or_else(|| Segment::field(text))).collect()
}

pub fn helm(operation: Operation) -> Writer {
    Writer { manager: "helm".into(), operation }
}

/// A release object as deployed, judged before and in sync.
pub fn deployed(manifest: &Value, operation: Operation) -> World {
    let gvk = Gvk::new(manifest["apiVersion"].as_str().unwrap(), manifest["kind"].as_str().unwrap());
    let key =
        ObjectKey::new(Arc::new(gvk.clone()), manifest["metadata"]["namespace"].as_str(), manifest["metadata"]["name"].as_str().unwrap());
    let release = Release { namespace: "t".into(), name: "rel".into() };
    let value = normalise(manifest.clone(), &key, Some(&release));
    let written = is_owned_otherwise(manifest, &key).then(|| as_written(manifest.clone(), &key, Some(&release)));
    let owned = reduced::owned(&gvk, &value);
    let mut world = World {
        desired: Desired { key, value, written, release: Some(release) },
        owned: Some(owned),
        baseline: Some(Baseline { in_sync: None, accepted: Box::from([]) }),
        live: None,
        unreadable: None,
        oracle: None,
        create: None,
        claims: None,
        merged: None,
        proof: None,
        fence: Fence::Clear,
        permit: Permit::Write,
        ignored: Vec::new(),
        enforced: Vec::new(),
        scalers: Vec::new(),
        suspects: Vec::new(),
        ledger: None,
        writer: Some(helm(operation)),
        prefer: Some(operation),
        deployed_at: Some(at(DEPLOYED)),
        seen: true,
        vouched: true,
        word: Word::OwnNamespace,
        also: None,
        held: None,
        foreign: Foreign::Report,
        now: at("2026-01-02T00:00:01Z"),
        webhook: |_| {},
        create_webhook: |_| {},
        surprise: |_| {},
    };
    world.live = Some(world.created("helm", operation, DEPLOYED));
    world
}

impl World {
    pub fn owned(&self) -> OwnedSet {
        self.owned.clone().unwrap_or_else(|| reduced::owned(&self.desired.key.gvk, &self.desired.value))
    }

    pub fn live(&mut self) -> &mut Value {
        self.live.as_mut().unwrap()
    }

    /// The object as a creation by `manager` leaves it.
    pub fn created(&self, manager: &str, operation: Operation, time: &str) -> Value {
        let mut object = self.desired.value.clone();
        for port in object.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().unwrap().entry("protocol").or_insert(json!("TCP"));
        }
        (self.create_webhook)(&mut object);
        (self.webhook)(&mut object);
        // Whoever creates an object by an update holds the defaults too.
        let mut fields = self.owned();
        if operation == Operation::Update {
            fields.extend(&reduced::owned(&self.desired.key.gvk, &object));
        }
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.insert("uid".into(), json!("u-1"));
        metadata.insert("resourceVersion".into(), json!("7"));
        metadata.insert("managedFields".into(), json!([entry(manager, operation, "", time, &fields)]));
        object
    }

    /// Somebody edits the live object; ownership moves as the server moves it on an update.
    pub fn edit(&mut self, manager: &str, change: impl FnOnce(&mut Value)) {
        self.edit_through(manager, "", change);
    }

    pub fn edit_through(&mut self, manager: &str, subresource: &str, change: impl FnOnce(&mut Value)) {
        let owned = self.owned();
        let before = self.live().clone();
        change(self.live());
        let after = self.live().clone();
        let (mut changed, mut gone) = (OwnedSet::default(), Vec::new());
        for difference in project::differences(&owned, &after, &before) {
            if difference.live.is_there() {
                changed.extend(&owned.below(&difference.path));
            } else {
                gone.push(difference.path);
            }
        }
        let claimed = |object: &Value| reduced::owned(&self.desired.key.gvk, object);
        let mut added = claimed(&after);
        added.subtract(&claimed(&before));
        changed.extend(&added);
        let entries = before["metadata"]["managedFields"].as_array().unwrap().iter().map(|entry| {
            let mut fields = OwnedSet::from_fields_v1(&entry["fieldsV1"]);
            fields.subtract(&changed);
            for path in &gone {
                fields.remove_tree(path);
            }
            let mut entry = entry.clone();
            entry["fieldsV1"] = fields.to_fields_v1();
            entry
        });
        let mut entries: Vec<Value> = entries.filter(|entry| entry["fieldsV1"] != json!({})).collect();
        if !changed.is_empty() {
            entries.push(entry(manager, Operation::Update, subresource, LATER, &changed));
        }
        self.live()["metadata"]["managedFields"] = json!(entries);
        self.live()["metadata"]["resourceVersion"] = json!("8");
    }

    /// What the server makes of the desired object applied by force to what is there.
    pub fn applied(&self) -> Value {
        let Some(live) = &self.live else { return self.created("holdfast", Operation::Apply, LATER) };
        let mut builder = Builder::new(live);
        for leaf in project::leaves(&self.owned(), &self.desired.value) {
            if let Some(value) = leaf.found.value() {
                builder.set(&leaf.path, Some(value), &self.desired.value);
            }
        }
        for (path, order) in project::orders(&self.owned(), &self.desired.value) {
            builder.reorder(&path.parent(), &order);
        }
        let mut object = builder.result().clone();
        (self.webhook)(&mut object);
        object
    }

    /// What the server makes of a correction.
    pub fn sent(&self, correction: &Correction) -> Value {
        let mut object = match &correction.request {
            Request::JsonPatch(ops) => {
                let mut object = self.live.clone().unwrap();
                for op in ops {
                    patch::apply(&mut object, op);
                }
                (self.webhook)(&mut object);
                object
            }
            Request::Apply(_) => self.applied(),
            Request::Create(_) | Request::CreateByApply(_) => self.created("helm", correction.writer.operation, LATER),
        };
        (self.surprise)(&mut object);
        object
    }

    /// Plays until the decision is done, and says what happened.
    pub fn play(&self) -> String {
        Play::new(self).run().trim_end().to_owned()
    }

    /// As `play`, with the last judgement.
    pub fn judged(&self) -> (Judgement, Option<Value>) {
        let mut play = Play::new(self);
        play.run();
        (play.judgement.unwrap(), play.written)
    }
}

pub fn entry(manager: &str, operation: Operation, subresource: &str, time: &str, fields: &OwnedSet) -> Value {
    let mut entry = json!({"manager": manager, "operation": operation.as_str(), "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields.to_fields_v1()});
    if !subresource.is_empty() {
        entry["subresource"] = json!(subresource);
    }
    entry
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "every question has an answer of its own")]
struct Known {
    live: bool,
    owned: Option<OwnedSet>,
    oracle: Option<Value>,
    oracle_refused: bool,
    oracle_again: Option<Value>,
    create: Option<Value>,
    create_refused: bool,
    claims: Option<Value>,
    claims_refused: bool,
    merged: Option<Value>,
    merged_refused: bool,
    proof: Option<Value>,
    proof_refused: bool,
    proof_again: Option<Value>,
    fence: Fence,
}

struct Play<'a> {
    world: &'a World,
    known: Known,
    out: String,
    judgement: Option<Judgement>,
    written: Option<Value>,
}

fn answer<'a>(given: Option<&'a Value>, refused: bool, refusal: Option<&'a Refusal>) -> Answer<'a> {
    match (given, refused, refusal) {
        (Some(value), ..) => Answer::Given(value),
        (None, true, Some(refusal)) => Answer::Refused(refusal),
        _ => Answer::NotAsked,
    }
}

impl<'a> Play<'a> {
    fn new(world: &'a World) -> Self {
        Self { world, known: Known::default(), out: String::new(), judgement: None, written: None }
    }

    fn with_case<T>(&self, then: impl FnOnce(&Case<'_>) -> T) -> T {
        let (world, known) = (self.world, &self.known);
        let ignored = |path: &Path, _: Option<&Actor>| world.ignored.iter().any(|pattern| pattern.covers(path));
        let enforced = |path: &Path| world.enforced.iter().any(|pattern| pattern.covers(path));
        let live = match (&world.unreadable, known.live, &world.live) {
            (_, false, _) => Live::NotRead,
            (Some(refusal), ..) => Live::Unreadable(refusal),
            (None, true, None) => Live::Absent,
            (None, true, Some(live)) => Live::Present(live),
        };
        then(&Case {
            desired: &world.desired,
            owned: world.owned.as_ref().or(known.owned.as_ref()),
            baseline: world.baseline.as_ref(),
            live,
            oracle: answer(known.oracle.as_ref(), known.oracle_refused, world.oracle.as_ref()),
            oracle_again: answer(known.oracle_again.as_ref(), false, None),
            create: answer(known.create.as_ref(), known.create_refused, world.create.as_ref()),
            claims: answer(known.claims.as_ref(), known.claims_refused, world.claims.as_ref()),
            merged: answer(known.merged.as_ref(), known.merged_refused, world.merged.as_ref()),
            proof: answer(known.proof.as_ref(), known.proof_refused, world.proof.as_ref()),
            proof_again: answer(known.proof_again.as_ref(), false, None),
            fence: known.fence,
            permit: world.permit,
            ignored: &ignored,
            enforced: &enforced,
            scalers: &world.scalers,
            suspects: &|| world.suspects.clone(),
            ledger: world.ledger.as_ref(),
            writer: world.writer.as_ref(),
            prefer: world.prefer,
            deployed_at: world.deployed_at,
            seen: world.seen,
            vouched: world.vouched,
            word: world.word,
            also_declared_by: world.also.as_deref(),
            held: world.held,
            foreign: foreign::Rules { handling: world.foreign, ..foreign::Rules::reporting() },
            now: world.now,
        })
    }

    fn run(&mut self) -> String {
        for _ in 0..10 {
            match self.with_case(decide::decide) {
                Step::FetchLive => {
                    self.say("read");
                    self.known.live = true;
                }
                Step::Ask(ask) => {
                    let words = [
                        ("oracle", ask.oracle),
                        ("again", ask.again),
                        ("create", ask.create),
                        ("claims", ask.claims),
                        ("fence", ask.fence),
                    ];
                    let words: Vec<&str> = words.into_iter().filter(|(_, asked)| *asked).map(|(word, _)| word).collect();
                    assert!(!words.is_empty(), "a question that asks nothing");
                    self.say(&format!("ask {}", words.join(" ")));
                    if ask.oracle {
                        self.known.oracle_refused = self.world.oracle.is_some();
                        self.known.oracle = self.world.oracle.is_none().then(|| self.world.applied());
                    }
                    if ask.again {
                        self.known.oracle_again = Some(self.world.applied());
                    }
                    if ask.create {
                        self.known.create_refused = self.world.create.is_some();
                        self.known.create = self.world.create.is_none().then(|| self.world.created("holdfast", Operation::Update, LATER));
                    }
                    if ask.claims {
                        self.known.claims_refused = self.world.claims.is_some();
                        self.known.claims = self.world.claims.is_none().then(|| self.world.created("holdfast", Operation::Apply, LATER));
                        self.known.owned = self.world.claims.is_none().then(|| self.world.owned());
                    }
                    if ask.fence {
                        self.known.fence = self.world.fence;
                    }
                }
                Step::Merge => {
                    self.say("merge");
                    self.known.merged_refused = self.world.merged.is_some();
                    self.known.merged = self.world.merged.is_none().then(|| self.world.applied());
                }
                Step::Prove(correction) => {
                    self.say("prove");
                    self.known.proof_refused = self.world.proof.is_some();
                    let plain = World { surprise: |_| {}, ..self.shallow() };
                    self.known.proof = self.world.proof.is_none().then(|| plain.sent(&correction));
                }
                Step::ProveAgain(correction) => {
                    self.say("prove again");
                    let plain = World { surprise: |_| {}, ..self.shallow() };
                    self.known.proof_again = Some(plain.sent(&correction));
                }
                Step::Write(correction) => {
                    self.write(&correction);
                    return self.out.clone();
                }
                Step::Done(judgement) => {
                    self.conclude(*judgement);
                    return self.out.clone();
                }
            }
        }
        panic!("no end:\n{}", self.out)
    }

    fn shallow(&self) -> World {
        let world = self.world;
        World {
            desired: world.desired.clone(),
            owned: world.owned.clone(),
            live: world.live.clone(),
            webhook: world.webhook,
            create_webhook: world.create_webhook,
            ..deployed(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}), Operation::Update)
        }
    }

    fn write(&mut self, correction: &Correction) {
        let Writer { manager, operation } = &correction.writer;
        let word = match &correction.request {
            Request::JsonPatch(_) => "patch",
            Request::Apply(_) => "apply",
            Request::Create(_) => "create",
            Request::CreateByApply(_) => "create by apply",
        };
        self.say(&format!("{word} as {manager}/{}", operation.as_str()));
        if let Request::JsonPatch(ops) = &correction.request {
            for op in ops {
                let op = serde_json::to_value(op).unwrap();
                let value = op.get("value").map(ToString::to_string).unwrap_or_default();
                self.say(&format!("  {} {} {value}", op["op"].as_str().unwrap(), op["path"].as_str().unwrap()));
            }
        }
        if let Some(change) = &correction.then {
            let list = |paths: &[Path]| paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            self.say(&format!("then give {}", list(&change.paths.paths())));
            if !change.gone.is_empty() {
                self.say(&format!("  and drop {}", list(&change.gone)));
            }
            if !change.released.is_empty() {
                self.say(&format!("  and release {}", list(&change.released.paths())));
            }
        }
        let mut answer = self.world.sent(correction);
        let judgement = self.with_case(|case| match (case.owned, case.live) {
            (Some(owned), Live::Present(before)) => decide::corrected(case, owned, before, correction, &answer),
            (owned, _) => decide::recreated(case, owned, &answer),
        });
        if let (Some(change), Some(before)) = (&correction.then, &self.world.live) {
            answer["metadata"]["managedFields"] = fields::moved(before, change, self.world.now);
        }
        self.written = Some(answer);
        self.conclude(judgement);
    }

    fn conclude(&mut self, judgement: Judgement) {
        let Judgement { verdict, action, reason, message, .. } = &judgement;
        let mut text = format!("{} {action:?} {}: {message}\n", verdict.as_str(), reason.as_str());
        for finding in &judgement.paths {
            text += &show(finding);
        }
        for accepted in &judgement.accepted {
            writeln!(text, "  {} accepted {:?}: {}", accepted.path, accepted.reason, accepted.note).unwrap();
        }
        self.out += &text;
        self.judgement = Some(judgement);
    }

    fn say(&mut self, line: &str) {
        writeln!(self.out, "{}", line.trim_end()).unwrap();
    }
}

fn show(finding: &PathFinding) -> String {
    let mut text = format!("  {} {:?}", finding.path, finding.change);
    for (word, value) in [("desired", &finding.desired), ("accepted", &finding.accepted), ("live", &finding.live)] {
        if let Some(value) = value {
            write!(text, " {word} {value}").unwrap();
        }
    }
    if let Some(actor) = &finding.actor {
        write!(text, " by {}", actor.manager).unwrap();
        if !actor.operation.is_empty() {
            write!(text, "/{}", actor.operation).unwrap();
        }
        if !actor.subresource.is_empty() {
            write!(text, "/{}", actor.subresource).unwrap();
        }
        if !actor.candidates.is_empty() {
            write!(text, " ({}?)", actor.candidates.join(", ")).unwrap();
        }
    }
    text + "\n"
}

/// Accepts what was found before, as the hub remembers it.
pub fn remembering(judgement: &Judgement) -> Baseline {
    Baseline {
        in_sync: judgement.in_sync,
        accepted: judgement.accepted.iter().map(holdfast_engine::assess::AcceptedPath::remembered).collect(),
    }
}

pub fn refusal(reason: Reason) -> Refusal {
    Refusal::new(reason)
}

pub fn digest(value: &Value) -> Digest {
    Digest::of(value)
}

/// Plays and compares with the golden text, whatever indentation it has in the source.
#[track_caller]
pub fn plays(world: &World, golden: &str) {
    assert_eq!(world.play(), text(golden));
}

fn text(golden: &str) -> String {
    let lines: Vec<&str> = golden.lines().skip_while(|line| line.trim().is_empty()).collect();
    let indent = lines.iter().filter(|line| !line.trim().is_empty()).map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    lines.iter().map(|line| line.get(indent..).unwrap_or_default()).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

pub fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "t", "labels": {"app": "web"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "img:1", "args": ["a"], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}],
                "ports": [{"containerPort": 80, "name": "http", "protocol": "TCP"}]}]}}}})
}

pub fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "t"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}]}})
}

pub fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "namespace": "t"}, "data": {"a": "1", "b": "2", "x/y~z": "3"}})
}

pub fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "t"}, "stringData": {"p": "hunter2", "q": "two"}})
}
