//! What can be wrong with an expression: with its text, or with what it meets.

use std::fmt;

/// Why an evaluation has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// It would have cost more than it may.
    #[error("operation cancelled: actual cost limit exceeded")]
    TooExpensive,
    /// An operation cannot be done with the values it met.
    #[error("{0}")]
    Failed(String),
}

impl EvalError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Values of types that an operation is not for.
    pub(crate) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }
}

/// One thing wrong with the text of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Where, in characters from the beginning.
    pub at: usize,
    /// What.
    pub message: String,
}

/// How many issues are reported. As cel-go has it: each shows its whole line, and an expression can have as many issues as
/// characters.
const MAX_REPORTED: usize = 100;
/// The longest line that is shown, in bytes, as cel-go has it.
const MAX_SHOWN_LINE: usize = 16_384;

/// What is wrong with the text of an expression, shown as cel-go shows it: with the line and a mark below.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Issues {
    text: String,
    list: Vec<Issue>,
    /// How many there are besides.
    truncated: usize,
}

impl Issues {
    pub(crate) fn new(text: &str, mut list: Vec<Issue>) -> Self {
        let truncated = list.len().saturating_sub(MAX_REPORTED);
        list.truncate(MAX_REPORTED);
        list.sort_by_key(|issue| issue.at);
        Self { text: text.to_owned(), list, truncated }
    }

    /// One by one, in the order of the text.
    pub fn list(&self) -> &[Issue] {
        &self.list
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, issue) in self.list.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            show(&self.text, issue, f)?;
        }
        if self.truncated > 0 {
            write!(f, "\n{} more errors were truncated", self.truncated)?;
        }
        Ok(())
    }
}

fn show(text: &str, issue: &Issue, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut begin = 0;
    let mut number = 1;
    let mut line = "";
    let mut column = issue.at;
    for candidate in text.split('\n') {
        line = candidate;
        let length = candidate.chars().count();
        if issue.at <= begin + length {
            column = issue.at - begin;
            break;
        }
        begin += length + 1;
        number += 1;
    }
    write!(f, "ERROR: <input>:{number}:{}: {}", column + 1, issue.message)?;
    if line.len() > MAX_SHOWN_LINE {
        return Ok(());
    }
    write!(f, "\n | {}\n | ", line.replace('\t', " "))?;
    let mut letters = line.chars();
    for letter in letters.by_ref().take(column) {
        f.write_str(if letter.is_ascii() { "." } else { "\u{ff0e}" })?;
    }
    f.write_str(if letters.next().is_none_or(|letter| letter.is_ascii()) { "^" } else { "\u{ff3e}" })
}
