//! Quoted strings.

use std::fmt::Write as _;

/// Quotes a string like `strconv.Quote` and `%q`.
///
/// ```
/// assert_eq!(plumb_go::quote("it's \"a\"\n\u{1}"), r#""it's \"a\"\n\x01""#);
/// ```
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        let code = u32::from(c);
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            _ if is_print(c) => quoted.push(c),
            _ if code < 0x80 => {
                let _ = write!(quoted, "\\x{code:02x}");
            }
            _ if code < 0x1_0000 => {
                let _ = write!(quoted, "\\u{code:04x}");
            }
            _ => {
                let _ = write!(quoted, "\\U{code:08x}");
            }
        }
    }
    quoted.push('"');
    quoted
}

/// `unicode.IsPrint`: letters, marks, numbers, punctuation, symbols and the ASCII space.
fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    // Rust escapes the same characters. A combining mark is escaped only where nothing precedes it.
    let mut buffer = [b'x'; 5];
    let length = c.encode_utf8(&mut buffer[1..]).len();
    std::str::from_utf8(&buffer[..=length]).is_ok_and(|pair| pair.escape_debug().count() == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_go_quotes_them() {
        for (text, quoted) in [
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("it's", r#""it's""#),
            ("\"\\", r#""\"\\""#),
            ("\x07\x08\x0b\x0c\n\r\t", r#""\a\b\v\f\n\r\t""#),
            ("\0\x1f\x7f", r#""\x00\x1f\x7f""#),
            ("é ☺ 日本", r#""é ☺ 日本""#),
            ("e\u{301}", "\"e\u{301}\""),
            ("\u{80}\u{a0}\u{ad}\u{feff}", r#""\u0080\u00a0\u00ad\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quote(text), quoted);
        }
    }
}
