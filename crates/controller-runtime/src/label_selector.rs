//! Label selectors as text.

use std::collections::BTreeSet;

use kube::core::{Expression, Selector};

/// Why a text is no label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {text:?} in a label selector: {reason}")]
pub struct SelectorSyntaxError {
    /// The part that cannot be read.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Reads a label selector as `/scale` and kubectl write it: `app=web,tier in (front,back),!canary`.
pub fn parse_selector(text: &str) -> Result<Selector, SelectorSyntaxError> {
    requirements(text).map(|part| requirement(part.trim())).collect()
}

/// The parts between the commas that are not in parentheses.
fn requirements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
    .filter(|part| !part.trim().is_empty())
}

fn requirement(text: &str) -> Result<Expression, SelectorSyntaxError> {
    let refused = |reason| SelectorSyntaxError { text: text.to_owned(), reason };
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(word(key).ok_or_else(|| refused("a key is expected"))?));
    }
    if let Some(open) = text.find('(') {
        let values = text[open..].strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let values = values.ok_or_else(|| refused("a closing parenthesis is expected"))?;
        let mut head = text[..open].split_whitespace();
        let (key, operator) = (head.next().unwrap_or_default().to_owned(), head.next());
        let values: BTreeSet<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        return match (operator, head.next()) {
            (Some("in"), None) => Ok(Expression::In(key, values)),
            (Some("notin"), None) => Ok(Expression::NotIn(key, values)),
            _ => Err(refused("a key with in or notin is expected")),
        };
    }
    let Some(at) = text.find('=') else {
        return word(text).map(Expression::Exists).ok_or_else(|| refused("a key is expected"));
    };
    let (key, value) = (&text[..at], &text[at + 1..]);
    let (key, is_equal) = key.strip_suffix('!').map_or((key, true), |key| (key, false));
    let key = word(key).ok_or_else(|| refused("a key is expected"))?;
    // `==` is `=`.
    let value = value.strip_prefix('=').unwrap_or(value).trim();
    if value.contains(['=', ' ', '!']) {
        return Err(refused("one value is expected"));
    }
    let value = value.to_owned();
    Ok(if is_equal { Expression::Equal(key, value) } else { Expression::NotEqual(key, value) })
}

fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let is_word = !text.is_empty() && !text.contains([' ', '(', ')', '!', '=']);
    is_word.then(|| text.to_owned())
}
