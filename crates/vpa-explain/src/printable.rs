//! Text of others, for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// How many characters of a text are printed.
pub const MAX_PRINTABLE: usize = 500;

/// The text on one line, with nothing that a terminal acts on: control characters and characters that change the
/// direction of writing are escaped as `\u{1b}`, and text that is too long is cut.
pub fn printable(text: &str) -> Cow<'_, str> {
    let long = text.char_indices().nth(MAX_PRINTABLE);
    if long.is_none() && !text.chars().any(acts_on_terminal) {
        return Cow::Borrowed(text);
    }
    let cut = long.map_or(text, |(end, _)| &text[..end]);
    let mut escaped = String::with_capacity(cut.len() + 8);
    for character in cut.chars() {
        if acts_on_terminal(character) {
            // Writing to a string does not fail.
            let _ = write!(escaped, "{}", character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    if long.is_some() {
        escaped.push('…');
    }
    Cow::Owned(escaped)
}

/// Control characters (also the end of a line), marks of writing direction, and characters without width.
fn acts_on_terminal(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, expected) in [
            ("web", "web"),
            ("größe → 1", "größe → 1"),
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("a\nb\r\tc\u{7}", "a\\u{a}b\\u{d}\\u{9}c\\u{7}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}"),
        ] {
            assert_eq!(printable(text), expected);
        }
    }

    #[test]
    fn long_text_is_cut() {
        let long = "ä".repeat(MAX_PRINTABLE + 1);
        assert_eq!(printable(&long).chars().count(), MAX_PRINTABLE + 1);
        assert!(printable(&long).ends_with('…'));
        assert!(matches!(printable(&long[..2 * MAX_PRINTABLE]), Cow::Borrowed(_)));
    }
}
