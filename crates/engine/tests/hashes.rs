//! Hashes: what changes them, what does not, and that they stay what they are from one version to the next. Every hub keeps some: one that
//! came out differently would cost a judgement of every object there is.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "clippy allows it in test functions, not in their helpers")]

use std::{fmt::Write as _, sync::Arc};

use holdfast_engine::{
    canonical::{Digest, canonical},
    judge::{Answered, judge},
    normalise::{Release, as_written, normalise},
    object::{Gvk, ObjectKey},
    owned::OwnedSet,
    project,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn hex(digest: Digest) -> String {
    digest.bytes().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn of_leaves(owned: &Value, object: &Value) -> Digest {
    project::digest(&project::leaves(&OwnedSet::from_fields_v1(owned), object))
}

/// The first 16 bytes of the SHA-256 of the canonical text, which any other program can compute.
#[test]
fn digests_of_values_stay_what_they_are() {
    for (value, text, digest) in [
        (json!(null), "null", "74234e98afe7498fb5daf1f36ac2d78a"),
        (json!(80), "80", "48449a14a4ff7d79bb7a1b6f3d488eba"),
        (json!("80"), "\"80\"", "9728ac83eb879c0a4dcb9544bf5aa3ec"),
        (json!({}), "{}", "44136fa355b3678a1146ad16f7e8649e"),
        (json!([]), "[]", "4f53cda18c2baa0c0354bb5f9a3ecbe5"),
        (
            json!({"b": [1, 1.5, null], "a": {"z": "é\n\"\\"}}),
            r#"{"a":{"z":"é\u000a\u0022\u005c"},"b":[1,1.5,null]}"#,
            "b2844bdabe91d8bf406c8a4aee9496c3",
        ),
    ] {
        assert_eq!(String::from_utf8(canonical(&value)).unwrap(), text);
        assert_eq!(hex(Digest::of(&value)), digest, "{text}");
        assert_eq!(Digest::of_bytes(text.as_bytes()), Digest::of(&value), "{text}");
    }
}

#[test]
fn digests_of_owned_paths_stay_what_they_are() {
    let owned =
        json!({"f:data": {"f:a": {}}, "f:spec": {"f:replicas": {}, "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}}});
    let live = json!({"data": {"a": "1", "b": "2"}, "spec": {"replicas": 2, "containers": [{"name": "c", "image": "i:1"}]}});
    assert_eq!(hex(of_leaves(&owned, &live)), "e05f215a0c54ba57a9bbf5654fbd89aa");
    assert_eq!(hex(OwnedSet::from_fields_v1(&owned).digest()), "d5428c7e134c530a08ef144df5d2dea1");
}

/// Every value that could stand at one path, and nothing at all: no two look alike.
#[test]
fn types_emptiness_and_absence_are_told_apart() {
    let owned = json!({"f:spec": {"f:x": {}}});
    let of = |object: Value| of_leaves(&owned, &object);
    let digests = [
        of(json!({})),
        of(json!({"spec": {"x": null}})),
        of(json!({"spec": {"x": ""}})),
        of(json!({"spec": {"x": {}}})),
        of(json!({"spec": {"x": []}})),
        of(json!({"spec": {"x": false}})),
        of(json!({"spec": {"x": 0}})),
        of(json!({"spec": {"x": "0"}})),
        of(json!({"spec": {"x": 80}})),
        of(json!({"spec": {"x": "80"}})),
        of(json!({"spec": {"x": "null"}})),
        of(json!({"spec": {"x": ["80"]}})),
        of(json!({"spec": {"x": {"80": null}}})),
    ];
    for (index, digest) in digests.iter().enumerate() {
        assert!(!digests[..index].contains(digest), "value {index} looks like another");
    }
    assert_eq!(of(json!({})), of(json!({"spec": {}, "other": 1})), "what is not claimed does not count");
}

/// Two neighbours must not be able to exchange what they hold.
#[test]
fn where_a_value_stands_counts() {
    let owned = json!({"f:a": {}, "f:b": {}});
    let of = |object: Value| of_leaves(&owned, &object);
    assert_ne!(of(json!({"a": "1", "b": "2"})), of(json!({"a": "2", "b": "1"})));
    assert_ne!(of(json!({"a": "12"})), of(json!({"a": "1", "b": "2"})));
    assert_ne!(of(json!({"a": "1"})), of(json!({"b": "1"})));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-e]{1,2}", inner, 0..5).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// JSON text of a value with the members of every object in the other order, and blanks between everything.
fn backwards(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let members: Vec<_> = members.iter().collect();
            out.push_str("{ ");
            for (index, (name, member)) in members.into_iter().rev().enumerate() {
                out.push_str(if index > 0 { " , " } else { "" });
                write!(out, "{} : ", Value::from(name.as_str())).unwrap();
                backwards(member, out);
            }
            out.push_str(" }");
        }
        Value::Array(items) => {
            out.push_str("[ ");
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { " , " } else { "" });
                backwards(item, out);
            }
            out.push_str(" ]");
        }
        other => write!(out, "{other}").unwrap(),
    }
}

/// Everything in a value as owned paths of their own.
fn claims(value: &Value) -> Value {
    match value {
        Value::Object(members) if !members.is_empty() => {
            Value::Object(members.iter().map(|(name, member)| (format!("f:{name}"), claims(member))).collect())
        }
        _ => json!({}),
    }
}

proptest! {
    #[test]
    fn the_order_of_keys_and_blanks_do_not_count(value in any_json()) {
        let mut text = String::new();
        backwards(&value, &mut text);
        let again: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(canonical(&again), canonical(&value));
        let owned = claims(&value);
        prop_assert_eq!(of_leaves(&owned, &again), of_leaves(&owned, &value));
        let mut set = String::new();
        backwards(&owned, &mut set);
        let set: Value = serde_json::from_str(&set).unwrap();
        prop_assert_eq!(of_leaves(&set, &value), of_leaves(&owned, &value));
        prop_assert_eq!(OwnedSet::from_fields_v1(&set).digest(), OwnedSet::from_fields_v1(&owned).digest());
    }

    #[test]
    fn what_was_processed_once_stays_as_it_is(value in any_json(), kind in 0..4_usize) {
        let (api_version, kind) = [("v1", "Secret"), ("v1", "ConfigMap"), ("rbac.authorization.k8s.io/v1", "ClusterRole"), ("test.example/v1", "Widget")][kind];
        let key = ObjectKey::new(Arc::new(Gvk::new(api_version, kind)), Some("t"), "x");
        let release = Release { namespace: "r".into(), name: "rel".into() };
        let once = normalise(value.clone(), &key, Some(&release));
        prop_assert_eq!(&normalise(once.clone(), &key, Some(&release)), &once);
        let written = as_written(value, &key, Some(&release));
        prop_assert_eq!(&as_written(written.clone(), &key, Some(&release)), &written);
        let text = canonical(&once);
        let parsed: Value = serde_json::from_slice(&text).unwrap();
        prop_assert_eq!(canonical(&parsed), text);
    }

    #[test]
    fn judging_leaves_what_it_judges_as_it_was(desired in any_json(), live in any_json()) {
        let mut answer = desired.clone();
        if !answer.is_object() {
            answer = json!({});
        }
        answer["metadata"] = json!({"managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": claims(&desired)}]});
        let before = [&desired, &live, &answer].map(ToString::to_string);
        let answered = Answered { object: &answer, manager: "m" };
        let judged = judge(&desired, &live, &answered).unwrap();
        prop_assert!(judged.still_holds(&live));
        // What the server made of it is in sync by definition, whatever it made.
        prop_assert!(judge(&desired, &answer, &answered).unwrap().is_in_sync());
        prop_assert_eq!([&desired, &live, &answer].map(ToString::to_string), before);
    }
}
