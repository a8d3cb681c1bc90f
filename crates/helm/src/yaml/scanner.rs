//! From text to tokens.
//!
//! The hard part of YAML is that `key: value` shows itself only at the colon. The scanner remembers where such a simple
//! key may have begun and, at the colon, inserts the tokens before it that say so. Indentation turns into start and end
//! tokens the same way.

use std::collections::VecDeque;

use super::{
    YamlError,
    cursor::{Cursor, is_blank, is_blank_or_end, is_break, is_end},
    property::{self, Directive, Tag},
    text,
};

/// A simple key is at most this many characters long.
const LONGEST_KEY: usize = 1024;

/// A unit of YAML's grammar.
pub(super) enum Token<'a> {
    StreamEnd,
    Directive(Directive),
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(&'a str),
    Anchor(&'a str),
    Tag(Tag),
    Scalar { text: String, plain: bool },
}

/// Where a simple key may have begun.
struct SimpleKey {
    /// Without this key the text is wrong.
    required: bool,
    /// Number of its first token, counted from the first of the document.
    token: usize,
    index: usize,
    line: usize,
    column: usize,
}

/// Yields the tokens of a text.
pub(super) struct Scanner<'a> {
    cursor: Cursor<'a>,
    /// Tokens read but not taken.
    queue: VecDeque<Token<'a>>,
    /// Tokens taken.
    taken: usize,
    /// First column of the content of the innermost block collection: 0 outside of any, else its own column plus one.
    inner: usize,
    /// The same of the collections around it.
    outer: Vec<usize>,
    /// The possible simple key of each level: of the block context, then of each open flow collection.
    keys: Vec<Option<SimpleKey>>,
    key_allowed: bool,
    /// How many flow collections may be open at once.
    max_depth: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str, max_depth: usize) -> Self {
        Self {
            cursor: Cursor::new(text),
            queue: VecDeque::new(),
            taken: 0,
            inner: 0,
            outer: Vec::new(),
            keys: vec![None],
            key_allowed: true,
            max_depth,
        }
    }

    /// The error for something wrong about here.
    pub(super) fn error(&self) -> YamlError {
        YamlError::Syntax { line: self.cursor.line + 1 }
    }

    /// The next token, left in place.
    pub(super) fn peek(&mut self) -> Result<&Token<'a>, YamlError> {
        self.fill()?;
        Ok(self.queue.front().unwrap_or(&Token::StreamEnd))
    }

    /// Takes the next token.
    pub(super) fn take(&mut self) -> Result<Token<'a>, YamlError> {
        self.fill()?;
        self.taken += 1;
        Ok(self.queue.pop_front().unwrap_or(Token::StreamEnd))
    }

    /// Reads on until the first token of the queue is final: while it may turn out to begin a simple key, it is not.
    fn fill(&mut self) -> Result<(), YamlError> {
        while self.queue.is_empty() || self.first_may_begin_key()? {
            self.fetch()?;
        }
        Ok(())
    }

    fn first_may_begin_key(&mut self) -> Result<bool, YamlError> {
        let first = self.taken;
        let level = self.keys.iter().position(|key| key.as_ref().is_some_and(|key| key.token == first));
        level.map_or(Ok(false), |level| self.key_still_possible(level))
    }

    /// A simple key ends on its line, within [`LONGEST_KEY`] characters.
    fn key_still_possible(&mut self, level: usize) -> Result<bool, YamlError> {
        let Some(slot) = self.keys.get_mut(level) else { return Ok(false) };
        let Some(key) = slot else { return Ok(false) };
        if key.line >= self.cursor.line && key.index + LONGEST_KEY >= self.cursor.index {
            return Ok(true);
        }
        let required = key.required;
        *slot = None;
        if required { Err(self.error()) } else { Ok(false) }
    }

    fn in_flow(&self) -> bool {
        self.keys.len() > 1
    }

    /// Reads one token, or several where indentation ends.
    fn fetch(&mut self) -> Result<(), YamlError> {
        self.skip_to_token();
        self.unroll(self.cursor.column + 1);
        let (c, next) = (self.cursor.peek(), self.cursor.peek_at(1));
        let in_flow = self.in_flow();
        let ends_after = in_flow || is_blank_or_end(next);
        match c {
            _ if is_end(c) => {
                self.unroll(0);
                self.forget_key()?;
                self.key_allowed = false;
                self.queue.push_back(Token::StreamEnd);
            }
            '%' if self.cursor.column == 0 => {
                self.unroll(0);
                self.forget_key()?;
                self.key_allowed = false;
                let directive = property::directive(&mut self.cursor)?;
                self.queue.push_back(Token::Directive(directive));
            }
            '-' if self.cursor.at_indicator("---") => self.document_indicator(Token::DocumentStart)?,
            '.' if self.cursor.at_indicator("...") => self.document_indicator(Token::DocumentEnd)?,
            '[' => self.flow_start(Token::FlowSequenceStart)?,
            '{' => self.flow_start(Token::FlowMappingStart)?,
            ']' => self.flow_end(Token::FlowSequenceEnd)?,
            '}' => self.flow_end(Token::FlowMappingEnd)?,
            ',' => {
                self.forget_key()?;
                self.key_allowed = true;
                self.indicator(Token::FlowEntry);
            }
            '-' if is_blank_or_end(next) => self.block_entry()?,
            '?' if ends_after => self.key()?,
            ':' if ends_after => self.value()?,
            '*' | '&' => {
                self.save_key()?;
                self.key_allowed = false;
                let name = property::anchor(&mut self.cursor)?;
                self.queue.push_back(if c == '*' { Token::Alias(name) } else { Token::Anchor(name) });
            }
            '!' => {
                self.save_key()?;
                self.key_allowed = false;
                let tag = property::tag(&mut self.cursor)?;
                self.queue.push_back(Token::Tag(tag));
            }
            '|' | '>' if !in_flow => {
                self.forget_key()?;
                self.key_allowed = true;
                let text = text::block(&mut self.cursor, self.inner)?;
                self.queue.push_back(Token::Scalar { text, plain: false });
            }
            '\'' | '"' => {
                self.save_key()?;
                self.key_allowed = false;
                let text = text::quoted(&mut self.cursor)?;
                self.queue.push_back(Token::Scalar { text, plain: false });
            }
            _ if starts_plain(c, next, in_flow) => {
                self.save_key()?;
                let (text, on_new_line) = text::plain(&mut self.cursor, self.inner, in_flow)?;
                self.key_allowed = on_new_line;
                self.queue.push_back(Token::Scalar { text, plain: true });
            }
            _ => return Err(self.error()),
        }
        Ok(())
    }

    /// Steps over blanks, comments and line breaks. A tab does not indent: it counts as a blank only where no block key
    /// could stand.
    fn skip_to_token(&mut self) {
        loop {
            let tabs = self.in_flow() || !self.key_allowed;
            self.cursor.take_while(|c| c == ' ' || (tabs && c == '\t'));
            if self.cursor.peek() == '#' {
                self.cursor.take_while(|c| !is_break(c));
            }
            if self.cursor.take_break().is_none() {
                return;
            }
            if !self.in_flow() {
                self.key_allowed = true;
            }
        }
    }

    fn indicator(&mut self, token: Token<'a>) {
        self.cursor.skip();
        self.queue.push_back(token);
    }

    fn document_indicator(&mut self, token: Token<'a>) -> Result<(), YamlError> {
        self.unroll(0);
        self.forget_key()?;
        self.key_allowed = false;
        self.cursor.skip_many(3);
        self.queue.push_back(token);
        Ok(())
    }

    fn flow_start(&mut self, token: Token<'a>) -> Result<(), YamlError> {
        self.save_key()?;
        if self.keys.len() > self.max_depth {
            return Err(YamlError::TooDeep);
        }
        self.keys.push(None);
        self.key_allowed = true;
        self.indicator(token);
        Ok(())
    }

    fn flow_end(&mut self, token: Token<'a>) -> Result<(), YamlError> {
        self.forget_key()?;
        if self.in_flow() {
            self.keys.pop();
        }
        self.key_allowed = false;
        self.indicator(token);
        Ok(())
    }

    fn block_entry(&mut self) -> Result<(), YamlError> {
        if !self.in_flow() {
            self.block_start(Token::BlockSequenceStart)?;
        }
        self.forget_key()?;
        self.key_allowed = true;
        self.indicator(Token::BlockEntry);
        Ok(())
    }

    /// A `?`.
    fn key(&mut self) -> Result<(), YamlError> {
        if !self.in_flow() {
            self.block_start(Token::BlockMappingStart)?;
        }
        self.forget_key()?;
        self.key_allowed = !self.in_flow();
        self.indicator(Token::Key);
        Ok(())
    }

    /// A `:`.
    fn value(&mut self) -> Result<(), YamlError> {
        let level = self.keys.len().saturating_sub(1);
        let key = if self.key_still_possible(level)? { self.keys.last_mut().and_then(Option::take) } else { None };
        if let Some(key) = key {
            let at = key.token.saturating_sub(self.taken).min(self.queue.len());
            self.queue.insert(at, Token::Key);
            if self.roll(key.column) {
                self.queue.insert(at, Token::BlockMappingStart);
            }
            self.key_allowed = false;
        } else {
            if !self.in_flow() {
                self.block_start(Token::BlockMappingStart)?;
            }
            self.key_allowed = !self.in_flow();
        }
        self.indicator(Token::Value);
        Ok(())
    }

    /// Begins a block collection here, unless one is open at this column.
    fn block_start(&mut self, token: Token<'a>) -> Result<(), YamlError> {
        if !self.key_allowed {
            return Err(self.error());
        }
        if self.roll(self.cursor.column) {
            self.queue.push_back(token);
        }
        Ok(())
    }

    /// Makes `column` the column of the innermost block collection; false if it is already, or does not matter.
    fn roll(&mut self, column: usize) -> bool {
        if self.in_flow() || self.inner > column {
            return false;
        }
        self.outer.push(self.inner);
        self.inner = column + 1;
        true
    }

    /// Ends the block collections whose content starts right of `inner`.
    fn unroll(&mut self, inner: usize) {
        while !self.in_flow() && self.inner > inner {
            self.queue.push_back(Token::BlockEnd);
            self.inner = self.outer.pop().unwrap_or(0);
        }
    }

    /// Notes that a simple key may begin here.
    fn save_key(&mut self) -> Result<(), YamlError> {
        if !self.key_allowed {
            return Ok(());
        }
        self.forget_key()?;
        let key = SimpleKey {
            required: !self.in_flow() && self.inner == self.cursor.column + 1,
            token: self.taken + self.queue.len(),
            index: self.cursor.index,
            line: self.cursor.line,
            column: self.cursor.column,
        };
        if let Some(slot) = self.keys.last_mut() {
            *slot = Some(key);
        }
        Ok(())
    }

    /// Gives up the possible simple key of this level.
    fn forget_key(&mut self) -> Result<(), YamlError> {
        match self.keys.last_mut().and_then(Option::take) {
            Some(key) if key.required => Err(self.error()),
            _ => Ok(()),
        }
    }
}

/// Whether a plain scalar can begin with `c`, `next` following it.
fn starts_plain(c: char, next: char, in_flow: bool) -> bool {
    match c {
        '-' => !is_blank(next),
        '?' | ':' => !in_flow && !is_blank_or_end(next),
        ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => false,
        _ => !is_blank_or_end(c),
    }
}
