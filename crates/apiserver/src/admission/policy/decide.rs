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
/// The maximum length of the value of an audit annotation, in bytes: what follows is cut.
const MAX_ANNOTATION: usize = 10 * 1024;

/// What a policy decides about a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) denials: Vec<Denial>,
    /// The keys and values of `auditAnnotations`.
    pub(super) annotations: Vec<(String, String)>,
}

impl From<Vec<Denial>> for Decided {
    fn from(denials: Vec<Denial>) -> Self {
        Self { denials, annotations: Vec::new() }
    }
}

/// Why a policy denies a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) message: String,
    /// The index of the validation in the policy.
    pub(super) index: usize,
    /// The reason in the `Status`; none means the default.
    pub(super) reason: Option<String>,
    /// Whether the write is denied whatever the binding's actions are: for audit annotations that fail.
    pub(super) always: bool,
}

impl Denial {
    fn of(message: String) -> Self {
        Self { message, index: 0, reason: None, always: false }
    }
}

/// The denials and audit annotations of a policy. The inner error aborts the write.
pub(super) fn decide(
    compiled: &Compiled,
    ignores_failure: bool,
    inputs: &Inputs<'_>,
    params: &Value,
    effort: &mut Effort,
) -> Result<Result<Decided, ApiError>, Interrupted> {
    let denied = |why: String| if ignores_failure { Vec::new() } else { vec![Denial::of(why)] };
    let failed = |why: String| Decided::from(denied(why));
    if !compiled.conditions.is_empty() {
        let mut values = inputs.bindings(None, params);
        inputs.bind_authorizer(&mut values);
        let composition = compiled.composition(&values, CONDITIONS_BUDGET, effort);
        match condition::hold_composed(&compiled.conditions, &values, &composition, effort)? {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(Decided::default())),
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
    for (index, validation) in compiled.validations.iter().enumerate() {
        match value_of(&validation.expression, &values, Some(&composition), &mut left, effort) {
            Err(ended) => return ended.why().map(|why| Ok(failed(why))),
            Ok(Ok(Cel::Bool(true))) => {}
            Ok(Ok(_)) => {
                unmet.push((denials.len(), validation));
                denials.push(Denial {
                    index,
                    reason: validation.reason.clone(),
                    ..Denial::of(String::new())
                });
            }
            Ok(Err(why)) => denials.extend(denied(why).into_iter().map(|denial| Denial { index, ..denial })),
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
    let mut published = Vec::new();
    if !compiled.annotations.is_empty() {
        match annotations(&compiled.annotations, compiled, inputs, params, effort)? {
            Err(why) => return Ok(Ok(failed(why))),
            Ok(decided) => {
                published = decided.annotations;
                if !ignores_failure {
                    denials.extend(decided.denials);
                }
            }
        }
    }
    Ok(Ok(Decided { denials, annotations: published }))
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

/// The values of audit annotations, and the errors of those that have none.
fn annotations(
    annotations: &[Annotation],
    compiled: &Compiled,
    inputs: &Inputs<'_>,
    params: &Value,
    effort: &mut Effort,
) -> Result<Result<Decided, String>, Interrupted> {
    let namespace = match inputs.namespace() {
        Ok(namespace) => namespace,
        Err(error) => return Ok(Err(error.message)),
    };
    let mut left = POLICY_BUDGET;
    let values = inputs.bindings(Some(namespace), params);
    let composition = compiled.composition(&values, POLICY_BUDGET, effort);
    let mut decided = Decided::default();
    for annotation in annotations {
        let value = match value_of(&annotation.value, &values, Some(&composition), &mut left, effort) {
            Ok(value) => value,
            Err(ended) => return ended.why().map(Err),
        };
        let why = match value {
            Ok(Cel::Null) => continue,
            Ok(Cel::Text(text)) => {
                let value = text.trim();
                // As upstream, an empty value counts as none.
                if !value.is_empty() {
                    let end = value.floor_char_boundary(MAX_ANNOTATION);
                    decided.annotations.push((annotation.key.clone(), value[..end].to_owned()));
                }
                continue;
            }
            Ok(other) => format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                annotation.value.text(),
                other.type_name()
            ),
            Err(why) => why,
        };
        tracing::debug!(key = annotation.key, why, "an audit annotation of a policy has no value");
        decided.denials.push(Denial { always: true, ..Denial::of(why) });
    }
    Ok(Ok(decided))
}
