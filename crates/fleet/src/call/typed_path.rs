//! The field path in an error of server-side apply.
//!
//! The text is `failed to create typed patch object (NAMESPACE/NAME; GROUP/VERSION, Kind=KIND): PATH: EXPLANATION`, or after the
//! parenthesis `errors:` and one such pair a line. The explanation may print a value, the path cannot, except in the brackets of a
//! set item (`[="value"]`).

const MAX_PATH: usize = 512;

/// The first path, with the values of set items left out. `None` when the text has another form.
pub(super) fn first_path(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("): ")?;
    let rest = rest.strip_prefix("errors:").unwrap_or(rest).trim_start();
    let mut path = String::new();
    let mut text = rest;
    loop {
        if let Some(after) = text.strip_prefix('.') {
            let end = after.find(['.', '[', ':'])?;
            let (name, tail) = after.split_at_checked(end)?;
            path.push('.');
            path.push_str(name);
            text = tail;
        } else if text.starts_with('[') {
            let (bracket, tail) = text.split_at_checked(bracket_end(text)?)?;
            path.push_str(if bracket.starts_with("[=") { "[=]" } else { bracket });
            text = tail;
        } else if text.starts_with(':') && !path.is_empty() {
            return (path.len() <= MAX_PATH).then_some(path);
        } else {
            return None;
        }
    }
}

/// Where the bracket that opens the text is closed, heeding quoted text inside.
fn bracket_end(text: &str) -> Option<usize> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return at.checked_add(1),
            _ => {}
        }
    }
    None
}
