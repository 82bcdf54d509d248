//! Semantic equality, as upstream's `apiequality.Semantic`.
//!
//! An empty list equals a missing one, and `1000m` equals `1`. Upstream compares so to detect changes of the generation
//! and of immutable fields.

use plumb_resize::Quantity;
use serde_json::Value;

use crate::json::MAX_DEPTH;
use crate::schema::{Schema, Shape, StructId, TypeId};

/// Whether two values of a type are semantically equal.
///
/// ```
/// use plumb_apischema::{Schema, semantic};
/// use serde_json::json;
///
/// let schema = Schema::builtin();
/// let pod = schema.kind("", "v1", "Pod").ok_or("no pods")?;
/// let spec = schema.field_at(pod.body, &["spec"]).ok_or("no spec")?.ty;
/// let written = |amount: &str| json!({"containers": [{"resources": {"limits": {"cpu": amount}}}]});
///
/// assert!(semantic::equal(schema, spec, &written("1"), &written("1000m")));
/// assert!(!semantic::equal(schema, spec, &written("1"), &written("2")));
/// # Ok::<(), &str>(())
/// ```
pub fn equal(schema: &Schema, ty: TypeId, one: &Value, other: &Value) -> bool {
    one == other || types(schema, ty, one, other, MAX_DEPTH)
}

/// Whether two objects of a struct are semantically equal.
pub fn equal_structs(schema: &Schema, id: StructId, one: &Value, other: &Value) -> bool {
    one == other || structs(schema, id, one, other, MAX_DEPTH)
}

fn structs(schema: &Schema, id: StructId, one: &Value, other: &Value, depth: usize) -> bool {
    let (Some(one), Some(other), Some(depth)) = (one.as_object(), other.as_object(), depth.checked_sub(1))
    else {
        return one == other;
    };
    let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
    names.into_iter().all(|name| {
        let one = one.get(name).unwrap_or(&Value::Null);
        let other = other.get(name).unwrap_or(&Value::Null);
        match schema[id].field(name) {
            Some(field) => types(schema, field.ty, one, other, depth),
            None => one == other,
        }
    })
}

fn types(schema: &Schema, ty: TypeId, one: &Value, other: &Value, depth: usize) -> bool {
    if one == other {
        return true;
    }
    let Some(depth) = depth.checked_sub(1) else { return false };
    match schema[ty].shape {
        Shape::Pointer(inner) => {
            !one.is_null() && !other.is_null() && types(schema, inner, one, other, depth)
        }
        Shape::Struct(id) => structs(schema, id, one, other, depth),
        Shape::List(inner) | Shape::WrappedList(inner) => {
            let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
            let one = list(one);
            let other = list(other);
            one.len() == other.len()
                && one.iter().zip(&other).all(|(one, other)| types(schema, inner, one, other, depth))
        }
        Shape::Map(inner) => {
            let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
            let one = map(one);
            let other = map(other);
            one.len() == other.len()
                && one.iter().all(|(key, one)| {
                    other.get(key).is_some_and(|other| types(schema, inner, one, other, depth))
                })
        }
        Shape::Quantity => {
            let read = |value: &Value| value.as_str().and_then(|text| text.parse::<Quantity>().ok());
            read(one).is_some() && read(one) == read(other)
        }
        _ => false,
    }
}
