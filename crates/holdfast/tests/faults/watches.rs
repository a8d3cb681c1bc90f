//! Watches that end, lie, stall or are refused (case D10 and its siblings): drift made meanwhile is found, nothing is written that was
//! not declared, and nothing is left open.

use std::time::Duration;

use anyhow::ensure;
use futures::future::join_all;
use holdfast_testkit::{Asked, Cut, Fault, FaultProxy, FaultRule, Match, Reply, eventually};
use http::Method;
use serde_json::{Value, json};

use crate::{
    scene::{AFTER_A_BACKOFF, CONFIGMAPS, Scene, expires_open_watches, lists, of_objects, watches},
    support::{condition, finding, reason},
};

/// How a watch is struck while the drift is made. The last rule's hits tell that the fault has had its effect.
type Strike = fn(&FaultProxy) -> Vec<FaultRule>;

/// Name, the fault, and how often it must have struck before it ends.
const OUTAGES: [(&str, Strike, u64); 12] = [
    // D10: an ERROR event ends the watch, and the next three calls are refused by HTTP 410.
    ("expired", |proxy| vec![expires_open_watches(proxy), proxy.rule(watches().first(3), Fault::status(410, "Expired", "too old"))], 3),
    ("gone", |proxy| vec![expires_open_watches(proxy), proxy.rule(watches().first(2), Fault::status(410, "Gone", "too old"))], 2),
    ("ended", |proxy| vec![proxy.rule(watches().already_open(), Fault::End), proxy.rule(watches().first(1), Fault::Break)], 1),
    ("reset", |proxy| vec![proxy.rule(watches().already_open(), Fault::Reset), proxy.rule(watches().first(1), Fault::Break)], 1),
    ("mid-line", |proxy| vec![proxy.rule(watches().already_open(), Fault::Cut(Cut::in_line(0)))], 1),
    ("mid-line-clean", |proxy| vec![proxy.rule(watches().already_open(), Fault::Cut(Cut::in_line(0).cleanly()))], 1),
    ("no-json", |proxy| vec![proxy.rule(watches().already_open(), Fault::Inject { line: "{\"type\":\"MOD".to_owned(), last: true })], 1),
    ("internal", |proxy| vec![expires_open_watches(proxy), proxy.rule(lists().first(2), Fault::status(500, "InternalError", "etcd"))], 2),
    (
        "unavailable",
        |proxy| vec![expires_open_watches(proxy), proxy.rule(lists().first(2), Fault::Answer(Reply::text(503, "unavailable")))],
        2,
    ),
    (
        "throttled",
        |proxy| {
            let reply = Reply::text(429, "Too many requests, please try again later.").retry_after(1);
            vec![expires_open_watches(proxy), proxy.rule(Match::prefix(CONFIGMAPS).first(2), Fault::Answer(reply))]
        },
        2,
    ),
    // Lists that never get to their end: as the initial events of a watch, broken off and ended as if they were complete.
    (
        "list-cut",
        |proxy| {
            let streaming = lists;
            vec![expires_open_watches(proxy), proxy.rule(streaming().first(1), Fault::Cut(Cut::in_line(1)))]
        },
        1,
    ),
    (
        "list-cut-clean",
        |proxy| {
            let streaming = lists;
            vec![expires_open_watches(proxy), proxy.rule(streaming().first(1), Fault::Cut(Cut::in_line(1).cleanly()))]
        },
        1,
    ),
];

/// Drift made while a watch is broken is found after it.
#[tokio::test]
async fn drift_made_while_a_watch_is_broken_is_found_after_it() {
    join_all(OUTAGES.map(async |(name, strike, times)| {
        let scene = Scene::start(&format!("watch-{name}")).await;
        let rules = strike(&scene.proxy);
        scene.drift().await;
        scene.struck(rules.last().unwrap(), times).await;
        drop(rules);
        scene.corrected(name).await;
        scene.was_always_reachable().await;
        scene.ends(1).await;
    }))
    .await;
}

/// A list of a server that does not stream, page by page: what is left out of it is not gone, whatever the server made of it.
const LISTS: [(&str, Strike); 5] = [
    ("cut", |proxy| vec![proxy.rule(pages().first(1), Fault::Cut(Cut::after_bytes(100)))]),
    ("cut-clean", |proxy| vec![proxy.rule(pages().first(1), Fault::Cut(Cut::after_bytes(100).cleanly()))]),
    // A continue token that expires before the second page is asked for.
    ("continue", |proxy| {
        let two_pages = Fault::rewrite_json(|list| {
            list["items"].as_array_mut().unwrap().clear();
            list["metadata"]["continue"] = json!("soon-expired");
        });
        vec![
            proxy.rule(pages().when(|asked| asked.query("continue").is_none()).first(1), two_pages),
            proxy.rule(Match::path(CONFIGMAPS).query("continue", "soon-expired"), Fault::Answer(Reply::expired_continue())),
        ]
    }),
    // A proxy in between, or a server with an empty cache, answers too little and calls it complete.
    ("empty", |proxy| vec![proxy.rule(pages().first(1), Fault::rewrite_json(|list| list["items"].as_array_mut().unwrap().clear()))]),
    ("other-kind", |proxy| vec![proxy.rule(pages().first(1), Fault::rewrite_json(|list| *list = json!({"kind": "Status"})))]),
];

fn pages() -> Match {
    of_objects(Match::path(CONFIGMAPS)).method(Method::GET).when(|asked| !asked.is_watch())
}

fn refuses_streaming(proxy: &FaultProxy) -> FaultRule {
    let refusal = Fault::status(422, "Invalid", "sendInitialEvents is forbidden");
    proxy.rule(Match::any().when(Asked::is_streaming_list), refusal)
}

/// Incomplete lists, at the start and later, make nothing missing and nobody write.
#[tokio::test]
async fn what_an_incomplete_list_leaves_out_is_not_gone() {
    join_all(LISTS.map(async |(name, strike)| {
        let at_start = |proxy: &FaultProxy| {
            let mut rules = strike(proxy);
            rules.push(refuses_streaming(proxy));
            rules
        };
        let scene = Scene::start_struck(&format!("list-{name}"), at_start).await;
        let paged = refuses_streaming(&scene.proxy);
        let rules = strike(&scene.proxy);
        let expired = expires_open_watches(&scene.proxy);
        scene.drift().await;
        scene.struck(rules.last().unwrap(), 1).await;
        let report = scene.world.report(Some("web")).await.unwrap();
        assert_eq!(report["status"]["summary"]["missing"].as_u64().unwrap_or_default(), 0, "{name}: {}", report["status"]);
        assert!(finding(&report["status"], "ConfigMap", "other").is_none(), "{name}: {}", report["status"]);
        drop((rules, expired));
        scene.corrected(name).await;
        drop(paged);
        scene.ends(1).await;
    }))
    .await;
}

/// The keys of an event may come in any order, and there may be blanks between them.
#[tokio::test]
async fn events_are_understood_in_any_order_of_their_keys() {
    let turned = |proxy: &FaultProxy| {
        let turn = |line: &str| match serde_json::from_str::<Value>(line) {
            Ok(event) => format!("{{ \"object\" : {}, \"type\": {} }}", event["object"], event["type"]),
            Err(_) => line.to_owned(),
        };
        vec![proxy.rule(Match::any().when(Asked::is_watch), Fault::rewrite_lines(turn))]
    };
    let scene = Scene::start_struck("key-order", turned).await;
    let rules = turned(&scene.proxy);
    scene.drift().await;
    scene.corrected("turned events").await;
    scene.another_kind_is_corrected("turned:1").await;
    drop(rules);
    scene.ends(2).await;
}

/// A watch that stays open and says nothing more. The stream itself is given up after the 240 to 300 seconds it was asked for and 15 more;
/// the audit does not wait for that: the bound is the policy's interval and a tenth (here 33 s).
pub async fn a_silent_watch_hides_drift_no_longer_than_the_interval() {
    let scene = Scene::start("silent").await;
    let stalled = scene.proxy.rule(watches().already_open(), Fault::Stall);
    scene.struck(&stalled, 1).await;
    scene.drift().await;
    scene.corrected("drift behind a silent watch").await;
    assert_eq!(stalled.hits(), 1, "no other watch was opened: the audit found it");
    drop(stalled);
    scene.ends(1).await;
}

/// A server that answers every watch with 410: each list is followed by the next, with growing pauses, and the drift that each of them
/// shows is corrected all the same.
#[tokio::test]
async fn endless_lists_back_off_and_are_still_worked_with() {
    let scene = Scene::start_struck("endless", |proxy| vec![refuses_streaming(proxy)]).await;
    let paged = refuses_streaming(&scene.proxy);
    let expired = scene.proxy.rule(watches().when(|asked| !asked.is_streaming_list()), Fault::expired_in_stream());
    let before = scene.proxy.count(&pages());
    scene.struck(&expired, 3).await;
    scene.drift().await;
    scene.corrected("drift seen by a list").await;
    scene.struck(&expired, 5).await;
    let times = scene.proxy.times(&pages().when(|asked| asked.query("limit").is_some()));
    let gaps: Vec<Duration> = times[before..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() >= 3 && gaps.iter().all(|gap| *gap >= Duration::from_millis(90)), "a tight loop: {gaps:?}");
    assert!(gaps.iter().max() > Some(&Duration::from_secs(1)), "no back-off: {gaps:?}");
    drop((paged, expired));
    scene.ends(1).await;
}

type MakeFault = fn() -> Fault;

/// A kind that cannot be watched, listed or read for longer than a minute: it is said to be stale, and why it matters to nothing else.
const ONE_KIND: [(&str, MakeFault); 4] = [
    ("throttled", || Fault::Answer(Reply::text(429, "Too many requests, please try again later.").retry_after(1))),
    // What a server answers whose conversion webhook is down.
    ("initializing", || Fault::Answer(Reply::status(429, "TooManyRequests", "storage is (re)initializing").retry_after(1))),
    ("unavailable", || Fault::Answer(Reply::text(503, "service unavailable"))),
    ("hangs", || Fault::Hang),
];

pub async fn trouble_with_one_kind_is_trouble_with_one_kind() {
    join_all(ONE_KIND.map(async |(name, fault)| {
        let scene = Scene::start(&format!("kind-{name}")).await;
        let of_kind = |asked: &Asked| asked.path.contains("/configmaps");
        let rule = scene.proxy.rule(Match::any().when(of_kind), fault());
        let expired = expires_open_watches(&scene.proxy);
        scene.struck(&rule, 1).await;
        scene.drift().await;
        scene.another_kind_is_corrected("during:1").await;
        let stale = eventually("the verdicts are stale", AFTER_A_BACKOFF, async || {
            let report = scene.world.report(Some("web")).await.unwrap_or_default();
            let status = &report["status"];
            ensure!(condition(status, "Fresh") == "False" && reason(status, "InSync") == "Stale", "{}", status["conditions"]);
            Ok(())
        });
        stale.await.unwrap_or_else(|error| panic!("{name}: {error:#}\n{}", scene.world.log()));
        scene.was_always_reachable().await;
        scene.another_kind_is_corrected("during:2").await;
        drop((rule, expired));
        scene.corrected(name).await;
        let log = scene.world.log();
        assert!(!log.contains("the cluster cannot be reached"), "{name}: the cluster never was the matter\n{log}");
        scene.ends(3).await;
    }))
    .await;
}
