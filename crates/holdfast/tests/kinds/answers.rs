//! Answers that say "not found" about something else than the object.

use futures::future::join_all;
use holdfast_testkit::{Fault, Match, Reply, Target};
use http::Method;
use serde_json::json;

use crate::{
    fixture::{Marker, Release, Style, configmap, hub_writes, lines},
    site::Site,
    support::finding,
};

type MakeReply = fn() -> Reply;

/// What servers say when they do not know the kind. That the answer is not about the object shows in `details`.
const NOT_SERVED: [(&str, MakeReply); 3] = [
    ("router", || Reply::text(404, "404 page not found\n")),
    ("empty", || {
        Reply::json(
            404,
            &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "details": {}, "code": 404, "message": "the server could not find the requested resource"}),
        )
    }),
    ("none", || Reply::status(404, "NotFound", "the server could not find the requested resource")),
];

pub async fn not_served_is_neither_missing_nor_created() {
    join_all(NOT_SERVED.map(async |(name, reply)| {
        let mut site = Site::new(&format!("kinds-answers-{name}")).await;
        let namespace = site.namespace().to_owned();
        let objects = ["read", "made"].map(|name| configmap(&namespace, name, "color", "blue"));
        Release::new(&site.world, "web", Style::ClientSide).install(&objects).await;
        let marker = Marker::install(&site.world).await;
        site.guard(false, Vec::new()).await;
        site.world.wait_in_sync("web").await;
        let mark = site.world.workload.audit_mark().await.unwrap();
        let [read, made] = ["read", "made"].map(|name| Target::configmap(&namespace, name));
        let rules = [
            site.proxy.rule(Match::path(&read.path()), Fault::Answer(reply())),
            site.proxy.rule(Match::path(&made.collection_path()).method(Method::POST), Fault::Answer(reply())),
        ];
        let edit = site.world.writer("kubectl-edit");
        edit.merge_patch(&read, &json!({"data": {"color": "red"}})).await.unwrap();
        edit.delete(&made).await.unwrap();
        site.wait_finding("web", "ConfigMap", "read", "Unknown", "KindNotServed").await;
        site.wait_finding("web", "ConfigMap", "made", "Missing", "KindNotServed").await;
        marker.pass(&site.world).await;
        let status = site.world.report(Some("web")).await.unwrap()["status"].take();
        assert_eq!(status["summary"]["missing"], 1, "{name}: only the one of which the server said so: {}", status["summary"]);
        assert_eq!(finding(&status, "ConfigMap", "read").unwrap()["verdict"], "Unknown", "{name}");
        let writes = hub_writes(site.world.workload, mark).await.in_namespace(&namespace).filter(|call| call.name != "marker");
        assert!(writes.is_empty(), "{name}: {:?}", lines(&writes));
        drop(rules);
        // Whatever changes of an object makes it worth another look at once.
        edit.merge_patch(&read, &json!({"data": {"color": "green"}})).await.unwrap();
        site.wait_live(&read, "/data/color", &json!("blue")).await;
        site.wait_live(&made, "/data/color", &json!("blue")).await;
        site.world.wait_in_sync("web").await;
    }))
    .await;
}
