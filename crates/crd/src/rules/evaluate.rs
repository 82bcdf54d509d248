//! Evaluation of CEL validation rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use plumb_cel::{Bindings, Budget, Decl, EvalError, Program, Value as Cel};
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use super::{CALL_BUDGET, CompileError, Compiled, OBJECT_BUDGET, compile, declare, field_path};
use crate::object::{bad_value, counterpart};
use crate::schema::{Rule, Schema};

/// The maximum length of the value of a message expression (`MaxEvaluatedMessageExpressionSizeBytes`).
const MAX_MESSAGE: usize = 5 * 1024;

/// The rules of a schema and its subschemas.
#[derive(Debug)]
pub struct Rules {
    /// The rules of the schema itself, each with its resolved field path, or why it does not compile.
    compiled: Vec<Result<(Compiled, Option<String>), String>>,
    decl: Arc<Decl>,
    ty: String,
    properties: BTreeMap<String, Rules>,
    additional: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
    /// The list map keys, by which elements of the old and the new list are correlated.
    keys: Option<Vec<String>>,
}

/// The result of the evaluation.
#[derive(Debug, Default)]
pub struct Evaluation {
    /// The errors.
    pub errors: Vec<FieldError>,
    /// Errors of unchanged values, which ratcheting turns into warnings.
    pub warnings: Vec<String>,
    /// The remaining cost budget; negative once it is exhausted, and then no further rules are evaluated.
    remaining: i64,
}

/// The old value, or the nearest ancestor that existed.
#[derive(Clone, Copy)]
struct OldValue<'a> {
    /// The old value, if it existed.
    value: Option<&'a Value>,
    /// The old and the new value of the nearest ancestor that existed.
    ancestor: Option<(&'a Value, &'a Value)>,
}

impl<'a> OldValue<'a> {
    fn is_unchanged(self, new: &Value) -> bool {
        match (self.value, self.ancestor) {
            (Some(old), _) => old == new,
            (None, Some((old, new))) => old == new,
            (None, None) => false,
        }
    }

    /// The old value of a child, where `new` is the new value of the parent.
    fn child(self, new: &'a Value, child: Option<&'a Value>) -> Self {
        match self.value {
            None => self,
            Some(old) => Self { value: child, ancestor: Some((old, new)) },
        }
    }
}

impl Rules {
    /// Compiles the rules of an object's schema; `None` if it has no rules.
    pub fn for_schema(schema: &Schema) -> Option<Self> {
        if !schema.any(&|schema| !schema.rules.is_empty()) {
            return None;
        }
        Self::compile(schema, true)
    }

    /// Compiles the rules for a part of an object, such as a default.
    pub(crate) fn for_subschema(schema: &Schema) -> Option<Self> {
        Self::compile(schema, schema.embedded)
    }

    fn compile(schema: &Schema, root: bool) -> Option<Self> {
        let decl = declare(schema, root);
        let compiled: Vec<_> = match &decl {
            None => Vec::new(),
            Some(decl) => {
                let rules = schema.rules.iter().filter(|rule| !rule.rule.trim().is_empty());
                rules.map(|rule| compile_rule(rule, decl, schema)).collect()
            }
        };
        let properties: BTreeMap<String, Self> = schema
            .properties
            .iter()
            .filter_map(|(name, inner)| Some((name.clone(), Self::compile(inner, inner.embedded)?)))
            .collect();
        let additional =
            schema.additional_schema().and_then(|inner| Self::compile(inner, inner.embedded)).map(Box::new);
        let items =
            schema.items.as_deref().and_then(|inner| Self::compile(inner, inner.embedded)).map(Box::new);
        if compiled.is_empty() && properties.is_empty() && additional.is_none() && items.is_none() {
            return None;
        }
        let keys = (schema.list_type.as_deref() == Some("map")).then(|| schema.list_keys.clone());
        let decl = decl.unwrap_or_else(Decl::dynamic);
        Some(Self { compiled, decl, ty: schema.ty.clone(), properties, additional, items, keys })
    }

    /// Evaluates the rules for a new or updated object.
    pub fn evaluate(&self, object: &Value, old: Option<&Value>) -> Evaluation {
        self.evaluate_at(&Path::NOWHERE, object, old, old)
    }

    /// Evaluates the rules for a value at a path; `ratchet` is the old value with which it is compared for ratcheting.
    pub(crate) fn evaluate_at(
        &self,
        path: &Path<'_>,
        value: &Value,
        old: Option<&Value>,
        ratchet: Option<&Value>,
    ) -> Evaluation {
        let remaining = i64::try_from(OBJECT_BUDGET).unwrap_or(i64::MAX);
        let mut evaluation = Evaluation { remaining, ..Evaluation::default() };
        self.visit(path, value, old, OldValue { value: ratchet, ancestor: None }, &mut evaluation);
        evaluation
    }

    fn visit(
        &self,
        path: &Path<'_>,
        value: &Value,
        old: Option<&Value>,
        ratchet: OldValue<'_>,
        evaluation: &mut Evaluation,
    ) {
        if value.is_null() || evaluation.remaining < 0 {
            return;
        }
        self.evaluate_own_rules(path, value, old.filter(|old| !old.is_null()), ratchet, evaluation);
        match value {
            Value::Object(map) => {
                for (name, inner) in map {
                    let (rules, is_property) = match (self.properties.get(name), &self.additional) {
                        (Some(rules), _) => (rules, true),
                        (None, Some(rules)) => (&**rules, false),
                        (None, None) => continue,
                    };
                    let ratchet_child = ratchet.value.and_then(|old| old.get(name));
                    // Kind and API version may differ from the stored ones, so errors in them are not ratcheted.
                    let is_type_meta =
                        ratchet.ancestor.is_none() && matches!(name.as_str(), "apiVersion" | "kind");
                    let next = if is_type_meta {
                        OldValue { value: None, ancestor: None }
                    } else {
                        ratchet.child(value, ratchet_child)
                    };
                    let old = old.and_then(|old| old.get(name));
                    if is_property {
                        rules.visit(&path.child(name), inner, old, next, evaluation);
                    } else {
                        rules.visit(&path.key(name), inner, old, next, evaluation);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                let old_element = |list: Option<&'_ Value>, element: &Value| -> Option<Value> {
                    let list = list.and_then(Value::as_array)?;
                    counterpart(self.keys.as_ref()?, list, element).cloned()
                };
                for (i, element) in list.iter().enumerate() {
                    let ratchet_element = match (&self.keys, ratchet.value.and_then(Value::as_array)) {
                        (Some(keys), Some(list)) => counterpart(keys, list, element),
                        _ => None,
                    };
                    let old = old_element(old, element);
                    let next = ratchet.child(value, ratchet_element);
                    items.visit(&path.index(i), element, old.as_ref(), next, evaluation);
                }
            }
            _ => {}
        }
    }

    /// Evaluates the rules of the schema itself, without those of its subschemas.
    fn evaluate_own_rules(
        &self,
        path: &Path<'_>,
        value: &Value,
        old: Option<&Value>,
        ratchet: OldValue<'_>,
        evaluation: &mut Evaluation,
    ) {
        for rule in &self.compiled {
            if evaluation.remaining < 0 {
                return;
            }
            let (compiled, field_path) = match rule {
                Ok(compiled) => compiled,
                Err(error) => {
                    let detail = format!("rule compile error: {error}");
                    evaluation.errors.push(FieldError::invalid(path, &self.ty, detail));
                    continue;
                }
            };
            if evaluation.remaining == 0 {
                self.report_exhausted(path, evaluation);
                return;
            }
            let optional = compiled.rule.optional_old_self == Some(true);
            if compiled.uses_old && old.is_none() && !optional {
                continue;
            }
            if let Some(error) = self.type_mismatch(value).filter(|_| compiled.program.mentions("self")) {
                let detail = format!("{error} evaluating rule: {}", compiled.rule.name());
                evaluation.errors.push(FieldError::invalid(path, &self.ty, detail));
                continue;
            }
            let mut values = Bindings::new();
            values.json("self", value, &self.decl);
            if optional {
                values.optional_json("oldSelf", old, &self.decl);
            } else if let Some(old) = old {
                values.json("oldSelf", old, &self.decl);
            }
            if self.evaluate_rule(&compiled.program, &values, path, &compiled.rule, evaluation) != Some(false)
            {
                continue;
            }
            let message = compiled.message.as_ref();
            let Some(detail) = self.message(message, &values, &compiled.rule, path, evaluation) else {
                return;
            };
            let reason = compiled.rule.reason.as_deref();
            let error = self.violation(path, field_path.as_deref(), value, detail, reason);
            // Errors of transition rules are about the change, so they are never ratcheted.
            if !compiled.uses_old && ratchet.is_unchanged(value) {
                evaluation.warnings.push(error.to_string());
            } else {
                evaluation.errors.push(error);
            }
        }
    }

    /// Why a value does not have the declared type. The types of an object of another kind are not validated before its
    /// rules are evaluated.
    fn type_mismatch(&self, value: &Value) -> Option<String> {
        let expected = match self.ty.as_str() {
            "object" if !value.is_object() && !value.is_null() => "a map",
            "array" if !value.is_array() && !value.is_null() => "an array",
            _ => return None,
        };
        Some(format!("invalid data, expected {expected} for the provided schema with type={}", self.ty))
    }

    fn report_exhausted(&self, path: &Path<'_>, evaluation: &mut Evaluation) {
        let rule =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        evaluation.errors.push(FieldError::invalid(path, &self.ty, rule));
        evaluation.remaining = -1;
    }

    /// Evaluates a rule; `None` if the evaluation fails, which adds an error.
    fn evaluate_rule(
        &self,
        program: &Program,
        values: &Bindings<'_>,
        path: &Path<'_>,
        rule: &Rule,
        evaluation: &mut Evaluation,
    ) -> Option<bool> {
        let mut budget = Budget::new(CALL_BUDGET);
        let result = program.evaluate(values, &mut budget);
        let name = rule.name();
        let detail = match result {
            Ok(Cel::Bool(truth)) => {
                evaluation.remaining -= i64::try_from(budget.spent()).unwrap_or(i64::MAX);
                if evaluation.remaining < 0 {
                    self.report_exhausted(path, evaluation);
                    return None;
                }
                return Some(truth);
            }
            Err(EvalError::TooExpensive) => {
                let detail = format!(
                    "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {name}",
                    EvalError::TooExpensive
                );
                evaluation.remaining = -1;
                detail
            }
            Ok(_) => format!("no such overload evaluating rule: {name}"),
            Err(EvalError::Failed(why)) if why.starts_with("no such overload") => format!(
                "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            ),
            Err(EvalError::Failed(why)) => format!("{why} evaluating rule: {name}"),
        };
        if evaluation.remaining >= 0 {
            evaluation.remaining -= i64::try_from(budget.spent()).unwrap_or(i64::MAX);
        }
        evaluation.errors.push(FieldError::invalid(path, &self.ty, detail));
        None
    }

    /// The message of a rule that is false; `None` if the budget is exhausted.
    fn message(
        &self,
        program: Option<&Program>,
        values: &Bindings<'_>,
        rule: &Rule,
        path: &Path<'_>,
        evaluation: &mut Evaluation,
    ) -> Option<String> {
        if let Some(program) = program {
            let mut budget = Budget::new(CALL_BUDGET);
            let result = program.evaluate(values, &mut budget);
            let spent = i64::try_from(budget.spent()).unwrap_or(i64::MAX);
            let failure = if result == Err(EvalError::TooExpensive) {
                Some(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {:?}",
                    rule.message_expression
                ))
            } else if spent > evaluation.remaining {
                Some("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned())
            } else {
                None
            };
            if let Some(detail) = failure {
                evaluation.errors.push(FieldError::invalid(path, &self.ty, detail));
                evaluation.remaining = -1;
                return None;
            }
            evaluation.remaining -= spent;
            if let Ok(Cel::Text(text)) = result {
                let text = text.trim();
                // An unusable message expression is no error: the message of the rule takes its place.
                if !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n') {
                    return Some(text.to_owned());
                }
            }
        }
        Some(match rule.message.trim() {
            "" => format!("failed rule: {}", rule.rule.trim()),
            message => message.to_owned(),
        })
    }

    /// The error of a rule that is false.
    fn violation(
        &self,
        path: &Path<'_>,
        field_path: Option<&str>,
        value: &Value,
        detail: String,
        reason: Option<&str>,
    ) -> FieldError {
        let path = match field_path {
            Some(field_path) => path.child(field_path).to_string(),
            None => path.to_string(),
        };
        let bad_value =
            if matches!(self.ty.as_str(), "object" | "array") { BadValue::Omitted } else { bad_value(value) };
        match reason {
            Some("FieldValueForbidden") => FieldError::forbidden(path, detail),
            Some("FieldValueRequired") => FieldError::required(path, detail),
            Some("FieldValueDuplicate") => FieldError::duplicate(path, bad_value),
            _ => FieldError::invalid(path, bad_value, detail),
        }
    }
}

/// Compiles a rule and resolves its field path. An invalid message expression is ignored.
fn compile_rule(
    rule: &Rule,
    decl: &Arc<Decl>,
    schema: &Schema,
) -> Result<(Compiled, Option<String>), String> {
    let compiled = match compile(rule, decl) {
        Ok(compiled) => compiled,
        Err(CompileError::MessageExpression(_, compiled)) => *compiled,
        Err(CompileError::Rule { message, .. }) => return Err(message),
    };
    let field_path = match rule.field_path.as_str() {
        "" => None,
        path => field_path(path, schema, true).ok().map(|resolved| resolved.path),
    };
    Ok((compiled, field_path))
}
