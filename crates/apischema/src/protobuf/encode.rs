use plumb_go::duration;
use serde_json::{Map, Value};

use super::ProtobufError;
use super::wire::{FIXED64, put_bytes, put_int, put_tag};
use crate::scalar::from_base64;
use crate::scalar::time::{self, Precision};
use crate::schema::{Schema, Shape, StructId, TypeId, Wire};

/// The maximum nesting depth. Decoded objects are never nested as deeply.
const MAX_DEPTH: usize = 256;

pub(super) fn message(schema: &Schema, id: StructId, object: &Value) -> Result<Vec<u8>, ProtobufError> {
    let mut out = Vec::with_capacity(256);
    let fields = object
        .as_object()
        .ok_or_else(|| ProtobufError::Mismatch { at: schema[id].name.to_owned(), expected: "object" })?;
    Encoder { schema }.fields(id, fields, &mut out, MAX_DEPTH)?;
    Ok(out)
}

struct Encoder<'s> {
    schema: &'s Schema,
}

/// A value does not have the type with this Go name. The caller adds the field.
struct Mismatch(&'static str);

enum Problem {
    Here(Mismatch),
    Placed(ProtobufError),
}

impl From<Mismatch> for Problem {
    fn from(mismatch: Mismatch) -> Self {
        Self::Here(mismatch)
    }
}

impl From<ProtobufError> for Problem {
    fn from(error: ProtobufError) -> Self {
        Self::Placed(error)
    }
}

impl Encoder<'_> {
    fn fields(
        &self,
        id: StructId,
        object: &Map<String, Value>,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let depth = depth.checked_sub(1).ok_or(ProtobufError::TooDeep)?;
        let owner = &self.schema[id];
        for &(number, wire) in owner.wire() {
            match wire {
                Wire::Embedded(inner) => {
                    let mut inside = Vec::new();
                    self.fields(inner, object, &mut inside, depth)?;
                    put_bytes(out, number, &inside);
                }
                Wire::Field(index) => {
                    let field = &owner.fields()[usize::from(index)];
                    let value = object.get(field.json).unwrap_or(&Value::Null);
                    self.field(field.ty, number, value, out, depth).map_err(|problem| match problem {
                        Problem::Placed(error) => error,
                        Problem::Here(Mismatch(expected)) => {
                            ProtobufError::Mismatch { at: format!("{}.{}", owner.name, field.json), expected }
                        }
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Encodes a field: not at all, once, or once per element.
    fn field(
        &self,
        ty: TypeId,
        number: u32,
        value: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Problem> {
        let go = self.schema[ty].go;
        match (self.schema[ty].shape, value) {
            (Shape::Pointer(_) | Shape::List(_) | Shape::Map(_) | Shape::Bytes, Value::Null) => Ok(()),
            (Shape::Pointer(inner), value) => self.value(inner, number, value, out, depth),
            (Shape::List(element), Value::Array(list)) => {
                list.iter().try_for_each(|value| self.value(element, number, value, out, depth))
            }
            (Shape::Map(inner), Value::Object(map)) => map.iter().try_for_each(|(key, value)| {
                let mut entry = Vec::new();
                put_bytes(&mut entry, 1, key.as_bytes());
                self.value(inner, 2, value, &mut entry, depth)?;
                put_bytes(out, number, &entry);
                Ok(())
            }),
            (Shape::List(_) | Shape::Map(_), _) => Err(Mismatch(go).into()),
            (_, value) => self.value(ty, number, value, out, depth),
        }
    }

    /// Encodes one value. Null is encoded as the zero value of the type.
    fn value(
        &self,
        ty: TypeId,
        number: u32,
        value: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Problem> {
        let known = &self.schema[ty];
        let wrong = || Problem::Here(Mismatch(known.go));
        match (known.shape, value) {
            (Shape::Text | Shape::Bytes, Value::Null) => put_bytes(out, number, b""),
            (Shape::Text, Value::String(text)) => put_bytes(out, number, text.as_bytes()),
            (Shape::Bytes, Value::String(text)) => {
                put_bytes(out, number, &from_base64(text).map_err(|_| wrong())?);
            }
            (Shape::Bool | Shape::Int32 | Shape::Int64, Value::Null) => put_int(out, number, 0),
            (Shape::Bool, Value::Bool(set)) => put_int(out, number, i64::from(*set)),
            (Shape::Int32, Value::Number(given)) => {
                let given = given.as_i64().and_then(|given| i32::try_from(given).ok()).ok_or_else(wrong)?;
                put_int(out, number, i64::from(given));
            }
            (Shape::Int64, Value::Number(given)) => put_int(out, number, given.as_i64().ok_or_else(wrong)?),
            (Shape::Double, given) => {
                let given = if given.is_null() { 0.0 } else { given.as_f64().ok_or_else(wrong)? };
                put_tag(out, number, FIXED64);
                out.extend_from_slice(&given.to_bits().to_le_bytes());
            }
            (Shape::Pointer(inner), value) => self.value(inner, number, value, out, depth)?,
            _ => {
                let mut inside = Vec::new();
                self.composite(ty, value, &mut inside, depth)?;
                put_bytes(out, number, &inside);
            }
        }
        Ok(())
    }

    fn composite(&self, ty: TypeId, value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<(), Problem> {
        let known = &self.schema[ty];
        let wrong = || Problem::Here(Mismatch(known.go));
        match (known.shape, value) {
            (Shape::Struct(id), Value::Null) => self.fields(id, &Map::new(), out, depth)?,
            (Shape::Struct(id), Value::Object(object)) => self.fields(id, object, out, depth)?,
            (Shape::Quantity, Value::Null) => put_bytes(out, 1, b"0"),
            (Shape::Quantity, Value::String(text)) => put_bytes(out, 1, text.as_bytes()),
            (Shape::IntOrString, Value::Null | Value::Number(_)) => {
                let given = if value.is_null() { Some(0) } else { value.as_i64() };
                let given = given.and_then(|given| i32::try_from(given).ok()).ok_or_else(wrong)?;
                put_int(out, 1, 0);
                put_int(out, 2, i64::from(given));
                put_bytes(out, 3, b"");
            }
            (Shape::IntOrString, Value::String(text)) => {
                put_int(out, 1, 1);
                put_int(out, 2, 0);
                put_bytes(out, 3, text.as_bytes());
            }
            (Shape::Time, Value::String(text)) => moment(text, Precision::Seconds, out).ok_or_else(wrong)?,
            (Shape::MicroTime, Value::String(text)) => {
                moment(text, Precision::Micros, out).ok_or_else(wrong)?;
            }
            (Shape::Duration, value) => {
                let text = if value.is_null() { "0s" } else { value.as_str().ok_or_else(wrong)? };
                put_int(out, 1, duration::parse(text).map_err(|_| wrong())?);
            }
            (Shape::RawExtension | Shape::FieldsV1 | Shape::Json, value) if !value.is_null() => {
                put_bytes(out, 1, value.to_string().as_bytes());
            }
            (Shape::WrappedList(element), Value::Array(list)) => {
                list.iter().try_for_each(|value| self.value(element, 1, value, out, depth))?;
            }
            (Shape::SchemaOrArray(id) | Shape::SchemaOrStrings(id), Value::Object(object)) => {
                self.schema_inside(id, 1, object, out, depth)?;
            }
            (Shape::SchemaOrArray(id), Value::Array(list)) => {
                for value in list {
                    self.schema_inside(id, 2, value.as_object().ok_or_else(wrong)?, out, depth)?;
                }
            }
            (Shape::SchemaOrStrings(_), Value::Array(list)) => {
                for value in list {
                    put_bytes(out, 2, value.as_str().ok_or_else(wrong)?.as_bytes());
                }
            }
            (Shape::SchemaOrBool(_), Value::Bool(allows)) => put_int(out, 1, i64::from(*allows)),
            (Shape::SchemaOrBool(_), Value::Null) => put_int(out, 1, 0),
            (Shape::SchemaOrBool(id), Value::Object(object)) => {
                put_int(out, 1, 1);
                self.schema_inside(id, 2, object, out, depth)?;
            }
            (_, Value::Null) => {}
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn schema_inside(
        &self,
        id: StructId,
        number: u32,
        object: &Map<String, Value>,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Problem> {
        let mut inside = Vec::new();
        self.fields(id, object, &mut inside, depth)?;
        put_bytes(out, number, &inside);
        Ok(())
    }
}

/// Encodes a timestamp as seconds and nanoseconds. Go's zero time is an empty message.
fn moment(text: &str, precision: Precision, out: &mut Vec<u8>) -> Option<()> {
    let found = time::parse(text, precision).ok()?;
    if !found.is_none() {
        put_int(out, 1, found.seconds);
        put_int(out, 2, if precision == Precision::Micros { i64::from(found.nanos) } else { 0 });
    }
    Some(())
}
