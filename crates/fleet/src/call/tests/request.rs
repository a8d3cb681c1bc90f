use bytes::Bytes;

use super::super::lines::{LineSplitter, LineTooLong};
use super::super::{Endpoint, EndpointError, FieldManager, ListQuery};

#[test]
fn paths() {
    let nodes = Endpoint::new("", "v1", "nodes").unwrap();
    assert_eq!(nodes.path(), "/api/v1/nodes");
    assert_eq!(nodes.named("n1").unwrap().path(), "/api/v1/nodes/n1");
    let deployments = Endpoint::new("apps", "v1", "deployments").unwrap().in_namespace("shop").unwrap();
    assert_eq!(deployments.path(), "/apis/apps/v1/namespaces/shop/deployments");
    let scale = deployments.named("web").unwrap().subresource("scale").unwrap();
    assert_eq!(scale.path(), "/apis/apps/v1/namespaces/shop/deployments/web/scale");
    let role = Endpoint::new("rbac.authorization.k8s.io", "v1", "clusterroles").unwrap().named("system:a b?c#d&é").unwrap();
    assert_eq!(role.path(), "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aa%20b%3Fc%23d%26%C3%A9");
}

#[test]
fn parts_that_would_lead_elsewhere_are_refused() {
    for bad in ["", ".", "..", "a/b", "../secrets", "a%2fb", "/"] {
        let endpoint = || Endpoint::new("", "v1", "configmaps").unwrap();
        assert_eq!(endpoint().named(bad), Err(EndpointError { part: "name" }), "{bad}");
        assert_eq!(endpoint().in_namespace(bad), Err(EndpointError { part: "namespace" }), "{bad}");
        assert_eq!(endpoint().subresource(bad), Err(EndpointError { part: "subresource" }), "{bad}");
        assert!(Endpoint::new("apps", bad, "deployments").is_err(), "{bad}");
        assert!(Endpoint::new("apps", "v1", bad).is_err(), "{bad}");
    }
    assert!(Endpoint::new("../api", "v1", "nodes").is_err());
}

#[test]
fn list_queries() {
    assert_eq!(ListQuery::default().query(), "?resourceVersion=0");
    assert_eq!(ListQuery { consistent: true, ..ListQuery::default() }.query(), "");
    let query = ListQuery { labels: "owner=helm,status!=x y".into(), fields: "type=a/b".into(), limit: 500, ..ListQuery::default() };
    let expected = "?labelSelector=owner%3Dhelm%2Cstatus%21%3Dx%20y&fieldSelector=type%3Da%2Fb&limit=500&resourceVersion=0";
    assert_eq!(query.query(), expected);
    let next = ListQuery { limit: 500, continue_token: "a+b=".into(), ..ListQuery::default() };
    assert_eq!(next.query(), "?limit=500&continue=a%2Bb%3D");
}

#[test]
fn field_managers() {
    assert!(FieldManager::new("helm").is_ok());
    assert!(FieldManager::new("x".repeat(128)).is_ok());
    for bad in [String::new(), "x".repeat(129), "é".repeat(65), "a\nb".into()] {
        assert!(FieldManager::new(bad).is_err());
    }
}

fn split(max: usize, chunks: &[&str]) -> (Vec<String>, bool, Option<LineTooLong>) {
    let mut splitter = LineSplitter::new(max);
    let mut lines = Vec::new();
    for chunk in chunks {
        splitter.push(Bytes::copy_from_slice(chunk.as_bytes()));
        loop {
            match splitter.next_line() {
                Ok(Some(line)) => lines.push(String::from_utf8(line.to_vec()).unwrap()),
                Ok(None) => break,
                Err(error) => return (lines, splitter.is_empty(), Some(error)),
            }
        }
    }
    (lines, splitter.is_empty(), None)
}

#[test]
fn lines_are_the_same_however_they_are_cut() {
    let text = "first\n\nsecond line\nthird\n";
    for size in 1..=text.len() {
        let chunks: Vec<&str> = text.as_bytes().chunks(size).map(|chunk| std::str::from_utf8(chunk).unwrap()).collect();
        let (lines, complete, error) = split(100, &chunks);
        assert_eq!(lines, ["first", "second line", "third"], "chunks of {size}");
        assert!(complete && error.is_none());
    }
}

#[test]
fn an_unfinished_line_is_noticed() {
    let (lines, complete, error) = split(100, &["one\ntw"]);
    assert_eq!((lines, complete, error), (vec!["one".to_owned()], false, None));
}

#[test]
fn long_lines_end_the_stream_before_they_fill_memory() {
    assert_eq!(split(5, &["12345\n", "123", "45\n"]).0.len(), 2);
    assert!(split(5, &["123456\n"]).2.is_some());
    assert!(split(5, &["123456"]).2.is_some());
    assert!(split(5, &["ok\n", "123", "456"]).2.is_some());
    assert!(split(5, &["123", "456\n"]).2.is_some());
}
