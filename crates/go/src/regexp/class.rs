//! Character classes.

use super::RegexpError;
use super::translate::{Parser, literal};

type Result<T> = std::result::Result<T, RegexpError>;

/// A Perl class, such as `\d`.
pub(super) struct Perl {
    name: &'static str,
    /// The translation outside of brackets.
    pub(super) alone: &'static str,
    /// The translation within brackets.
    within: &'static str,
}

const PERL: [Perl; 6] = [
    Perl { name: r"\d", alone: "[0-9]", within: "0-9" },
    Perl { name: r"\D", alone: "[^0-9]", within: "[^0-9]" },
    Perl { name: r"\s", alone: r"[\t\n\x0C\r\x20]", within: r"\t\n\x0C\r\x20" },
    Perl { name: r"\S", alone: r"[^\t\n\x0C\r\x20]", within: r"[^\t\n\x0C\r\x20]" },
    Perl { name: r"\w", alone: "[0-9A-Za-z_]", within: "0-9A-Za-z_" },
    Perl { name: r"\W", alone: "[^0-9A-Za-z_]", within: "[^0-9A-Za-z_]" },
];

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// The Perl class that a text begins with, if any.
pub(super) fn perl(text: &str) -> Option<&'static Perl> {
    PERL.iter().find(|perl| text.starts_with(perl.name))
}

/// Reads a Unicode class (`\pL` or `\p{Greek}`). Returns whether there is one.
pub(super) fn unicode(parser: &mut Parser<'_>) -> Result<bool> {
    let rest = parser.rest;
    let Some(named) = rest.strip_prefix(r"\p").or_else(|| rest.strip_prefix(r"\P")) else { return Ok(false) };
    let invalid = |text: &str| RegexpError::new("invalid character class range", text);
    let first = named.chars().next().ok_or_else(|| invalid(rest))?;
    let (name, length) = if first == '{' {
        let end = named.find('}').ok_or_else(|| invalid(rest))?;
        (&named[1..end], end + 1)
    } else {
        (&named[..first.len_utf8()], first.len_utf8())
    };
    let read = parser.take(2 + length);
    let (inverted, name) = name.strip_prefix('^').map_or((false, name), |name| (true, name));
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(invalid(read));
    }
    let negative = rest.starts_with(r"\P") != inverted;
    parser.out.push_str(if negative { r"\P{" } else { r"\p{" });
    parser.out.push_str(name);
    parser.out.push('}');
    Ok(true)
}

/// Reads a class in brackets.
pub(super) fn class(parser: &mut Parser<'_>) -> Result<()> {
    let start = parser.rest;
    let unclosed = || RegexpError::new("missing closing ]", start);
    parser.take(1);
    parser.out.push('[');
    if parser.rest.starts_with('^') {
        parser.take(1);
        parser.out.push('^');
    }
    let mut first = true;
    loop {
        match parser.rest.chars().next() {
            None => return Err(unclosed()),
            Some(']') if !first => break,
            Some(_) => {}
        }
        first = false;
        if posix(parser)? || unicode(parser)? {
            continue;
        }
        if let Some(perl) = perl(parser.rest) {
            parser.take(2);
            parser.out.push_str(perl.within);
            continue;
        }
        range(parser, &unclosed)?;
    }
    parser.take(1);
    parser.out.push(']');
    Ok(())
}

/// Reads a POSIX class (`[:alpha:]`). Returns whether there is one.
fn posix(parser: &mut Parser<'_>) -> Result<bool> {
    let Some(inside) = parser.rest.strip_prefix("[:") else { return Ok(false) };
    let Some(end) = inside.find(":]") else { return Ok(false) };
    let read = parser.take(end + 4);
    let name = &inside[..end];
    if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
        return Err(RegexpError::new("invalid character class range", read));
    }
    parser.out.push_str(read);
    Ok(true)
}

/// Reads a character or a range of characters.
fn range(parser: &mut Parser<'_>, unclosed: &dyn Fn() -> RegexpError) -> Result<()> {
    let start = parser.rest;
    let low = single(parser, unclosed)?;
    let mut high = low;
    let after = parser.rest.strip_prefix('-');
    if after.is_some_and(|after| !after.is_empty() && !after.starts_with(']')) {
        parser.take(1);
        high = single(parser, unclosed)?;
        if high < low {
            let read = &start[..start.len() - parser.rest.len()];
            return Err(RegexpError::new("invalid character class range", read));
        }
    }
    literal(&mut parser.out, low);
    if high != low {
        parser.out.push('-');
        literal(&mut parser.out, high);
    }
    Ok(())
}

fn single(parser: &mut Parser<'_>, unclosed: &dyn Fn() -> RegexpError) -> Result<char> {
    match parser.rest.chars().next() {
        None => Err(unclosed()),
        Some('\\') => parser.escaped(),
        Some(c) => {
            parser.take(c.len_utf8());
            Ok(c)
        }
    }
}
