use std::time::Duration;

use tokio::time::Instant;

use super::script::{bookmark, decode, end_mark, error, event, event_reversed, page};
use crate::watch::{
    Reason, SourceError, Update,
    machine::{Listing, Machine},
    step::{Input, Next, Open, PageRequest, StartAt, Step},
};

/// A machine with a hand-moved clock.
struct Bench {
    machine: Machine,
    now: Instant,
}

impl Bench {
    fn new(listing: Listing) -> (Self, Step<String>) {
        let mut machine = Machine::new(listing, 7);
        let step = machine.start();
        (Self { machine, now: Instant::now() }, step)
    }

    fn put(&mut self, input: Input<'_>) -> Step<String> {
        self.machine.step(self.now, input, decode)
    }

    fn line(&mut self, line: &str) -> Step<String> {
        self.put(Input::Line(line.as_bytes()))
    }

    /// Lets the asked sleep pass.
    fn wake(&mut self, step: &Step<String>) -> Step<String> {
        let Next::Sleep(delay) = step.next else { panic!("no sleep in {step:?}") };
        self.now += delay;
        self.put(Input::Woke)
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// A machine that follows from version 10.
    fn following() -> Self {
        let (mut bench, _) = Self::new(Listing::Streaming);
        bench.put(Input::Opened);
        bench.line(&end_mark(10));
        bench
    }
}

fn is_stream<T>(step: &Step<T>) -> bool {
    matches!(&step.next, Next::Open(Open { at: StartAt::Initial, .. }))
}

fn followed<T>(step: &Step<T>) -> Option<&str> {
    match &step.next {
        Next::Open(Open { at: StartAt::After(version), .. }) => Some(version),
        _ => None,
    }
}

fn is_list<T>(step: &Step<T>, token: Option<&str>) -> bool {
    step.next == Next::List(PageRequest { continue_token: token.map(str::to_owned) })
}

fn broken(reason: Reason) -> Vec<Update<String>> {
    vec![Update::Broken { reason }]
}

#[test]
fn a_streaming_list_ends_at_its_mark_and_nowhere_else() {
    let (mut bench, step) = Bench::new(Listing::Streaming);
    let Next::Open(open) = &step.next else { panic!("{step:?}") };
    assert!((240..=300).contains(&open.timeout_seconds));
    assert_eq!(bench.put(Input::Opened).updates, [Update::Reset]);
    assert_eq!(bench.line(&event("ADDED", "a", 3)).updates, [Update::Listed("a@3".to_owned())]);
    assert_eq!(bench.line(&event_reversed("ADDED", "b", 4)).updates, [Update::Listed("b@4".to_owned())]);
    assert_eq!(bench.line(&event("MODIFIED", "a", 5)).updates, [Update::Listed("a@5".to_owned())]);
    assert_eq!(bench.line(&event("DELETED", "b", 6)).updates, [Update::Deleted("b@6".to_owned())]);
    assert_eq!(bench.line(&bookmark(7)).updates, [], "a bookmark without the mark completes nothing");
    assert_eq!(bench.line(&end_mark(8)).updates, [Update::ListComplete, Update::Live]);
    assert_eq!(bench.line(&event_reversed("ADDED", "c", 9)).updates, [Update::Changed("c@9".to_owned())]);
    assert_eq!(bench.line(&event_reversed("DELETED", "c", 11)).updates, [Update::Deleted("c@11".to_owned())]);
    bench.pass(290);
    let step = bench.put(Input::Ended);
    assert_eq!((followed(&step), step.restart), (Some("11"), Some(Reason::Ended)), "the version of a deletion counts");
    assert_eq!(step.updates, [], "the planned end is no trouble");
    assert_eq!(bench.put(Input::Opened).updates, [], "and nothing new to say afterwards");
}

#[test]
fn bookmarks_move_the_version() {
    let mut bench = Bench::following();
    bench.line(&bookmark(500));
    bench.line(&bookmark(500));
    bench.pass(250);
    assert_eq!(followed(&bench.put(Input::Ended)), Some("500"));
}

#[test]
fn nothing_is_followed_from_no_version() {
    // What was deleted between the last known version and wherever the server would start is never heard of.
    for version in ["", "0"] {
        let (mut bench, _) = Bench::new(Listing::Paged);
        let page = format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#);
        assert_eq!(bench.put(Input::Page(page.as_bytes())).updates, broken(Reason::BadAnswer), "a list of version {version:?}");
        let object = format!(r#"{{"metadata":{{"name":"a","resourceVersion":"{version}"}}}}"#);
        for kind in ["ADDED", "DELETED", "BOOKMARK"] {
            let mut bench = Bench::following();
            let step = bench.line(&format!(r#"{{"type":"{kind}","object":{object}}}"#));
            assert_eq!(step.updates, broken(Reason::Garbled), "{kind} {version:?}");
            assert_eq!(followed(&bench.wake(&step)), Some("10"), "from the last one that is known");
        }
    }
}

#[test]
fn the_read_limit_is_the_streams_timeout_plus_grace() {
    let (mut bench, step) = Bench::new(Listing::Streaming);
    let Next::Open(Open { timeout_seconds, .. }) = step.next else { panic!("{step:?}") };
    let limit = Duration::from_secs(u64::from(timeout_seconds) + 15);
    bench.put(Input::Opened);
    assert_eq!(bench.line(&end_mark(1)).next, Next::Read { silence: limit });
    assert_eq!(bench.line(&event("ADDED", "a", 2)).next, Next::Read { silence: limit });
    let step = bench.put(Input::Silent);
    assert_eq!((&step.updates, step.restart), (&broken(Reason::Silent), Some(Reason::Silent)));
    assert_eq!(followed(&bench.wake(&step)), Some("2"));
    assert_eq!(bench.put(Input::Opened).updates, [Update::Live]);
}

#[test]
fn refused_streaming_goes_to_pages_at_once_and_stays_there() {
    let (mut bench, _) = Bench::new(Listing::Streaming);
    let step = bench.put(Input::Failed(SourceError::StreamingUnsupported));
    assert!(is_list(&step, None));
    assert_eq!((step.restart, bench.machine.listing()), (Some(Reason::StreamingUnsupported), Listing::Paged));
    let step = bench.put(Input::Page(page(20, "", &["a"]).as_bytes()));
    assert_eq!(step.updates, [Update::Reset, Update::Listed("a@20".to_owned()), Update::ListComplete]);
    assert_eq!(followed(&step), Some("20"));
    assert_eq!(bench.put(Input::Opened).updates, [Update::Live]);
    let step = bench.line(&error(410, "Expired"));
    assert!(is_list(&bench.wake(&step), None), "remembered");
    // A server that refuses plain watches with the same words must not make a tight loop.
    bench.put(Input::Page(page(21, "", &[]).as_bytes()));
    assert!(matches!(bench.put(Input::Failed(SourceError::StreamingUnsupported)).next, Next::Sleep(_)));
}

#[test]
fn a_streaming_list_that_never_ends_is_replaced_by_pages() {
    for input in [Input::Silent, Input::Ended] {
        let (mut bench, _) = Bench::new(Listing::Streaming);
        bench.put(Input::Opened);
        let step = bench.line(&event("ADDED", "a", 3));
        assert_eq!(step.next, Next::Read { silence: Duration::from_mins(1) });
        let step = bench.put(input);
        assert_eq!(step.updates, broken(Reason::Unfinished), "no ListComplete");
        assert!(is_list(&bench.wake(&step), None));
    }
    // A broken connection says nothing about the server's abilities.
    let (mut bench, _) = Bench::new(Listing::Streaming);
    bench.put(Input::Opened);
    bench.line(&event("ADDED", "a", 3));
    let step = bench.put(Input::Failed(SourceError::Unreachable));
    assert!(is_stream(&bench.wake(&step)), "from the start: the list was not complete");
    assert_eq!(bench.put(Input::Opened).updates, [Update::Reset]);
}

#[test]
fn pages_make_one_list_at_the_first_pages_version() {
    let (mut bench, step) = Bench::new(Listing::Paged);
    assert!(is_list(&step, None));
    let step = bench.put(Input::Page(page(20, "t1", &["a", "b"]).as_bytes()));
    assert_eq!(step.updates.first(), Some(&Update::Reset));
    assert!(is_list(&step, Some("t1")));
    let step = bench.put(Input::Page(page(25, "t2", &["c"]).as_bytes()));
    assert_eq!(step.updates, [Update::Listed("c@25".to_owned())]);
    let step = bench.put(Input::Page(page(25, "", &["d"]).as_bytes()));
    assert_eq!(step.updates, [Update::Listed("d@25".to_owned()), Update::ListComplete]);
    assert_eq!(followed(&step), Some("20"), "what happened between the pages is replayed");
}

#[test]
fn a_cut_list_is_never_complete() {
    // Each failure of the second page, and whether the list may go on where it was.
    for (error, goes_on) in [
        (SourceError::Expired, false),
        (SourceError::NotServed, false),
        (SourceError::BadAnswer, false),
        (SourceError::Unreachable, true),
        (SourceError::Timeout, true),
        (SourceError::Server, true),
        (SourceError::Throttled { retry_after: None }, true),
    ] {
        let (mut bench, _) = Bench::new(Listing::Paged);
        bench.put(Input::Page(page(20, "t1", &["a"]).as_bytes()));
        let step = bench.put(Input::Failed(error));
        assert_eq!(step.updates, broken(error.into()), "{error:?}");
        let step = bench.wake(&step);
        assert!(is_list(&step, goes_on.then_some("t1")), "{error:?} {step:?}");
        if !goes_on {
            let step = bench.put(Input::Page(page(30, "", &["a"]).as_bytes()));
            assert_eq!(step.updates.first(), Some(&Update::Reset), "the list starts over");
        }
    }
}

#[test]
fn unreadable_or_circular_pages_start_the_list_over() {
    let cut = page(20, "t1", &["a", "b"]);
    for second in
        [cut.get(..cut.len() - 5).unwrap(), &page(20, "t1", &["b"]), r#"{"kind":"Status"}"#, r#"{"metadata":{},"items":[{"metadata":{}}]}"#]
    {
        let (mut bench, _) = Bench::new(Listing::Paged);
        bench.put(Input::Page(page(20, "t1", &["a"]).as_bytes()));
        let step = bench.put(Input::Page(second.as_bytes()));
        assert_eq!(step.updates, broken(Reason::BadAnswer));
        assert!(is_list(&bench.wake(&step), None));
    }
}

#[test]
fn an_expired_version_leads_to_a_new_list() {
    // In the stream, as servers do, with the code or only the reason; and as an answer to the request.
    for line in [error(410, "Expired"), error(410, ""), error(0, "Gone")] {
        let mut bench = Bench::following();
        let step = bench.line(&line);
        assert_eq!((&step.updates, step.restart), (&broken(Reason::Expired), Some(Reason::Expired)));
        assert!(is_stream(&bench.wake(&step)));
        assert_eq!(bench.put(Input::Opened).updates, [Update::Reset]);
    }
    let mut bench = Bench::following();
    bench.pass(250);
    bench.put(Input::Ended);
    let step = bench.put(Input::Failed(SourceError::Expired));
    assert!(is_stream(&bench.wake(&step)));
}

#[test]
fn a_version_from_the_future_leads_to_a_new_list() {
    // "Too large resource version", as after a restored backup: resuming would fail for ever.
    let mut bench = Bench::following();
    let step = bench.line(&error(504, "Timeout"));
    assert_eq!(step.updates, broken(Reason::Server));
    assert!(is_stream(&bench.wake(&step)));
}

#[test]
fn transient_failures_resume_from_the_last_version() {
    for error in [
        SourceError::Unreachable,
        SourceError::Timeout,
        SourceError::Server,
        SourceError::Unauthorized,
        SourceError::Forbidden,
        SourceError::Throttled { retry_after: None },
    ] {
        let mut bench = Bench::following();
        bench.line(&event("ADDED", "a", 12));
        let step = bench.put(Input::Failed(error));
        assert_eq!(step.updates, broken(error.into()));
        assert_eq!(followed(&bench.wake(&step)), Some("12"), "{error:?}");
        let step = bench.put(Input::Failed(error));
        assert_eq!(step.updates, [], "the same trouble is told once");
        assert_eq!(followed(&bench.wake(&step)), Some("12"));
        assert_eq!(bench.put(Input::Opened).updates, [Update::Live]);
    }
}

#[test]
fn a_kind_that_is_no_longer_served_is_listed_anew_when_it_returns() {
    let mut bench = Bench::following();
    bench.pass(250);
    bench.put(Input::Ended);
    let step = bench.put(Input::Failed(SourceError::NotServed));
    assert_eq!(step.updates, broken(Reason::NotServed), "and no deletions");
    assert!(is_stream(&bench.wake(&step)));
}

#[test]
fn a_cut_line_resumes_once_and_then_lists() {
    let mut bench = Bench::following();
    let full = event("ADDED", "a", 12);
    let step = bench.line(full.get(..full.len() - 9).unwrap());
    assert_eq!((&step.updates, step.restart), (&broken(Reason::Garbled), Some(Reason::Garbled)));
    assert_eq!(followed(&bench.wake(&step)), Some("10"), "the cut event comes again");
    bench.put(Input::Opened);
    assert_eq!(bench.line(&full).updates, [Update::Changed("a@12".to_owned())]);

    // An object that cannot be decoded comes again for ever; a new list at least tells whether it is the object.
    let bad = r#"{"type":"ADDED","object":{"metadata":{}}}"#;
    let step = bench.line(bad);
    assert_eq!(followed(&bench.wake(&step)), Some("12"));
    bench.put(Input::Opened);
    let step = bench.line(bad);
    assert!(is_stream(&bench.wake(&step)));
    // Within a list the list starts over.
    bench.put(Input::Opened);
    let step = bench.line(bad);
    assert!(is_stream(&bench.wake(&step)));
}

#[test]
fn hints_of_the_server_are_followed_within_bounds() {
    let delay = |step: &Step<String>| match step.next {
        Next::Sleep(delay) => delay,
        _ => panic!("{step:?}"),
    };
    let mut bench = Bench::following();
    let step = bench.put(Input::Failed(SourceError::Throttled { retry_after: Some(Duration::from_secs(3)) }));
    assert!(delay(&step) > Duration::from_secs(3) && delay(&step) < Duration::from_secs(4));
    let step = bench.put(Input::Failed(SourceError::Throttled { retry_after: Some(Duration::from_secs(1 << 40)) }));
    assert!(delay(&step) <= Duration::from_mins(2));
    let mut bench = Bench::following();
    let step = bench.line(r#"{"type":"ERROR","object":{"code":429,"details":{"retryAfterSeconds":2}}}"#);
    assert!(delay(&step) > Duration::from_secs(2) && delay(&step) < Duration::from_secs(3));
    assert_eq!(followed(&bench.wake(&step)), Some("10"));
}

#[test]
fn streams_that_end_at_once_are_not_reopened_in_a_tight_loop() {
    let mut bench = Bench::following();
    let started = bench.now;
    for _ in 0..20 {
        let step = bench.put(Input::Ended);
        let step = bench.wake(&step);
        assert_eq!(followed(&step), Some("10"));
        bench.put(Input::Opened);
    }
    assert!(bench.now - started > Duration::from_mins(4), "{:?}", bench.now - started);
    // Two calm minutes forget the past.
    bench.pass(130);
    let step = bench.put(Input::Failed(SourceError::Unreachable));
    assert!(matches!(step.next, Next::Sleep(delay) if delay <= Duration::from_millis(800)));
}

#[test]
fn a_replaced_connection_goes_on_where_the_old_one_stood() {
    let mut bench = Bench::following();
    bench.line(&event("ADDED", "a", 12));
    let step = bench.put(Input::Moved);
    assert_eq!((followed(&step), step.restart, step.updates.len()), (Some("12"), Some(Reason::Moved), 0));
    assert_eq!(bench.put(Input::Opened).updates, []);
    // While it sleeps over bad credentials, the new ones are tried at once.
    bench.put(Input::Failed(SourceError::Unauthorized));
    assert_eq!(followed(&bench.put(Input::Moved)), Some("12"));
    // Within a list, the list starts over.
    let (mut bench, _) = Bench::new(Listing::Streaming);
    bench.put(Input::Opened);
    bench.line(&event("ADDED", "a", 3));
    assert!(is_stream(&bench.put(Input::Moved)));
}

#[test]
fn inputs_that_do_not_belong_lead_to_a_list() {
    for input in [Input::Opened, Input::Ended, Input::Page(b"{}"), Input::Line(br#"{"type":"ADDED","object":{"metadata":{"name":"n"}}}"#)] {
        let (mut bench, _) = Bench::new(Listing::Streaming);
        bench.put(Input::Failed(SourceError::Unreachable));
        let step = bench.put(input);
        assert!(is_stream(&bench.wake(&step)));
    }
}
