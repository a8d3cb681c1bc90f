//! Colours for people.

use std::io::IsTerminal;

/// Whether and how text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    coloured: bool,
}

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// All is well.
    Good,
    /// Something differs.
    Bad,
    /// Nobody can tell.
    Unclear,
    /// Beside the point.
    Faint,
    /// A heading.
    Strong,
}

impl Paint {
    /// Coloured on a terminal, unless `NO_COLOR` is set.
    pub fn for_stdout() -> Self {
        Self::on(&std::io::stdout())
    }

    /// The same for what is asked on standard error.
    pub fn for_stderr() -> Self {
        Self::on(&std::io::stderr())
    }

    fn on(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { coloured: stream.is_terminal() && !refused }
    }

    /// Text without colours, or always with them.
    #[cfg(test)]
    pub const fn fixed(coloured: bool) -> Self {
        Self { coloured }
    }

    /// The text in a tone.
    pub fn tone(self, tone: Tone, text: &str) -> String {
        if !self.coloured {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Unclear => "33",
            Tone::Faint => "2",
            Tone::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
