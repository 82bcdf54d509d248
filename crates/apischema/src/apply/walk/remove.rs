//! Removal and extraction of fields.

use serde_json::{Map, Value};

use super::{Form, field_step, step};
use crate::apply::set::FieldSet;
use crate::apply::types::{Identity, List, Object, Type};

/// An object without the fields of a set.
pub(in crate::apply) fn remove(ty: Type<'_>, value: &Value, set: &FieldSet<'_>) -> Value {
    Walk { extract: false }.value(ty, value, set)
}

/// An object with only the fields of a set.
pub(in crate::apply) fn extract(ty: Type<'_>, value: &Value, set: &FieldSet<'_>) -> Value {
    Walk { extract: true }.value(ty, value, set)
}

struct Walk {
    extract: bool,
}

impl Walk {
    fn value(&self, ty: Type<'_>, value: &Value, set: &FieldSet<'_>) -> Value {
        match Form::for_value(ty.node(), Some(value)) {
            Some(Form::Scalar(_)) => value.clone(),
            Some(Form::Object(object)) => match value {
                Value::Object(map) if !map.is_empty() && !object.atomic => self.object(ty, object, map, set),
                Value::Object(_) => self.whole(value),
                _ => Value::Null,
            },
            Some(Form::List(list)) => match value {
                Value::Array(items) if !items.is_empty() && list.identity != Identity::Atomic => {
                    self.list(ty, list, items, set)
                }
                Value::Array(_) => self.whole(value),
                _ => Value::Null,
            },
            None => Value::Null,
        }
    }

    /// An atomic or empty value is extracted or removed as a whole.
    fn whole(&self, value: &Value) -> Value {
        if self.extract { value.clone() } else { Value::Null }
    }

    fn object(&self, ty: Type<'_>, object: &Object, map: &Map<String, Value>, set: &FieldSet<'_>) -> Value {
        let mut out = Map::new();
        for (name, value) in map {
            let step = field_step(name);
            let inner = ty.field_type(object, name);
            let below = |set: &FieldSet<'_>| inner.map_or(Value::Null, |inner| self.value(inner, value, set));
            if set.contains(&step) {
                if self.extract {
                    // Like upstream, the children of a member are looked up in the set of its siblings.
                    out.insert(name.clone(), below(set));
                }
                continue;
            }
            match set.children(&step) {
                Some(inside) => {
                    out.insert(name.clone(), below(inside));
                }
                None if self.extract => {}
                None => {
                    out.insert(name.clone(), value.clone());
                }
            }
        }
        if out.is_empty() { Value::Null } else { Value::Object(out) }
    }

    fn list(&self, ty: Type<'_>, list: &List, items: &[Value], set: &FieldSet<'_>) -> Value {
        let element = ty.at(list.element);
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            let Ok(step) = step(ty, list, item) else { continue };
            let member = set.contains(&step);
            match (set.children(&step), self.extract) {
                (_, false) if member => {}
                (Some(inside), _) => out.push(self.value(element, item, inside)),
                (None, false) => out.push(item.clone()),
                (None, true) if member => out.push(item.clone()),
                (None, true) => {}
            }
        }
        if out.is_empty() { Value::Null } else { Value::Array(out) }
    }
}
