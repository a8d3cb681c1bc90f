//! A counter on a terminal, so that a long scan does not look stuck.

use std::io::IsTerminal as _;

/// What is under way, on one line that is wiped when it is over.
pub struct Progress {
    total: usize,
    done: usize,
    shown: bool,
}

impl Progress {
    /// Counts up to `total`. Only a terminal shows it.
    pub fn new(total: usize) -> Self {
        let progress = Self { total, done: 0, shown: std::io::stderr().is_terminal() };
        progress.draw();
        progress
    }

    /// One more is done.
    pub fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(20) {
            self.draw();
        }
    }

    /// All is done.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprint!("\r\x1b[K");
        }
    }

    fn draw(&self) {
        if self.shown && self.total > 0 {
            eprint!("\r{} of {} objects", self.done, self.total);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
