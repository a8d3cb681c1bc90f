//! The figures beside their targets.

use std::fmt;

use tokio::time::Duration;

use super::edits::Outcome;

/// Aim for a correction beside the same by hand.
const RATIO: f64 = 1.5;
/// Aim for a healthy cluster beside failing ones.
const BESIDE: f64 = 1.2;
/// Aim for the calls of a correction.
const CALLS: f64 = 4.0;
/// Aims for p50 and p99 on an idle machine, in milliseconds.
const IDLE: (f64, f64) = (30.0, 100.0);

/// Lines in the order they were measured.
#[derive(Default)]
pub struct Table {
    lines: Vec<Line>,
}

struct Line {
    what: String,
    figure: String,
    target: String,
    met: Option<bool>,
}

impl Table {
    /// A duration in seconds.
    pub fn seconds(&mut self, what: &str, took: Duration, target: Option<f64>) {
        self.figure(what, took.as_secs_f64(), "s", 2, target);
    }

    /// A plain number.
    pub fn number(&mut self, what: &str, figure: f64, target: Option<f64>) {
        self.figure(what, figure, "", 1, target);
    }

    /// The edits of a release.
    pub fn edits(&mut self, release: &str, outcome: Outcome) {
        let Outcome { mut hub, mut hand, calls } = outcome;
        hub.sort_unstable();
        hand.sort_unstable();
        let count = hub.len();
        for (name, percent, idle) in [("p50", 50, IDLE.0), ("p99", 99, IDLE.1)] {
            let (hub, hand) = (millis(&hub, percent), millis(&hand, percent));
            self.lines.push(Line {
                what: format!("{release}: edit → corrected, {name} of {count}, ms"),
                figure: format!("{hub:.1}"),
                target: format!("≤ {idle:.0} idle"),
                met: Some(hub <= idle),
            });
            self.lines.push(Line {
                what: "   the same calls by hand, ms; ratio".to_owned(),
                figure: format!("{hand:.1}; {:.2}", hub / hand),
                target: format!("≤ {RATIO} ×"),
                met: Some(hub <= hand * RATIO),
            });
        }
        self.figure(&format!("{release}: calls for a correction"), calls, "", 2, Some(CALLS));
    }

    /// The same measured alone and beside trouble.
    pub fn beside(&mut self, what: &str, alone: &[Duration], beside: &[Duration]) {
        let sorted = |durations: &[Duration]| {
            let mut sorted = durations.to_vec();
            sorted.sort_unstable();
            sorted
        };
        let (alone, beside, count) = (sorted(alone), sorted(beside), alone.len());
        for (name, percent) in [("p50", 50), ("p99", 99)] {
            let (alone, beside) = (millis(&alone, percent), millis(&beside, percent));
            self.lines.push(Line {
                what: format!("{what}, {name} of {count}, ms"),
                figure: format!("{alone:.1}"),
                target: String::new(),
                met: None,
            });
            self.lines.push(Line {
                what: "   the same while other clusters fail, ms; ratio".to_owned(),
                figure: format!("{beside:.1}; {:.2}", beside / alone),
                target: format!("≤ {BESIDE} ×"),
                met: Some(beside <= alone * BESIDE),
            });
        }
    }

    fn figure(&mut self, what: &str, figure: f64, unit: &str, digits: usize, target: Option<f64>) {
        self.lines.push(Line {
            what: what.to_owned(),
            figure: format!("{figure:.digits$} {unit}").trim_end().to_owned(),
            target: target.map(|target| format!("≤ {target} {unit}").trim_end().to_owned()).unwrap_or_default(),
            met: target.map(|target| figure <= target),
        });
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<64} {:>12}  target", "measure", "figure")?;
        for Line { what, figure, target, met } in &self.lines {
            let verdict = match met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            writeln!(f, "{}", format!("{what:<64} {figure:>12}  {target:<11} {verdict}").trim_end())?;
        }
        Ok(())
    }
}

/// A percentile of sorted durations (nearest rank), in milliseconds.
fn millis(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).map_or(f64::NAN, |duration| duration.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let sorted: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        let of = |percent| format!("{:.1}", millis(&sorted, percent));
        assert_eq!((of(50), of(99), of(100)), ("100.0".to_owned(), "198.0".to_owned(), "200.0".to_owned()));
    }

    #[test]
    fn a_missed_target_is_said() {
        let mut table = Table::default();
        table.number("bytes", 250.0, Some(200.0));
        table.number("calls", 4.0, Some(4.0));
        let lines: Vec<String> = table.to_string().lines().map(ToOwned::to_owned).collect();
        assert!(lines[1].ends_with("MISSED") && lines[2].ends_with("met"), "{lines:?}");
    }
}
