//! The text of an Event.

/// Longest note the API server takes, in bytes.
const MAX: usize = 1024;
const CUT: &str = " …";

/// The note, cut at a character where it is too long.
pub fn cut(note: &str) -> String {
    if note.len() <= MAX {
        return note.to_owned();
    }
    let room = MAX - CUT.len();
    let mut short = String::with_capacity(MAX);
    for character in note.chars() {
        if short.len() + character.len_utf8() > room {
            break;
        }
        short.push(character);
    }
    short.push_str(CUT);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"x".repeat(1024)).len(), 1024);
        for text in ["x".repeat(2000), "ä".repeat(1000), "€".repeat(500)] {
            let short = cut(&text);
            assert!(short.len() <= 1024 && short.len() > 1020 && short.ends_with(CUT), "{}", short.len());
        }
    }
}
