//! One line, split into fields.

use memchr::memchr;

use super::Problem;

/// Where the fields of a line are. It is used again for each line, so that a line costs no allocation.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(usize, usize)>);

impl Fields {
    /// Splits a line at its commas. White space around fields and quotes around them are no part of them; a doubled quote
    /// within quotes stays doubled, since no name or number has one.
    pub(super) fn split(&mut self, line: &str) -> Result<(), Problem> {
        self.0.clear();
        let bytes = line.as_bytes();
        let mut start = 0;
        loop {
            let (field, next) = if bytes[start..].trim_ascii_start().first() == Some(&b'"') {
                quoted(bytes, start)?
            } else {
                let end = memchr(b',', &bytes[start..]).map_or(bytes.len(), |at| start + at);
                (trimmed(bytes, start, end), end)
            };
            self.0.push(field);
            if next == bytes.len() {
                return Ok(());
            }
            start = next + 1;
        }
    }

    /// How many fields there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A field of the line that was split; empty if there is none.
    pub(super) fn get<'a>(&self, line: &'a str, index: usize) -> &'a str {
        self.0.get(index).and_then(|&(start, end)| line.get(start..end)).unwrap_or_default()
    }

    /// All fields of the line that was split.
    pub(super) fn iter<'a>(&self, line: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(move |&(start, end)| line.get(start..end).unwrap_or_default())
    }
}

/// A field in quotes from `start` on, and where the comma behind it is, or the end.
fn quoted(bytes: &[u8], start: usize) -> Result<((usize, usize), usize), Problem> {
    let open = memchr(b'"', &bytes[start..]).ok_or(Problem::Quote)? + start + 1;
    let mut close = open;
    loop {
        close += memchr(b'"', &bytes[close..]).ok_or(Problem::Quote)?;
        if bytes.get(close + 1) != Some(&b'"') {
            break;
        }
        close += 2;
    }
    let behind = memchr(b',', &bytes[close..]).map_or(bytes.len(), |at| close + at);
    if bytes[close + 1..behind].trim_ascii().is_empty() {
        Ok(((open, close), behind))
    } else {
        Err(Problem::Quote)
    }
}

/// The range without white space at its ends.
fn trimmed(bytes: &[u8], start: usize, end: usize) -> (usize, usize) {
    let field = &bytes[start..end];
    let start = start + field.len() - field.trim_ascii_start().len();
    (start, start + field.trim_ascii().len())
}
