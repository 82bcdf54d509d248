//! Validation of values against their types.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Form, TypeErrors, at_element, field_step, invalid, step};
use crate::apply::element::Element;
use crate::apply::types::{Identity, List, Object, Scalar, Type};
use crate::apply::value::in_go;
use crate::patch::go_format::{go_format, go_type};

/// Validates a value against its type. `twice` allows duplicates in associative lists and sets.
pub(in crate::apply) fn validate(ty: Type<'_>, value: &Value, twice: bool) -> Result<(), TypeErrors> {
    Walk { twice }.value(ty, value)
}

struct Walk {
    twice: bool,
}

impl Walk {
    fn value(&self, ty: Type<'_>, value: &Value) -> Result<(), TypeErrors> {
        match Form::for_value(ty.node(), Some(value)).ok_or_else(invalid)? {
            _ if value.is_null() => Ok(()),
            Form::Scalar(scalar) => is_scalar(scalar, value),
            Form::Object(object) => self.object(ty, object, value),
            Form::List(list) => self.list(ty, list, value),
        }
    }

    fn object(&self, ty: Type<'_>, object: &Object, value: &Value) -> Result<(), TypeErrors> {
        let Value::Object(map) = value else {
            return Err(TypeErrors::one(format!("expected map, got &{{{}}}", go_format(value))));
        };
        let mut errors = TypeErrors::default();
        for (name, value) in map {
            let step = field_step(name);
            let Some(inner) = ty.field_type(object, name) else {
                errors.extend(Err(TypeErrors::one("field not declared in schema").prefixed(&step)));
                break;
            };
            errors.extend(self.value(inner, value).map_err(|errors| errors.prefixed(&step)));
        }
        errors.into_result()
    }

    fn list(&self, ty: Type<'_>, list: &List, value: &Value) -> Result<(), TypeErrors> {
        let Value::Array(items) = value else {
            return Err(TypeErrors::one(format!("expected list, got &{{{}}}", go_format(value))));
        };
        let mut errors = TypeErrors::default();
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let here = if list.identity == Identity::Atomic {
                Element::Index(i64::try_from(index).unwrap_or(i64::MAX))
            } else {
                let step = step(ty, list, item).map_err(|why| {
                    let mut errors = errors.clone();
                    errors.extend(Err(at_element(index, &why)));
                    errors
                })?;
                if !seen.insert(step.clone()) && !self.twice {
                    errors.extend(Err(TypeErrors::one(format!("duplicate entries for key {step}"))));
                }
                step
            };
            errors.extend(self.value(ty.at(list.element), item).map_err(|errors| errors.prefixed(&here)));
        }
        errors.into_result()
    }
}

fn is_scalar(scalar: Scalar, value: &Value) -> Result<(), TypeErrors> {
    let why = match (scalar, value) {
        (Scalar::Number, Value::Number(_))
        | (Scalar::Text, Value::String(_))
        | (Scalar::Bool, Value::Bool(_))
        | (Scalar::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return Ok(()),
        (Scalar::Number, _) => format!("expected numeric (int or float), got {}", go_type(value)),
        (Scalar::Text, _) => {
            format!("expected string, got &value.valueUnstructured{{Value:{}}}", in_go(value))
        }
        (Scalar::Bool, _) => format!("expected boolean, got &{{{}}}", go_format(value)),
        (Scalar::Any, _) => format!("expected any scalar, got &{{{}}}", go_format(value)),
    };
    Err(TypeErrors::one(why))
}
