//! Globs: `*` for any run of characters, `?` for one. Nothing else is special, so every Kubernetes name is a glob of itself.

/// Longest glob. Names in Kubernetes have at most 253 characters; field managers at most 128.
const MAX_CHARS: usize = 253;

/// Why a text is no glob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a glob has at most {MAX_CHARS} characters")]
pub struct GlobTooLong;

/// A compiled glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    parts: Box<[Part]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// `*`; never twice in a row.
    Run,
    /// `?`
    One,
    Char(char),
}

impl Glob {
    /// Reads a glob. The empty text matches only the empty text.
    pub fn parse(text: &str) -> Result<Self, GlobTooLong> {
        let mut parts = Vec::new();
        for character in text.chars() {
            match character {
                '*' if parts.last() == Some(&Part::Run) => {}
                '*' => parts.push(Part::Run),
                '?' => parts.push(Part::One),
                other => parts.push(Part::Char(other)),
            }
            if parts.len() > MAX_CHARS {
                return Err(GlobTooLong);
            }
        }
        Ok(Self { parts: parts.into() })
    }

    /// Whether the whole of `text` matches.
    ///
    /// One pass that on a mismatch lets only the latest `*` take one character more: an earlier one never needs to be tried again.
    /// So the cost is at most the length of the glob times that of the text, without recursion.
    pub fn matches(&self, text: &str) -> bool {
        let mut part = 0;
        let mut rest = text.chars();
        let mut retry = None;
        loop {
            if self.parts.get(part) == Some(&Part::Run) {
                part += 1;
                retry = Some((part, rest.clone()));
                continue;
            }
            let fits = match (self.parts.get(part), rest.next()) {
                (None, None) => return true,
                (Some(Part::One), Some(_)) => true,
                (Some(Part::Char(wanted)), Some(found)) => *wanted == found,
                (Some(_), None) => return false,
                (Some(Part::Run) | None, Some(_)) => false,
            };
            if fits {
                part += 1;
                continue;
            }
            let Some((after_run, mut taken)) = retry.take() else { return false };
            // The `*` takes one more character, then what follows it is tried from there.
            taken.next();
            part = after_run;
            rest = taken.clone();
            retry = Some((after_run, taken));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_like_a_shell() {
        let table = [
            ("web", "web", true),
            ("web", "webs", false),
            ("web", "we", false),
            ("", "", true),
            ("", "x", false),
            ("*", "", true),
            ("*", "anything", true),
            ("**", "x", true),
            ("web-*", "web-1", true),
            ("web-*", "web-", true),
            ("web-*", "web", false),
            ("*-web", "shop-web", true),
            ("*-web", "web", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("*aab", "aaaab", true),
            ("*a*b", "xaxxbxb", true),
            ("?", "x", true),
            ("?", "", false),
            ("?", "xy", false),
            ("a?c*", "abcdef", true),
            ("*?", "", false),
            ("*?", "ä", true),
            ("kube-?roxy", "kube-proxy", true),
            ("a.b", "axb", false),
            ("[ab]", "a", false),
            ("[ab]", "[ab]", true),
        ];
        for (glob, text, expected) in table {
            assert_eq!(Glob::parse(glob).unwrap().matches(text), expected, "{glob:?} on {text:?}");
        }
    }

    #[test]
    fn long_globs_are_refused_and_hard_ones_end() {
        assert!(Glob::parse(&"a".repeat(253)).is_ok());
        assert_eq!(Glob::parse(&"a".repeat(254)), Err(GlobTooLong));
        assert!(Glob::parse(&"*".repeat(1000)).is_ok(), "runs of * are one");
        let hard = Glob::parse(&"a*".repeat(126)).unwrap();
        assert!(!hard.matches(&format!("{}b", "b".repeat(250))));
        assert!(hard.matches(&"a".repeat(250)));
    }
}
