//! Texts that fit.

/// Stands for what was left out.
const CUT: &str = "…";

/// The text, without its end where it has more than `most` bytes. Cut between characters.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(CUT.len());
    format!("{}{CUT}", head(text, room))
}

/// The text, without its middle where it has more than `most` bytes: both ends of a path tell something.
pub fn cut_middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(CUT.len());
    format!("{}{CUT}{}", head(text, room / 2), tail(text, room - room / 2))
}

fn head(text: &str, room: usize) -> &str {
    let end = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.get(..end).unwrap_or_default()
}

fn tail(text: &str, room: usize) -> &str {
    let start = (text.len().saturating_sub(room)..=text.len()).find(|start| text.is_char_boundary(*start)).unwrap_or(text.len());
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!((cut("short", 5), cut_middle("short", 5)), ("short".to_owned(), "short".to_owned()));
        assert_eq!((cut("longer", 5), cut_middle("longer", 5)), ("lo…".to_owned(), "l…r".to_owned()));
        for text in ["x".repeat(2000), "ä".repeat(1000), "€".repeat(500), "🦀".repeat(400)] {
            for most in 990..1024 {
                let (short, middle) = (cut(&text, most), cut_middle(&text, most));
                assert!(short.len() <= most && short.len() > most - 8 && short.ends_with(CUT), "{}", short.len());
                assert!(middle.len() <= most && middle.len() > most - 12 && middle.contains(CUT), "{}", middle.len());
            }
        }
        assert_eq!((cut("abc", 0), cut_middle("abc", 2)), (CUT.to_owned(), CUT.to_owned()), "never nothing");
    }
}
