use super::script::key;
use crate::{
    call::{Endpoint, Shape},
    watch::{
        WatchKey,
        step::{Open, PageRequest, StartAt},
    },
};

#[test]
fn requests_are_what_the_api_expects() {
    let deployments = key("apps", "v1", "deployments").labelled("app.kubernetes.io/managed-by=Helm");
    assert_eq!(
        deployments.watch_path(&Open { at: StartAt::Initial, timeout_seconds: 250 }),
        "/apis/apps/v1/deployments?watch=true&allowWatchBookmarks=true&timeoutSeconds=250\
         &labelSelector=app.kubernetes.io%2Fmanaged-by%3DHelm&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let secrets = Endpoint::new("", "v1", "secrets").and_then(|secrets| secrets.in_namespace("a")).unwrap();
    assert_eq!(
        WatchKey::new(secrets)
            .with_fields("type=helm.sh/release.v1")
            .watch_path(&Open { at: StartAt::After("4&2".to_owned()), timeout_seconds: 250 }),
        "/api/v1/namespaces/a/secrets?watch=true&allowWatchBookmarks=true&timeoutSeconds=250\
         &fieldSelector=type%3Dhelm.sh%2Frelease.v1&resourceVersion=4%262"
    );
    let query = deployments.list_query(&PageRequest { continue_token: Some("t".to_owned()) });
    assert_eq!((query.limit, query.continue_token.as_str(), query.labels.as_str()), (500, "t", "app.kubernetes.io/managed-by=Helm"));
}

#[test]
fn keys_have_readable_names() {
    assert_eq!(key("", "v1", "secrets").to_string(), "/api/v1/secrets");
    let full = key("autoscaling", "v2", "horizontalpodautoscalers").full().labelled("a=b");
    assert_eq!((full.shape(), full.to_string().as_str()), (Shape::Full, "/apis/autoscaling/v2/horizontalpodautoscalers [a=b] full"));
}
