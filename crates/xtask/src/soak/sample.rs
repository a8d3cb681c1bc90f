//! What a hub costs at one moment, and what became of it.

use std::{fmt, fmt::Write as _};

use anyhow::Result;
use tokio::time::Duration;

use crate::hub::Hub;

/// Growth of memory that is no leak yet: an allocator gives back late, and the log of what was corrected lately is not empty.
const BREATH: f64 = 0.10;
/// Sockets and descriptors that come and go: idle connections to the management cluster.
const IDLE: f64 = 4.0;

/// Figures of one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    at: Duration,
    figures: [Figure; 8],
}

/// One figure, and how far it may grow.
#[derive(Clone, Copy, Debug)]
struct Figure {
    name: &'static str,
    value: f64,
    limit: Limit,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    /// A share of what it was.
    Share(f64),
    /// By this much.
    By(f64),
    /// It only grows.
    None,
}

impl Sample {
    /// The line above the samples.
    pub const HEADER: &'static str = "  time   RSS MiB   tasks   sockets    files   watches   state KiB   objects   corrections";

    /// Measures a hub that is at rest.
    pub async fn take(hub: &Hub, at: Duration) -> Result<Self> {
        let usage = hub.usage()?;
        let figure = |name, value, limit| Figure { name, value, limit };
        Ok(Self {
            at,
            figures: [
                figure("RSS, MiB", usage.resident / f64::from(1 << 20), Limit::Share(BREATH)),
                figure("tasks", hub.tasks().await?, Limit::By(0.0)),
                figure("sockets", usage.sockets, Limit::By(IDLE)),
                figure("open files", usage.files, Limit::By(IDLE)),
                figure("watches", hub.metric("holdfast_watches").await?, Limit::By(0.0)),
                figure("hash state, KiB", hub.metric("holdfast_state_bytes").await? / 1024.0, Limit::Share(BREATH)),
                figure("objects", hub.metric("holdfast_objects").await?, Limit::By(0.0)),
                figure("corrections", hub.metric("holdfast_corrections_total").await.unwrap_or_default(), Limit::None),
            ],
        })
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at.as_secs();
        write!(f, "{:>3}:{:02}", seconds / 60, seconds % 60)?;
        let widths = [10, 8, 10, 9, 10, 12, 10, 14];
        for (figure, width) in self.figures.iter().zip(widths) {
            let digits = usize::from(matches!(figure.limit, Limit::Share(_)));
            write!(f, "{:>width$.digits$}", figure.value)?;
        }
        Ok(())
    }
}

/// First against last, and the names of what grew.
pub fn verdict(first: &Sample, last: &Sample) -> (String, Vec<&'static str>) {
    let hours = (last.at.saturating_sub(first.at)).as_secs_f64() / 3600.0;
    let mut table = format!("{:<18}{:>10}{:>10}{:>14}  verdict\n", "figure", "first", "last", "an hour");
    let mut grown = Vec::new();
    for (before, after) in first.figures.iter().zip(&last.figures) {
        let growth = after.value - before.value;
        let is_flat = match before.limit {
            Limit::Share(share) => growth <= before.value * share,
            Limit::By(by) => growth <= by,
            Limit::None => true,
        };
        let word = match (before.limit, is_flat) {
            (Limit::None, _) => "",
            (_, true) => "flat",
            (_, false) => "GROWN",
        };
        if !is_flat {
            grown.push(before.name);
        }
        let an_hour = if hours > 0.0 { growth / hours } else { 0.0 };
        // Writing to a String cannot fail.
        _ = writeln!(table, "{:<18}{:>10.1}{:>10.1}{an_hour:>+14.1}  {word}", before.name, before.value, after.value);
    }
    (table, grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(minutes: u64, memory: f64, tasks: f64, corrections: f64) -> Sample {
        let figure = |name, value, limit| Figure { name, value, limit };
        let rest = figure("rest", 1.0, Limit::By(0.0));
        Sample {
            at: Duration::from_mins(minutes),
            figures: [
                figure("memory", memory, Limit::Share(BREATH)),
                figure("tasks", tasks, Limit::By(0.0)),
                figure("corrections", corrections, Limit::None),
                rest,
                rest,
                rest,
                rest,
                rest,
            ],
        }
    }

    #[test]
    fn what_grows_is_named() {
        let first = sample(1, 100.0, 10.0, 5.0);
        let (table, grown) = verdict(&first, &sample(31, 109.0, 10.0, 500.0));
        assert!(grown.is_empty(), "{table}");
        assert!(table.contains("+18.0  flat") && table.contains("+990.0\n") || table.contains("+990.0  \n"), "{table}");
        let (table, grown) = verdict(&first, &sample(31, 111.0, 11.0, 500.0));
        assert_eq!(grown, ["memory", "tasks"], "{table}");
    }
}
