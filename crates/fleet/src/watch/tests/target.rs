use crate::watch::{
    Form, WatchKey,
    machine::{Open, PageRequest, StartAt},
};

#[test]
fn request_lines_are_what_the_api_expects() {
    let deployments = WatchKey::metadata("apps", "v1", "deployments").labelled("app.kubernetes.io/managed-by=Helm");
    assert_eq!(
        deployments.list_path(&PageRequest { continue_token: None }),
        "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fmanaged-by%3DHelm&limit=500"
    );
    assert_eq!(
        deployments.list_path(&PageRequest { continue_token: Some("a+b/c=&d".to_owned()) }),
        "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fmanaged-by%3DHelm&limit=500&continue=a%2Bb%2Fc%3D%26d"
    );
    assert_eq!(
        deployments.watch_path(&Open { at: StartAt::Initial, timeout_seconds: 250 }),
        "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fmanaged-by%3DHelm&watch=true&allowWatchBookmarks=true\
         &timeoutSeconds=250&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let secrets = WatchKey::metadata("", "v1", "secrets").in_namespace("a").with_fields("type=helm.sh/release.v1");
    assert_eq!(
        secrets.watch_path(&Open { at: StartAt::After("42".to_owned()), timeout_seconds: 250 }),
        "/api/v1/namespaces/a/secrets?fieldSelector=type%3Dhelm.sh%2Frelease.v1&watch=true&allowWatchBookmarks=true\
         &timeoutSeconds=250&resourceVersion=42"
    );
}

#[test]
fn lists_and_watches_ask_for_different_forms() {
    let key = WatchKey::metadata("", "v1", "secrets");
    assert!(key.list_accept().contains("as=PartialObjectMetadataList;"));
    assert!(key.watch_accept().contains("as=PartialObjectMetadata;"));
    let full = key.full();
    assert_eq!((full.form, full.list_accept(), full.watch_accept()), (Form::Full, "application/json", "application/json"));
}

#[test]
fn keys_have_readable_names() {
    let key = WatchKey::metadata("autoscaling", "v2", "horizontalpodautoscalers").full().in_namespace("shop").labelled("a=b");
    assert_eq!(key.to_string(), "horizontalpodautoscalers.autoscaling:v2 in shop [a=b] full");
    assert_eq!(WatchKey::metadata("", "v1", "secrets").to_string(), "secrets:v1");
}
