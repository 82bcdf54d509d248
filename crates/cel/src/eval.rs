//! Evaluation of the syntax tree. Each step adds its cost to the budget.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{Entry, Expr, Fold, Kind, Literal, MessageField};
use crate::budget::Budget;
use crate::composition::{Composition, VARIABLES};
use crate::cost::{self, call_cost};
use crate::env::Bindings;
use crate::error::EvalError;
use crate::functions::{Answer, Regexes, call, display};
use crate::value::{Key, List, Map, Message, Value, type_named};

/// The maximum weight of the values that one operation traverses.
const MAX_WEIGHT: usize = 1 << 20;
/// The weight that costs one unit.
const WEIGHT_PER_UNIT: usize = 100;

pub(crate) struct Evaluation<'a, 'b> {
    values: &'a Bindings<'a>,
    regexes: &'a Regexes,
    budget: &'b mut Budget,
    composition: Option<&'b Composition<'a>>,
    scopes: Vec<(&'a str, Value<'a>)>,
}

impl<'a, 'b> Evaluation<'a, 'b> {
    pub(crate) fn new(values: &'a Bindings<'a>, regexes: &'a Regexes, budget: &'b mut Budget) -> Self {
        Self { values, regexes, budget, composition: None, scopes: Vec::new() }
    }

    /// Evaluates with named expressions.
    pub(crate) fn composed(self, composition: &'b Composition<'a>) -> Self {
        Self { composition: Some(composition), ..self }
    }

    pub(crate) fn run(&mut self, expr: &'a Expr) -> Answer<'a> {
        match &expr.kind {
            Kind::Literal(literal) => Ok(literal_value(literal)),
            Kind::Ident(name) => self.variable(name),
            Kind::Select { operand, field, test } => {
                if let Some(composition) = self.composition_in(operand) {
                    self.budget.spend(1)?;
                    if *test {
                        return Ok(Value::Bool(true));
                    }
                    self.budget.spend(1)?;
                    return composition.get(field);
                }
                let of = self.run(operand)?;
                if *test {
                    return has_field(&of, field).map(Value::Bool);
                }
                self.budget.spend(1)?;
                select(&of, field)
            }
            Kind::Call { function, target, args } => self.call(function, target.as_deref(), args),
            Kind::List { elements, optional } => self.list(elements, optional),
            Kind::Map(entries) => self.map(entries),
            Kind::Message { name, fields } => self.message(name, fields),
            Kind::Fold(fold) if fold.is_bind() => {
                let value = match self.run(&fold.init)? {
                    // Upstream replaces an empty list or map by a new one, which loses its declaration.
                    Value::List(list) if list.is_empty() => Value::list(Vec::new()),
                    Value::Map(map) if map.is_empty() => Value::Map(Map::Made(Arc::default())),
                    value => value,
                };
                self.scopes.push((&fold.result_name, value));
                let result = self.run(&fold.result);
                self.scopes.pop();
                result
            }
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    /// The named expressions, if the operand is the variable `variables`.
    fn composition_in(&self, operand: &Expr) -> Option<&'b Composition<'a>> {
        let composition = self.composition?;
        let is_named = matches!(&operand.kind, Kind::Ident(name) if name == VARIABLES);
        (is_named && self.scopes.iter().all(|(name, _)| *name != VARIABLES)).then_some(composition)
    }

    fn variable(&mut self, name: &str) -> Answer<'a> {
        self.budget.spend(1)?;
        if let Some((_, value)) = self.scopes.iter().rev().find(|(scope, _)| *scope == name) {
            return Ok(value.clone());
        }
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        type_named(name)
            .map(Value::Type)
            .ok_or_else(|| EvalError::new(format!("no such attribute(s): {name}")))
    }

    fn list(&mut self, elements: &'a [Expr], optional: &[usize]) -> Answer<'a> {
        let mut made = Vec::with_capacity(elements.len());
        for (i, element) in elements.iter().enumerate() {
            match (self.run(element)?, optional.contains(&i)) {
                (Value::Optional(inner), true) => made.extend(inner.map(|inner| *inner)),
                (_, true) => return Err(EvalError::no_such_overload()),
                (value, false) => made.push(value),
            }
        }
        self.budget.spend(cost::LIST)?;
        Ok(Value::list(made))
    }

    fn map(&mut self, entries: &'a [Entry]) -> Answer<'a> {
        let mut made = BTreeMap::new();
        for entry in entries {
            let key = self.run(&entry.key)?;
            let key = Key::from_value(&key).ok_or_else(|| EvalError::new("unsupported key type"))?;
            let value = match (self.run(&entry.value)?, entry.optional) {
                (Value::Optional(None), true) => {
                    made.remove(&key);
                    continue;
                }
                (Value::Optional(Some(inner)), true) => *inner,
                (_, true) => return Err(EvalError::no_such_overload()),
                (value, false) => value,
            };
            // The last value of a repeated key is used.
            made.insert(key, value);
        }
        self.budget.spend(cost::MAP)?;
        Ok(Value::Map(Map::Made(Arc::new(made))))
    }

    fn message(&mut self, name: &'a str, fields: &'a [MessageField]) -> Answer<'a> {
        let mut made = BTreeMap::new();
        for field in fields {
            let value = match (self.run(&field.value)?, field.optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(inner)), true) => *inner,
                (_, true) => return Err(EvalError::no_such_overload()),
                (value, false) => value,
            };
            let is_text = name != "JSONPatch" || field.name == "value" || matches!(value, Value::Text(_));
            if !is_text {
                let message = format!("unexpected type for JSONPatchType '{}' field", field.name);
                return Err(EvalError::new(message));
            }
            made.insert(field.name.as_str(), value);
        }
        self.budget.spend(cost::MESSAGE)?;
        Ok(Value::Message(Arc::new(Message { name, fields: made })))
    }

    fn call(&mut self, function: &'a str, target: Option<&'a Expr>, args: &'a [Expr]) -> Answer<'a> {
        match (function, args) {
            ("_&&_", [left, right]) => return self.logic(left, right, false),
            ("_||_", [left, right]) => return self.logic(left, right, true),
            ("_?_:_", [condition, yes, no]) => {
                return match self.run(condition)? {
                    Value::Bool(true) => self.run(yes),
                    Value::Bool(false) => self.run(no),
                    _ => Err(EvalError::no_such_overload()),
                };
            }
            ("@not_strictly_false", [condition]) => {
                return match self.run(condition) {
                    Err(EvalError::TooExpensive) => Err(EvalError::TooExpensive),
                    Ok(Value::Bool(false)) => Ok(Value::Bool(false)),
                    _ => Ok(Value::Bool(true)),
                };
            }
            ("_?._", [of, Expr { kind: Kind::Literal(Literal::Text(name)), .. }])
                if self.composition_in(of).is_some() =>
            {
                self.budget.spend(2)?;
                let value = self.composition_in(of).map(|composition| composition.get(name)).transpose()?;
                return Ok(Value::Optional(value.map(Box::new)));
            }
            // An empty list contains no value; the value is not evaluated.
            ("@in", [_, Expr { kind: Kind::List { elements, .. }, .. }]) if elements.is_empty() => {
                return Ok(Value::Bool(false));
            }
            ("_?._" | "_[?_]", [of, key]) => {
                let of = self.run(of)?;
                let key = self.run(key)?;
                self.budget.spend(1)?;
                return optional(&of, &key);
            }
            ("_[_]", [of, key]) => {
                let of = self.run(of)?;
                let key = self.run(key)?;
                self.budget.spend(1)?;
                // The key is weighed since an error displays it.
                self.weigh(std::slice::from_ref(&key))?;
                return index(&of, &key);
            }
            _ => {}
        }
        if let (Some(target), [fallback]) = (target, args)
            && matches!(function, "or" | "orValue")
        {
            return self.or_fallback(function, target, fallback);
        }
        let mut given = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            given.push(self.run(arg)?);
        }
        // These functions do not traverse their arguments.
        if !matches!(function, "size" | "dyn" | "type" | "optional.of" | "hasValue" | "value") {
            self.weigh(&given)?;
        }
        // The cost is charged before the call, so that no large value is created beyond the budget.
        self.budget.spend(call_cost(function, &given))?;
        call(function, &given, self.regexes)
    }

    /// Charges for the parts of values that an operation may traverse. A value can contain the same part many times, so
    /// its weight is not bounded by the cost of creating it.
    fn weigh(&mut self, given: &[Value<'a>]) -> Result<(), EvalError> {
        let affordable =
            usize::try_from(self.budget.left()).unwrap_or(usize::MAX).saturating_mul(WEIGHT_PER_UNIT);
        let limit = affordable.min(MAX_WEIGHT);
        let mut remaining = limit;
        let weighed = given.iter().try_for_each(|value| value.weigh_parts(&mut remaining));
        let weight = if weighed.is_some() { limit - remaining } else { limit };
        self.budget.spend((weight / WEIGHT_PER_UNIT) as u64)?;
        weighed.ok_or(EvalError::TooExpensive)
    }

    /// Evaluates `or` and `orValue`; the fallback is evaluated only if it is needed.
    fn or_fallback(&mut self, function: &str, target: &'a Expr, fallback: &'a Expr) -> Answer<'a> {
        let given = self.run(target)?;
        self.budget.spend(1)?;
        match (given, function) {
            (Value::Optional(None), _) => self.run(fallback),
            (Value::Optional(Some(inner)), "orValue") => Ok(*inner),
            (given @ Value::Optional(_), _) => Ok(given),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// Evaluates `&&` and `||`. If one side decides the result, an error of the other side is ignored.
    fn logic(&mut self, left: &'a Expr, right: &'a Expr, decisive: bool) -> Answer<'a> {
        let first = self.run(left);
        match &first {
            Err(EvalError::TooExpensive) => return first,
            Ok(Value::Bool(truth)) if *truth == decisive => return first,
            _ => {}
        }
        let second = self.run(right);
        match (first, second) {
            (_, Err(EvalError::TooExpensive)) => Err(EvalError::TooExpensive),
            (_, Ok(Value::Bool(truth))) if truth == decisive => Ok(Value::Bool(decisive)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(_))) => Ok(Value::Bool(!decisive)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    fn fold(&mut self, fold: &'a Fold) -> Answer<'a> {
        let range = self.run(&fold.range)?;
        let outer_scopes = self.scopes.len();
        let init = self.run(&fold.init)?;
        self.scopes.push((&fold.result_name, init));
        let mut pending = None;
        let outcome = match range {
            Value::List(list) => self.fold_list(fold, &list, &mut pending),
            Value::Map(map) => self.fold_map(fold, &map, &mut pending),
            other if fold.second.is_some() => {
                Err(EvalError::new(format!("unsupported comprehension range type: {}", go_type(&other))))
            }
            other => Err(EvalError::new(format!("got '{}', expected iterable type", go_type(&other)))),
        };
        let undecided = matches!(self.scopes[outer_scopes].1, Value::Null);
        let answer = outcome.and_then(|()| match pending {
            Some(error) if undecided => Err(error),
            _ => self.run(&fold.result),
        });
        self.scopes.truncate(outer_scopes);
        answer
    }

    fn fold_list(
        &mut self,
        fold: &'a Fold,
        list: &List<'a>,
        pending: &mut Option<EvalError>,
    ) -> Result<(), EvalError> {
        for (index, element) in list.iter().enumerate() {
            let continues = if fold.second.is_some() {
                let index = i64::try_from(index).unwrap_or(i64::MAX);
                self.iterate(fold, Value::Int(index), Some(element), pending)?
            } else {
                self.iterate(fold, element, None, pending)?
            };
            if !continues {
                break;
            }
        }
        Ok(())
    }

    fn fold_map(
        &mut self,
        fold: &'a Fold,
        map: &Map<'a>,
        pending: &mut Option<EvalError>,
    ) -> Result<(), EvalError> {
        for key in map.keys() {
            let value = if fold.second.is_some() { map.get(&key) } else { None };
            if !self.iterate(fold, key, value, pending)? {
                break;
            }
        }
        Ok(())
    }

    /// Evaluates one iteration of a loop, and returns whether the loop continues. An error does not end `exists` and `all`:
    /// a later element can still decide their result.
    fn iterate(
        &mut self,
        fold: &'a Fold,
        first: Value<'a>,
        second: Option<Value<'a>>,
        pending: &mut Option<EvalError>,
    ) -> Result<bool, EvalError> {
        let slot = self.scopes.len() - 1;
        self.scopes.push((&fold.variable, first));
        if let (Some(name), Some(second)) = (&fold.second, second) {
            self.scopes.push((name, second));
        }
        let continues = self.run(&fold.condition)? == Value::Bool(true);
        if continues {
            let step = self.step(&fold.step, slot);
            self.scopes.truncate(slot + 1);
            match step {
                Ok(Some(value)) => self.scopes[slot].1 = value,
                Ok(None) => {}
                Err(error) => return self.continue_after(fold, error, slot, pending),
            }
        } else {
            self.scopes.truncate(slot + 1);
        }
        Ok(continues)
    }

    /// Handles an error in an iteration. `all` and `exists` keep the first error and become undecided; any other loop fails.
    fn continue_after(
        &mut self,
        fold: &'a Fold,
        error: EvalError,
        slot: usize,
        pending: &mut Option<EvalError>,
    ) -> Result<bool, EvalError> {
        let quantifier = matches!(
            &fold.step.kind,
            Kind::Call { function, .. } if matches!(function.as_str(), "_&&_" | "_||_")
        );
        if !quantifier || error == EvalError::TooExpensive {
            return Err(error);
        }
        pending.get_or_insert(error);
        self.scopes[slot].1 = Value::Null;
        Ok(true)
    }

    /// Evaluates the step of a loop. A list or a map in the accumulator grows in place instead of being copied.
    fn step(&mut self, step: &'a Expr, slot: usize) -> Result<Option<Value<'a>>, EvalError> {
        let Kind::Call { function, args, .. } = &step.kind else { return self.run(step).map(Some) };
        let is_accumulator =
            |expr: &Expr| matches!(&expr.kind, Kind::Ident(name) if *name == self.scopes[slot].0);
        match (function.as_str(), args.as_slice()) {
            ("_?_:_", [condition, yes, no]) if is_accumulator(no) => match self.run(condition)? {
                Value::Bool(true) => self.step(yes, slot),
                Value::Bool(false) => {
                    self.budget.spend(1)?;
                    Ok(None)
                }
                _ => Err(EvalError::no_such_overload()),
            },
            ("_+_", [so_far, Expr { kind: Kind::List { elements, optional }, .. }])
                if is_accumulator(so_far) && optional.is_empty() =>
            {
                let mut added = Vec::with_capacity(elements.len());
                for element in elements {
                    added.push(self.run(element)?);
                }
                // The cost of reading the accumulator, creating a list and concatenating both.
                self.budget.spend(2 + cost::LIST)?;
                if let Value::List(List::Made(list, _)) = &mut self.scopes[slot].1 {
                    Arc::make_mut(list).extend(added);
                    return Ok(None);
                }
                Err(EvalError::no_such_overload())
            }
            ("cel.@mapInsert", [so_far, rest @ ..]) if is_accumulator(so_far) => {
                let mut given = Vec::with_capacity(2);
                for arg in rest {
                    given.push(self.run(arg)?);
                }
                self.budget.spend(2)?;
                self.insert(slot, given)?;
                Ok(None)
            }
            _ => self.run(step).map(Some),
        }
    }

    fn insert(&mut self, slot: usize, given: Vec<Value<'a>>) -> Result<(), EvalError> {
        let entries: Vec<(Value<'a>, Value<'a>)> = match given.as_slice() {
            [Value::Map(map)] => map.entries().collect(),
            [key, value] => vec![(key.clone(), value.clone())],
            _ => return Err(EvalError::no_such_overload()),
        };
        let Value::Map(Map::Made(map)) = &mut self.scopes[slot].1 else {
            return Err(EvalError::no_such_overload());
        };
        let map = Arc::make_mut(map);
        for (key, value) in entries {
            let original = key.clone();
            let key = Key::from_value(&key).ok_or_else(|| EvalError::new("unsupported key type"))?;
            if map.insert(key, value).is_some() {
                let key = display(&original);
                return Err(EvalError::new(format!("insert failed: key {key} already exists")));
            }
        }
        Ok(())
    }
}

pub(crate) fn literal_value(literal: &Literal) -> Value<'_> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(truth) => Value::Bool(*truth),
        Literal::Int(number) => Value::Int(*number),
        Literal::Uint(number) => Value::Uint(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::Text(text) => Value::Text(Cow::Borrowed(text)),
        Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
    }
}

/// The Go type of a value in cel-go, which some messages display.
fn go_type(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::Text(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Duration(_) => "types.Duration",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Optional(_) => "*types.Optional",
        Value::Type(_) => "*types.Type",
        other => other.type_name(),
    }
}

fn no_such_key(key: &str) -> EvalError {
    EvalError::new(format!("no such key: {key}"))
}

fn select<'a>(of: &Value<'a>, field: &str) -> Answer<'a> {
    let name = Value::Text(Cow::Borrowed(field));
    match of {
        Value::Map(map) => map.get(&name).ok_or_else(|| no_such_key(field)),
        Value::Message(message) => message.fields.get(field).cloned().ok_or_else(|| no_such_key(field)),
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => optional(inner, &name),
        _ => Err(no_such_key(field)),
    }
}

fn has_field(of: &Value<'_>, field: &str) -> Result<bool, EvalError> {
    match of {
        Value::Map(map) => Ok(map.get(&Value::Text(Cow::Borrowed(field))).is_some()),
        Value::Message(message) => Ok(message.fields.contains_key(field)),
        Value::Optional(Some(inner)) => has_field(inner, field),
        _ => Ok(false),
    }
}

fn list_index(key: &Value<'_>) -> Option<i64> {
    match key {
        Value::Int(number) => Some(*number),
        Value::Uint(number) => i64::try_from(*number).ok(),
        Value::Double(number) if number.fract() == 0.0 => format!("{number:.0}").parse().ok(),
        _ => None,
    }
}

fn invalid_index(key: &Value<'_>) -> EvalError {
    EvalError::new(match key {
        Value::Uint(_) | Value::Double(_) => {
            format!("unsupported index value {} in list", display(key))
        }
        _ => format!("unsupported index type '{}' in list", key.type_name()),
    })
}

fn index<'a>(of: &Value<'a>, key: &Value<'_>) -> Answer<'a> {
    match of {
        Value::List(list) => {
            let index = list_index(key).ok_or_else(|| invalid_index(key))?;
            usize::try_from(index)
                .ok()
                .and_then(|index| list.get(index))
                .ok_or_else(|| EvalError::new(format!("index out of bounds: {index}")))
        }
        Value::Map(map) => map.get(key).ok_or_else(|| no_such_key(&display(key))),
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => optional(inner, key),
        _ => Err(no_such_key(&display(key))),
    }
}

fn optional<'a>(of: &Value<'a>, key: &Value<'_>) -> Answer<'a> {
    let found = match of {
        Value::Map(map) => map.get(key),
        Value::List(list) => {
            list_index(key).and_then(|index| usize::try_from(index).ok()).and_then(|index| list.get(index))
        }
        Value::Optional(None) => None,
        Value::Optional(Some(inner)) => return optional(inner, key),
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Value::Optional(found.map(Box::new)))
}
