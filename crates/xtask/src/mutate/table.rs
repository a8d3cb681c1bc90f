//! What became of the mutations, by kind.

use std::{collections::BTreeMap, fmt};

use super::plan::Mutation;

/// What became of one mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object is as before.
    Restored,
    /// It is as before but for who is said to hold what.
    Traced(String),
    /// It is as before, and beside it in this list is what had been made of it.
    Beside(String),
    /// The server took none of the tries; why it refused the last.
    CannotBe(String),
    /// The server took it and made of it what was there.
    NoEffect,
    /// It was found, and the server refused to have it undone; why.
    Refused(String),
    /// The contract leaves it to whoever does that: more pull secrets, a larger volume, a bundle; what the hub says.
    Yielded(String),
    /// It was not found, or nobody says why it stays; what is known.
    Missed(String),
}

/// The row of the sums.
const ALL: &str = "all";

/// Figures by their columns.
type Row = BTreeMap<&'static str, usize>;

/// Their order, and what they count.
const COLUMNS: [&str; 9] = ["leaves", "mutations", "found", "restored", "refused", "yielded", "missed", "impossible", "no effect"];

/// All figures of one Helm.
#[derive(Debug, Default)]
pub struct Table {
    rows: BTreeMap<String, Row>,
    /// What came to another end than the usual one, by that end.
    named: BTreeMap<&'static str, Vec<String>>,
}

impl Table {
    /// Adds a fixture of a kind.
    pub fn fixture(&mut self, kind: &str, leaves: usize) {
        self.count(kind, &["leaves"], leaves);
    }

    /// Adds what became of a mutation of an object of a kind.
    pub fn add(&mut self, kind: &str, object: &str, mutation: &Mutation, outcome: &Outcome) {
        let undone = ["mutations", "found", "restored"].as_slice();
        let (columns, end): (&[&'static str], Option<(&'static str, &str)>) = match outcome {
            Outcome::Restored => (undone, None),
            Outcome::Traced(why) => (undone, Some(("restored, and yet somebody else is said to hold it", why))),
            Outcome::Beside(list) => (undone, Some(("restored, and what had been made of it is an addition", list))),
            Outcome::CannotBe(why) => (&["mutations", "impossible"], Some(("refused at the mutation", why))),
            Outcome::NoEffect => (&["mutations", "no effect"], Some(("without effect", ""))),
            Outcome::Refused(why) => (&["mutations", "found", "refused"], Some(("correction refused", why))),
            Outcome::Yielded(why) => (&["mutations", "found", "yielded"], Some(("left to its rightful writer", why))),
            Outcome::Missed(why) => (&["mutations", "missed"], Some(("missed", why))),
        };
        self.count(kind, columns, 1);
        if let Some((end, why)) = end {
            let name = format!("{object}: {mutation}: {why}").trim_end_matches([':', ' ']).to_owned();
            self.named.entry(end).or_default().push(name);
        }
    }

    fn count(&mut self, kind: &str, columns: &[&'static str], number: usize) {
        for row in [kind, ALL] {
            let row = self.rows.entry(row.to_owned()).or_default();
            for column in columns {
                *row.entry(column).or_default() += number;
            }
        }
    }

    /// How many were missed.
    pub fn missed(&self) -> usize {
        self.rows.get(ALL).and_then(|row| row.get("missed")).copied().unwrap_or_default()
    }

    /// The mutations that came to an end of this name, sorted.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, Vec<&str>)> {
        self.named.iter().map(|(name, list)| {
            let mut list: Vec<&str> = list.iter().map(String::as_str).collect();
            list.sort_unstable();
            (*name, list)
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<34}{}", "kind", COLUMNS.map(|column| format!("{column:>11}")).concat())?;
        let sum = self.rows.get_key_value(ALL);
        for (kind, row) in self.rows.iter().filter(|(kind, _)| *kind != ALL).chain(sum) {
            let figures = COLUMNS.map(|column| format!("{:>11}", row.get(column).copied().unwrap_or_default()));
            writeln!(f, "{kind:<34}{}", figures.concat())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mutate::plan;

    #[test]
    fn what_is_missed_counts_and_is_named() {
        let place = holdfast_testkit::mutation::Place {
            path: "/spec/replicas".to_owned(),
            pointer: "/spec/replicas".to_owned(),
            is_leaf: true,
            is_item: false,
            keys: Vec::new(),
        };
        let mutations = plan::mutations(&[place], &json!({"spec": {"replicas": 1}}));
        let mut table = Table::default();
        table.fixture("Deployment", 1);
        let outcomes = [Outcome::Restored, Outcome::Missed("Unknown".to_owned())];
        for (mutation, outcome) in mutations.iter().zip(&outcomes) {
            table.add("Deployment", "deployments/web", mutation, outcome);
        }
        assert_eq!(table.missed(), 1);
        let named: Vec<_> = table.named().collect();
        assert_eq!(named, [("missed", vec!["deployments/web: delete /spec/replicas: Unknown"])]);
        let row = table.to_string().lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(row, "Deployment 1 2 1 1 0 0 1 0 0");
    }
}
