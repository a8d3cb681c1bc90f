//! Whatever a developer prints with `{:?}`, a Secret's values are not in it.

use std::sync::Arc;

use holdfast_api::report::Reason;
use holdfast_engine::{
    answer::{Answer, Fence, Live, Refusal},
    assess::assess,
    case::{Baseline, Case, Desired, Permit, Word},
    decide::{self, Step},
    foreign,
    manager::{Operation, Writer},
    normalise::{Release, normalise},
    object::{Gvk, ObjectKey},
    plan::{self, Request},
    project, reduced,
};
use serde_json::json;

const CANARIES: [&str; 4] = ["Q0FOQVJZ", "CANARY", "RFJJRlRFRA", "DRIFTED"];

#[test]
fn no_debug_output_of_any_stage_holds_a_value() {
    let key = ObjectKey::new(Arc::new(Gvk::new("v1", "Secret")), Some("t"), "s");
    let release = Release { namespace: "t".into(), name: "rel".into() };
    let manifest = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "t"}, "data": {"p": "Q0FOQVJZ"}, "stringData": {"q": "CANARY"}});
    let desired = Desired { value: normalise(manifest, &key, Some(&release)), key, written: None, release: Some(release) };
    let owned = reduced::owned(&desired.key.gvk, &desired.value);
    let mut live = desired.value.clone();
    live["metadata"]["resourceVersion"] = json!("7");
    live["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!("{\"data\": \"CANARY\"}");
    live["metadata"]["managedFields"] =
        json!(["Update", "Apply"].map(|operation| json!({"manager": "helm", "operation": operation, "fieldsV1": owned.to_fields_v1()})));
    live["data"] = json!({"p": "RFJJRlRFRA==", "q": "RFJJRlRFRA==", "foreign": "CANARY"});
    let writer = Writer { manager: "helm".into(), operation: Operation::Update };
    let baseline = Baseline { in_sync: None, accepted: Box::from([]) };
    let refusal = Refusal::new(Reason::Immutable);
    for (operation, oracle) in [(Operation::Update, Answer::Given(&desired.value)), (Operation::Apply, Answer::Refused(&refusal))] {
        let writer = Writer { operation, ..writer.clone() };
        let case = Case {
            desired: &desired,
            owned: Some(&owned),
            baseline: Some(&baseline),
            live: Live::Present(&live),
            oracle,
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
            writer: Some(&writer),
            prefer: Some(operation),
            deployed_at: None,
            seen: true,
            vouched: true,
            word: Word::OwnNamespace,
            also_declared_by: None,
            held: None,
            foreign: foreign::Rules::reporting(),
            now: jiff::Timestamp::UNIX_EPOCH,
        };
        let assessment = assess(&case, &owned, &live);
        assert_eq!(assessment.drifts.len(), 2);
        let step = decide::decide(&case);
        let (Step::Prove(correction) | Step::Write(correction)) = &step else { panic!("{step:?}") };
        let Request::JsonPatch(ops) = &correction.request else { panic!("{correction:?}") };
        let printed = [
            format!("{assessment:?}"),
            format!("{:?}", assessment.drifts),
            format!("{:?}", assessment.drifts.iter().map(|drift| &drift.finding).collect::<Vec<_>>()),
            format!("{step:?}"),
            format!("{:?}", ops.as_slice()),
            format!("{desired:?} {:?} {:?}", case.live, case.oracle),
            format!("{:?} {:?}", project::leaves(&owned, &live), project::differences(&owned, &live, &desired.value)),
            format!("{:?}", plan::create(&desired, &writer)),
            format!("{:?}", decide::refused_write(&case, Reason::Invalid)),
            format!("{:?}", decide::corrected(&case, &owned, &live, correction, &desired.value)),
            format!("{:?}", decide::drifts(&case)),
            serde_json::to_string(&assessment.drifts.iter().map(|drift| &drift.finding).collect::<Vec<_>>()).unwrap(),
        ];
        for text in printed {
            assert!(!CANARIES.iter().any(|canary| text.contains(canary)), "{text}");
        }
    }
}
