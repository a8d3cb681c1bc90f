//! Changes to an input that keep most of it meaningful.

use std::ops::Range;

use proptest::{collection, prelude::*, sample::Index};

/// The largest input made, in bytes: above the 256 KiB that the smallest of the readers' limits allows.
pub(crate) const MAX_BYTES: usize = 400 * 1024;

/// One change. Positions are shares of whatever the input's length is by then, so that leaving out one change leaves the others usable.
#[derive(Clone, Debug)]
pub(crate) enum Mutation {
    /// Takes a piece out.
    Delete(Piece),
    /// Copies a piece to another place.
    Copy(Piece, Index),
    /// Repeats a piece in its place: long lists, deep nesting, bombs.
    Repeat(Piece, u16),
    /// Opens a piece again and again before it and closes it as often behind it.
    Nest(Piece, Index, u16),
    /// Puts a word in place of a piece.
    Replace(Piece, Index),
    /// Puts a word between.
    Insert(Index, Index),
    /// Puts a word on a line of its own, indented like the next one: a field beside others.
    Line(Index, Index),
    /// Puts a piece of another seed in place of a piece.
    Splice(Piece, Index, Piece),
    /// Changes a byte.
    Byte(Index, u8),
    /// Ends the input early.
    Cut(Index),
}

/// A part of an input.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    unit: Unit,
    first: Index,
    /// How many units it is long.
    many: u8,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Byte,
    /// Letters and digits in a row, or one other byte.
    Word,
    Line,
}

/// Brackets, and what opens a level in YAML.
const NESTS: [(&[u8], &[u8]); 5] = [(b"[", b"]"), (b"{\"a\":", b"}"), (b"\"f:a\":{", b"}"), (b"- ", b""), (b"? ", b"")];

pub(crate) fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let index = any::<Index>;
    let one = prop_oneof![
        3 => piece().prop_map(Mutation::Delete),
        3 => (piece(), index()).prop_map(|(piece, to)| Mutation::Copy(piece, to)),
        1 => (piece(), prop_oneof![4 => 2..8_u16, 1 => 8..20_000_u16]).prop_map(|(piece, times)| Mutation::Repeat(piece, times)),
        1 => (piece(), index(), prop_oneof![3 => 1..6_u16, 1 => 60..3000_u16]).prop_map(|(piece, nest, times)| Mutation::Nest(piece, nest, times)),
        6 => (piece(), index()).prop_map(|(piece, word)| Mutation::Replace(piece, word)),
        4 => (index(), index()).prop_map(|(at, word)| Mutation::Insert(at, word)),
        4 => (index(), index()).prop_map(|(at, word)| Mutation::Line(at, word)),
        2 => (piece(), index(), piece()).prop_map(|(piece, seed, from)| Mutation::Splice(piece, seed, from)),
        2 => (index(), any::<u8>()).prop_map(|(at, byte)| Mutation::Byte(at, byte)),
        1 => index().prop_map(Mutation::Cut),
    ];
    collection::vec(one, 0..6)
}

fn piece() -> impl Strategy<Value = Piece> {
    let unit = prop_oneof![1 => Just(Unit::Byte), 4 => Just(Unit::Word), 3 => Just(Unit::Line)];
    (unit, any::<Index>(), prop_oneof![4 => Just(1), 1 => 2..20_u8]).prop_map(|(unit, first, many)| Piece { unit, first, many })
}

/// Applies the changes in turn. A change that would make the input larger than [`MAX_BYTES`] is left out.
pub(crate) fn apply(input: &mut Vec<u8>, mutations: &[Mutation], seeds: &[Vec<u8>], words: &[&str]) {
    for mutation in mutations {
        let before = input.len();
        let (range, put) = match mutation {
            Mutation::Delete(piece) => (piece.of(input), Vec::new()),
            Mutation::Copy(piece, to) => (nowhere(*to, input), part(input, piece).to_vec()),
            Mutation::Repeat(piece, times) => {
                let range = piece.of(input);
                let repeated = part(input, piece).repeat(usize::from(*times).min(MAX_BYTES / range.len().max(1)));
                (range, repeated)
            }
            Mutation::Nest(piece, nest, times) => {
                let (open, close) = nest.get(&NESTS);
                let times = usize::from(*times);
                (piece.of(input), [&open.repeat(times), part(input, piece), &close.repeat(times)].concat())
            }
            Mutation::Replace(piece, word) => (piece.of(input), pick(*word, words)),
            Mutation::Insert(at, word) => (nowhere(*at, input), pick(*word, words)),
            Mutation::Line(at, word) => {
                let line = Piece { unit: Unit::Line, first: *at, many: 1 }.of(input);
                let next = input.get(line.clone()).unwrap_or_default();
                let indent = b" ".repeat(next.iter().take_while(|byte| **byte == b' ').count());
                (line.start..line.start, [indent, pick(*word, words), b"\n".to_vec()].concat())
            }
            Mutation::Splice(piece, seed, from) => (piece.of(input), part(seed.get::<Vec<u8>>(seeds), from).to_vec()),
            Mutation::Byte(at, byte) => (Piece { unit: Unit::Byte, first: *at, many: 1 }.of(input), vec![*byte]),
            Mutation::Cut(at) => (at.index(before + 1)..before, Vec::new()),
        };
        if before - range.len() + put.len() <= MAX_BYTES {
            input.splice(range, put);
        }
    }
}

fn pick(word: Index, words: &[&str]) -> Vec<u8> {
    if words.is_empty() { Vec::new() } else { word.get(words).as_bytes().to_vec() }
}

fn nowhere(at: Index, input: &[u8]) -> Range<usize> {
    let at = at.index(input.len() + 1);
    at..at
}

fn part<'a>(input: &'a [u8], piece: &Piece) -> &'a [u8] {
    input.get(piece.of(input)).unwrap_or_default()
}

impl Piece {
    fn of(&self, input: &[u8]) -> Range<usize> {
        if input.is_empty() {
            return 0..0;
        }
        let many = usize::from(self.many);
        let at = self.first.index(input.len());
        match self.unit {
            Unit::Byte => at..(at + many).min(input.len()),
            Unit::Word => spread(input, at, many, |a, b| a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric()),
            Unit::Line => spread(input, at, many, |a, _| a != b'\n'),
        }
    }
}

/// From the start of the unit that `at` lies in to the end of the `many`th; `together` says of two neighbours that they are of one unit.
fn spread(input: &[u8], at: usize, many: usize, together: impl Fn(u8, u8) -> bool) -> Range<usize> {
    let is_start = |at: usize| match (at.checked_sub(1).and_then(|before| input.get(before)), input.get(at)) {
        (Some(before), Some(here)) => !together(*before, *here),
        _ => true,
    };
    let start = (0..=at).rev().find(|at| is_start(*at)).unwrap_or(0);
    let end = (at + 1..=input.len()).filter(|at| is_start(*at)).nth(many.saturating_sub(1)).unwrap_or(input.len());
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found() {
        let text = b"ab: cd\nef\n\ngh";
        for (at, words, lines) in [(0, &b"ab"[..], &b"ab: cd\n"[..]), (5, b"cd", b"ab: cd\n"), (2, b":", b"ab: cd\n"), (12, b"gh", b"gh")] {
            assert_eq!(&text[spread(text, at, 1, |a, b| a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric())], words, "{at}");
            assert_eq!(&text[spread(text, at, 1, |a, _| a != b'\n')], lines, "{at}");
        }
        assert_eq!(&text[spread(text, 0, 3, |a, _| a != b'\n')], b"ab: cd\nef\n\n");
    }
}
