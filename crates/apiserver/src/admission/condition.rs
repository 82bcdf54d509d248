//! Match conditions of webhooks and policies.

use plumb_cel::{Composition, Value as Outcome};
use plumb_validation::field::aggregate_texts;
use serde_json::Value;

use super::effort::{Effort, Interrupted};
use super::evaluation::{CONDITIONS_BUDGET, Ended, Inputs, value_of};
use crate::expression::Expression;

/// Whether all match conditions of a webhook are true, or the error of their evaluation.
pub(super) fn hold(
    conditions: &[Expression],
    inputs: &Inputs<'_>,
    effort: &mut Effort,
) -> Result<Result<bool, String>, Interrupted> {
    let mut values = inputs.bindings(None, &Value::Null);
    inputs.bind_authorizer(&mut values);
    all(conditions, |condition, left| value_of(condition, &values, None, left, effort))
}

/// Whether all match conditions of a policy, which can use its variables, are true, or the error of their evaluation.
pub(super) fn hold_composed<'a>(
    conditions: &'a [Expression],
    values: &'a plumb_cel::Bindings<'a>,
    composition: &Composition<'a>,
    effort: &mut Effort,
) -> Result<Result<bool, String>, Interrupted> {
    all(conditions, |condition, left| value_of(condition, values, Some(composition), left, effort))
}

/// Whether all conditions are true. A false condition takes precedence over errors of others.
fn all<'a>(
    conditions: &'a [Expression],
    mut evaluate: impl FnMut(&'a Expression, &mut u64) -> Result<Result<Outcome<'a>, String>, Ended>,
) -> Result<Result<bool, String>, Interrupted> {
    let mut left = CONDITIONS_BUDGET;
    let mut answers = Vec::with_capacity(conditions.len());
    for condition in conditions {
        match evaluate(condition, &mut left) {
            Ok(answer) => answers.push(answer),
            Err(ended) => return ended.why().map(Err),
        }
    }
    let mut wrong = Vec::new();
    for answer in answers {
        match answer {
            Ok(Outcome::Bool(false)) => return Ok(Ok(false)),
            Ok(_) => {}
            Err(why) => wrong.push(why),
        }
    }
    Ok(if wrong.is_empty() { Ok(true) } else { Err(aggregate_texts(&wrong)) })
}
