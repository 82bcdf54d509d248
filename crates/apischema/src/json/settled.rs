//! The stored form of an object: without the empty lists and maps that decoding retains for validation.

use serde_json::Value;

use super::MAX_DEPTH;
use crate::schema::{Kind, Schema, Shape, StructId};
use crate::zero;

/// Whether an object has no empty list or map that decoding retains for validation.
pub fn is_settled(schema: &Schema, kind: &Kind, value: &Value) -> bool {
    struct_is_settled(schema, kind.body, value, MAX_DEPTH)
}

fn struct_is_settled(schema: &Schema, id: StructId, value: &Value, depth: usize) -> bool {
    let (Some(object), Some(depth)) = (value.as_object(), depth.checked_sub(1)) else { return true };
    object.iter().all(|(name, inner)| {
        schema[id].field(name).is_none_or(|field| {
            !(field.distinguishes_empty && zero::omits(schema, field, inner))
                && type_is_settled(schema, schema[field.ty].shape, inner, depth)
        })
    })
}

fn type_is_settled(schema: &Schema, shape: Shape, value: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return true };
    match shape {
        Shape::Pointer(inner) => type_is_settled(schema, schema[inner].shape, value, depth),
        Shape::Struct(id) => struct_is_settled(schema, id, value, depth),
        Shape::List(inner) => {
            let mut elements = value.as_array().into_iter().flatten();
            elements.all(|element| type_is_settled(schema, schema[inner].shape, element, depth))
        }
        _ => true,
    }
}

/// Drops the empty lists and maps that decoding retains for validation rules which distinguish an empty field from a
/// missing one: an object is stored and returned without them.
///
/// ```
/// use plumb_apischema::{Schema, json};
/// use serde_json::json;
///
/// let schema = Schema::builtin();
/// let pod = schema.kind("", "v1", "Pod").ok_or("no pods")?;
/// let mut sent = json!({"spec": {"overhead": {}, "nodeName": "a"}});
/// assert!(!json::is_settled(schema, pod, &sent));
/// json::settle(schema, pod, &mut sent);
/// assert_eq!(sent, json!({"spec": {"nodeName": "a"}}));
/// # Ok::<(), &str>(())
/// ```
pub fn settle(schema: &Schema, kind: &Kind, value: &mut Value) {
    settle_struct(schema, kind.body, value, MAX_DEPTH);
}

fn settle_struct(schema: &Schema, id: StructId, value: &mut Value, depth: usize) {
    let (Some(object), Some(depth)) = (value.as_object_mut(), depth.checked_sub(1)) else { return };
    object.retain(|name, inner| {
        let Some(field) = schema[id].field(name) else { return true };
        if field.distinguishes_empty && zero::omits(schema, field, inner) {
            return false;
        }
        settle_type(schema, schema[field.ty].shape, inner, depth);
        true
    });
}

fn settle_type(schema: &Schema, shape: Shape, value: &mut Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match shape {
        Shape::Pointer(inner) => settle_type(schema, schema[inner].shape, value, depth),
        Shape::Struct(id) => settle_struct(schema, id, value, depth),
        Shape::List(inner) => {
            for element in value.as_array_mut().into_iter().flatten() {
                settle_type(schema, schema[inner].shape, element, depth);
            }
        }
        _ => {}
    }
}
