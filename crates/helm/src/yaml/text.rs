//! The text of a scalar: plain, quoted or block.

use super::{
    YamlError,
    cursor::{Cursor, is_blank, is_blank_or_end, is_break, is_end},
};

/// Line breaks met since the last word, not yet part of the text.
#[derive(Default)]
struct Breaks {
    /// The first of them.
    first: Option<char>,
    /// Those after it.
    more: String,
}

impl Breaks {
    /// Moves them into `text` as folding wants: one line feed is a space, several are one less.
    fn fold_into(&mut self, text: &mut String) {
        match self.first.take() {
            Some('\n') if self.more.is_empty() => text.push(' '),
            Some('\n') | None => text.push_str(&self.more),
            Some(other) => {
                text.push(other);
                text.push_str(&self.more);
            }
        }
        self.more.clear();
    }
}

/// Reads a plain scalar whose continuation lines start at column `inner` or later; in a flow collection they may start
/// anywhere. Also says whether the cursor moved on to another line.
pub(super) fn plain(cursor: &mut Cursor<'_>, inner: usize, in_flow: bool) -> Result<(String, bool), YamlError> {
    let (mut text, mut blanks, mut breaks) = (String::new(), String::new(), Breaks::default());
    let mut on_new_line = false;
    while !cursor.at_document_indicator() && cursor.peek() != '#' {
        loop {
            let c = cursor.peek();
            let ends_key = c == ':' && is_blank_or_end(cursor.peek_at(1));
            if is_blank_or_end(c) || ends_key || (in_flow && matches!(c, ',' | '?' | '[' | ']' | '{' | '}')) {
                break;
            }
            if on_new_line {
                breaks.fold_into(&mut text);
                on_new_line = false;
            } else {
                text.push_str(&blanks);
                blanks.clear();
            }
            text.push(cursor.skip());
        }
        let mut moved = false;
        loop {
            let c = cursor.peek();
            if let Some(taken) = cursor.take_break() {
                if on_new_line {
                    breaks.more.push(taken);
                } else {
                    blanks.clear();
                    breaks.first = Some(taken);
                    on_new_line = true;
                }
            } else if is_blank(c) {
                if on_new_line && cursor.column < inner && c == '\t' {
                    return Err(syntax(cursor));
                }
                cursor.skip();
                if !on_new_line {
                    blanks.push(c);
                }
            } else {
                break;
            }
            moved = true;
        }
        if !moved || (!in_flow && cursor.column < inner) {
            break;
        }
    }
    Ok((text, on_new_line))
}

/// Reads a quoted scalar, the opening quote first.
pub(super) fn quoted(cursor: &mut Cursor<'_>) -> Result<String, YamlError> {
    let quote = cursor.skip();
    let (mut text, mut blanks, mut breaks) = (String::new(), String::new(), Breaks::default());
    loop {
        if cursor.at_document_indicator() || is_end(cursor.peek()) {
            return Err(syntax(cursor));
        }
        let mut on_new_line = false;
        loop {
            let c = cursor.peek();
            if is_blank_or_end(c) {
                break;
            }
            if c == quote {
                if quote == '"' || cursor.peek_at(1) != quote {
                    break;
                }
                cursor.skip();
            } else if c == '\\' && quote == '"' {
                cursor.skip();
                if cursor.take_break().is_some() {
                    on_new_line = true;
                    break;
                }
                text.push(escaped(cursor)?);
                continue;
            }
            text.push(cursor.skip());
        }
        if cursor.peek() == quote {
            cursor.skip();
            return Ok(text);
        }
        loop {
            let c = cursor.peek();
            if let Some(taken) = cursor.take_break() {
                if on_new_line {
                    breaks.more.push(taken);
                } else {
                    blanks.clear();
                    breaks.first = Some(taken);
                    on_new_line = true;
                }
            } else if is_blank(c) {
                cursor.skip();
                if !on_new_line {
                    blanks.push(c);
                }
            } else {
                break;
            }
        }
        if on_new_line {
            breaks.fold_into(&mut text);
        } else {
            text.push_str(&blanks);
            blanks.clear();
        }
    }
}

/// What the escape after a backslash stands for.
fn escaped(cursor: &mut Cursor<'_>) -> Result<char, YamlError> {
    let digits = match cursor.skip() {
        '0' => return Ok('\0'),
        'a' => return Ok('\x07'),
        'b' => return Ok('\x08'),
        't' | '\t' => return Ok('\t'),
        'n' => return Ok('\n'),
        'v' => return Ok('\x0b'),
        'f' => return Ok('\x0c'),
        'r' => return Ok('\r'),
        'e' => return Ok('\x1b'),
        c @ (' ' | '"' | '\'' | '\\') => return Ok(c),
        'N' => return Ok('\u{85}'),
        '_' => return Ok('\u{a0}'),
        'L' => return Ok('\u{2028}'),
        'P' => return Ok('\u{2029}'),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return Err(syntax(cursor)),
    };
    let mut code = 0_u32;
    for _ in 0..digits {
        let digit = cursor.peek().to_digit(16).ok_or_else(|| syntax(cursor))?;
        code = code << 4 | digit;
        cursor.skip();
    }
    char::from_u32(code).ok_or_else(|| syntax(cursor))
}

/// What a block scalar keeps of the line breaks at its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

/// Reads a block scalar, `|` or `>` first, in a collection whose content starts at column `inner`.
pub(super) fn block(cursor: &mut Cursor<'_>, inner: usize) -> Result<String, YamlError> {
    let literal = cursor.skip() == '|';
    let (chomping, increment) = header(cursor)?;
    // 0 until the first line that is not empty tells.
    let mut indent = increment.map_or(0, |increment| inner.saturating_sub(1) + increment);
    let (mut text, mut first, mut more) = (String::new(), None::<char>, String::new());
    block_breaks(cursor, inner, &mut indent, &mut more)?;

    let mut blank_before = false;
    while cursor.column == indent && !is_end(cursor.peek()) {
        let blank_now = is_blank(cursor.peek());
        // Folding joins two lines unless either is indented further.
        match first.take() {
            Some('\n') if !literal && !blank_before && !blank_now => {
                if more.is_empty() {
                    text.push(' ');
                }
            }
            other => text.extend(other),
        }
        text.push_str(&more);
        more.clear();
        blank_before = blank_now;
        text.push_str(cursor.take_while(|c| !is_break(c)));
        first = cursor.take_break();
        block_breaks(cursor, inner, &mut indent, &mut more)?;
    }
    if chomping != Chomping::Strip {
        text.extend(first);
    }
    if chomping == Chomping::Keep {
        text.push_str(&more);
    }
    Ok(text)
}

/// Reads the rest of a block scalar's first line: how to chomp, and how far its lines are indented if it says so.
fn header(cursor: &mut Cursor<'_>) -> Result<(Chomping, Option<usize>), YamlError> {
    let mut chomping = take_chomping(cursor);
    let increment = match cursor.peek().to_digit(10) {
        Some(0) => return Err(syntax(cursor)),
        Some(digit) => {
            cursor.skip();
            usize::try_from(digit).ok()
        }
        None => None,
    };
    if chomping.is_none() && increment.is_some() {
        chomping = take_chomping(cursor);
    }
    cursor.skip_to_break();
    if cursor.take_break().is_none() && !is_end(cursor.peek()) {
        return Err(syntax(cursor));
    }
    Ok((chomping.unwrap_or(Chomping::Clip), increment))
}

fn take_chomping(cursor: &mut Cursor<'_>) -> Option<Chomping> {
    let chomping = match cursor.peek() {
        '+' => Chomping::Keep,
        '-' => Chomping::Strip,
        _ => return None,
    };
    cursor.skip();
    Some(chomping)
}

/// Steps over indentation and empty lines before a line of a block scalar, and finds `indent` if it is not known yet.
fn block_breaks(cursor: &mut Cursor<'_>, inner: usize, indent: &mut usize, breaks: &mut String) -> Result<(), YamlError> {
    let mut deepest = 0;
    loop {
        while (*indent == 0 || cursor.column < *indent) && cursor.peek() == ' ' {
            cursor.skip();
        }
        deepest = deepest.max(cursor.column);
        if (*indent == 0 || cursor.column < *indent) && cursor.peek() == '\t' {
            return Err(syntax(cursor));
        }
        match cursor.take_break() {
            Some(taken) => breaks.push(taken),
            None => break,
        }
    }
    if *indent == 0 {
        *indent = deepest.max(inner).max(1);
    }
    Ok(())
}

fn syntax(cursor: &Cursor<'_>) -> YamlError {
    YamlError::Syntax { line: cursor.line + 1 }
}
