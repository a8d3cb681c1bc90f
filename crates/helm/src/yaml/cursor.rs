//! A place in the text, and the character classes of YAML 1.1.

/// What [`Cursor::peek`] gives at the end. The text itself has none: the reader refuses control characters.
const END: char = '\0';

/// Reads a text character by character and knows line and column.
pub(super) struct Cursor<'a> {
    rest: &'a str,
    /// Characters before this place.
    pub(super) index: usize,
    /// Lines before this place.
    pub(super) line: usize,
    /// Characters before this place on its line.
    pub(super) column: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, index: 0, line: 0, column: 0 }
    }

    /// The next character.
    pub(super) fn peek(&self) -> char {
        self.rest.chars().next().unwrap_or(END)
    }

    /// The character after `ahead` others.
    pub(super) fn peek_at(&self, ahead: usize) -> char {
        self.rest.chars().nth(ahead).unwrap_or(END)
    }

    /// Steps over one character that is no line break.
    pub(super) fn skip(&mut self) -> char {
        let mut chars = self.rest.chars();
        let Some(c) = chars.next() else { return END };
        self.rest = chars.as_str();
        self.index += 1;
        self.column += 1;
        c
    }

    /// Steps over `count` characters that are no line breaks.
    pub(super) fn skip_many(&mut self, count: usize) {
        for _ in 0..count {
            self.skip();
        }
    }

    /// Steps over characters while `wanted` holds and returns them. Not for line breaks.
    pub(super) fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        let Some((taken, rest)) = self.rest.split_at_checked(end) else { return "" };
        let count = taken.chars().count();
        self.rest = rest;
        self.index += count;
        self.column += count;
        taken
    }

    /// Steps over a line break and returns what it stands for; `None` where there is none.
    pub(super) fn take_break(&mut self) -> Option<char> {
        let c = self.peek();
        if !is_break(c) {
            return None;
        }
        if c == '\r' && self.peek_at(1) == '\n' {
            self.skip();
        }
        self.skip();
        self.column = 0;
        self.line += 1;
        Some(if matches!(c, '\u{2028}' | '\u{2029}') { c } else { '\n' })
    }

    /// Steps over blanks and a comment; stops before the line break.
    pub(super) fn skip_to_break(&mut self) {
        self.take_while(is_blank);
        if self.peek() == '#' {
            self.take_while(|c| !is_break(c));
        }
    }

    /// Whether `---` or `...` starts here, alone in its column.
    pub(super) fn at_document_indicator(&self) -> bool {
        self.at_indicator("---") || self.at_indicator("...")
    }

    /// Whether the document indicator `indicator` starts here.
    pub(super) fn at_indicator(&self, indicator: &str) -> bool {
        self.column == 0 && self.rest.starts_with(indicator) && is_blank_or_end(self.peek_at(3))
    }
}

/// Space or tab.
pub(super) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// A line break of YAML 1.1, which has more of them than YAML 1.2.
pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The end of the text.
pub(super) fn is_end(c: char) -> bool {
    c == END
}

/// Blank, line break or end.
pub(super) fn is_blank_or_end(c: char) -> bool {
    is_blank(c) || is_break(c) || is_end(c)
}

/// What names of anchors and handles of tags are made of.
pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}
