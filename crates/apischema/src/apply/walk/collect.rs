//! Collection of the field set of an object.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Form, TypeErrors, field_step, invalid, step};
use crate::apply::element::Path;
use crate::apply::set::FieldSet;
use crate::apply::types::{Identity, List, Object, Type};

/// Collects all fields of an object, down to the leaves.
pub(in crate::apply) fn collect<'a>(ty: Type<'a>, value: &'a Value) -> Result<FieldSet<'a>, TypeErrors> {
    let mut walk = Walk { path: Vec::with_capacity(12), set: FieldSet::default() };
    walk.value(ty, value)?;
    Ok(walk.set)
}

struct Walk<'a> {
    path: Path<'a>,
    set: FieldSet<'a>,
}

impl<'a> Walk<'a> {
    fn value(&mut self, ty: Type<'a>, value: &'a Value) -> Result<(), TypeErrors> {
        match Form::for_value(ty.node(), Some(value)).ok_or_else(invalid)? {
            Form::Scalar(_) => self.set.insert(&self.path),
            Form::Object(object) if object.atomic => self.set.insert(&self.path),
            Form::List(list) if list.identity == Identity::Atomic => self.set.insert(&self.path),
            Form::Object(object) => return self.object(ty, object, value),
            Form::List(list) => return self.list(ty, list, value),
        }
        Ok(())
    }

    fn object(&mut self, ty: Type<'a>, object: &'a Object, value: &'a Value) -> Result<(), TypeErrors> {
        let mut errors = TypeErrors::default();
        for (name, value) in value.as_object().into_iter().flatten() {
            let step = field_step(name);
            let Some(inner) = ty.field_type(object, name) else {
                errors.extend(Err(invalid()));
                continue;
            };
            self.path.push(step);
            errors.extend(self.value(inner, value));
            let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
            if empty || object.field(name).is_none() {
                self.set.insert(&self.path);
            }
            self.path.pop();
        }
        errors.into_result()
    }

    fn list(&mut self, ty: Type<'a>, list: &'a List, value: &'a Value) -> Result<(), TypeErrors> {
        let mut errors = TypeErrors::default();
        // Validation has already rejected elements without keys.
        let items = value.as_array().into_iter().flatten();
        let mut all: BTreeMap<_, Vec<&'a Value>> = BTreeMap::new();
        for item in items {
            if let Ok(step) = step(ty, list, item) {
                all.entry(step).or_default().push(item);
            }
        }
        for (step, items) in all {
            self.path.push(step);
            // Elements with the same key are one atomic value.
            if let [item] = items[..] {
                errors.extend(self.value(ty.at(list.element), item));
            }
            self.set.insert(&self.path);
            self.path.pop();
        }
        errors.into_result()
    }
}
