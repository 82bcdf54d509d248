//! Errors of expressions: when they are compiled, and when they are evaluated.

use std::fmt;

/// Why an evaluation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The cost exceeds the limit.
    #[error("operation cancelled: actual cost limit exceeded")]
    TooExpensive,
    /// An operation failed for its arguments.
    #[error("{0}")]
    Failed(String),
}

impl EvalError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// The function has no overload for the types of its arguments.
    pub(crate) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }
}

/// A compilation error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The position in the text, in characters.
    pub at: usize,
    /// The message.
    pub message: String,
}

/// The maximum number of reported issues, as in cel-go. Each displays its whole line, and an expression can have as many
/// issues as characters.
const MAX_REPORTED: usize = 100;
/// The maximum length of a displayed line in bytes, as in cel-go.
const MAX_DISPLAYED_LINE: usize = 16_384;

/// The compilation errors of an expression, displayed as in cel-go: with the line and a marker below it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Issues {
    text: String,
    list: Vec<Issue>,
    /// The number of issues that are not reported.
    truncated: usize,
}

impl Issues {
    pub(crate) fn new(text: &str, mut list: Vec<Issue>) -> Self {
        let truncated = list.len().saturating_sub(MAX_REPORTED);
        list.truncate(MAX_REPORTED);
        list.sort_by_key(|issue| issue.at);
        Self { text: text.to_owned(), list, truncated }
    }

    /// The issues in the order of the text.
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
            write_issue(&self.text, issue, f)?;
        }
        if self.truncated > 0 {
            write!(f, "\n{} more errors were truncated", self.truncated)?;
        }
        Ok(())
    }
}

fn write_issue(text: &str, issue: &Issue, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    if line.len() > MAX_DISPLAYED_LINE {
        return Ok(());
    }
    write!(f, "\n | {}\n | ", line.replace('\t', " "))?;
    let mut letters = line.chars();
    for letter in letters.by_ref().take(column) {
        f.write_str(if letter.is_ascii() { "." } else { "\u{ff0e}" })?;
    }
    f.write_str(if letters.next().is_none_or(|letter| letter.is_ascii()) { "^" } else { "\u{ff3e}" })
}
