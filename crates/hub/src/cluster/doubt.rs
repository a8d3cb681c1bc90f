//! Whether who answers is still the cluster that everything known here is about. Pure.
//!
//! Behind the address of a connection that broke there can be another cluster afterwards: rebuilt with the same certificates, or restored
//! elsewhere. Until its identity was asked again nothing is judged and nothing written.

/// Counts breaks, so that an answer from before the last one settles nothing.
#[derive(Debug, Default)]
pub struct Doubt {
    breaks: u64,
    settled: u64,
    asking: bool,
}

impl Doubt {
    /// The connection broke. Answers whether there was no doubt before.
    pub const fn raise(&mut self) -> bool {
        let first = !self.is_raised();
        self.breaks += 1;
        first
    }

    /// Whether it is not known who answers.
    pub const fn is_raised(&self) -> bool {
        self.breaks != self.settled
    }

    /// The number of the question to ask now; `None` where there is no doubt or the question is under way.
    pub const fn ask(&mut self) -> Option<u64> {
        if self.asking || !self.is_raised() {
            return None;
        }
        self.asking = true;
        Some(self.breaks)
    }

    /// The question was not answered.
    pub const fn unanswered(&mut self) {
        self.asking = false;
    }

    /// It is the same cluster. Answers whether that settles it: not where the connection broke again meanwhile.
    pub const fn same(&mut self, question: u64) -> bool {
        self.asking = false;
        if question == self.breaks {
            self.settled = question;
        }
        !self.is_raised()
    }

    /// Other credentials were just seen to lead to the same cluster.
    pub const fn settle(&mut self) {
        self.settled = self.breaks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_from_after_the_last_break_settles_it() {
        let mut doubt = Doubt::default();
        assert!(!doubt.is_raised() && doubt.ask().is_none());
        assert!(doubt.raise() && !doubt.raise());
        let first = doubt.ask().unwrap();
        assert_eq!(doubt.ask(), None, "one question at a time");
        assert!(!doubt.raise());
        assert!(!doubt.same(first) && doubt.is_raised());
        let second = doubt.ask().unwrap();
        doubt.unanswered();
        assert!(doubt.is_raised());
        assert_eq!(doubt.ask(), Some(second), "again");
        assert!(doubt.same(second) && !doubt.is_raised());
        doubt.raise();
        doubt.settle();
        assert!(!doubt.is_raised() && doubt.ask().is_none());
    }
}
