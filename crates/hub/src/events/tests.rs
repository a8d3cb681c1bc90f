use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{gather::Gather, *};
use crate::{fleet_view::ClusterName, reports::SourceId};

fn report(release: &str) -> Regarding {
    Regarding::Report(ReportKey { cluster: ClusterName::new("fleet", "one"), source: SourceId::helm("shop", release) })
}

fn drift(release: &str, object: &str) -> Happening {
    Happening {
        regarding: report(release),
        reason: EventReason::DriftDetected,
        object: Some(object.to_owned()),
        note: "/spec/replicas was changed by kubectl-edit".to_owned(),
    }
}

fn everything(_: &Regarding) -> bool {
    true
}

#[tokio::test(start_paused = true)]
async fn the_same_thing_is_counted_on_one_event() {
    let mut gather = Gather::default();
    let start = Instant::now();
    assert!(gather.note(drift("web", "a"), Timestamp::UNIX_EPOCH, start));
    let first = gather.next(everything, start).unwrap();
    assert_eq!((first.count, first.stored.clone()), (1, None));
    gather.stored(&first.key, "event-1".to_owned(), first.count, start);
    for second in 1..=9 {
        assert!(gather.note(drift("web", "a"), Timestamp::UNIX_EPOCH, start + Duration::from_secs(second)));
    }
    assert_eq!(gather.next(everything, start + Duration::from_secs(59)), None, "counts are written once a minute");
    let again = gather.next(everything, start + Duration::from_mins(1)).unwrap();
    assert_eq!((again.count, again.stored.as_deref()), (10, Some("event-1")));
    assert_eq!(gather.next(everything, start + Duration::from_mins(1)), None, "not twice while it is being written");
    gather.stored(&again.key, "event-1".to_owned(), 10, start + Duration::from_mins(1));

    let later = start + Duration::from_secs(9 + 600);
    gather.expire(later);
    assert!(gather.note(drift("web", "a"), Timestamp::UNIX_EPOCH, later));
    assert_eq!(gather.next(everything, later).unwrap().stored, None, "after ten quiet minutes a new Event");
}

#[tokio::test(start_paused = true)]
async fn each_report_gets_a_few_events_a_minute_and_others_their_own() {
    let mut gather = Gather::default();
    let start = Instant::now();
    let taken = (0..100).filter(|number| gather.note(drift("web", &number.to_string()), Timestamp::UNIX_EPOCH, start)).count();
    assert_eq!(taken, 5);
    assert!(gather.note(drift("db", "0"), Timestamp::UNIX_EPOCH, start));
    let minute = start + Duration::from_mins(1);
    let more = (100..200).filter(|number| gather.note(drift("web", &number.to_string()), Timestamp::UNIX_EPOCH, minute)).count();
    assert_eq!(more, 3);
    assert!(gather.note(drift("web", "0"), Timestamp::UNIX_EPOCH, minute), "a repeat costs nothing");
    assert!(!gather.note(drift("web", "300"), Timestamp::UNIX_EPOCH, minute));
    let whole = Happening { object: None, reason: EventReason::BlastRadiusExceeded, ..drift("web", "300") };
    assert!(gather.note(whole, Timestamp::UNIX_EPOCH, minute), "what is about the whole is not crowded out");
}

#[tokio::test(start_paused = true)]
async fn an_event_waits_a_moment_for_its_report() {
    let mut gather = Gather::default();
    let start = Instant::now();
    gather.note(drift("web", "a"), Timestamp::UNIX_EPOCH, start);
    gather.note(drift("db", "a"), Timestamp::UNIX_EPOCH, start);
    let only_db = |regarding: &Regarding| *regarding == report("db");
    assert_eq!(gather.next(only_db, start).unwrap().key.regarding, report("db"), "one that waits holds up no other");
    assert_eq!(gather.next(only_db, start), None);
    assert_eq!(gather.next(only_db, start + Duration::from_secs(5)).unwrap().key.regarding, report("web"));
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_a_failure_ends_a_series() {
    let mut gather = Gather::default();
    let start = Instant::now();
    let taken = (0..10_000).filter(|number| gather.note(drift(&number.to_string(), "a"), Timestamp::UNIX_EPOCH, start)).count();
    assert_eq!(taken, 4096);
    let draft = gather.next(everything, start).unwrap();
    gather.failed(&draft.key);
    assert!(gather.note(drift("again", "a"), Timestamp::UNIX_EPOCH, start));
}
