//! Parses a pattern by Go's rules (`syntax.Perl`) and translates it for the crate `regex`.

use std::collections::HashSet;

use super::class;
use super::{MAX_DEPTH, RegexpError};

/// The maximum repeat count, multiplied with the counts of nested repetitions, as in Go.
const MAX_REPEATS: u32 = 1000;

type Result<T> = std::result::Result<T, RegexpError>;

/// An open group. The first is the whole pattern.
#[derive(Default)]
struct Group {
    /// The repeat count within the last atom; `None` if there is no atom to repeat.
    atom: Option<u32>,
    /// The maximum repeat count of all atoms.
    max: u32,
}

/// The parser of a pattern.
pub(super) struct Parser<'a> {
    pattern: &'a str,
    pub(super) rest: &'a str,
    pub(super) out: String,
    groups: Vec<Group>,
    names: HashSet<&'a str>,
    /// The text from the previous repetition on, if it directly precedes the current position.
    repeat: Option<&'a str>,
}

/// Translates a pattern to the dialect of the crate `regex`.
pub(super) fn translate(pattern: &str) -> Result<String> {
    let mut parser = Parser {
        pattern,
        rest: pattern,
        out: String::with_capacity(pattern.len()),
        groups: vec![Group::default()],
        names: HashSet::new(),
        repeat: None,
    };
    while let Some(next) = parser.rest.chars().next() {
        let repeat = parser.repeat.take();
        parser.item(next, repeat)?;
    }
    if parser.groups.len() > 1 {
        return Err(RegexpError::new("missing closing )", pattern));
    }
    Ok(parser.out)
}

/// Writes a character as a literal, which is valid inside and outside of classes.
pub(super) fn literal(out: &mut String, c: char) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() {
        out.push(c);
    } else {
        use std::fmt::Write as _;
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{{{:X}}}", u32::from(c));
    }
}

impl<'a> Parser<'a> {
    fn item(&mut self, next: char, repeat: Option<&'a str>) -> Result<()> {
        match next {
            '(' => self.open()?,
            ')' => self.close()?,
            '|' => {
                self.top().atom = None;
                self.take(1);
                self.out.push('|');
            }
            '^' | '$' | '.' => {
                self.take(1);
                self.out.push(next);
                self.atom(1);
            }
            '[' => {
                class::class(self)?;
                self.atom(1);
            }
            '*' | '+' | '?' => self.repeat(1, None, repeat)?,
            '{' => match counts(self.rest) {
                Some((length, min, max)) => self.repeat(length, Some((min, max)), repeat)?,
                None => self.literal('{'),
            },
            '\\' => self.escape()?,
            c => self.literal(c),
        }
        Ok(())
    }

    pub(super) fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn literal(&mut self, c: char) {
        self.take(c.len_utf8());
        literal(&mut self.out, c);
        self.atom(1);
    }

    #[expect(clippy::expect_used, reason = "the group of the whole pattern is never closed")]
    fn top(&mut self) -> &mut Group {
        self.groups.last_mut().expect("a group is open")
    }

    /// Records an atom with the repeat count within it.
    fn atom(&mut self, repeats: u32) {
        let top = self.top();
        top.atom = Some(repeats);
        top.max = top.max.max(repeats);
    }

    /// Reads a repetition operator of `length` bytes, and the `?` that makes it lazy.
    fn repeat(
        &mut self,
        length: usize,
        counts: Option<(u32, Option<u32>)>,
        before: Option<&'a str>,
    ) -> Result<()> {
        let start = self.rest;
        let operator = self.take(length);
        let lazy = self.rest.starts_with('?');
        if lazy {
            self.take(1);
        }
        let all = |from: &'a str| &from[..from.len() - self.rest.len()];
        if let Some(before) = before {
            return Err(RegexpError::new("invalid nested repetition operator", all(before)));
        }
        let invalid = || RegexpError::new("invalid repeat count", operator);
        if let Some((min, max)) = counts
            && (min > MAX_REPEATS || max.is_some_and(|max| max > MAX_REPEATS || max < min))
        {
            return Err(invalid());
        }
        let Some(within) = self.groups.last().and_then(|group| group.atom) else {
            return Err(RegexpError::new("missing argument to repetition operator", all(start)));
        };
        let count = counts.map_or(1, |(min, max)| max.unwrap_or(min).max(1));
        let repeats = within.saturating_mul(count);
        if repeats > MAX_REPEATS {
            return Err(invalid());
        }
        self.out.push_str(operator);
        if lazy {
            self.out.push('?');
        }
        self.atom(repeats);
        self.repeat = Some(start);
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        if u32::try_from(self.groups.len()).unwrap_or(u32::MAX) > MAX_DEPTH {
            return Err(RegexpError::new("expression nests too deeply", self.pattern));
        }
        if !self.rest.starts_with("(?") {
            self.take(1);
            self.out.push('(');
            self.groups.push(Group::default());
            return Ok(());
        }
        if self.rest.starts_with("(?P<") || self.rest.starts_with("(?<") {
            return self.open_named();
        }
        self.flags()
    }

    fn open_named(&mut self) -> Result<()> {
        let prefix = if self.rest.starts_with("(?P<") { 4 } else { 3 };
        let invalid = |text: &str| Err(RegexpError::new("invalid named capture", text));
        let Some(end) = self.rest.find('>') else { return invalid(self.rest) };
        let name = &self.rest[prefix..end];
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return invalid(&self.rest[..=end]);
        }
        if !self.names.insert(name) {
            return Err(RegexpError::new("duplicate capture group name", name));
        }
        self.take(end + 1);
        // The names of groups are not used, and the crate `regex` allows fewer names.
        self.out.push('(');
        self.groups.push(Group::default());
        Ok(())
    }

    /// Reads flags, for the rest of the group (`(?i)`) or for a new group (`(?i:`).
    fn flags(&mut self) -> Result<()> {
        let start = self.rest;
        let mut flags = String::new();
        let mut negative = false;
        // Whether a flag follows the minus sign, or the opening of the group.
        let mut named = false;
        self.take(2);
        while let Some(c) = self.rest.chars().next() {
            self.take(c.len_utf8());
            match c {
                'i' | 'm' | 's' | 'U' => {
                    flags.push(c);
                    named = true;
                }
                '-' if !negative => {
                    flags.push('-');
                    negative = true;
                    named = false;
                }
                ':' | ')' if !negative || named => {
                    if c == ':' {
                        self.out.extend(["(?", &flags, ":"]);
                        self.groups.push(Group::default());
                    } else if !flags.is_empty() {
                        self.out.extend(["(?", &flags, ")"]);
                    }
                    return Ok(());
                }
                _ => break,
            }
        }
        let read = &start[..start.len() - self.rest.len()];
        Err(RegexpError::new("invalid or unsupported Perl syntax", read))
    }

    fn close(&mut self) -> Result<()> {
        if self.groups.len() == 1 {
            return Err(RegexpError::new("unexpected )", self.pattern));
        }
        self.take(1);
        self.out.push(')');
        let repeats = self.groups.pop().map_or(1, |group| group.max.max(1));
        self.atom(repeats);
        Ok(())
    }

    fn escape(&mut self) -> Result<()> {
        let rest = self.rest;
        let plain = [("\\A", r"\A"), ("\\z", r"\z"), ("\\b", r"(?-u:\b)"), ("\\B", r"(?-u:\B)")];
        if let Some((_, written)) = plain.iter().find(|(read, _)| rest.starts_with(read)) {
            self.take(2);
            self.out.push_str(written);
        } else if rest.starts_with("\\Q") {
            self.take(2);
            let end = self.rest.find("\\E").unwrap_or(self.rest.len());
            for c in self.take(end).chars() {
                literal(&mut self.out, c);
                self.atom(1);
            }
            self.take(self.rest.len().min(2));
            return Ok(());
        } else if let Some(perl) = class::perl(rest) {
            self.take(2);
            self.out.push_str(perl.alone);
        } else if !class::unicode(self)? {
            let c = self.escaped()?;
            literal(&mut self.out, c);
        }
        self.atom(1);
        Ok(())
    }

    /// Reads the escape of one character.
    pub(super) fn escaped(&mut self) -> Result<char> {
        let start = self.rest;
        self.take(1);
        let Some(c) = self.rest.chars().next() else {
            return Err(RegexpError::new("trailing backslash at end of expression", ""));
        };
        self.take(c.len_utf8());
        let octal = |c: char| c.is_digit(8);
        let found = match c {
            '1'..='7' if !self.rest.starts_with(octal) => None,
            '0'..='7' => {
                let mut code = c.to_digit(8).unwrap_or_default();
                for _ in 0..2 {
                    let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
                    self.take(1);
                    code = code * 8 + digit;
                }
                char::from_u32(code)
            }
            'x' => self.hexadecimal(),
            'a' => Some('\u{7}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(c),
            _ => None,
        };
        found.ok_or_else(|| {
            let read = &start[..start.len() - self.rest.len()];
            RegexpError::new("invalid escape sequence", read)
        })
    }

    fn hexadecimal(&mut self) -> Option<char> {
        let digits = if let Some(rest) = self.rest.strip_prefix('{') {
            let end = rest.find('}')?;
            &self.take(end + 2)[1..=end]
        } else {
            self.rest.get(..2)?;
            self.take(2)
        };
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| is_number).and_then(char::from_u32)
    }
}

/// Parses a counted repetition: its length, the minimum, and the maximum if there is one. Other text in braces is literal.
fn counts(text: &str) -> Option<(usize, u32, Option<u32>)> {
    let end = text.find('}')?;
    let inside = &text[1..end];
    let number = |digits: &str| -> Option<u32> {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let leads = digits.len() > 1 && digits.starts_with('0');
        (is_number && !leads).then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let (min, max) = match inside.split_once(',') {
        None => {
            let exactly = number(inside)?;
            (exactly, Some(exactly))
        }
        Some((min, "")) => (number(min)?, None),
        Some((min, max)) => (number(min)?, Some(number(max)?)),
    };
    Some((end + 1, min, max))
}
