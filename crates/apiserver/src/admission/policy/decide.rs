//! The decision of a policy about a write, given the inputs of its expressions.

use plumb_cel::Value as Cel;

use super::super::condition;
use super::super::effort::{Effort, Interrupted};
use super::super::evaluation::{CONDITIONS_BUDGET, Inputs, POLICY_BUDGET, value_of};
use super::compiled::{Annotation, Compiled, Validation};
use crate::error::ApiError;
use serde_json::Value;

/// The maximum length of the value of a message expression, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;

/// Why a policy denies a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) message: String,
    /// The reason in the `Status`; none means the default.
    pub(super) reason: Option<String>,
    /// Whether the write is denied whatever the binding's actions are: for audit annotations that fail.
    pub(super) always: bool,
}

impl Denial {
    fn of(message: String) -> Self {
        Self { message, reason: None, always: false }
    }
}

/// The denials of a policy. The inner error aborts the write.
pub(super) fn decide(
    compiled: &Compiled,
    ignores_failure: bool,
    inputs: &Inputs<'_>,
    params: &Value,
    effort: &mut Effort,
) -> Result<Result<Vec<Denial>, ApiError>, Interrupted> {
    let failed = |why: String| if ignores_failure { Vec::new() } else { vec![Denial::of(why)] };
    if !compiled.conditions.is_empty() {
        let mut values = inputs.bindings(None, params);
        inputs.bind_authorizer(&mut values);
        let composition = compiled.composition(&values, CONDITIONS_BUDGET, effort);
        match condition::hold_composed(&compiled.conditions, &values, &composition, effort)? {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(Vec::new())),
            Err(why) => return Ok(Ok(failed(why))),
        }
    }
    let namespace = match inputs.namespace() {
        Ok(namespace) => namespace,
        Err(error) => return Ok(Err(error)),
    };
    let mut left = POLICY_BUDGET;
    let mut values = inputs.bindings(Some(namespace), params);
    inputs.bind_authorizer(&mut values);
    let composition = compiled.composition(&values, POLICY_BUDGET, effort);
    let mut denials = Vec::new();
    let mut unmet: Vec<(usize, &Validation)> = Vec::new();
    for validation in &compiled.validations {
        match value_of(&validation.expression, &values, Some(&composition), &mut left, effort) {
            Err(ended) => return ended.why().map(|why| Ok(failed(why))),
            Ok(Ok(Cel::Bool(true))) => {}
            Ok(Ok(_)) => {
                unmet.push((denials.len(), validation));
                denials.push(Denial { reason: validation.reason.clone(), ..Denial::of(String::new()) });
            }
            Ok(Err(why)) => denials.extend(failed(why)),
        }
    }
    // SPEC: upstream also evaluates the messages of validations that pass, and denies the write if that exceeds the
    // budget.
    if !unmet.is_empty() {
        let values = inputs.bindings(Some(namespace), params);
        let composition = compiled.composition(&values, POLICY_BUDGET, effort);
        for (place, validation) in unmet {
            let made = validation.message_expression.as_ref();
            let made = made
                .map(|message| value_of(message, &values, Some(&composition), &mut left, effort))
                .transpose();
            denials[place].message = match made {
                Ok(made) => message(validation, made.and_then(Result::ok).as_ref()),
                Err(ended) => {
                    return ended.why().map(|why| Ok(failed(format!("failed messageExpression: {why}"))));
                }
            };
        }
    }
    if !compiled.annotations.is_empty() {
        match annotations(&compiled.annotations, compiled, inputs, params, effort)? {
            Err(why) => return Ok(Ok(failed(why))),
            Ok(wrong) if ignores_failure => drop(wrong),
            Ok(wrong) => denials.extend(wrong),
        }
    }
    Ok(Ok(denials))
}

/// The message of a validation that fails.
fn message(validation: &Validation, made: Option<&Cel<'_>>) -> String {
    let made = made.and_then(Cel::as_text).map(str::trim).unwrap_or_default();
    if !made.is_empty() && made.len() <= MAX_MESSAGE && !made.contains('\n') {
        return made.to_owned();
    }
    match validation.message.trim() {
        "" => format!("failed expression: {}", validation.expression.text().trim()),
        message => message.to_owned(),
    }
}

/// The errors of audit annotations. Plumb has no audit log, so their values are dropped.
fn annotations(
    annotations: &[Annotation],
    compiled: &Compiled,
    inputs: &Inputs<'_>,
    params: &Value,
    effort: &mut Effort,
) -> Result<Result<Vec<Denial>, String>, Interrupted> {
    let namespace = match inputs.namespace() {
        Ok(namespace) => namespace,
        Err(error) => return Ok(Err(error.message)),
    };
    let mut left = POLICY_BUDGET;
    let values = inputs.bindings(Some(namespace), params);
    let composition = compiled.composition(&values, POLICY_BUDGET, effort);
    let mut wrong = Vec::new();
    for annotation in annotations {
        let value = match value_of(&annotation.value, &values, Some(&composition), &mut left, effort) {
            Ok(value) => value,
            Err(ended) => return ended.why().map(Err),
        };
        let why = match value {
            Ok(Cel::Text(_) | Cel::Null) => continue,
            Ok(other) => format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                annotation.value.text(),
                other.type_name()
            ),
            Err(why) => why,
        };
        tracing::debug!(key = annotation.key, why, "an audit annotation of a policy has no value");
        wrong.push(Denial { always: true, ..Denial::of(why) });
    }
    Ok(Ok(wrong))
}
