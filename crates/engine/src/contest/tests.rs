use serde_json::json;

use super::*;

fn second(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH.checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

fn at(minutes: i64) -> Timestamp {
    second(minutes * 60)
}

fn pair(value: i64) -> Digest {
    Digest::of(&json!(value))
}

fn replicas() -> Path {
    Path::of_fields(&["spec", "replicas"])
}

/// One path against somebody who changes it as soon as it is put back, and at these times while it is not held.
struct Fight {
    ledger: Ledger,
    rule: Alternation,
    writes: Vec<Timestamp>,
}

impl Fight {
    fn new(rule: Alternation) -> Self {
        Self { ledger: Ledger::default(), rule, writes: Vec::new() }
    }

    /// Somebody changes it, which is put back unless the path is held.
    fn edit(&mut self, value: i64, now: Timestamp) {
        if self.ledger.held(&replicas(), false, now).is_none() {
            self.ledger.record(&[(replicas(), pair(value))], now, self.rule);
            self.writes.push(now);
        }
    }

    /// One edit each `period` seconds for so many hours; answers the writes.
    fn last(mut self, hours: i64, period: i64, value: impl Fn(i64) -> i64) -> usize {
        for round in 0..hours * 3600 / period {
            self.edit(value(round), second(round * period));
        }
        self.writes.len()
    }
}

#[test]
fn a_pair_ends_after_its_rounds_and_is_probed_ever_more_rarely() {
    for rounds in [2, 3, 4] {
        let mut fight = Fight::new(Alternation { rounds, window: SignedDuration::from_mins(30) });
        for round in 0..20 {
            fight.edit(5, second(round));
        }
        assert_eq!(fight.writes.len(), rounds, "then it is held");
        let last = *fight.writes.last().unwrap();
        let held = fight.ledger.held(&replicas(), false, second(30)).unwrap();
        assert_eq!((held.corrections, held.since, held.until), (rounds, second(0), last.checked_add(FIRST_HOLD).unwrap()));
        assert_eq!(fight.ledger.held(&Path::of_fields(&["spec", "paused"]), false, second(30)), None, "siblings are healed");
        // Rival at once again after each probe: 10, 20, 40, … minutes, then every six hours.
        let mut waits = Vec::new();
        for _ in 0..9 {
            let until = fight.ledger.held(&replicas(), false, *fight.writes.last().unwrap()).unwrap().until;
            waits.push(until.duration_since(*fight.writes.last().unwrap()).as_mins());
            fight.edit(5, until);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 360, 360, 360]);
    }
}

#[test]
fn edits_that_differ_are_no_fight_until_there_are_ten() {
    let rule = Alternation::default();
    let mut human = Fight::new(rule);
    for (round, value) in [1, 2, 3, 4, 5].into_iter().enumerate() {
        human.edit(value, second(2 * i64::try_from(round).unwrap()));
    }
    assert_eq!((human.writes.len(), human.ledger.held(&replicas(), false, second(10))), (5, None));

    let mut counter = Fight::new(rule);
    for round in 0..60 {
        counter.edit(round, second(round * 5));
    }
    assert_eq!(counter.writes.len(), 10);
    assert!(Fight::new(rule).last(24, 1, |round| round) <= 20, "a counter costs some probes a day");
}

#[test]
fn slow_pairs_are_caught_within_a_day() {
    let rule = Alternation::default();
    let mut slow = Fight::new(Alternation { window: SignedDuration::from_mins(1), ..rule });
    for round in 0..5 {
        slow.edit(7, at(round * 15));
    }
    assert_eq!(slow.ledger.held(&replicas(), false, at(61)).unwrap().corrections, 5, "five times in a day");
    for (period, most) in [(1, 15), (15, 15), (60, 15), (900, 15), (3000, 15), (7200, 15), (3 * 3600, 15)] {
        let writes = Fight::new(rule).last(48, period, |_| 7);
        assert!(writes <= most, "{writes} writes in two days against an edit each {period} s");
    }
    // Once in six hours is no fight by any rule.
    assert_eq!(Fight::new(rule).last(48, 6 * 3600, |_| 7), 8);
}

#[test]
fn a_fight_is_over_after_quiet_or_with_another_pair() {
    let mut fight = Fight::new(Alternation::default());
    (0..3).for_each(|round| fight.edit(5, second(round)));
    assert!(fight.ledger.is_fought(&replicas(), at(19)));
    assert!(!fight.ledger.is_fought(&replicas(), at(21)), "quiet for twice the hold");
    // Somebody else with something else, long after it.
    fight.edit(6, at(40));
    assert_eq!(fight.ledger.held(&replicas(), false, at(41)), None);
    // A return of the old pair, the fifth within a day.
    fight.edit(5, at(120));
    assert_eq!(fight.ledger.held(&replicas(), false, at(121)), None);
    fight.edit(5, at(180));
    assert!(fight.ledger.held(&replicas(), false, at(181)).is_some());
    assert!(!fight.ledger.is_settled(at(180 + 24 * 60)));
    assert!(fight.ledger.is_settled(at(181 + 24 * 60)));
}

#[test]
fn what_is_enforced_is_put_off_for_minutes_at_most() {
    let mut ledger = Ledger::default();
    let mut now = second(0);
    let mut waits = Vec::new();
    for _ in 0..12 {
        ledger.record(&[(replicas(), pair(5))], now, Alternation::default());
        let held = ledger.held(&replicas(), true, now);
        assert_eq!(held.is_some(), ledger.held(&replicas(), false, now).is_some());
        waits.push(held.map_or(0, |held| held.until.duration_since(now).as_secs()));
        if let Some(held) = held {
            assert_eq!(ledger.next_probe(|_| true, now), Some(held.until));
            assert!(ledger.next_probe(|_| false, now) > Some(held.until), "given up for longer");
            now = held.until;
        }
    }
    assert_eq!(waits, [0, 0, 10, 20, 40, 80, 160, 300, 300, 300, 300, 300]);
}

#[test]
fn who_hops_from_path_to_path_is_stopped_by_the_object() {
    let mut ledger = Ledger::default();
    let mut writes = 0;
    for round in 0..200 {
        let path = Path::of_fields(&["data", &format!("key-{round}")]);
        if ledger.held(&path, false, second(round)).is_none() {
            ledger.record(&[(path, pair(round))], second(round), Alternation::default());
            writes += 1;
        }
    }
    assert_eq!(writes, MOST_WRITES);
    assert_eq!(ledger.contested(second(200)), 1);
    let other = Path::of_fields(&["metadata", "labels", "a"]);
    assert!(ledger.held(&other, false, second(200)).is_some(), "all of the object rests");
    assert_eq!(ledger.held(&other, false, at(11)), None, "and is tried again");
}

#[test]
fn one_write_of_many_paths_is_one_correction() {
    let mut ledger = Ledger::default();
    let all: Vec<(Path, Digest)> = (0..500).map(|key| (Path::of_fields(&["data", &format!("key-{key}")]), pair(key))).collect();
    let label = Path::of_fields(&["metadata", "labels", "a"]);
    for round in 0..2 {
        ledger.record(&all, at(round), Alternation::default());
        assert!(ledger.paths.len() <= MOST_PATHS, "{} histories", ledger.paths.len());
        assert_eq!(ledger.held(&all[7].0, false, at(round)), None, "an accident, put back");
    }
    ledger.record(&all, at(2), Alternation::default());
    assert!(ledger.held(&all[7].0, false, at(3)).is_some() && ledger.held(&label, false, at(3)).is_none());
    // An item that somebody keeps removing says nothing about the fields of others, or of its own while it is there.
    let mut ledger = Ledger::default();
    let item = Path::of_fields(&["spec", "list"]).join(crate::path::Segment::key("name", "a"));
    (0..3).for_each(|round| ledger.record(&[(item.clone(), pair(0))], second(round), Alternation::default()));
    assert!(ledger.held(&item, false, second(3)).is_some());
    assert_eq!(ledger.held(&item.join(crate::path::Segment::field("image")), false, second(3)), None);
}

#[test]
fn existence_and_order_count_alike_and_apart() {
    let order = Path::of_fields(&["spec", "env"]).join(crate::path::Segment::Order);
    for path in [Path::root(), order] {
        let mut ledger = Ledger::default();
        (0..3).for_each(|round| ledger.record(&[(path.clone(), pair(0))], second(round), Alternation::default()));
        assert!(ledger.held(&path, false, second(3)).is_some());
        assert_eq!(ledger.held(&replicas(), false, second(3)), None);
    }
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut ledger = Ledger::default();
    for round in 0..3000_i64 {
        let fields = ["spec".to_owned(), format!("a{}", round % 7), format!("b{}", round % 31), format!("c{round}")];
        let path: Path = fields.iter().map(|field| crate::path::Segment::field(field)).collect();
        ledger.record(&[(path, pair(round))], second(round * 7), Alternation::default());
        assert!(ledger.paths.len() <= MOST_PATHS);
    }
    assert!(ledger.paths.values().all(|history| history.corrections.len() <= 20));
}
