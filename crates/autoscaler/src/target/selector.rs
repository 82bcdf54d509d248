//! Label selectors as text and as JSON.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Expression, ParseExpressionError, Selector};
use serde_json::Value;

use super::controller_ref::WellKnown;

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

/// What is wrong with the selector of a controller.
#[derive(Debug, thiserror::Error)]
pub(super) enum SelectorError {
    /// It is not what the API has for selectors.
    #[error(transparent)]
    Unreadable(#[from] serde_json::Error),
    /// It has an expression that means nothing.
    #[error(transparent)]
    Expression(#[from] ParseExpressionError),
}

/// The selector of a well-known controller; none if it has none.
pub(super) fn of_well_known(kind: WellKnown, object: &Value) -> Result<Option<Selector>, SelectorError> {
    let spec = &object["spec"];
    let (found, is_map) = match kind {
        WellKnown::ReplicationController => (&spec["selector"], true),
        // It has no selector: its Jobs have.
        WellKnown::CronJob => (&spec["jobTemplate"]["spec"]["template"]["metadata"]["labels"], true),
        WellKnown::Deployment
        | WellKnown::ReplicaSet
        | WellKnown::StatefulSet
        | WellKnown::DaemonSet
        | WellKnown::Job => (&spec["selector"], false),
    };
    if found.is_null() {
        return Ok(None);
    }
    let selector = if is_map {
        LabelSelector { match_labels: Some(serde_json::from_value(found.clone())?), match_expressions: None }
    } else {
        serde_json::from_value(found.clone())?
    };
    Ok(Some(Selector::try_from(selector)?))
}
