use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::timeout};

use super::script::{Answer, Script, decode_for, end_mark, error, event, key, open, page};
use crate::{
    meta::MetaError,
    supervisor::{Stopped, Supervisor},
    watch::{Delivery, Reason, SourceError, Update, Versioned, WatchKey, WatchStats, Watches},
};

type Decoder = fn(&WatchKey, &serde_json::value::RawValue) -> Result<Versioned<String>, MetaError>;

struct Fleet {
    watches: Watches<Script, Decoder>,
    deliveries: mpsc::Receiver<Delivery<String>>,
    root: Supervisor,
    stats: Arc<WatchStats>,
}

impl Fleet {
    fn new(script: &Arc<Script>) -> Self {
        Self::decoding(script, decode_for)
    }

    fn decoding(script: &Arc<Script>, decode: Decoder) -> Self {
        let (send, deliveries) = mpsc::channel(16);
        let root = Supervisor::root("hub");
        let stats = Arc::new(WatchStats::default());
        let watches = Watches::new(Arc::clone(script), decode, send, root.child("c"), Arc::clone(&stats));
        Self { watches, deliveries, root, stats }
    }

    async fn next(&mut self) -> Delivery<String> {
        timeout(Duration::from_hours(1), self.deliveries.recv()).await.unwrap().unwrap()
    }

    async fn until_live(&mut self) -> Delivery<String> {
        loop {
            let delivery = self.next().await;
            if delivery.update == Update::Live {
                return delivery;
            }
        }
    }

    fn restarts(&self, reason: Reason) -> u64 {
        self.stats.restarts().find(|(of, _)| *of == reason).unwrap().1
    }
}

fn deployments() -> WatchKey {
    key("apps", "v1", "deployments")
}

/// Lets tasks that were woken run.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn one_watch_serves_many_leases_and_ends_with_the_last() {
    let script = Script::new(|_, _| open([end_mark(10)]));
    let mut fleet = Fleet::new(&script);
    let first = fleet.watches.acquire(deployments());
    let second = fleet.watches.acquire(deployments());
    let other = fleet.watches.acquire(deployments().labelled("a=b"));
    assert_eq!((first.run(), fleet.watches.running()), (second.run(), 2));
    assert_ne!(first.run(), other.run());
    fleet.until_live().await;
    fleet.until_live().await;
    assert_eq!((script.calls().len(), fleet.stats.running()), (2, 2));

    drop(first);
    settle().await;
    assert_eq!((fleet.watches.running(), fleet.stats.running()), (2, 2));
    drop(second);
    settle().await;
    assert_eq!((fleet.watches.running(), fleet.stats.running()), (1, 1));
    assert_eq!(fleet.root.dump().len(), 1, "the task is gone");
    drop(other);
    settle().await;
    assert_eq!((fleet.watches.running(), fleet.stats.running()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_watch_taken_again_is_a_new_run_with_a_list_of_its_own() {
    let script = Script::new(|_, _| open([end_mark(10)]));
    let mut fleet = Fleet::new(&script);
    let lease = fleet.watches.acquire(deployments());
    assert_eq!(fleet.until_live().await.run, lease.run());
    let old = lease.run();
    drop(lease);
    let lease = fleet.watches.acquire(deployments());
    assert_ne!(lease.run(), old);
    let delivery = fleet.next().await;
    assert_eq!((delivery.run, delivery.update), (lease.run(), Update::Reset));
    fleet.until_live().await;
    assert_eq!((fleet.stats.running(), script.shorts()), (1, vec!["stream".to_owned(); 2]));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_streaming_lists_is_remembered_for_the_cluster() {
    let script = Script::new(|_, asked| match asked {
        "stream" => Answer::Refuse(SourceError::StreamingUnsupported),
        "list" => Answer::Page(page(20, "", &["a"])),
        _ => open([]),
    });
    let mut fleet = Fleet::new(&script);
    let _first = fleet.watches.acquire(deployments());
    fleet.until_live().await;
    let _second = fleet.watches.acquire(key("", "v1", "services"));
    fleet.until_live().await;
    assert_eq!(script.shorts(), ["stream", "list", "watch 20", "list", "watch 20"]);
    assert_eq!(fleet.restarts(Reason::StreamingUnsupported), 1);
}

#[tokio::test(start_paused = true)]
async fn restarts_are_counted_by_reason() {
    let script = Script::of(vec![
        open([end_mark(10), error(410, "Expired")]),
        Answer::Refuse(SourceError::Unreachable),
        Answer::Refuse(SourceError::Forbidden),
    ]);
    let mut fleet = Fleet::new(&script);
    let _lease = fleet.watches.acquire(deployments());
    while fleet.next().await.update != (Update::Broken { reason: Reason::Forbidden }) {}
    for reason in [Reason::Expired, Reason::Unreachable, Reason::Forbidden] {
        assert_eq!(fleet.restarts(reason), 1, "{reason:?}");
    }
    assert_eq!(fleet.stats.restarts().map(|(_, count)| count).sum::<u64>(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_source_moves_every_watch() {
    let old = Script::new(|_, _| open([end_mark(10)]));
    let new = Script::new(|_, _| open([]));
    let mut fleet = Fleet::new(&old);
    let _leases = ["deployments", "daemonsets"].map(|plural| fleet.watches.acquire(key("apps", "v1", plural)));
    fleet.until_live().await;
    fleet.until_live().await;
    fleet.watches.replace_source(Arc::clone(&new));
    settle().await;
    assert_eq!(new.shorts(), ["watch 10", "watch 10"]);
    assert_eq!(fleet.restarts(Reason::Moved), 2);
    let _third = fleet.watches.acquire(key("apps", "v1", "statefulsets"));
    settle().await;
    assert_eq!((old.calls().len(), new.calls().len()), (2, 3), "new watches use the new source");
}

#[tokio::test(start_paused = true)]
async fn a_nudge_ends_the_sleep_of_broken_watches_and_leaves_live_ones_alone() {
    let script = Script::new(|n, _| if n == 1 { Answer::Refuse(SourceError::Unauthorized) } else { open([end_mark(10)]) });
    let mut fleet = Fleet::new(&script);
    let _live = fleet.watches.acquire(deployments());
    fleet.until_live().await;
    let _broken = fleet.watches.acquire(key("", "v1", "services"));
    while fleet.next().await.update != (Update::Broken { reason: Reason::Unauthorized }) {}
    let refused = tokio::time::Instant::now();
    fleet.watches.retry_now();
    fleet.until_live().await;
    assert!(refused.elapsed() < Duration::from_millis(100), "the shortest back-off");
    assert_eq!(script.calls().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn held_watches_go_on_together_when_they_are_let_go() {
    let script = Script::new(|n, _| if n < 3 { Answer::Refuse(SourceError::Unreachable) } else { open([end_mark(10)]) });
    let mut fleet = Fleet::new(&script);
    fleet.watches.hold(true);
    let _leases = [deployments(), key("", "v1", "services"), key("", "v1", "secrets")].map(|key| fleet.watches.acquire(key));
    for _ in 0..3 {
        assert_eq!(fleet.next().await.update, Update::Broken { reason: Reason::Unreachable });
    }
    tokio::time::sleep(Duration::from_hours(1)).await;
    fleet.watches.retry_now();
    settle().await;
    assert_eq!(script.calls().len(), 3, "nobody finds out what is known");
    let released = tokio::time::Instant::now();
    fleet.watches.hold(false);
    for _ in 0..3 {
        fleet.until_live().await;
    }
    assert!(released.elapsed() < Duration::from_millis(100), "the shortest back-off");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_decoder_is_contained_and_the_watch_lists_anew() {
    let script = Script::new(|n, _| if n == 0 { open([event("ADDED", "boom", 1)]) } else { open([end_mark(10)]) });
    let mut fleet = Fleet::decoding(&script, |key, object| {
        let decoded = decode_for(key, object)?;
        assert!(!decoded.item.starts_with("boom"));
        Ok(decoded)
    });
    let _lease = fleet.watches.acquire(deployments());
    fleet.until_live().await;
    assert_eq!((script.shorts().len(), fleet.stats.running()), (2, 1));
    assert_eq!(fleet.root.dump()[0].restarts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_cluster_stops_its_watches_even_when_nobody_reads_their_updates() {
    let script = Script::new(|_, _| open((1..100).map(|version| event("ADDED", "a", version))));
    let fleet = Fleet::new(&script);
    let _lease = fleet.watches.acquire(deployments());
    settle().await;
    assert_eq!(fleet.root.stop(Duration::from_secs(5)).await, Stopped::Clean);
    assert_eq!(fleet.stats.running(), 0);
}
