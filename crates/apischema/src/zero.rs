//! The zero values that Go writes for missing fields, and those that it omits (`omitempty`).
//!
//! An object is decoded, held and encoded as Go structs by every other API server, so what a client reads back
//! is not what another wrote: `status: {}` appears, `hostNetwork: false` is gone. Both decoders of this crate
//! build objects in that form, so that a stored object is the one upstream would return.

use serde_json::{Map, Number, Value};

use crate::schema::{Field, Omit, Schema, Shape, StructId, TypeId};

/// How deep the zero of a struct goes into the structs inside; the API needs four.
const DEPTH: usize = 16;

/// The value that a field of this type has when it was never set.
pub(crate) fn of(schema: &Schema, ty: TypeId, budget: &mut Budget) -> Result<Value, OverBudget> {
    of_at(schema, ty, budget, DEPTH)
}

fn of_at(schema: &Schema, ty: TypeId, budget: &mut Budget, depth: usize) -> Result<Value, OverBudget> {
    Ok(match schema[ty].shape {
        Shape::Text => Value::String(String::new()),
        Shape::Bool | Shape::SchemaOrBool(_) => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString | Shape::Double => Value::Number(Number::from(0)),
        Shape::Quantity => Value::String("0".to_owned()),
        Shape::Duration => Value::String("0s".to_owned()),
        Shape::Struct(id) => {
            let mut object = Map::new();
            if depth > 0 {
                fill_at(schema, id, &mut object, budget, depth - 1)?;
            }
            Value::Object(object)
        }
        Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::RawExtension
        | Shape::FieldsV1
        | Shape::Json
        | Shape::Any
        | Shape::Pointer(_)
        | Shape::List(_)
        | Shape::WrappedList(_)
        | Shape::Map(_)
        | Shape::SchemaOrArray(_)
        | Shape::SchemaOrStrings(_) => Value::Null,
    })
}

/// Adds the missing fields that Go writes with their zero value.
pub(crate) fn fill(
    schema: &Schema,
    id: StructId,
    object: &mut Map<String, Value>,
    budget: &mut Budget,
) -> Result<(), OverBudget> {
    fill_at(schema, id, object, budget, DEPTH)
}

fn fill_at(
    schema: &Schema,
    id: StructId,
    object: &mut Map<String, Value>,
    budget: &mut Budget,
    depth: usize,
) -> Result<(), OverBudget> {
    for field in schema[id].always() {
        if !object.contains_key(field.json) {
            budget.spend()?;
            let zero = of_at(schema, field.ty, budget, depth)?;
            object.insert(field.json.to_owned(), zero);
        }
    }
    Ok(())
}

/// Whether Go leaves a field out although it has this value.
pub(crate) fn leaves_out(schema: &Schema, field: &Field, value: &Value) -> bool {
    if value.is_null() {
        // Nothing was said; what stands there instead, if anything, is the zero of the type.
        return true;
    }
    let shape = schema[field.ty].shape;
    match (field.omit, shape) {
        // An empty list comes back from storage as none, which is `null` where Go must write something.
        (_, Shape::List(_) | Shape::WrappedList(_)) => value.as_array().is_some_and(Vec::is_empty),
        (_, Shape::Map(_)) => value.as_object().is_some_and(Map::is_empty),
        (Omit::Empty, Shape::Text | Shape::Bytes) => value.as_str().is_some_and(str::is_empty),
        (Omit::Empty, Shape::Bool) => value.as_bool() == Some(false),
        (Omit::Empty, Shape::Int32 | Shape::Int64) => value.as_i64() == Some(0),
        (Omit::Empty, Shape::Double) => value.as_f64() == Some(0.0),
        _ => false,
    }
}

/// How many values an object may still grow by.
///
/// Two bytes of protobuf can stand for a list element of which a dozen fields are written: without a bound, a
/// request at the size limit becomes hundreds of megabytes.
#[derive(Debug)]
pub(crate) struct Budget(usize);

/// The object has too many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object has more than {} values", Budget::VALUES)]
pub(crate) struct OverBudget;

impl Budget {
    /// Several times what the largest useful objects have.
    pub(crate) const VALUES: usize = 500_000;

    pub(crate) fn new() -> Self {
        Self(Self::VALUES)
    }

    pub(crate) fn spend(&mut self) -> Result<(), OverBudget> {
        self.0 = self.0.checked_sub(1).ok_or(OverBudget)?;
        Ok(())
    }
}
