//! Match conditions of webhooks and policies: expressions that say which writes they are about.

use plumb_cel::{Composition, Env, Type, Value as Outcome};
use plumb_validation::field::aggregate_texts;
use serde_json::Value;

use super::effort::{Effort, Interrupted};
use super::expression::{CONDITIONS_BUDGET, Ended, Expression, Inputs, Reads, environment};

/// The environment of the conditions of a webhook.
pub(crate) fn webhook_environment() -> Env {
    environment(Reads { params: false, authorizer: true })
}

/// Compiles a condition.
pub(crate) fn compile(expression: &str, env: &Env) -> Expression {
    Expression::compile(expression, env, &[Type::Bool])
}

/// Whether all conditions of a webhook hold, or what is wrong with them.
pub(super) fn hold(
    conditions: &[Expression],
    inputs: &Inputs<'_>,
    effort: &mut Effort,
) -> Result<Result<bool, String>, Interrupted> {
    let mut values = inputs.bindings(None, &Value::Null);
    inputs.bind_authorizer(&mut values);
    all(conditions, |condition, left| condition.evaluate(&values, None, left, effort))
}

/// Whether all conditions of a policy hold, which can read its variables, or what is wrong with them.
pub(super) fn hold_composed<'a>(
    conditions: &'a [Expression],
    values: &'a plumb_cel::Bindings<'a>,
    composition: &Composition<'a>,
    effort: &mut Effort,
) -> Result<Result<bool, String>, Interrupted> {
    all(conditions, |condition, left| condition.evaluate(values, Some(composition), left, effort))
}

/// Whether all conditions hold. One that is false decides, whatever is wrong with the others.
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
