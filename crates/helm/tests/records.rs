//! Records as clusters really hold them, and as they should not: case D17 and its siblings.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "helpers of tests, outside of any test function")]

use std::io::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::GzEncoder};
use holdfast_helm::{ApplyMethod, Chart, Limits, Record, RecordError, RecordMeta, Status, Store, StoredMeta, decode};
use proptest::prelude::*;
use serde_json::{Value, json};

const CANARY: &str = "CANARY-1f3a";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn body() -> Value {
    json!({
        "name": "web", "namespace": "shop", "version": 3,
        "info": {"first_deployed": "2025-01-02T03:04:05.678901234+02:00", "last_deployed": "2025-02-02T03:04:05Z", "deleted": "",
                 "description": "Upgrade complete", "status": "deployed", "notes": CANARY},
        "chart": {"metadata": {"name": "web", "version": "1.2.3", "apiVersion": "v2"}, "templates": [{"name": "t", "data": "e30="}], "values": {"a": [1, {}]}},
        "config": {"password": CANARY},
        "manifest": format!("---\nkind: Secret\nstringData:\n  p: {CANARY}\n"),
        "apply_method": "ssa"
    })
}

fn stored(body: &Value) -> Vec<u8> {
    BASE64_STANDARD.encode(gzip(body.to_string().as_bytes())).into_bytes()
}

fn read(data: &[u8]) -> Result<Record, RecordError> {
    decode(data, &Limits::default())
}

#[test]
fn reads_helm_4() {
    let record = read(&stored(&body())).unwrap();
    assert_eq!((record.name.as_str(), record.namespace.as_str(), record.version, record.status), ("web", "shop", 3, Status::Deployed));
    assert_eq!(record.first_deployed.unwrap().to_string(), "2025-01-02T01:04:05.678901234Z");
    assert_eq!(record.last_deployed.unwrap().to_string(), "2025-02-02T03:04:05Z");
    assert_eq!(record.deleted, None, "an empty time is none");
    assert_eq!(record.chart, Some(Chart { name: "web".to_owned(), version: "1.2.3".to_owned() }));
    assert_eq!(record.apply_method, ApplyMethod::ServerSide);
    assert!(record.manifest.contains(CANARY));
    assert!(!format!("{record:?}").contains(CANARY));
}

#[test]
fn reads_helm_3_and_older() {
    let mut old = body();
    old.as_object_mut().unwrap().remove("apply_method");
    assert_eq!(read(&stored(&old)).unwrap().apply_method, ApplyMethod::ClientSide);
    old["apply_method"] = "csa".into();
    assert_eq!(read(&stored(&old)).unwrap().apply_method, ApplyMethod::ClientSide);
    let plain = BASE64_STANDARD.encode(old.to_string());
    assert_eq!(read(plain.as_bytes()).unwrap(), read(&stored(&old)).unwrap(), "b9: never compressed");
    let wrapped: Vec<u8> = stored(&old).chunks(76).flat_map(|line| line.iter().copied().chain([b'\n'])).collect();
    assert_eq!(read(&wrapped).unwrap(), read(&stored(&old)).unwrap(), "line breaks in base64 are skipped");
}

#[test]
fn a_release_of_hooks_only_has_no_manifest() {
    let mut hooks = body();
    hooks.as_object_mut().unwrap().remove("manifest");
    hooks["hooks"] = json!([{"name": "h", "manifest": CANARY}]);
    assert_eq!(read(&stored(&hooks)).unwrap().manifest, "");
}

fn without(field: &str) -> Vec<u8> {
    let mut body = body();
    body.as_object_mut().unwrap().remove(field);
    stored(&body)
}

fn with(field: &str, value: Value) -> Vec<u8> {
    let mut body = body();
    body[field] = value;
    stored(&body)
}

#[test]
fn broken_records_are_typed_and_silent() {
    let good = stored(&body());
    let gzipped = gzip(body().to_string().as_bytes());
    let encode = |bytes: &[u8]| BASE64_STANDARD.encode(bytes).into_bytes();
    let mut flipped = gzipped.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x55;
    let mut bad_crc = gzipped.clone();
    let crc = bad_crc.len() - 6;
    bad_crc[crc] ^= 1;
    let deep = format!(r#"{{"name":"a","chart":{{"metadata":{}1{}}}}}"#, "{\"name\":".repeat(100_000), "}".repeat(100_000));
    let mut half_base64 = good.clone();
    half_base64.truncate(good.len() - 3);

    let table: Vec<(&str, Vec<u8>, RecordError)> = vec![
        ("b1: base64 once only", gzipped.clone(), RecordError::BadBase64),
        ("b1: not base64 at all", CANARY.repeat(3).into_bytes(), RecordError::BadBase64),
        ("b1: cut base64", half_base64, RecordError::BadBase64),
        ("b2: truncated gzip", encode(&gzipped[..gzipped.len() - 20]), RecordError::Truncated),
        ("b2: gzip header only", encode(&gzipped[..10]), RecordError::Truncated),
        ("b2: flipped bit", encode(&bad_crc), RecordError::BadGzip),
        ("b2: flipped byte in the data", encode(&flipped), RecordError::BadGzip),
        ("b2: garbage after the end", encode(&[gzipped.as_slice(), b"x"].concat()), RecordError::TrailingData),
        ("b2: two members", encode(&[gzipped.as_slice(), &gzipped].concat()), RecordError::TrailingData),
        ("b3: invalid JSON", encode(&gzip(format!("{{\"name\": {CANARY}").as_bytes())), RecordError::BadJson),
        ("b3: cut JSON", encode(&gzip(b"{\"name\": \"web\"")), RecordError::Truncated),
        ("b3: a list", encode(&gzip(b"[]")), RecordError::BadJson),
        ("b3: wrong type", with("manifest", json!([CANARY])), RecordError::BadJson),
        ("b3: wrong time", with("info", json!({"status": "deployed", "last_deployed": CANARY})), RecordError::BadJson),
        ("b3: negative revision", with("version", json!(-1)), RecordError::BadJson),
        ("b3: depth bomb", encode(&gzip(deep.as_bytes())), RecordError::BadJson),
        ("b4: no manifest", without("manifest"), RecordError::NoManifest),
        ("b4: null manifest", with("manifest", Value::Null), RecordError::NoManifest),
        ("b5: gzip bomb", encode(&gzip(&vec![b' '; 64 << 20])), RecordError::TooLarge),
        ("b5: too much to begin with", vec![b'A'; (3 << 19) + 4], RecordError::TooLarge),
        ("b6: no data", Vec::new(), RecordError::NoData),
        ("no name", without("name"), RecordError::NoIdentity),
        ("no namespace", without("namespace"), RecordError::NoIdentity),
        ("no revision", without("version"), RecordError::NoIdentity),
        ("no info", without("info"), RecordError::BadStatus),
        ("odd status", with("info", json!({"status": CANARY})), RecordError::BadStatus),
    ];
    for (name, data, expected) in table {
        let error = read(&data).unwrap_err();
        // A flipped byte may break the stream or end it early.
        let either = name.contains("in the data") && matches!(error, RecordError::BadGzip | RecordError::Truncated | RecordError::BadJson);
        assert!(error == expected || either, "{name}: {error:?}");
        let text = format!("{error} {error:?} {}", error.reason());
        assert!(!text.contains(CANARY), "{name}");
    }
}

#[test]
fn a_record_is_what_its_secret_says() {
    let record = read(&stored(&body())).unwrap();
    let labels = [("owner", "helm"), ("name", "web"), ("version", "3"), ("status", "deployed")];
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let secret = StoredMeta {
        store: Store::Secrets,
        name: "sh.helm.release.v1.web.v3",
        namespace: "shop",
        uid: "u",
        resource_version: "1",
        created: None,
        labels: &labels,
    };
    let meta = RecordMeta::parse(&secret).unwrap();
    assert_eq!(record.confirm(&meta), Ok(()));
    for other in [
        RecordMeta { name: "web2".to_owned(), ..meta.clone() },
        RecordMeta { namespace: "kube-system".to_owned(), ..meta.clone() },
        RecordMeta { version: 4, ..meta.clone() },
    ] {
        assert_eq!(record.confirm(&other), Err(RecordError::IdentityMismatch));
    }
    assert_eq!(record.confirm(&RecordMeta { status: Status::Superseded, ..meta }), Err(RecordError::StatusMismatch));
}

proptest! {
    #[test]
    fn never_panics_on_bytes(data in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ignored = read(&data);
    }

    #[test]
    fn never_panics_behind_base64(data in proptest::collection::vec(any::<u8>(), 0..512), compressed: bool) {
        let inner = if compressed { [&[0x1f, 0x8b, 0x08], data.as_slice()].concat() } else { data };
        let _ignored = read(BASE64_STANDARD.encode(inner).as_bytes());
    }

    #[test]
    fn never_panics_on_damaged_records(at in 0_usize..4096, value: u8, cut in 0_usize..4096) {
        let mut data = gzip(body().to_string().as_bytes());
        let length = data.len();
        data[at % length] = value;
        data.truncate(length - cut % length);
        let _ignored = read(BASE64_STANDARD.encode(data).as_bytes());
    }
}
