//! Evaluation of CEL validation rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use plumb_cel::{Bindings, Budget, Decl, EvalError, Program, Value as Cel};
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use super::{CALL_BUDGET, Compiled, OBJECT_BUDGET, Wrong, compile, declare, field_path};
use crate::object::{counterpart, shown};
use crate::schema::{Rule, Schema};

/// The maximum length of the value of a message expression.
const MAX_MESSAGE: usize = 5 * 1024;

/// The rules of a schema and its subschemas.
#[derive(Debug)]
pub struct Rules {
    own: Vec<Result<(Compiled, Option<String>), String>>,
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
pub struct Asked {
    /// The errors.
    pub errors: Vec<FieldError>,
    /// Errors of unchanged values, which ratcheting turns into warnings.
    pub warnings: Vec<String>,
    left: i64,
}

/// The old value, or the nearest ancestor that existed.
#[derive(Clone, Copy)]
struct Before<'a> {
    own: Option<&'a Value>,
    above: Option<(&'a Value, &'a Value)>,
}

impl<'a> Before<'a> {
    fn unchanged(self, new: &Value) -> bool {
        match (self.own, self.above) {
            (Some(old), _) => old == new,
            (None, Some((old, new))) => old == new,
            (None, None) => false,
        }
    }

    fn below(self, new: &'a Value, own: Option<&'a Value>) -> Self {
        match self.own {
            None => self,
            Some(old) => Self { own, above: Some((old, new)) },
        }
    }
}

impl Rules {
    /// The rules of an object's schema; none if it has no rules.
    pub fn of(schema: &Schema) -> Option<Self> {
        if !schema.any(&|schema| !schema.rules.is_empty()) {
            return None;
        }
        Self::gather(schema, true)
    }

    /// The rules of a part of an object, such as a default.
    pub(crate) fn of_part(schema: &Schema) -> Option<Self> {
        Self::gather(schema, schema.embedded)
    }

    fn gather(schema: &Schema, root: bool) -> Option<Self> {
        let decl = declare(schema, root);
        let own = match &decl {
            None => Vec::new(),
            Some(decl) => {
                let compiled = schema.rules.iter().filter(|rule| !rule.rule.trim().is_empty());
                compiled.map(|rule| ready(rule, decl, schema)).collect()
            }
        };
        let properties: BTreeMap<String, Self> = schema
            .properties
            .iter()
            .filter_map(|(name, below)| Some((name.clone(), Self::gather(below, below.embedded)?)))
            .collect();
        let additional =
            schema.additional_schema().and_then(|below| Self::gather(below, below.embedded)).map(Box::new);
        let items =
            schema.items.as_deref().and_then(|below| Self::gather(below, below.embedded)).map(Box::new);
        if own.is_empty() && properties.is_empty() && additional.is_none() && items.is_none() {
            return None;
        }
        let keys = (schema.list_type.as_deref() == Some("map")).then(|| schema.list_keys.clone());
        let decl = decl.unwrap_or_else(Decl::dynamic);
        Some(Self { own, decl, ty: schema.ty.clone(), properties, additional, items, keys })
    }

    /// Evaluates the rules for a new or updated object.
    pub fn ask(&self, object: &Value, old: Option<&Value>) -> Asked {
        self.ask_at(&Path::NOWHERE, object, old, old)
    }

    /// The same for a value at a path; `ratchet` is the old value with which it is compared for ratcheting.
    pub(crate) fn ask_at(
        &self,
        path: &Path<'_>,
        value: &Value,
        old: Option<&Value>,
        ratchet: Option<&Value>,
    ) -> Asked {
        let left = i64::try_from(OBJECT_BUDGET).unwrap_or(i64::MAX);
        let mut asked = Asked { left, ..Asked::default() };
        self.visit(path, value, old, Before { own: ratchet, above: None }, &mut asked);
        asked
    }

    fn visit(
        &self,
        path: &Path<'_>,
        value: &Value,
        old: Option<&Value>,
        before: Before<'_>,
        asked: &mut Asked,
    ) {
        if value.is_null() || asked.left < 0 {
            return;
        }
        self.own(path, value, old.filter(|old| !old.is_null()), before, asked);
        match value {
            Value::Object(map) => {
                for (name, inner) in map {
                    let (rules, named) = match (self.properties.get(name), &self.additional) {
                        (Some(rules), _) => (rules, true),
                        (None, Some(rules)) => (&**rules, false),
                        (None, None) => continue,
                    };
                    let was = before.own.and_then(|old| old.get(name));
                    // Kind and API version may differ from the stored ones.
                    let hidden = before.above.is_none() && matches!(name.as_str(), "apiVersion" | "kind");
                    let next =
                        if hidden { Before { own: None, above: None } } else { before.below(value, was) };
                    let old = old.and_then(|old| old.get(name));
                    if named {
                        rules.visit(&path.child(name), inner, old, next, asked);
                    } else {
                        rules.visit(&path.key(name), inner, old, next, asked);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                let found = |old: Option<&'_ Value>, element: &Value| -> Option<Value> {
                    let list = old.and_then(Value::as_array)?;
                    counterpart(self.keys.as_ref()?, list, element).cloned()
                };
                for (i, element) in list.iter().enumerate() {
                    let was = match (&self.keys, before.own.and_then(Value::as_array)) {
                        (Some(keys), Some(list)) => counterpart(keys, list, element),
                        _ => None,
                    };
                    let old = found(old, element);
                    items.visit(&path.index(i), element, old.as_ref(), before.below(value, was), asked);
                }
            }
            _ => {}
        }
    }

    fn own(
        &self,
        path: &Path<'_>,
        value: &Value,
        old: Option<&Value>,
        before: Before<'_>,
        asked: &mut Asked,
    ) {
        for ready in &self.own {
            if asked.left < 0 {
                return;
            }
            let (compiled, at) = match ready {
                Ok(ready) => ready,
                Err(why) => {
                    let rule = format!("rule compile error: {why}");
                    asked.errors.push(FieldError::invalid(path, &self.ty, rule));
                    continue;
                }
            };
            if asked.left == 0 {
                self.exhausted(path, asked);
                return;
            }
            let optional = compiled.rule.optional_old_self == Some(true);
            if compiled.uses_old && old.is_none() && !optional {
                continue;
            }
            if let Some(why) = self.wrong_type(value).filter(|_| compiled.program.mentions("self")) {
                let why = format!("{why} evaluating rule: {}", compiled.rule.name());
                asked.errors.push(FieldError::invalid(path, &self.ty, why));
                continue;
            }
            let mut values = Bindings::new();
            values.json("self", value, &self.decl);
            if optional {
                values.optional_json("oldSelf", old, &self.decl);
            } else if let Some(old) = old {
                values.json("oldSelf", old, &self.decl);
            }
            if self.evaluate(&compiled.program, &values, path, &compiled.rule, asked) != Some(false) {
                continue;
            }
            let message = compiled.message.as_ref();
            let Some(detail) = self.message(message, &values, &compiled.rule, path, asked) else { return };
            let error = self.refusal(path, at.as_deref(), value, detail, compiled.rule.reason.as_deref());
            if !compiled.uses_old && before.unchanged(value) {
                asked.warnings.push(error.to_string());
            } else {
                asked.errors.push(error);
            }
        }
    }

    /// Why a value does not have the declared type. For an object of another kind only the rules are evaluated.
    fn wrong_type(&self, value: &Value) -> Option<String> {
        let expected = match self.ty.as_str() {
            "object" if !value.is_object() && !value.is_null() => "a map",
            "array" if !value.is_array() && !value.is_null() => "an array",
            _ => return None,
        };
        Some(format!("invalid data, expected {expected} for the provided schema with type={}", self.ty))
    }

    fn exhausted(&self, path: &Path<'_>, asked: &mut Asked) {
        let rule =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        asked.errors.push(FieldError::invalid(path, &self.ty, rule));
        asked.left = -1;
    }

    /// Whether a rule is true; none if its evaluation fails, which adds an error.
    fn evaluate(
        &self,
        program: &Program,
        values: &Bindings<'_>,
        path: &Path<'_>,
        rule: &Rule,
        asked: &mut Asked,
    ) -> Option<bool> {
        let mut budget = Budget::of(CALL_BUDGET);
        let answer = program.evaluate(values, &mut budget);
        let named = rule.name();
        let why = match answer {
            Ok(Cel::Bool(truth)) => {
                asked.left -= i64::try_from(budget.spent()).unwrap_or(i64::MAX);
                if asked.left < 0 {
                    self.exhausted(path, asked);
                    return None;
                }
                return Some(truth);
            }
            Err(EvalError::TooExpensive) => {
                let rule = format!(
                    "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {named}",
                    EvalError::TooExpensive
                );
                asked.left = -1;
                rule
            }
            Ok(_) => format!("no such overload evaluating rule: {named}"),
            Err(EvalError::Failed(why)) if why.starts_with("no such overload") => format!(
                "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {named}"
            ),
            Err(EvalError::Failed(why)) => format!("{why} evaluating rule: {named}"),
        };
        if asked.left >= 0 {
            asked.left -= i64::try_from(budget.spent()).unwrap_or(i64::MAX);
        }
        asked.errors.push(FieldError::invalid(path, &self.ty, why));
        None
    }

    /// The message of a rule that is false; none if the budget is exhausted.
    fn message(
        &self,
        program: Option<&Program>,
        values: &Bindings<'_>,
        rule: &Rule,
        path: &Path<'_>,
        asked: &mut Asked,
    ) -> Option<String> {
        if let Some(program) = program {
            let mut budget = Budget::of(CALL_BUDGET);
            let answer = program.evaluate(values, &mut budget);
            let spent = i64::try_from(budget.spent()).unwrap_or(i64::MAX);
            let broken = if answer == Err(EvalError::TooExpensive) {
                Some(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {:?}",
                    rule.message_expression
                ))
            } else if spent > asked.left {
                Some("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned())
            } else {
                None
            };
            if let Some(why) = broken {
                asked.errors.push(FieldError::invalid(path, &self.ty, why));
                asked.left = -1;
                return None;
            }
            asked.left -= spent;
            if let Ok(Cel::Text(text)) = answer {
                let text = text.trim();
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

    fn refusal(
        &self,
        path: &Path<'_>,
        below: Option<&str>,
        value: &Value,
        detail: String,
        reason: Option<&str>,
    ) -> FieldError {
        let path = match below {
            Some(below) => path.child(below).to_string(),
            None => path.to_string(),
        };
        let bad =
            if matches!(self.ty.as_str(), "object" | "array") { BadValue::Omitted } else { shown(value) };
        match reason {
            Some("FieldValueForbidden") => FieldError::forbidden(path, detail),
            Some("FieldValueRequired") => FieldError::required(path, detail),
            Some("FieldValueDuplicate") => FieldError::duplicate(path, bad),
            _ => FieldError::invalid(path, bad, detail),
        }
    }
}

fn ready(rule: &Rule, decl: &Arc<Decl>, schema: &Schema) -> Result<(Compiled, Option<String>), String> {
    let compiled = match compile(rule, decl) {
        Ok(compiled) => compiled,
        Err(Wrong::Message(_, compiled)) => *compiled,
        Err(Wrong::Rule { why, .. }) => return Err(why),
    };
    let at = match rule.field_path.as_str() {
        "" => None,
        path => field_path(path, schema, true).ok().map(|(path, _, _)| path),
    };
    Ok((compiled, at))
}
