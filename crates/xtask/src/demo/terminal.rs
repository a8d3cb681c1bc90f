//! How the story looks: narrow lines, colours only on a terminal.

use std::io::{IsTerminal, Write};

use tokio::time::Instant;

/// Columns of the labels.
const LABEL: usize = 12;

/// Standard output.
pub struct Terminal {
    colours: bool,
    chapter: u32,
}

impl Terminal {
    /// Colours where standard output is a terminal and `NO_COLOR` is not set.
    pub fn new() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colours: std::io::stdout().is_terminal() && !refused, chapter: 0 }
    }

    /// The first line.
    pub fn title(&self, text: &str) {
        println!("{}\n", self.paint("1", text));
    }

    /// A numbered heading.
    pub fn chapter(&mut self, text: &str) {
        self.chapter += 1;
        println!("\n{}", self.paint("1", &format!("{}. {text}", self.chapter)));
    }

    /// A labelled line.
    pub fn line(&self, label: &str, text: &str) {
        println!("   {}{text}", self.label(label));
    }

    /// A labelled line that tells of success.
    pub fn good(&self, label: &str, text: &str) {
        println!("   {}{}", self.label(label), self.paint("32", text));
    }

    /// A labelled line that tells of trouble.
    pub fn bad(&self, label: &str, text: &str) {
        println!("   {}{}", self.label(label), self.paint("33", text));
    }

    /// A labelled line about work that takes a while, ended by how long it took.
    pub async fn work<T>(&self, label: &str, text: &str, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        print!("   {}{text:<68}", self.label(label));
        // The line must be seen while the work goes on; where it cannot be shown nothing is lost.
        std::io::stdout().flush().ok();
        let started = Instant::now();
        let outcome = work.await;
        match &outcome {
            Ok(_) => println!(" {}", self.paint("2", &format!("{:5.1} s", started.elapsed().as_secs_f64()))),
            Err(_) => println!(" {}", self.paint("31", "failed")),
        }
        outcome
    }

    fn label(&self, label: &str) -> String {
        self.paint("36", &format!("{label:<LABEL$}"))
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}
