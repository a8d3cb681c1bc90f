use std::time::Duration;

use serde_json::json;

use super::*;

const DEPLOYMENT: &str = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"web","namespace":"shop","uid":"u-1","resourceVersion":"42","generation":3,"labels":{"app":"web","quoted":"a\"b"},"annotations":{"note":"line\nbreak \u00e9"},"finalizers":["x/y"],"ownerReferences":[{"kind":"K","name":"n","uid":"o"}],"managedFields":[{"manager":"helm","operation":"Update","apiVersion":"apps/v1","time":"2026-11-30T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}}},{"manager":"kube-controller-manager","operation":"Update","apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:status":{}},"subresource":"status"}]}}"#;

fn object(metadata: &serde_json::Value) -> String {
    json!({"metadata": metadata}).to_string()
}

#[test]
fn decodes_metadata_and_borrows_it() {
    let meta = Meta::of_object(DEPLOYMENT.as_bytes()).unwrap();
    assert!(matches!(meta.name, Cow::Borrowed("web")));
    assert!(matches!(meta.namespace, Some(Cow::Borrowed("shop"))), "optional texts borrow too");
    assert_eq!((meta.uid.as_ref(), meta.resource_version.as_ref(), meta.generation), ("u-1", "42", Some(3)));
    assert_eq!(meta.deletion_timestamp, None);
    assert_eq!(meta.label("app").as_deref(), Some("web"));
    assert_eq!(meta.label("quoted").as_deref(), Some("a\"b"));
    assert_eq!(meta.label("missing"), None);
    assert_eq!(meta.annotation("note").as_deref(), Some("line\nbreak é"));

    let [helm, status] = &meta.managed_fields[..] else { panic!("two entries") };
    assert_eq!((helm.manager.as_ref(), helm.operation, helm.subresource.as_deref()), ("helm", Operation::Update, None));
    assert_eq!(helm.at().unwrap().to_string(), "2026-11-30T10:00:00Z");
    assert_eq!(helm.fields.unwrap().get(), r#"{"f:spec":{"f:replicas":{}}}"#, "the field set stays text");
    assert_eq!((status.subresource.as_deref(), status.at()), (Some("status"), None));
}

#[test]
fn full_objects_escapes_nulls_and_unknown_operations_decode() {
    let text = json!({
        "spec": {"metadata": {"name": "not this one"}},
        "metadata": {
            "name": "tab\there", "namespace": null, "uid": "é\"", "labels": null, "managedFields": null,
            "creationTimestamp": null, "generation": null, "deletionTimestamp": "2026-11-30T10:00:00Z"
        },
        "data": {"k": "v"}
    })
    .to_string();
    let meta = Meta::of_object(text.as_bytes()).unwrap();
    assert_eq!((meta.name.as_ref(), meta.namespace.as_deref(), meta.uid.as_ref()), ("tab\there", None, "é\""));
    assert!(meta.labels.is_none() && meta.managed_fields.is_empty() && meta.deletion_timestamp.is_some());

    let text = object(&json!({"name": "n", "managedFields": [{"manager": "m", "operation": "Merge"}]}));
    let meta = Meta::of_object(text.as_bytes()).unwrap();
    assert_eq!(meta.managed_fields[0].operation, Operation::Other);
    assert!(meta.managed_fields[0].fields.is_none());
}

#[test]
fn digest_sees_what_can_drift_and_nothing_else() {
    let base = json!({"name": "n", "uid": "u", "resourceVersion": "1", "labels": {"a": "1"}, "annotations": {"b": "2"}});
    let digest = |metadata: &serde_json::Value| meta_digest(&Meta::of_object(object(metadata).as_bytes()).unwrap());
    let with = |key: &str, value: serde_json::Value| {
        let mut changed = base.clone();
        changed[key] = value;
        digest(&changed)
    };

    for (key, value) in [
        ("labels", json!({"a": "2"})),
        ("labels", json!({"a": "1", "c": "3"})),
        ("annotations", json!({})),
        ("finalizers", json!(["f"])),
        ("ownerReferences", json!([{"uid": "x"}])),
        ("deletionTimestamp", json!("2026-11-30T10:00:00Z")),
    ] {
        assert_ne!(with(key, value), digest(&base), "{key} counts");
    }
    for (key, value) in [
        ("resourceVersion", json!("2")),
        ("generation", json!(9)),
        ("managedFields", json!([{"manager": "m", "operation": "Update", "fieldsV1": {}}])),
    ] {
        assert_eq!(with(key, value), digest(&base), "{key} does not count");
    }
    // The same text under another key is another object.
    assert_ne!(digest(&json!({"name": "n", "labels": {"a": "1"}})), digest(&json!({"name": "n", "annotations": {"a": "1"}})));
    // Stored digests must stay valid across releases.
    assert_eq!(digest(&base).as_bytes()[..4], [0x0c, 0x10, 0xcd, 0x9d]);
}

#[test]
fn events_decode_in_both_key_orders() {
    for line in [format!(r#"{{"type":"MODIFIED","object":{DEPLOYMENT}}}"#), format!(r#"{{"object":{DEPLOYMENT},"type":"MODIFIED"}}"#)] {
        let WatchEvent::Modified(object) = parse_event(line.as_bytes()).unwrap() else { panic!("modified") };
        assert_eq!(Meta::of_object(object.get().as_bytes()).unwrap().name, "web");
    }
}

#[test]
fn bookmarks_and_errors_decode() {
    let bookmark = |annotations: &str| {
        let line = format!(
            r#"{{"type":"BOOKMARK","object":{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"1533"{annotations}}}}}}}"#
        );
        match parse_event(line.as_bytes()).unwrap() {
            WatchEvent::Bookmark { resource_version, ends_initial_events } => (resource_version.into_owned(), ends_initial_events),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(bookmark(r#","annotations":{"k8s.io/initial-events-end":"true"}"#), ("1533".to_owned(), true));
    assert_eq!(bookmark(r#","annotations":{"k8s.io/initial-events-end":"false"}"#), ("1533".to_owned(), false));
    assert_eq!(bookmark(""), ("1533".to_owned(), false));

    let line = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (1574)","reason":"Expired","code":410}}"#;
    let WatchEvent::Error(status) = parse_event(line.as_bytes()).unwrap() else { panic!("error") };
    assert_eq!(status, StatusError { code: 410, reason: "Expired".to_owned(), retry_after: None });

    let line = r#"{"object":{"code":429,"details":{"retryAfterSeconds":2}},"type":"ERROR"}"#;
    let WatchEvent::Error(status) = parse_event(line.as_bytes()).unwrap() else { panic!("error") };
    assert_eq!((status.code, status.retry_after), (429, Some(Duration::from_secs(2))));
}

#[test]
fn lists_decode_and_a_cut_one_is_an_error() {
    let page = format!(
        r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"7","continue":"abc\"","remainingItemCount":1}},"items":[{DEPLOYMENT}]}}"#
    );
    let list = parse_list(page.as_bytes()).unwrap();
    assert_eq!((list.resource_version.as_ref(), list.continue_token.as_deref()), ("7", Some("abc\"")));
    assert_eq!(list.metas().map(|meta| meta.unwrap().name.into_owned()).collect::<Vec<_>>(), ["web"]);
    assert!(parse_list(&page.as_bytes()[..page.len() - 3]).is_err());

    let end = parse_list(br#"{"items":[],"metadata":{"resourceVersion":"7","continue":""}}"#).unwrap();
    assert!(end.continue_token.is_none() && end.items.is_empty());
    assert!(parse_list(br#"{"metadata":{"resourceVersion":"7"}}"#).is_err(), "no items is not an empty list");
    assert!(parse_list(br#"{"kind":"Status","metadata":{},"code":403}"#).is_err());
}

#[test]
fn errors_and_debug_carry_no_content() {
    let canary = "c4nary-s3cret";
    for text in [
        format!(r#"{{"metadata":{{"name":"n","generation":"{canary}"}}}}"#),
        format!(r#"{{"metadata":{{"name":"n","managedFields":"{canary}"}}}}"#),
        format!(r#"{{"metadata":"{canary}"}}"#),
    ] {
        let error = Meta::of_object(text.as_bytes()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(canary), "{error:?}");
    }
    let line = format!(r#"{{"type":"{canary}","object":{{}}}}"#);
    let error = parse_event(line.as_bytes()).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(canary));

    let text =
        object(&json!({"name": "n", "annotations": {"last": canary}, "managedFields": [{"manager": "m", "fieldsV1": {"v": canary}}]}));
    let meta = Meta::of_object(text.as_bytes()).unwrap();
    assert!(!format!("{meta:?} {:?}", meta.managed_fields).contains(canary));
}
