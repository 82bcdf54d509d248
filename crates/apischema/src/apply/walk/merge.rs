//! An object with another laid over it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::{Form, TypeErrors, at_element, elements, field_step, fields, invalid, step};
use crate::apply::element::Element;
use crate::apply::types::{Identity, List, Object, Type};

/// Lays one object over another: what it says counts, what it leaves out stays.
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

/// A list's elements by what tells them apart, in their order.
struct Items<'a> {
    steps: Vec<Element<'a>>,
    /// What each step leads to; nothing, if to several.
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

/// Merges lists whose elements can be told apart: those of the upper list stand in its order, those that only
/// the lower one has stay where they were between them.
fn items(ty: Type<'_>, list: &List, under: &[Value], over: &[Value]) -> Result<Option<Value>, TypeErrors> {
    let above = Items::of(ty, list, over, false)?;
    let below = Items::of(ty, list, under, true)?;
    let element = ty.at(list.element);
    // What both have, in the order of the upper list.
    let mut shared: VecDeque<&Element<'_>> = above.steps.iter().filter(|step| below.has(step)).collect();
    let mut next = shared.pop_front();
    let mut done = BTreeSet::new();
    let mut out = Vec::with_capacity(under.len().max(over.len()));
    let both = |step: &Element<'_>| {
        // Of several that nothing tells apart, none is merged with: the upper one takes the place of all.
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
                // Its turn comes with the upper list's.
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
