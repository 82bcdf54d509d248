//! Which pods a VPA selects.

use kube::core::{Expression, Selector};

use super::index::{Pair, pair};
use super::labels::{GeneratedKeys, LabelSetKey, generated_bit};

/// The resolved pod selector of a VPA, ready to be matched and indexed.
#[derive(Clone, Debug)]
pub(super) struct PodSelector {
    expressions: Vec<Expression>,
    /// The same for selectors that say the same in another order.
    text: String,
}

impl PodSelector {
    pub(super) fn new(selector: &Selector) -> Self {
        let expressions: Vec<_> = selector.clone().into_iter().collect();
        let mut parts: Vec<_> = expressions.iter().map(ToString::to_string).collect();
        parts.sort_unstable();
        Self { expressions, text: parts.join(",") }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it selects the pods with these labels. What it asks of a label that was dropped from them cannot
    /// be known, and does not match.
    pub(super) fn matches(&self, set: &LabelSetKey) -> bool {
        self.expressions.iter().all(|expression| {
            let key = key(expression);
            if generated_bit(key) & set.dropped != 0 {
                return false;
            }
            let value = set.labels.get(key);
            match expression {
                Expression::In(_, values) => value.is_some_and(|value| values.contains(value)),
                Expression::NotIn(_, values) => value.is_none_or(|value| !values.contains(value)),
                Expression::Equal(_, wanted) => value == Some(wanted),
                Expression::NotEqual(_, unwanted) => value != Some(unwanted),
                Expression::Exists(_) => value.is_some(),
                Expression::DoesNotExist(_) => value.is_none(),
            }
        })
    }

    /// The generated labels that it reads.
    pub(super) fn generated_keys(&self) -> GeneratedKeys {
        self.expressions.iter().fold(0, |keys, expression| keys | generated_bit(key(expression)))
    }

    /// The labels that every selected pod has one of, for each requirement that names values: what it can be
    /// found by in an index.
    pub(super) fn required_pairs(&self) -> impl Iterator<Item = Vec<Pair>> + '_ {
        self.expressions.iter().filter_map(|expression| match expression {
            Expression::Equal(key, value) => Some(vec![pair(key, value)]),
            Expression::In(key, values) => Some(values.iter().map(|value| pair(key, value)).collect()),
            Expression::NotIn(..)
            | Expression::NotEqual(..)
            | Expression::Exists(_)
            | Expression::DoesNotExist(_) => None,
        })
    }
}

fn key(expression: &Expression) -> &str {
    match expression {
        Expression::In(key, _)
        | Expression::NotIn(key, _)
        | Expression::Equal(key, _)
        | Expression::NotEqual(key, _)
        | Expression::Exists(key)
        | Expression::DoesNotExist(key) => key,
    }
}
