//! Anchors, aliases, tags and directives.

use super::{
    YamlError,
    cursor::{Cursor, is_blank, is_blank_or_end, is_end, is_word},
};

/// A tag as written: the handle (`!`, `!!`, `!name!`, or none for a tag in full) and what follows it.
pub(super) struct Tag {
    pub(super) handle: String,
    pub(super) suffix: String,
}

/// A line that starts with `%`.
pub(super) enum Directive {
    /// `%YAML`, and whether it names the one version go-yaml reads, 1.1.
    Version { supported: bool },
    /// `%TAG`: `handle` stands for `prefix`.
    Tag { handle: String, prefix: String },
}

/// Reads the name of an anchor or alias, its `&` or `*` first.
pub(super) fn anchor<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, YamlError> {
    cursor.skip();
    let name = cursor.take_while(is_word);
    let next = cursor.peek();
    if name.is_empty() || !(is_blank_or_end(next) || matches!(next, '?' | ':' | ',' | ']' | '}' | '%' | '@' | '`')) {
        return Err(syntax(cursor));
    }
    Ok(name)
}

/// Reads a tag, its `!` first.
pub(super) fn tag(cursor: &mut Cursor<'_>) -> Result<Tag, YamlError> {
    let tag = if cursor.peek_at(1) == '<' {
        cursor.skip_many(2);
        let suffix = uri(cursor, "")?;
        if cursor.skip() != '>' {
            return Err(syntax(cursor));
        }
        Tag { handle: String::new(), suffix }
    } else {
        let handle = handle(cursor)?;
        if handle.len() > 1 && handle.ends_with('!') {
            let suffix = uri(cursor, "")?;
            if suffix.is_empty() {
                return Err(syntax(cursor));
            }
            Tag { handle, suffix }
        } else {
            // No second `!`: what was read belongs to the suffix of a local tag.
            match uri(cursor, handle.strip_prefix('!').unwrap_or_default())? {
                suffix if suffix.is_empty() => Tag { handle: String::new(), suffix: "!".to_owned() },
                suffix => Tag { handle: "!".to_owned(), suffix },
            }
        }
    };
    if is_blank_or_end(cursor.peek()) { Ok(tag) } else { Err(syntax(cursor)) }
}

/// Reads a directive, its `%` first, to the end of its line.
pub(super) fn directive(cursor: &mut Cursor<'_>) -> Result<Directive, YamlError> {
    cursor.skip();
    let name = cursor.take_while(is_word);
    if !is_blank_or_end(cursor.peek()) {
        return Err(syntax(cursor));
    }
    cursor.take_while(is_blank);
    let directive = match name {
        "YAML" => {
            let major = version_number(cursor)?;
            if cursor.skip() != '.' {
                return Err(syntax(cursor));
            }
            Directive::Version { supported: (major, version_number(cursor)?) == (1, 1) }
        }
        "TAG" => {
            let handle = handle(cursor)?;
            if !is_blank(cursor.peek()) || (handle != "!" && !handle.ends_with('!')) {
                return Err(syntax(cursor));
            }
            cursor.take_while(is_blank);
            let prefix = uri(cursor, "")?;
            if prefix.is_empty() || !is_blank_or_end(cursor.peek()) {
                return Err(syntax(cursor));
            }
            Directive::Tag { handle, prefix }
        }
        _ => return Err(syntax(cursor)),
    };
    cursor.skip_to_break();
    if cursor.take_break().is_none() && !is_end(cursor.peek()) {
        return Err(syntax(cursor));
    }
    Ok(directive)
}

fn version_number(cursor: &mut Cursor<'_>) -> Result<u8, YamlError> {
    let digits = cursor.take_while(|c| c.is_ascii_digit());
    if digits.len() > 2 { Err(syntax(cursor)) } else { digits.parse().map_err(|_| syntax(cursor)) }
}

fn handle(cursor: &mut Cursor<'_>) -> Result<String, YamlError> {
    if cursor.skip() != '!' {
        return Err(syntax(cursor));
    }
    let mut handle = format!("!{}", cursor.take_while(is_word));
    if cursor.peek() == '!' {
        handle.push(cursor.skip());
    }
    Ok(handle)
}

/// Reads what can stand in a tag, `%` escapes decoded, after `start`.
fn uri(cursor: &mut Cursor<'_>, start: &str) -> Result<String, YamlError> {
    const PUNCTUATION: &str = ";/?:@&=+$,.!~*'()[]";
    let mut bytes = start.as_bytes().to_vec();
    loop {
        bytes.extend_from_slice(cursor.take_while(|c| is_word(c) || PUNCTUATION.contains(c)).as_bytes());
        if cursor.peek() != '%' {
            return String::from_utf8(bytes).map_err(|_| syntax(cursor));
        }
        cursor.skip();
        let octet =
            cursor.peek().to_digit(16).zip(cursor.peek_at(1).to_digit(16)).and_then(|(high, low)| u8::try_from(high << 4 | low).ok());
        bytes.push(octet.ok_or_else(|| syntax(cursor))?);
        cursor.skip_many(2);
    }
}

fn syntax(cursor: &Cursor<'_>) -> YamlError {
    YamlError::Syntax { line: cursor.line + 1 }
}
