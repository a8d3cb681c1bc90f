#![allow(clippy::all)]
use holdfast_engine::{answer::*, assess::assess, case::*, manager::{Operation, Writer}, normalise::*, object::*, plan, project, reduced, fields, owned::OwnedSet, canonical::Digest, collateral, contest::Ledger};
use serde_json::{Value, json};
use std::{sync::Arc, time::Instant};
fn run(name: &str, manifest: Value, edit: impl Fn(&mut Value), owned: Option<OwnedSet>) {
    let gvk = Gvk::new(manifest["apiVersion"].as_str().unwrap(), manifest["kind"].as_str().unwrap());
    let key = ObjectKey::new(Arc::new(gvk), Some("t"), "x");
    let release = Release { namespace: "t".into(), name: "rel".into() };
    let desired = Desired { value: normalise(manifest, &key, Some(&release)), key, release: Some(release) };
    let owned = owned.unwrap_or_else(|| reduced::owned(&desired.key.gvk, &desired.value));
    let mut live = desired.value.clone();
    live["metadata"]["resourceVersion"] = json!("1");
    live["metadata"]["managedFields"] = json!([{"manager":"helm","operation":"Update","time":"2026-01-01T00:00:00Z","fieldsV1":owned.to_fields_v1()},{"manager":"k","operation":"Update","time":"2026-01-01T00:00:00Z","fieldsV1":owned.to_fields_v1()}]);
    let t = Instant::now(); let l = project::leaves(&owned, &live); let d = project::digest(&l); println!("{name}: leaves {} digest {:?} {:?}", l.len(), d, t.elapsed());
    let oracle = live.clone();
    edit(&mut live);
    let writer = Writer { manager: "helm".into(), operation: Operation::Update };
    for first in [true, false] {
    let baseline = Baseline { in_sync: None, accepted: Box::from([]) };
    let case = Case { desired: &desired, owned: Some(&owned), baseline: if first {None} else {Some(&baseline)}, live: Live::Present(&live), oracle: Answer::Given(&oracle), create: Answer::Given(&oracle), claims: Answer::NotAsked, proof: Answer::NotAsked, fence: Fence::Clear, permit: Permit::Write, ignored: &|_, _| false, scaler: None, ledger: None, writer: Some(&writer), prefer: None, deployed_at: None, seen: true, trusted: false, also_declared_by: None, now: jiff::Timestamp::UNIX_EPOCH };
    let t = Instant::now(); let a = assess(&case, &owned, &live); println!("  assess first={first} drifts {} {:?}", a.drifts.len(), t.elapsed());
    let t = Instant::now(); let p = plan::plan(&case, &owned, &live, &a).unwrap(); println!("  plan {:?}", t.elapsed());
    if let plan::Planned::Proven(c) | plan::Planned::Unproven(c) = &p {
        let t = Instant::now(); println!("  only {} {:?}", collateral::only_changes(&oracle, &live, &c.touched), t.elapsed());
        let t = Instant::now(); let m = fields::Move { to: Writer{manager:"k2".into(),operation:Operation::Apply}, paths: owned.clone(), gone: vec![], released: owned.clone() }; fields::moved(&live, &m, jiff::Timestamp::UNIX_EPOCH); println!("  moved {:?}", t.elapsed());
        let t = Instant::now(); let mut led = Ledger::default(); for d in &a.drifts { led.record(&d.path, Digest::of(&json!(1)), jiff::Timestamp::UNIX_EPOCH, None); } println!("  ledger {:?}", t.elapsed());
    }
    }
}
#[test]
fn perf() {
    let data: serde_json::Map<String, Value> = (0..10_000).map(|n| (format!("key-{n}"), json!("v"))).collect();
    run("cm", json!({"apiVersion":"v1","kind":"ConfigMap","metadata":{},"data":data}), |l| { for (_, v) in l["data"].as_object_mut().unwrap().iter_mut() { *v = json!("w"); } }, None);
    let data: serde_json::Map<String, Value> = (0..10_000).map(|n| (format!("key-{n}"), json!("v"))).collect();
    run("cm gone", json!({"apiVersion":"v1","kind":"ConfigMap","metadata":{},"data":data}), |l| { l.as_object_mut().unwrap().remove("data"); }, None);
    let env: Vec<Value> = (0..5000).map(|n| json!({"name": format!("E{n}"), "value": "v"})).collect();
    run("env", json!({"apiVersion":"v1","kind":"Pod","metadata":{},"spec":{"containers":[{"name":"c","env":env}]}}), |l| { for v in l["spec"]["containers"][0]["env"].as_array_mut().unwrap() { v["value"] = json!("w"); } }, None);
    run("env gone", json!({"apiVersion":"v1","kind":"Pod","metadata":{},"spec":{"containers":[{"name":"c","env":env}]}}), |l| { l["spec"]["containers"][0]["env"] = json!([]); }, None);
    let ports: Vec<Value> = (0..2000).map(|n| json!({"name": format!("E{n}"), "port": n+1})).collect();
    run("ports renamed", json!({"apiVersion":"v1","kind":"Service","metadata":{},"spec":{"ports":ports}}), |l| { for v in l["spec"]["ports"].as_array_mut().unwrap() { v["port"] = json!(v["port"].as_i64().unwrap() + 20000); v["protocol"]=json!("TCP"); } }, None);
    let big = json!({"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{},"spec":{"versions":(0..5000).map(|n| json!({"name": format!("v{n}"), "schema": {"description": "x".repeat(80)}})).collect::<Vec<_>>()}});
    run("crd", big, |l| { l["spec"]["versions"][0]["name"] = json!("w"); }, None);
}
