//! Comparison of two objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Form, TypeErrors, at_element, elements, field_step, fields, invalid, step};
use crate::apply::element::{Element, Path};
use crate::apply::set::FieldSet;
use crate::apply::types::{Identity, List, Object, Type};
use crate::apply::value::equal;

/// The fields by which two objects differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison<'a> {
    /// The fields that only the first object has.
    pub removed: FieldSet<'a>,
    /// The fields that both have, with different values.
    pub modified: FieldSet<'a>,
    /// The fields that only the second object has.
    pub added: FieldSet<'a>,
}

impl<'a> Comparison<'a> {
    /// Whether the objects are equal.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// The modified and added fields.
    pub fn set(&self) -> FieldSet<'a> {
        let mut set = self.modified.clone();
        set.add(&self.added);
        set
    }
}

/// Compares two objects of a type.
pub(in crate::apply) fn compare<'a>(
    ty: Type<'a>,
    old: &'a Value,
    new: &'a Value,
) -> Result<Comparison<'a>, TypeErrors> {
    let mut walk = Walk { path: Vec::with_capacity(12), found: Comparison::default() };
    walk.value(ty, Some(old), Some(new))?;
    Ok(walk.found)
}

struct Walk<'a> {
    path: Path<'a>,
    found: Comparison<'a>,
}

impl<'a> Walk<'a> {
    fn value(
        &mut self,
        ty: Type<'a>,
        old: Option<&'a Value>,
        new: Option<&'a Value>,
    ) -> Result<(), TypeErrors> {
        let node = ty.node();
        let was = Form::for_value(node, old);
        let is = Form::for_value(node, new);
        let (Some(was), Some(is)) = (was, is) else { return Err(invalid()) };
        let leaf = match (old, new) {
            (Some(_), None) => self.form(ty, was, old, new)?,
            (None, Some(_)) => self.form(ty, is, old, new)?,
            _ if was.is_same(is) => self.form(ty, is, old, new)?,
            _ => {
                // The value changed its type: the old fields are removed, the new ones added.
                self.form(ty, was, old, new)?;
                self.form(ty, is, old, new)?
            }
        };
        if !leaf {
            match (old, new) {
                (None, _) => self.found.added.insert(&self.path),
                (_, None) => self.found.removed.insert(&self.path),
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares values by one alternative of their type. Returns whether they are leaves.
    fn form(
        &mut self,
        ty: Type<'a>,
        form: Form<'a>,
        old: Option<&'a Value>,
        new: Option<&'a Value>,
    ) -> Result<bool, TypeErrors> {
        match form {
            Form::Scalar(_) => {
                self.leaf(old, new);
                Ok(true)
            }
            Form::Object(object) => {
                let was = fields(old);
                let is = fields(new);
                let empty = was.is_none_or(Map::is_empty) && is.is_none_or(Map::is_empty);
                if object.atomic || empty {
                    self.leaf(old, new);
                    return Ok(true);
                }
                self.object(ty, object, was, is)?;
                Ok(false)
            }
            Form::List(list) => {
                let was = elements(old).unwrap_or_default();
                let is = elements(new).unwrap_or_default();
                if list.identity == Identity::Atomic || (was.is_empty() && is.is_empty()) {
                    self.leaf(old, new);
                    return Ok(true);
                }
                self.list(ty, list, was, is)?;
                Ok(false)
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            (Some(old), Some(new)) if !equal(old, new) => self.found.modified.insert(&self.path),
            _ => {}
        }
    }

    fn object(
        &mut self,
        ty: Type<'a>,
        object: &'a Object,
        old: Option<&'a Map<String, Value>>,
        new: Option<&'a Map<String, Value>>,
    ) -> Result<(), TypeErrors> {
        let mut errors = TypeErrors::default();
        for (name, was) in old.into_iter().flatten() {
            let is = new.and_then(|new| new.get(name));
            errors.extend(self.field(ty, object, name, Some(was), is));
        }
        for (name, is) in new.into_iter().flatten() {
            if !old.is_some_and(|old| old.contains_key(name)) {
                errors.extend(self.field(ty, object, name, None, Some(is)));
            }
        }
        errors.into_result()
    }

    fn field(
        &mut self,
        ty: Type<'a>,
        object: &'a Object,
        name: &'a str,
        old: Option<&'a Value>,
        new: Option<&'a Value>,
    ) -> Result<(), TypeErrors> {
        let step = field_step(name);
        let Some(inner) = ty.field_type(object, name) else { return Err(invalid().prefixed(&step)) };
        self.descend(step, inner, old, new)
    }

    fn descend(
        &mut self,
        step: Element<'a>,
        ty: Type<'a>,
        old: Option<&'a Value>,
        new: Option<&'a Value>,
    ) -> Result<(), TypeErrors> {
        self.path.push(step);
        let answer = self.value(ty, old, new);
        let step = self.path.pop();
        answer.map_err(|errors| step.map_or(errors.clone(), |step| errors.prefixed(&step)))
    }

    fn list(
        &mut self,
        ty: Type<'a>,
        list: &'a List,
        old: &'a [Value],
        new: &'a [Value],
    ) -> Result<(), TypeErrors> {
        let mut errors = TypeErrors::default();
        let mut all: BTreeMap<Element<'a>, (Vec<&'a Value>, Vec<&'a Value>)> = BTreeMap::new();
        for (index, item) in old.iter().enumerate() {
            match step(ty, list, item) {
                Ok(step) => all.entry(step).or_default().0.push(item),
                Err(why) => errors.extend(Err(at_element(index, &why))),
            }
        }
        for (index, item) in new.iter().enumerate() {
            match step(ty, list, item) {
                Ok(step) => all.entry(step).or_default().1.push(item),
                Err(why) => errors.extend(Err(at_element(index, &why))),
            }
        }
        let element = ty.at(list.element);
        for (step, (was, is)) in all {
            match (&was[..], &is[..]) {
                ([] | [_], [] | [_]) => {
                    errors.extend(self.descend(step, element, was.first().copied(), is.first().copied()));
                }
                // Elements with the same key are one atomic value.
                ([_, _, ..], [_, _, ..]) => {
                    if was.len() != is.len() || !was.iter().zip(&is).all(|(was, is)| equal(was, is)) {
                        self.here(step, |found| &mut found.modified);
                    }
                }
                ([_, _, ..], _) => {
                    if let Some(is) = is.first() {
                        errors.extend(self.descend(step.clone(), element, None, Some(is)));
                    }
                    self.here(step, |found| &mut found.removed);
                }
                (_, [_, _, ..]) => {
                    if let Some(was) = was.first() {
                        errors.extend(self.descend(step.clone(), element, Some(was), None));
                    }
                    self.here(step, |found| &mut found.added);
                }
            }
        }
        errors.into_result()
    }

    fn here(
        &mut self,
        step: Element<'a>,
        set: impl for<'c> FnOnce(&'c mut Comparison<'a>) -> &'c mut FieldSet<'a>,
    ) {
        self.path.push(step);
        set(&mut self.found).insert(&self.path);
        self.path.pop();
    }
}
