//! A manifest's documents, split and read as Helm does.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{
    limits::{Budget, Limits},
    yaml::{self, YamlError},
};

const SEPARATOR: &str = "---";

/// One document of a manifest that is neither empty nor null.
#[derive(Clone, PartialEq)]
pub struct Document {
    /// Its number in the manifest, from 1. Blank documents do not count, comment-only ones do.
    pub number: usize,
    /// What it says, as JSON; not always an object.
    pub value: Result<Value, YamlError>,
}

impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Document").field("number", &self.number).field("error", &self.value.as_ref().err()).finish_non_exhaustive()
    }
}

/// Reads a manifest document by document. A document that cannot be read yields an error and does not hinder the others.
///
/// A line that starts with `---` ends a document, wherever it stands; what follows on that line belongs to the next one
/// (charts print `---apiVersion: v1`). Text after a line `...` is not part of the release.
pub fn documents<'a>(manifest: &'a str, limits: &Limits) -> Documents<'a> {
    let manifest = manifest.strip_prefix('\u{feff}').unwrap_or(manifest);
    Documents {
        rest: Some(manifest),
        json: manifest.trim_start().starts_with('{'),
        limits: *limits,
        budget: Budget::new(limits),
        number: 0,
    }
}

/// Iterator over the documents of a manifest; see [`documents`].
pub struct Documents<'a> {
    /// What is not read yet.
    rest: Option<&'a str>,
    /// Helm takes a manifest that starts with a brace for a stream of JSON values, up to the first that is none.
    json: bool,
    limits: Limits,
    budget: Budget,
    number: usize,
}

impl Iterator for Documents<'_> {
    type Item = Document;

    fn next(&mut self) -> Option<Document> {
        loop {
            let (text, is_json) = self.next_text()?;
            self.number += 1;
            if self.number > self.limits.documents {
                self.rest = None;
                return Some(Document { number: self.number, value: Err(YamlError::TooManyDocuments) });
            }
            let value = if is_json { self.read_json(text) } else { self.read_yaml(text) };
            if value != Ok(Value::Null) {
                return Some(Document { number: self.number, value });
            }
        }
    }
}

impl<'a> Documents<'a> {
    fn read_yaml(&mut self, text: &str) -> Result<Value, YamlError> {
        // Helm's reader ends every line; a block scalar at the very end would lose its line break otherwise.
        let text = if text.ends_with('\n') { Cow::Borrowed(text) } else { Cow::Owned(format!("{text}\n")) };
        yaml::parse(text.strip_prefix('\u{feff}').unwrap_or(&text), &self.limits, &mut self.budget)
    }

    fn read_json(&mut self, text: &str) -> Result<Value, YamlError> {
        // Every node but the root follows one of these, and all text stands here: this counts too much rather than too little.
        let nodes = 1 + text.bytes().filter(|byte| matches!(byte, b'[' | b'{' | b',' | b':')).count();
        self.budget.take_nodes(nodes)?;
        self.budget.take_text(text)?;
        let mut value = serde_json::from_str(text).map_err(|error| YamlError::Syntax { line: error.line() })?;
        yaml::wire(&mut value);
        Ok(value)
    }

    /// The text of the next document that is not blank, and whether it is JSON.
    fn next_text(&mut self) -> Option<(&'a str, bool)> {
        if self.json {
            if let Some(text) = self.next_json() {
                return Some((text, true));
            }
            self.json = false;
        }
        self.next_chunk().map(|text| (text, false))
    }

    fn next_json(&mut self) -> Option<&'a str> {
        let rest = self.rest?;
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        let (text, rest) = rest.split_at_checked(values.byte_offset())?;
        self.rest = Some(rest);
        Some(text)
    }

    /// The text of the next document that is not blank.
    fn next_chunk(&mut self) -> Option<&'a str> {
        loop {
            let rest = self.rest?;
            // Helm's reader leaves a separator at the very start in the text, where it begins the document.
            let (own, body) = separator_line(rest).map_or((0, rest), |(own, body)| (own.len(), body));
            let chunk = if own == 0 { body } else { rest };
            let starts_line = |at: &usize| body.get(..*at).is_some_and(|before| before.ends_with('\n') || (before.is_empty() && own > 0));
            let end = body.match_indices(SEPARATOR).map(|(at, _)| at).find(starts_line);
            let Some((body, tail)) = end.and_then(|end| body.split_at_checked(end)) else {
                self.rest = None;
                return (!body.trim().is_empty()).then_some(chunk);
            };
            self.rest = separator_line(tail).map(|(_, after)| after);
            if !body.trim().is_empty() {
                return chunk.get(..own + body.len());
            }
        }
    }
}

/// Splits `text` after the separator it starts with: the whole line when that holds nothing else but a comment; only
/// `---` and its blanks, and those thrown away, when a document begins on the line.
fn separator_line(text: &str) -> Option<(&str, &str)> {
    let after = text.strip_prefix(SEPARATOR)?;
    let (line, below) = after.split_once('\n').unwrap_or((after, ""));
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        text.split_at_checked(text.len() - below.len())
    } else {
        Some(("", after.trim_start_matches([' ', '\t'])))
    }
}
