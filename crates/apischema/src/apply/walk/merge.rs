//! Merging of typed objects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::{Form, TypeErrors, at_element, elements, field_step, fields, invalid, step};
use crate::apply::element::Element;
use crate::apply::types::{Identity, List, Object, Type};

/// Merges `over` into `under`: fields of `over` win, fields that it omits stay.
pub(in crate::apply) fn merge(ty: Type<'_>, under: &Value, over: &Value) -> Result<Value, TypeErrors> {
    Ok(value(ty, Some(under), Some(over))?.unwrap_or(Value::Null))
}

fn value(ty: Type<'_>, under: Option<&Value>, over: Option<&Value>) -> Result<Option<Value>, TypeErrors> {
    let (Some(under), Some(over)) = (under, over) else { return Ok(over.or(under).cloned()) };
    match Form::of(ty.node(), Some(over)).ok_or_else(invalid)? {
        Form::Scalar(_) => Ok(Some(over.clone())),
        Form::Object(object) => {
            let (below, above) = (fields(Some(under)), fields(Some(over)));
            let empty = below.is_none_or(Map::is_empty) && above.is_none_or(Map::is_empty);
            if object.atomic || empty {
                return Ok(Some(over.clone()));
            }
            map(ty, object, below, above)
        }
        Form::List(list) => {
            let below = elements(Some(under)).unwrap_or_default();
            let above = elements(Some(over)).unwrap_or_default();
            if list.identity == Identity::Atomic || (below.is_empty() && above.is_empty()) {
                return Ok(Some(over.clone()));
            }
            items(ty, list, below, above)
        }
    }
}

fn map(
    ty: Type<'_>,
    object: &Object,
    under: Option<&Map<String, Value>>,
    over: Option<&Map<String, Value>>,
) -> Result<Option<Value>, TypeErrors> {
    let mut errors = TypeErrors::default();
    let mut out = under.cloned().unwrap_or_default();
    for (name, above) in over.into_iter().flatten() {
        let step = field_step(name);
        let Some(inner) = ty.inside(object, name) else {
            errors.and(Err(invalid().behind(&step)));
            continue;
        };
        match value(inner, out.get(name), Some(above)) {
            Ok(Some(merged)) => {
                out.insert(name.clone(), merged);
            }
            Ok(None) => {
                out.remove(name);
            }
            Err(wrong) => errors.and(Err(wrong.behind(&step))),
        }
    }
    errors.answer()?;
    Ok((!out.is_empty()).then_some(Value::Object(out)))
}

/// The elements of an associative list, in order and by path element.
struct Items<'a> {
    steps: Vec<Element<'a>>,
    /// The element by its path element; none for duplicates.
    by_step: BTreeMap<Element<'a>, Option<&'a Value>>,
}

impl<'a> Items<'a> {
    fn of(ty: Type<'a>, list: &'a List, items: &'a [Value], twice: bool) -> Result<Self, TypeErrors> {
        let mut errors = TypeErrors::default();
        let mut all = Self { steps: Vec::with_capacity(items.len()), by_step: BTreeMap::new() };
        for (index, item) in items.iter().enumerate() {
            let step = match step(ty, list, item) {
                Ok(step) => step,
                Err(why) => {
                    errors.and(Err(at_element(index, &why)));
                    continue;
                }
            };
            let known = all.by_step.contains_key(&step);
            if known && !twice {
                errors.and(Err(TypeErrors::one(format!("duplicate entries for key {step}"))));
                continue;
            }
            all.by_step.insert(step.clone(), (!known).then_some(item));
            all.steps.push(step);
        }
        errors.answer()?;
        Ok(all)
    }

    fn has(&self, step: &Element<'_>) -> bool {
        self.by_step.contains_key(step)
    }
}

/// Merges associative lists: the elements of `over` are in its order, and those that only `under` has keep their
/// relative position.
fn items(ty: Type<'_>, list: &List, under: &[Value], over: &[Value]) -> Result<Option<Value>, TypeErrors> {
    let above = Items::of(ty, list, over, false)?;
    let below = Items::of(ty, list, under, true)?;
    let element = ty.at(list.element);
    // The elements of both lists, in the order of `over`.
    let mut shared: VecDeque<&Element<'_>> = above.steps.iter().filter(|step| below.has(step)).collect();
    let mut next = shared.pop_front();
    let mut done = BTreeSet::new();
    let mut out = Vec::with_capacity(under.len().max(over.len()));
    let both = |step: &Element<'_>| {
        // Duplicates are not merged: the element of `over` replaces all of them.
        let below = match below.by_step.get(step) {
            Some(Some(item)) => Some(*item),
            Some(None) => Some(&Value::Null),
            None => None,
        };
        let above = above.by_step.get(step).copied().flatten();
        value(element, below, above).map_err(|errors| errors.behind(step))
    };
    let (mut low, mut high) = (0, 0);
    while low < below.steps.len() || high < above.steps.len() {
        if let (Some(lower), Some(upper)) = (below.steps.get(low), above.steps.get(high)) {
            if lower == upper {
                done.insert(lower);
                out.extend(both(lower)?);
                low += 1;
                high += 1;
                next = shared.pop_front();
                continue;
            }
            if above.has(lower) && next.is_some_and(|next| next != lower) {
                // The element is added at its position in `over`.
                low += 1;
                continue;
            }
        }
        if let Some(lower) = below.steps.get(low) {
            if !above.has(lower) {
                out.push(under[low].clone());
                low += 1;
                continue;
            }
            if done.contains(lower) {
                low += 1;
            }
        }
        if let Some(upper) = above.steps.get(high) {
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
