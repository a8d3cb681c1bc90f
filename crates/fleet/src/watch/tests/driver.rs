use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};

use super::script::{Answer, Part, Script, decode_for, end_mark, ending, error, event, key, open, page};
use crate::watch::{
    Reason, SourceError, Update,
    driver::{Consumer, Link, Pace, run},
    machine::{Listing, Machine},
    step::Step,
};

struct Channel(mpsc::Sender<Update<String>>);

impl Consumer<String> for Channel {
    async fn deliver(&mut self, update: Update<String>) -> bool {
        self.0.send(update).await.is_ok()
    }

    fn stepped(&mut self, _: &Machine, _: &Step<String>) {}
}

struct Run {
    updates: mpsc::Receiver<Update<String>>,
    sources: watch::Sender<Arc<Script>>,
    task: tokio::task::JoinHandle<()>,
}

impl Run {
    #[expect(clippy::disallowed_methods, reason = "a test's own task, aborted with the test")]
    fn start(script: &Arc<Script>) -> Self {
        let (send, updates) = mpsc::channel(4);
        let sources = watch::Sender::new(Arc::clone(script));
        let paces = watch::Sender::new(Pace::default());
        let link = Link::new(sources.subscribe(), paces.subscribe());
        let task = tokio::spawn(async move {
            let watched = key("apps", "v1", "deployments");
            run(&watched, link, &decode_for, Machine::new(Listing::Streaming, 3), Channel(send)).await;
        });
        Self { updates, sources, task }
    }

    /// The updates up to and with the first that `last` holds for.
    async fn until(&mut self, last: impl Fn(&Update<String>) -> bool) -> Vec<Update<String>> {
        let mut seen = Vec::new();
        loop {
            let next = timeout(Duration::from_hours(1), self.updates.recv()).await;
            let Ok(Some(update)) = next else { panic!("stopped after {seen:?}") };
            let done = last(&update);
            seen.push(update);
            if done {
                return seen;
            }
        }
    }

    async fn until_live(&mut self) -> Vec<Update<String>> {
        self.until(|update| *update == Update::Live).await
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn listed(name: &str) -> Update<String> {
    Update::Listed(name.to_owned())
}

/// Case D10, first half: the watch ends by an in-stream 410, the next three requests are refused by 410, edits happen meanwhile.
#[tokio::test(start_paused = true)]
async fn compaction_ends_in_a_relist_that_shows_what_was_missed() {
    let script = Script::of(vec![
        open([event("ADDED", "cm", 5), event("ADDED", "gone", 5), end_mark(10), error(410, "Expired")]),
        Answer::Refuse(SourceError::Expired),
        Answer::Refuse(SourceError::Expired),
        Answer::Refuse(SourceError::Expired),
        open([event("ADDED", "cm", 40), end_mark(41)]),
    ]);
    let mut run = Run::start(&script);
    run.until_live().await;
    let expired = Instant::now();
    let updates = run.until_live().await;
    assert_eq!(updates, [Update::Broken { reason: Reason::Expired }, Update::Reset, listed("cm@40"), Update::ListComplete, Update::Live]);
    assert!(expired.elapsed() < Duration::from_secs(16), "bound of four back-offs: 0.8 + 1.6 + 3.2 + 6.4 s");
    assert_eq!(script.shorts(), ["stream"; 5]);
}

/// Case D10, second half: the stream stays open and says nothing any more.
#[tokio::test(start_paused = true)]
async fn silence_is_noticed_within_the_streams_timeout() {
    let script = Script::of(vec![open([end_mark(10)]), open([event("MODIFIED", "cm", 12)])]);
    let mut run = Run::start(&script);
    run.until_live().await;
    let silent = Instant::now();
    let updates = run.until(|update| matches!(update, Update::Changed(_))).await;
    assert_eq!(updates, [Update::Broken { reason: Reason::Silent }, Update::Live, Update::Changed("cm@12".to_owned())]);
    assert!(silent.elapsed() <= Duration::from_secs(316), "{:?}", silent.elapsed());
    assert_eq!(script.shorts(), ["stream", "watch 10"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_expires_every_watch_sees_no_tight_loop() {
    let script = Script::new(|_, _| open([event("ADDED", "cm", 5), end_mark(10), error(410, "Expired")]));
    let mut run = Run::start(&script);
    let until = Instant::now() + Duration::from_mins(10);
    while Instant::now() < until {
        run.until_live().await;
    }
    let calls = script.calls();
    assert!((12..60).contains(&calls.len()), "{} lists in ten minutes", calls.len());
    assert!(calls.windows(2).all(|pair| pair[1].at - pair[0].at >= Duration::from_millis(100)));
}

#[tokio::test(start_paused = true)]
async fn a_dead_server_is_asked_ever_more_slowly_and_hanging_requests_time_out() {
    let script = Script::new(|n, _| if n % 2 == 0 { Answer::Hang } else { Answer::Refuse(SourceError::Unreachable) });
    let mut run = Run::start(&script);
    let first = run.until(|_| true).await;
    assert_eq!(first, [Update::Broken { reason: Reason::Timeout }]);
    assert_eq!(run.until(|_| true).await, [Update::Broken { reason: Reason::Unreachable }]);
    let half_hour = Instant::now() + Duration::from_mins(30);
    while Instant::now() < half_hour {
        run.until(|_| true).await;
    }
    assert!(script.calls().len() < 120, "{}", script.calls().len());
}

#[tokio::test(start_paused = true)]
async fn an_old_server_is_listed_by_pages() {
    let script = Script::new(|_, asked| match asked {
        "stream" => Answer::Refuse(SourceError::StreamingUnsupported),
        "list" => Answer::Page(page(20, "t1", &["a"])),
        "page t1" => Answer::Page(page(20, "", &["b"])),
        _ => open([event("MODIFIED", "a", 21)]),
    });
    let mut run = Run::start(&script);
    let updates = run.until(|update| matches!(update, Update::Changed(_))).await;
    let expected = [Update::Reset, listed("a@20"), listed("b@20"), Update::ListComplete, Update::Live, Update::Changed("a@21".to_owned())];
    assert_eq!(updates, expected);
    assert_eq!(script.shorts(), ["stream", "list", "page t1", "watch 20"]);
}

/// The second page's token expires; what the first page showed must not pass for the whole list.
#[tokio::test(start_paused = true)]
async fn an_expired_page_restarts_the_list() {
    let script = Script::of(vec![
        Answer::Refuse(SourceError::StreamingUnsupported),
        Answer::Page(page(20, "t1", &["a"])),
        Answer::Refuse(SourceError::Expired),
        Answer::Page(page(30, "t2", &["a"])),
        Answer::Page(page(30, "", &["b"])),
        open([]),
    ]);
    let mut run = Run::start(&script);
    let updates = run.until_live().await;
    let expected = [
        Update::Reset,
        listed("a@20"),
        Update::Broken { reason: Reason::Expired },
        Update::Reset,
        listed("a@30"),
        listed("b@30"),
        Update::ListComplete,
        Update::Live,
    ];
    assert_eq!(updates, expected);
    assert_eq!(script.shorts(), ["stream", "list", "page t1", "list", "page t2", "watch 30"]);
}

/// A connection cut in the middle of a line, once with an error and once with the line's beginning and a clean end.
#[tokio::test(start_paused = true)]
async fn a_line_cut_in_the_middle_comes_again() {
    let whole = event("MODIFIED", "cm", 12);
    let half = whole.get(..whole.len() / 2).unwrap().to_owned();
    let script = Script::of(vec![
        Answer::Watch(vec![Part::Line(end_mark(10)), Part::Fail(SourceError::Unreachable)]),
        ending([half]),
        open([whole]),
    ]);
    let mut run = Run::start(&script);
    let updates = run.until(|update| matches!(update, Update::Changed(_))).await;
    let broken = |reason| Update::Broken { reason };
    let expected = [
        Update::Reset,
        Update::ListComplete,
        Update::Live,
        broken(Reason::Unreachable),
        Update::Live,
        broken(Reason::Garbled),
        Update::Live,
        Update::Changed("cm@12".to_owned()),
    ];
    assert_eq!(updates, expected);
    assert_eq!(script.shorts(), ["stream", "watch 10", "watch 10"]);
}

/// A consumer that takes its time does not make the stream look silent, and nothing is lost.
#[tokio::test(start_paused = true)]
async fn a_slow_consumer_holds_the_stream_back() {
    let changes: Vec<_> = (11..31).map(|version| event("MODIFIED", "cm", version)).collect();
    let script = Script::of(vec![open([end_mark(10)].into_iter().chain(changes))]);
    let mut run = Run::start(&script);
    run.until_live().await;
    for version in 11..31 {
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(run.until(|_| true).await, [Update::Changed(format!("cm@{version}"))]);
        // The last few wait in the channel, and by then the stream is silent indeed.
        assert!(version > 25 || script.calls().len() == 1, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replaced_connection_takes_over_without_a_list() {
    let old = Script::of(vec![open([end_mark(10)])]);
    let new = Script::of(vec![open([event("MODIFIED", "cm", 12)])]);
    let mut run = Run::start(&old);
    run.until_live().await;
    run.sources.send_replace(Arc::clone(&new));
    let moved = Instant::now();
    assert_eq!(run.until(|_| true).await, [Update::Changed("cm@12".to_owned())]);
    assert_eq!((moved.elapsed(), old.shorts(), new.shorts()), (Duration::ZERO, vec!["stream".to_owned()], vec!["watch 10".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn the_watch_ends_when_nobody_listens() {
    let late = [Part::Line(end_mark(10)), Part::After(Duration::from_secs(5)), Part::Line(event("MODIFIED", "cm", 12)), Part::Silence];
    let script = Script::of(vec![Answer::Watch(late.to_vec())]);
    let mut run = Run::start(&script);
    run.until_live().await;
    run.updates.close();
    timeout(Duration::from_secs(6), &mut run.task).await.unwrap().unwrap();
}
