//! Encoding of objects in the field order of Go's structs.
//!
//! `encoding/json` writes the fields of a struct as they are declared, and the keys of a map in alphabetical order. A
//! [`Value`] has all keys in alphabetical order: for most clients the order has no meaning, but some compare text.

use serde_json::{Map, Value};

use crate::schema::{Field, Schema, Shape, StructId, TypeId};

/// Appends a value of a struct to `out`. Fields that the struct does not have come last.
pub fn write_struct(schema: &Schema, id: StructId, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(object) => {
            out.push(b'{');
            write_fields(schema, id, object, |_| true, out);
            out.push(b'}');
        }
        other => write_plain(other, out),
    }
}

/// Appends the selected fields of an object, separated by commas, without braces. Returns whether there are any.
pub fn write_fields(
    schema: &Schema,
    id: StructId,
    object: &Map<String, Value>,
    is_selected: impl Fn(Option<&Field>) -> bool,
    out: &mut Vec<u8>,
) -> bool {
    let owner = &schema[id];
    let mut fields: Vec<_> = object.iter().map(|(key, value)| (owner.field(key), key, value)).collect();
    // The sort is stable: unknown fields stay in alphabetical order.
    fields.sort_by_key(|(field, ..)| field.map_or(u16::MAX, |field| field.position));
    let mut is_first = true;
    for (field, key, value) in fields.into_iter().filter(|(field, ..)| is_selected(*field)) {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        write_key(key, out);
        match field {
            Some(field) => write_type(schema, field.ty, value, out),
            None => write_plain(value, out),
        }
    }
    !is_first
}

fn write_type(schema: &Schema, ty: TypeId, value: &Value, out: &mut Vec<u8>) {
    match (schema[ty].shape, value) {
        (Shape::Pointer(inner), value) => write_type(schema, inner, value, out),
        (Shape::List(inner) | Shape::WrappedList(inner), Value::Array(list)) => {
            write_list(list, out, |element, out| write_type(schema, inner, element, out));
        }
        (Shape::Map(inner), Value::Object(map)) => {
            out.push(b'{');
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_key(key, out);
                write_type(schema, inner, value, out);
            }
            out.push(b'}');
        }
        (
            Shape::Struct(id)
            | Shape::SchemaOrArray(id)
            | Shape::SchemaOrBool(id)
            | Shape::SchemaOrStrings(id),
            Value::Object(_),
        ) => write_struct(schema, id, value, out),
        (Shape::SchemaOrArray(id), Value::Array(list)) => {
            write_list(list, out, |element, out| write_struct(schema, id, element, out));
        }
        (_, value) => write_plain(value, out),
    }
}

fn write_list(list: &[Value], out: &mut Vec<u8>, write: impl Fn(&Value, &mut Vec<u8>)) {
    out.push(b'[');
    for (index, element) in list.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(element, out);
    }
    out.push(b']');
}

fn write_key(key: &str, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail, and neither can encoding a string.
    let _ = serde_json::to_writer(&mut *out, key);
    out.push(b':');
}

fn write_plain(value: &Value, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail, and every `Value` is JSON.
    let _ = serde_json::to_writer(out, value);
}
