//! Evaluation: one pass over the tree, each step paid for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{Entry, Expr, Fold, Kind, Literal, MessageField};
use crate::budget::Budget;
use crate::composition::{Composition, VARIABLES};
use crate::cost::price;
use crate::env::Bindings;
use crate::error::EvalError;
use crate::functions::{Answer, Regexes, call};
use crate::value::{Key, List, Map, Message, Value, type_named};

/// What making a list and a map costs.
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
/// What the parts of values may weigh together that one operation goes over, and how much of it costs a unit.
const MAX_WEIGHT: usize = 1 << 20;
const WEIGHT_OF_UNIT: usize = 100;
/// What making an object costs.
const MESSAGE_COST: u64 = 40;

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

    /// The same, where named expressions can be read too.
    pub(crate) fn composed(self, composition: &'b Composition<'a>) -> Self {
        Self { composition: Some(composition), ..self }
    }

    pub(crate) fn run(&mut self, expr: &'a Expr) -> Answer<'a> {
        match &expr.kind {
            Kind::Literal(literal) => Ok(of_literal(literal)),
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
                    return present(&of, field).map(Value::Bool);
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
                    // Upstream starts a list or a map anew that has nothing in it, whatever is declared of it.
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

    /// The named expressions, if an operand stands for them.
    fn composition_in(&self, operand: &Expr) -> Option<&'b Composition<'a>> {
        let composition = self.composition?;
        let is_named = matches!(&operand.kind, Kind::Ident(name) if name == VARIABLES);
        (is_named && self.scopes.iter().all(|(name, _)| *name != VARIABLES)).then_some(composition)
    }

    fn variable(&mut self, name: &str) -> Answer<'a> {
        self.budget.spend(1)?;
        if let Some((_, value)) = self.scopes.iter().rev().find(|(own, _)| *own == name) {
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
        self.budget.spend(LIST_COST)?;
        Ok(Value::list(made))
    }

    fn map(&mut self, entries: &'a [Entry]) -> Answer<'a> {
        let mut made = BTreeMap::new();
        for entry in entries {
            let key = self.run(&entry.key)?;
            let key = Key::of(&key).ok_or_else(|| EvalError::new("unsupported key type"))?;
            let value = match (self.run(&entry.value)?, entry.optional) {
                (Value::Optional(None), true) => {
                    made.remove(&key);
                    continue;
                }
                (Value::Optional(Some(inner)), true) => *inner,
                (_, true) => return Err(EvalError::no_such_overload()),
                (value, false) => value,
            };
            // Of a key that is there twice the last value counts.
            made.insert(key, value);
        }
        self.budget.spend(MAP_COST)?;
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
        self.budget.spend(MESSAGE_COST)?;
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
            // Nothing is in a list without elements, whatever it would be.
            ("@in", [_, Expr { kind: Kind::List { elements, .. }, .. }]) if elements.is_empty() => {
                return Ok(Value::Bool(false));
            }
            ("_?._" | "_[?_]", [of, key]) => {
                let (of, key) = (self.run(of)?, self.run(key)?);
                self.budget.spend(1)?;
                return optional(&of, &key);
            }
            ("_[_]", [of, key]) => {
                let (of, key) = (self.run(of)?, self.run(key)?);
                self.budget.spend(1)?;
                // An error shows the key.
                self.weigh(std::slice::from_ref(&key))?;
                return index(&of, &key);
            }
            _ => {}
        }
        if let (Some(target), [fallback]) = (target, args)
            && matches!(function, "or" | "orValue")
        {
            return self.otherwise(function, target, fallback);
        }
        let mut given = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            given.push(self.run(arg)?);
        }
        // These look at no part of a value.
        if !matches!(function, "size" | "dyn" | "type" | "optional.of" | "hasValue" | "value") {
            self.weigh(&given)?;
        }
        // Paid before, so that nothing large is made for nothing; what depends on the result is small then.
        self.budget.spend(price(function, &given))?;
        call(function, &given, self.regexes)
    }

    /// Pays for the parts of values that an operation may go over. A value can have the same part many times, so that what
    /// it weighs has nothing to do with what it cost to make.
    fn weigh(&mut self, given: &[Value<'a>]) -> Result<(), EvalError> {
        let affordable =
            usize::try_from(self.budget.left()).unwrap_or(usize::MAX).saturating_mul(WEIGHT_OF_UNIT);
        let most = affordable.min(MAX_WEIGHT);
        let mut left = most;
        let weighed = given.iter().try_for_each(|value| value.weigh_parts(&mut left));
        let weight = if weighed.is_some() { most - left } else { most };
        self.budget.spend((weight / WEIGHT_OF_UNIT) as u64)?;
        weighed.ok_or(EvalError::TooExpensive)
    }

    /// `or` and `orValue`: the other one is looked at only if it is needed.
    fn otherwise(&mut self, function: &str, target: &'a Expr, fallback: &'a Expr) -> Answer<'a> {
        let given = self.run(target)?;
        self.budget.spend(1)?;
        match (given, function) {
            (Value::Optional(None), _) => self.run(fallback),
            (Value::Optional(Some(inner)), "orValue") => Ok(*inner),
            (given @ Value::Optional(_), _) => Ok(given),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// Both or either: a side that decides makes the other's mistake no matter.
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
        let outside = self.scopes.len();
        let init = self.run(&fold.init)?;
        self.scopes.push((&fold.result_name, init));
        let mut pending = None;
        let looped = match range {
            Value::List(list) => self.fold_list(fold, &list, &mut pending),
            Value::Map(map) => self.fold_map(fold, &map, &mut pending),
            other if fold.second.is_some() => {
                Err(EvalError::new(format!("unsupported comprehension range type: {}", go_type(&other))))
            }
            other => Err(EvalError::new(format!("got '{}', expected iterable type", go_type(&other)))),
        };
        let undecided = matches!(self.scopes[outside].1, Value::Null);
        let answer = looped.and_then(|()| match pending {
            Some(error) if undecided => Err(error),
            _ => self.run(&fold.result),
        });
        self.scopes.truncate(outside);
        answer
    }

    fn fold_list(
        &mut self,
        fold: &'a Fold,
        list: &List<'a>,
        pending: &mut Option<EvalError>,
    ) -> Result<(), EvalError> {
        for (index, element) in list.iter().enumerate() {
            let goes_on = if fold.second.is_some() {
                let index = i64::try_from(index).unwrap_or(i64::MAX);
                self.turn(fold, Value::Int(index), Some(element), pending)?
            } else {
                self.turn(fold, element, None, pending)?
            };
            if !goes_on {
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
            if !self.turn(fold, key, value, pending)? {
                break;
            }
        }
        Ok(())
    }

    /// One turn of a loop; whether there is to be another. What fails does not end it: a later element may
    /// decide `exists` or `all` without it.
    fn turn(
        &mut self,
        fold: &'a Fold,
        first: Value<'a>,
        second: Option<Value<'a>>,
        pending: &mut Option<EvalError>,
    ) -> Result<bool, EvalError> {
        let place = self.scopes.len() - 1;
        self.scopes.push((&fold.variable, first));
        if let (Some(name), Some(second)) = (&fold.second, second) {
            self.scopes.push((name, second));
        }
        let goes_on = self.run(&fold.condition)? == Value::Bool(true);
        if goes_on {
            let step = self.step(&fold.step, place);
            self.scopes.truncate(place + 1);
            match step {
                Ok(Some(value)) => self.scopes[place].1 = value,
                Ok(None) => {}
                Err(error) => return self.go_on_after(fold, error, place, pending),
            }
        } else {
            self.scopes.truncate(place + 1);
        }
        Ok(goes_on)
    }

    /// A failed turn of `all` and `exists` is remembered, and leaves what they gather undecided; any other loop
    /// ends with it.
    fn go_on_after(
        &mut self,
        fold: &'a Fold,
        error: EvalError,
        place: usize,
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
        self.scopes[place].1 = Value::Null;
        Ok(true)
    }

    /// The step of a loop. A list or a map that is gathered grows in place instead of being copied.
    fn step(&mut self, step: &'a Expr, place: usize) -> Result<Option<Value<'a>>, EvalError> {
        let Kind::Call { function, args, .. } = &step.kind else { return self.run(step).map(Some) };
        let gathers = |expr: &Expr| matches!(&expr.kind, Kind::Ident(name) if *name == self.scopes[place].0);
        match (function.as_str(), args.as_slice()) {
            ("_?_:_", [condition, yes, no]) if gathers(no) => match self.run(condition)? {
                Value::Bool(true) => self.step(yes, place),
                Value::Bool(false) => {
                    self.budget.spend(1)?;
                    Ok(None)
                }
                _ => Err(EvalError::no_such_overload()),
            },
            ("_+_", [so_far, Expr { kind: Kind::List { elements, optional }, .. }])
                if gathers(so_far) && optional.is_empty() =>
            {
                let mut added = Vec::with_capacity(elements.len());
                for element in elements {
                    added.push(self.run(element)?);
                }
                // As if the list had been read, one made and both been joined.
                self.budget.spend(2 + LIST_COST)?;
                if let Value::List(List::Made(list, _)) = &mut self.scopes[place].1 {
                    Arc::make_mut(list).extend(added);
                    return Ok(None);
                }
                Err(EvalError::no_such_overload())
            }
            ("cel.@mapInsert", [so_far, rest @ ..]) if gathers(so_far) => {
                let mut given = Vec::with_capacity(2);
                for arg in rest {
                    given.push(self.run(arg)?);
                }
                self.budget.spend(2)?;
                self.insert(place, given)?;
                Ok(None)
            }
            _ => self.run(step).map(Some),
        }
    }

    fn insert(&mut self, place: usize, given: Vec<Value<'a>>) -> Result<(), EvalError> {
        let entries: Vec<(Value<'a>, Value<'a>)> = match given.as_slice() {
            [Value::Map(map)] => map.entries().collect(),
            [key, value] => vec![(key.clone(), value.clone())],
            _ => return Err(EvalError::no_such_overload()),
        };
        let Value::Map(Map::Made(map)) = &mut self.scopes[place].1 else {
            return Err(EvalError::no_such_overload());
        };
        let map = Arc::make_mut(map);
        for (key, value) in entries {
            let shown = key.clone();
            let key = Key::of(&key).ok_or_else(|| EvalError::new("unsupported key type"))?;
            if map.insert(key, value).is_some() {
                let shown = crate::functions::shown(&shown);
                return Err(EvalError::new(format!("insert failed: key {shown} already exists")));
            }
        }
        Ok(())
    }
}

pub(crate) fn of_literal(literal: &Literal) -> Value<'_> {
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

/// The type that upstream's code has for a value, which some of its messages show.
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

fn present(of: &Value<'_>, field: &str) -> Result<bool, EvalError> {
    match of {
        Value::Map(map) => Ok(map.get(&Value::Text(Cow::Borrowed(field))).is_some()),
        Value::Message(message) => Ok(message.fields.contains_key(field)),
        Value::Optional(Some(inner)) => present(inner, field),
        _ => Ok(false),
    }
}

fn place_of(key: &Value<'_>) -> Option<i64> {
    match key {
        Value::Int(number) => Some(*number),
        Value::Uint(number) => i64::try_from(*number).ok(),
        Value::Double(number) if number.fract() == 0.0 => format!("{number:.0}").parse().ok(),
        _ => None,
    }
}

fn no_index(key: &Value<'_>) -> EvalError {
    EvalError::new(match key {
        Value::Uint(_) | Value::Double(_) => {
            format!("unsupported index value {} in list", crate::functions::shown(key))
        }
        _ => format!("unsupported index type '{}' in list", key.type_name()),
    })
}

fn index<'a>(of: &Value<'a>, key: &Value<'_>) -> Answer<'a> {
    match of {
        Value::List(list) => {
            let place = place_of(key).ok_or_else(|| no_index(key))?;
            usize::try_from(place)
                .ok()
                .and_then(|place| list.get(place))
                .ok_or_else(|| EvalError::new(format!("index out of bounds: {place}")))
        }
        Value::Map(map) => map.get(key).ok_or_else(|| {
            let shown = crate::functions::shown(key);
            no_such_key(&shown)
        }),
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => optional(inner, key),
        _ => Err(no_such_key(&crate::functions::shown(key))),
    }
}

fn optional<'a>(of: &Value<'a>, key: &Value<'_>) -> Answer<'a> {
    let found = match of {
        Value::Map(map) => map.get(key),
        Value::List(list) => {
            place_of(key).and_then(|place| usize::try_from(place).ok()).and_then(|place| list.get(place))
        }
        Value::Optional(None) => None,
        Value::Optional(Some(inner)) => return optional(inner, key),
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Value::Optional(found.map(Box::new)))
}
