//! What is printed: a line for every look at a release, and the totals.

use std::fmt;

use holdfast_api::report::DeviationReason;

use super::{edits::Edits, scan::Scan};

/// Most attempts that may be left out, in percent.
const SKIPPED: u64 = 10;
/// Most objects that may be judged by a guess, not at all, or by a rule, in percent.
const UNJUDGED: u64 = 1;

/// The head of the lines.
pub const HEADER: &str = "chart                           helm stage            objects  false  unknown  inexact  foreign  normalized  admission  \
                          yielded  ignored  dry-runs     ms";

/// Everything that was found so far.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    charts: u64,
    skipped: u64,
    objects: u64,
    false_drift: u64,
    unjudged: u64,
    edited: usize,
    named: usize,
    restored: usize,
    unedited: usize,
    unasked: usize,
}

/// Where a line belongs.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The chart.
    pub chart: &'a str,
    /// `3` or `4`.
    pub helm: &'a str,
    /// What was done before.
    pub stage: &'a str,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chart, helm, stage } = self;
        write!(f, "{chart:<31} {helm:<4} {stage:<16}")
    }
}

impl Totals {
    /// Counts and prints a scan. Where nobody adds fields, one told as added is false too.
    pub fn scan(&mut self, place: Place<'_>, scan: &Scan, others_add: bool) {
        let foreign = if others_add { 0 } else { scan.foreign };
        self.objects += scan.objects;
        self.false_drift += scan.differing + foreign;
        self.unjudged += scan.unknown + scan.inexact + scan.deviations(DeviationReason::Ignored);
        println!(
            "{place} {:>7} {:>6} {:>8} {:>8} {:>8} {:>11} {:>10} {:>8} {:>8} {:>9} {:>6}",
            scan.objects,
            scan.differing + foreign,
            scan.unknown,
            scan.inexact,
            scan.foreign,
            scan.deviations(DeviationReason::Normalized),
            scan.deviations(DeviationReason::Admission),
            scan.deviations(DeviationReason::Yielded),
            scan.deviations(DeviationReason::Ignored),
            scan.dry_runs,
            scan.took.as_millis()
        );
        details(&scan.details);
    }

    /// Counts and prints edits.
    pub fn edits(&mut self, place: Place<'_>, edits: &Edits) {
        self.edited += edits.edited;
        self.named += edits.named;
        self.restored += edits.restored;
        self.unedited += edits.unedited;
        self.unasked += edits.unasked;
        println!("{place} {:>7} edited: {} named, {} restored; {} take no edit", edits.edited, edits.named, edits.restored, edits.unedited);
        details(&edits.details);
    }

    /// Counts a chart that was installed.
    pub fn installed(&mut self) {
        self.charts += 1;
    }

    /// Counts and prints a chart that could not be installed.
    pub fn skipped(&mut self, place: Place<'_>, why: &str) {
        self.charts += 1;
        self.skipped += 1;
        let why = why.lines().last().unwrap_or_default();
        println!("{place} skipped: {}", why.chars().take(300).collect::<String>());
    }

    /// Adds what another cluster found.
    pub fn add(&mut self, other: &Self) {
        self.charts += other.charts;
        self.skipped += other.skipped;
        self.objects += other.objects;
        self.false_drift += other.false_drift;
        self.unjudged += other.unjudged;
        self.edited += other.edited;
        self.named += other.named;
        self.restored += other.restored;
        self.unedited += other.unedited;
        self.unasked += other.unasked;
    }

    /// What misses its target.
    pub fn missed(&self) -> Vec<&'static str> {
        [
            (self.objects == 0, "nothing was judged"),
            (self.false_drift > 0, "false drift"),
            (self.skipped * 100 > self.charts * SKIPPED, "too many charts were skipped"),
            (self.unjudged * 100 > self.objects * UNJUDGED, "too many objects were not judged exactly"),
            (self.named < self.edited, "edits were not named"),
            (self.restored < self.edited, "edits were not restored"),
            (self.unasked > 0, "the hub wrote although nothing was edited"),
        ]
        .into_iter()
        .filter_map(|(is_missed, what)| is_missed.then_some(what))
        .collect()
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { charts, skipped, objects, false_drift, unjudged, edited, named, restored, unedited, unasked } = self;
        writeln!(f, "installations                        {charts:>6}")?;
        writeln!(f, "  skipped                            {skipped:>6}  ≤ {SKIPPED} %")?;
        writeln!(f, "objects looked at                    {objects:>6}")?;
        writeln!(f, "  false drift                        {false_drift:>6}  0")?;
        writeln!(f, "  unknown, inexact or ignored        {unjudged:>6}  ≤ {UNJUDGED} %")?;
        writeln!(f, "edited objects                       {edited:>6}")?;
        writeln!(f, "  named                              {named:>6}  all")?;
        writeln!(f, "  restored                           {restored:>6}  all")?;
        writeln!(f, "objects that take no edit            {unedited:>6}")?;
        write!(f, "writes before anything was edited    {unasked:>6}  0")
    }
}

fn details(lines: &[String]) {
    for line in lines {
        println!("      {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_can_be_missed() {
        let met = Totals { charts: 10, skipped: 1, objects: 100, unjudged: 1, edited: 5, named: 5, restored: 5, ..Totals::default() };
        assert_eq!(met.missed(), Vec::<&str>::new());
        for (totals, missed) in [
            (Totals::default(), "nothing was judged"),
            (Totals { false_drift: 1, ..met.clone() }, "false drift"),
            (Totals { skipped: 2, ..met.clone() }, "too many charts were skipped"),
            (Totals { unjudged: 2, ..met.clone() }, "too many objects were not judged exactly"),
            (Totals { named: 4, ..met.clone() }, "edits were not named"),
            (Totals { restored: 4, ..met.clone() }, "edits were not restored"),
            (Totals { unasked: 1, ..met }, "the hub wrote although nothing was edited"),
        ] {
            assert_eq!(totals.missed(), [missed]);
        }
    }
}
