//! Merging of typed objects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::{Form, TypeErrors, at_element, elements, field_step, fields, invalid, step};
use crate::apply::element::Element;
use crate::apply::types::{Identity, List, Object, Type};

/// Merges `applied` into `live`: fields of `applied` win, fields that it omits stay.
pub(in crate::apply) fn merge(ty: Type<'_>, live: &Value, applied: &Value) -> Result<Value, TypeErrors> {
    Ok(value(ty, Some(live), Some(applied))?.unwrap_or(Value::Null))
}

fn value(ty: Type<'_>, live: Option<&Value>, applied: Option<&Value>) -> Result<Option<Value>, TypeErrors> {
    let (Some(live), Some(applied)) = (live, applied) else { return Ok(applied.or(live).cloned()) };
    match Form::for_value(ty.node(), Some(applied)).ok_or_else(invalid)? {
        Form::Scalar(_) => Ok(Some(applied.clone())),
        Form::Object(object) => {
            let live_part = fields(Some(live));
            let applied_part = fields(Some(applied));
            let empty = live_part.is_none_or(Map::is_empty) && applied_part.is_none_or(Map::is_empty);
            if object.atomic || empty {
                return Ok(Some(applied.clone()));
            }
            map(ty, object, live_part, applied_part)
        }
        Form::List(list) => {
            let live_part = elements(Some(live)).unwrap_or_default();
            let applied_part = elements(Some(applied)).unwrap_or_default();
            if list.identity == Identity::Atomic || (live_part.is_empty() && applied_part.is_empty()) {
                return Ok(Some(applied.clone()));
            }
            items(ty, list, live_part, applied_part)
        }
    }
}

fn map(
    ty: Type<'_>,
    object: &Object,
    live: Option<&Map<String, Value>>,
    applied: Option<&Map<String, Value>>,
) -> Result<Option<Value>, TypeErrors> {
    let mut errors = TypeErrors::default();
    let mut out = live.cloned().unwrap_or_default();
    for (name, applied_part) in applied.into_iter().flatten() {
        let step = field_step(name);
        let Some(inner) = ty.field_type(object, name) else {
            errors.extend(Err(invalid().prefixed(&step)));
            continue;
        };
        match value(inner, out.get(name), Some(applied_part)) {
            Ok(Some(merged)) => {
                out.insert(name.clone(), merged);
            }
            Ok(None) => {
                out.remove(name);
            }
            Err(wrong) => errors.extend(Err(wrong.prefixed(&step))),
        }
    }
    errors.into_result()?;
    Ok((!out.is_empty()).then_some(Value::Object(out)))
}

/// The elements of an associative list, in order and by path element.
struct Items<'a> {
    steps: Vec<Element<'a>>,
    /// The element by its path element; `None` if several have the same.
    by_step: BTreeMap<Element<'a>, Option<&'a Value>>,
}

impl<'a> Items<'a> {
    fn new(ty: Type<'a>, list: &'a List, items: &'a [Value], twice: bool) -> Result<Self, TypeErrors> {
        let mut errors = TypeErrors::default();
        let mut all = Self { steps: Vec::with_capacity(items.len()), by_step: BTreeMap::new() };
        for (index, item) in items.iter().enumerate() {
            let step = match step(ty, list, item) {
                Ok(step) => step,
                Err(why) => {
                    errors.extend(Err(at_element(index, &why)));
                    continue;
                }
            };
            let known = all.by_step.contains_key(&step);
            if known && !twice {
                errors.extend(Err(TypeErrors::one(format!("duplicate entries for key {step}"))));
                continue;
            }
            all.by_step.insert(step.clone(), (!known).then_some(item));
            all.steps.push(step);
        }
        errors.into_result()?;
        Ok(all)
    }

    fn has(&self, step: &Element<'_>) -> bool {
        self.by_step.contains_key(step)
    }
}

/// Merges associative lists: the elements of `applied` are in its order, and those that only `live` has keep their
/// relative position.
fn items(ty: Type<'_>, list: &List, live: &[Value], applied: &[Value]) -> Result<Option<Value>, TypeErrors> {
    let applied_part = Items::new(ty, list, applied, false)?;
    let live_part = Items::new(ty, list, live, true)?;
    let element = ty.at(list.element);
    // The elements of both lists, in the order of `applied`.
    let mut shared: VecDeque<&Element<'_>> =
        applied_part.steps.iter().filter(|step| live_part.has(step)).collect();
    let mut next = shared.pop_front();
    let mut done = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let both = |step: &Element<'_>| {
        // Duplicates are not merged: the element of `applied` replaces all of them.
        let live_part = match live_part.by_step.get(step) {
            Some(Some(item)) => Some(*item),
            Some(None) => Some(&Value::Null),
            None => None,
        };
        let applied_part = applied_part.by_step.get(step).copied().flatten();
        value(element, live_part, applied_part).map_err(|errors| errors.prefixed(step))
    };
    let mut low = 0;
    let mut high = 0;
    while low < live_part.steps.len() || high < applied_part.steps.len() {
        if let (Some(lower), Some(upper)) = (live_part.steps.get(low), applied_part.steps.get(high)) {
            if lower == upper {
                done.insert(lower);
                out.extend(both(lower)?);
                low += 1;
                high += 1;
                next = shared.pop_front();
                continue;
            }
            if applied_part.has(lower) && next.is_some_and(|next| next != lower) {
                // The element is added at its position in `applied`.
                low += 1;
                continue;
            }
        }
        if let Some(lower) = live_part.steps.get(low) {
            if !applied_part.has(lower) {
                out.push(live[low].clone());
                low += 1;
                continue;
            }
            if done.contains(lower) {
                low += 1;
            }
        }
        if let Some(upper) = applied_part.steps.get(high) {
            done.insert(upper);
            out.extend(both(upper)?);
            high += 1;
            if next == Some(upper) {
                next = shared.pop_front();
            }
        }
    }
    Ok((!out.is_empty()).then_some(Value::Array(out)))
}
