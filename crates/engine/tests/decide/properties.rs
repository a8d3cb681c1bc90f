//! What holds whatever drifted and whatever is known.

use holdfast_api::report::Reason;
use holdfast_engine::{
    answer::{Answer, Fence, Live, Refusal},
    assess::assess,
    canonical::Digest,
    case::{Baseline, Case, Permit, Word},
    collateral::{self, Predicted},
    contest::{Alternation, Ledger},
    decide::{Step, decide},
    foreign,
    manager::{self, Operation, Writer},
    owned::OwnedSet,
    patch,
    path::Path,
    plan::{Correction, Planned, Request, plan},
    yields::{Replicas, Scaler},
};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::world::*;

fn stateful_set() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "t", "labels": {"app": "db"}, "annotations": {"a/b~c": "x"}},
        "spec": {"serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": {"metadata": {"labels": {"app": "db"}}, "spec": {
            "initContainers": [{"name": "one", "image": "i:1"}, {"name": "two", "image": "i:2"}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}],
            "containers": [{"name": "c", "image": "img:1", "command": ["run"], "volumeMounts": [{"name": "v", "mountPath": "/a/b"}, {"name": "w", "mountPath": "/c"}],
                "resources": {"limits": {"cpu": "1"}}}, {"name": "d", "image": "img:2"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]}})
}

fn role() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r", "namespace": "t", "finalizers": ["a/b", "c"]},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
}

fn widget() -> Value {
    json!({"apiVersion": "test.example/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "t"},
        "spec": {"size": 3, "mode": "", "deep": {"er": {"x/y": 1, "~": false, "": "empty", "[a=b]": [1]}}, "tags": ["a", "b"], "none": {}}})
}

fn fixture() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![deployment(), service(), stateful_set(), role(), config_map(), secret(), widget()])
}

/// One change somebody makes: where, how and with what.
#[derive(Clone, Debug)]
struct Edit {
    place: Index,
    how: u8,
    with: u8,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec((any::<Index>(), 0..7_u8, any::<u8>()).prop_map(|(place, how, with)| Edit { place, how, with }), 1..6)
}

fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
    if !at.is_empty() {
        out.push(at.to_owned());
    }
    match value {
        Value::Object(members) => members.iter().for_each(|(name, member)| pointers(member, &format!("{at}/{}", escape(name)), out)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| pointers(item, &format!("{at}/{index}"), out)),
        _ => {}
    }
}

/// Changes the object below `metadata.labels`, `metadata.annotations` and everything that is no metadata.
fn change(object: &mut Value, edit: &Edit) {
    let mut places = Vec::new();
    pointers(object, "", &mut places);
    places.retain(|place| {
        let is_identity = matches!(place.as_str(), "/apiVersion" | "/kind" | "/metadata" | "/metadata/labels" | "/metadata/annotations");
        let is_metadata = place.starts_with("/metadata/")
            && !["labels/", "annotations/", "finalizers"].iter().any(|part| place.starts_with(&format!("/metadata/{part}")));
        !is_identity && !is_metadata
    });
    if places.is_empty() {
        return;
    }
    let place = edit.place.get(&places).clone();
    let (parent, last) = place.rsplit_once('/').unwrap();
    let other = [json!("other"), json!(7), json!(null), json!(["z"]), json!({"name": "z", "z": 1}), json!(true), json!("")]
        [usize::from(edit.with) % 7]
        .clone();
    match edit.how {
        0 | 1 => *object.pointer_mut(&place).unwrap() = other,
        2 => patch::apply(object, &patch::Op::Remove { path: place }),
        3 => {
            if let Some(members) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
                members.insert(format!("added-{}", edit.with % 3), other);
            }
        }
        4 => {
            if let Some(items) = object.pointer_mut(&place).and_then(Value::as_array_mut) {
                items.reverse();
            }
        }
        5 => {
            if let Some(items) = object.pointer_mut(parent).and_then(Value::as_array_mut) {
                let copy = items[last.parse::<usize>().unwrap()].clone();
                items.push(copy);
            }
        }
        _ => {
            if let Some(items) = object.pointer_mut(&place).and_then(Value::as_array_mut) {
                items.insert(0, other);
            }
        }
    }
}

/// A case in which everything is known and the manifest's dry-run is refused: the comparison alone decides.
fn with_case<T>(world: &World, live: &Value, then: impl FnOnce(&Case<'_>) -> T) -> T {
    let refused = Refusal::new(Reason::Immutable);
    then(&Case {
        desired: &world.desired,
        owned: world.owned.as_ref(),
        baseline: world.baseline.as_ref(),
        live: Live::Present(live),
        oracle: Answer::Refused(&refused),
        oracle_again: Answer::NotAsked,
        create: Answer::NotAsked,
        claims: Answer::NotAsked,
        merged: Answer::NotAsked,
        proof: Answer::NotAsked,
        proof_again: Answer::NotAsked,
        fence: Fence::Clear,
        permit: Permit::Write,
        ignored: &|_, _| false,
        enforced: &|_| false,
        scalers: &[],
        suspects: &Vec::new,
        ledger: None,
        writer: world.writer.as_ref(),
        prefer: world.prefer,
        deployed_at: world.deployed_at,
        seen: true,
        vouched: true,
        word: Word::OwnNamespace,
        also_declared_by: None,
        held: None,
        foreign: foreign::Rules::reporting(),
        now: world.now,
    })
}

fn planned(case: &Case<'_>, owned: &OwnedSet, live: &Value) -> Option<Correction> {
    let assessment = assess(case, owned, live);
    if assessment.drifts.is_empty() {
        return None;
    }
    match plan(case, owned, live, &assessment) {
        Some(Planned::Proven(correction) | Planned::Unproven(correction)) => Some(correction),
        other => panic!("drift without a correction: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_correction_heals_touches_nothing_else_and_is_done(manifest in fixture(), edits in edits(), apply in any::<bool>()) {
        let mut world = deployed(&manifest, if apply { Operation::Apply } else { Operation::Update });
        world.edit("somebody", |live| edits.iter().for_each(|edit| change(live, edit)));
        let (owned, live) = (world.owned(), world.live.clone().unwrap());
        let Some(correction) = with_case(&world, &live, |case| planned(case, &owned, &live)) else { return Ok(()) };
        let Request::JsonPatch(ops) = &correction.request else { panic!("not positional: {correction:?}") };
        let mut healed = live.clone();
        for op in ops {
            patch::apply(&mut healed, op);
        }
        let assessment = with_case(&world, &healed, |case| assess(case, &owned, &healed));
        prop_assert!(assessment.is_in_sync(), "{:?}\n{live}\n{}\n{healed}", assessment.drifts, serde_json::to_string(ops).unwrap());
        prop_assert!(collateral::only_changes(&healed, &live, &correction.touched), "{live}\n{}\n{healed}", serde_json::to_string(ops).unwrap());
        prop_assert_eq!(with_case(&world, &healed, |case| planned(case, &owned, &healed)), None);
    }

    #[test]
    fn every_owned_leaf_that_changes_is_found(manifest in fixture(), leaf in any::<Index>(), with in any::<u8>()) {
        let mut world = deployed(&manifest, Operation::Update);
        let owned = world.owned();
        let paths = owned.paths();
        let path = leaf.get(&paths);
        let mut builder = patch::Builder::new(world.live());
        let other = [None, Some(json!("other")), Some(json!(77)), Some(json!({"z": [1]}))][usize::from(with) % 4].clone();
        builder.set(path, other.as_ref(), &world.desired.value);
        let changed = builder.result().clone();
        if changed != *world.live() {
            let drifts = with_case(&world, &changed, |case| assess(case, &owned, &changed)).drifts;
            prop_assert!(drifts.iter().any(|drift| drift.path.contains(path) || path.contains(&drift.path)), "{path} {drifts:?}");
        }
    }
}

/// Facts of which any subset may be known.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "every one of them may be known or not")]
struct Facts {
    live: u8,
    owned: bool,
    baseline: bool,
    oracle: u8,
    create: u8,
    claims: u8,
    proof: u8,
    fence: u8,
    permit: u8,
    seen: bool,
    trusted: bool,
    writer: bool,
    also: bool,
    nowhere: bool,
    held: bool,
    scaler: bool,
    ignored: bool,
}

fn facts() -> impl Strategy<Value = Facts> {
    let questions = (0..8_u8, 0..5_u8, 0..5_u8, 0..5_u8, 0..6_u8, 0..4_u8, 0..3_u8);
    let flags = (prop::array::uniform10(any::<bool>()), any::<bool>());
    (questions, flags).prop_map(
        |(
            (live, oracle, create, claims, proof, fence, permit),
            ([owned, baseline, seen, trusted, writer, also, nowhere, held, scaler, ignored], rare),
        )| {
            Facts {
                live,
                owned,
                baseline,
                oracle,
                create,
                claims,
                proof,
                fence,
                permit,
                seen,
                trusted,
                writer,
                also: also && rare,
                nowhere: nowhere && rare,
                held: held && rare,
                scaler,
                ignored: ignored && rare,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn unknown_never_leads_to_a_write(facts in facts(), manifest in fixture(), edits in edits(), apply in any::<bool>()) {
        let world = deployed(&manifest, if apply { Operation::Apply } else { Operation::Update });
        let mut drifted = World { live: world.live.clone(), ..deployed(&manifest, if apply { Operation::Apply } else { Operation::Update }) };
        drifted.edit("somebody", |live| edits.iter().for_each(|edit| change(live, edit)));
        let mut live = drifted.live.clone().unwrap();
        match facts.live {
            4 => live["metadata"]["deletionTimestamp"] = json!(LATER),
            5 => { live["metadata"].as_object_mut().unwrap().remove("annotations"); }
            6 => live = world.live.clone().unwrap(),
            7 => { live["metadata"].as_object_mut().unwrap().remove("managedFields"); }
            _ => {}
        }
        drifted.live = Some(live.clone());
        let refusals = [Reason::ServerError, Reason::Immutable].map(Refusal::new);
        let applied = drifted.applied();
        let mut strange = applied.clone();
        strange["metadata"]["annotations"] = json!({"strange": "x"});
        let created = drifted.created("holdfast", Operation::Update, LATER);
        let said = |number: u8| match number {
            0 => Answer::NotAsked,
            1 => Answer::Given(&applied),
            2 => Answer::Given(&strange),
            3 => Answer::Refused(&refusals[0]),
            _ => Answer::Refused(&refusals[1]),
        };
        let create = match facts.create {
            1 => Answer::Given(&created),
            other => said(other),
        };
        let fence = [Fence::NotAsked, Fence::Clear, Fence::Closed, Fence::Unknown][usize::from(facts.fence)];
        let permit = [Permit::Write, Permit::Report(None), Permit::Report(Some(Reason::Suspended))][usize::from(facts.permit)];
        let live_fact = match facts.live {
            0 => Live::NotRead,
            1 => Live::Absent,
            2 => Live::Unreadable(&refusals[0]),
            _ => Live::Present(&live),
        };
        let owned = world.owned();
        let writer = Writer { manager: "helm".into(), operation: if apply { Operation::Apply } else { Operation::Update } };
        let baseline = Baseline { in_sync: None, accepted: Box::from([]) };
        let mut ledger = Ledger::default();
        let everything: Vec<(Path, Digest)> = owned.paths().into_iter().chain([Path::root()]).map(|path| (path, digest(&json!(1)))).collect();
        (0..3).for_each(|_| ledger.record(&everything, world.now, Alternation::default()));
        let scalers = [Scaler::Replicas(Replicas::between("hpa".into(), 3, 4))];
        let case = Case {
            desired: &world.desired,
            owned: facts.owned.then_some(&owned),
            baseline: facts.baseline.then_some(&baseline),
            live: live_fact,
            oracle: said(facts.oracle),
            oracle_again: Answer::NotAsked,
            create,
            claims: said(facts.claims),
            merged: said(facts.claims),
            proof: Answer::NotAsked,
            proof_again: Answer::NotAsked,
            fence,
            permit,
            ignored: &|_, _| facts.ignored,
            enforced: &|_| false,
            scalers: if facts.scaler { &scalers } else { &[] },
            suspects: &Vec::new,
            ledger: facts.held.then_some(&ledger),
            writer: facts.writer.then_some(&writer),
            prefer: None,
            deployed_at: world.deployed_at,
            seen: facts.seen,
            vouched: true,
            word: if facts.trusted { Word::Trusted } else { Word::OwnNamespace },
            also_declared_by: facts.also.then_some("other"),
            held: facts.nowhere.then_some(Reason::NamespaceTerminating),
            foreign: foreign::Rules::reporting(),
            now: world.now,
        };
        // The answer to the dry-run of the correction, where one is asked for.
        let mut step = decide(&case);
        let (mut proof, mut proof_answer) = (Value::Null, Answer::NotAsked);
        if let Step::Prove(correction) = &step {
            prop_assert!(permit == Permit::Write && fence == Fence::Clear, "proving what may not be written");
            proof = drifted.sent(correction);
            if facts.proof == 2 {
                proof["spec"]["collateral"] = json!("x");
            }
        }
        if matches!(step, Step::Prove(_)) {
            proof_answer = match facts.proof {
                0 => Answer::NotAsked,
                1 | 2 => Answer::Given(&proof),
                3 => Answer::Refused(&refusals[0]),
                4 => Answer::Given(&live),
                _ => Answer::Refused(&refusals[1]),
            };
            step = decide(&Case { proof: proof_answer, ..case });
        }
        // What the same dry-run answers twice is never another each time.
        if matches!(step, Step::ProveAgain(_)) {
            step = decide(&Case { proof: proof_answer, proof_again: proof_answer, ..case });
            prop_assert!(matches!(step, Step::Done(_)), "{step:?}");
        }
        if let Step::Ask(ask) = &step {
            prop_assert!(!ask.oracle || matches!(case.oracle, Answer::NotAsked), "asked again");
            prop_assert!(!ask.create || matches!(case.create, Answer::NotAsked), "asked again");
            prop_assert!(!ask.fence || (fence == Fence::NotAsked && permit == Permit::Write), "asked again");
            prop_assert!(!ask.claims || matches!(case.claims, Answer::NotAsked), "asked again");
            prop_assert!(!ask.again || !matches!(case.oracle, Answer::NotAsked), "asked again before it was asked");
            prop_assert!(ask.oracle || ask.again || ask.create || ask.claims || ask.fence);
        }
        let Step::Write(correction) = step else { return Ok(()) };
        prop_assert!(permit == Permit::Write && fence == Fence::Clear && !facts.also);
        match (live_fact, &correction.request) {
            (Live::Absent, Request::Create(_) | Request::CreateByApply(_)) => {
                let key = &world.desired.key;
                let harmless = key.namespace.as_deref() == Some("t") && key.gvk.group != "rbac.authorization.k8s.io";
                prop_assert!(facts.writer && !facts.held && !facts.nowhere && (facts.seen || facts.trusted || harmless));
            }
            (Live::Present(live), Request::JsonPatch(_) | Request::Apply(_)) => {
                prop_assert!(facts.owned && facts.live != 4 && !facts.ignored);
                prop_assert!(facts.seen || world.desired.release.as_ref().unwrap().owns(live));
                let by_oracle = matches!(case.oracle, Answer::Given(oracle) if collateral::only_changes(oracle, live, &correction.touched));
                let by_proof = matches!((proof_answer, case.oracle), (Answer::Given(proof), Answer::Given(oracle)) if Predicted { live, oracle: Some(oracle), again: None }.explains(proof, &correction.touched))
                    || matches!(proof_answer, Answer::Given(proof) if collateral::only_changes(proof, live, &correction.touched));
                prop_assert!(by_oracle || by_proof, "nothing proves {correction:?}");
                prop_assert!(!facts.baseline || !matches!(case.oracle, Answer::NotAsked) || facts.scaler);
                let foreign = correction.writer != writer && !manager::entries(live).iter().any(|entry| correction.writer.wrote(entry));
                prop_assert!(!foreign, "written under a name the release never had");
                match &correction.request {
                    Request::JsonPatch(ops) => {
                        prop_assert_eq!(&ops[0], &patch::version_guard(live["metadata"]["resourceVersion"].as_str().unwrap()));
                        prop_assert!(!apply || correction.then.is_some(), "a patch of a server-side release must move ownership back");
                    }
                    Request::Apply(body) => {
                        prop_assert!(by_oracle && correction.writer.operation == Operation::Apply);
                        prop_assert_eq!(&body["metadata"]["uid"], &live["metadata"]["uid"]);
                        prop_assert_eq!(&body["metadata"]["resourceVersion"], &live["metadata"]["resourceVersion"]);
                        prop_assert_eq!(&body["metadata"]["annotations"]["meta.helm.sh/release-name"], "rel");
                    }
                    _ => unreachable!(),
                }
            }
            (live, request) => prop_assert!(false, "{request:?} while {live:?}"),
        }
    }
}
