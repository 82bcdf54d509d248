//! The zero values that Go writes for missing fields, and those that it omits (`omitempty`).
//!
//! kube-apiserver holds objects as Go structs, so a client does not read exactly what another client wrote: `status: {}` is
//! added, `hostNetwork: false` is removed. Both decoders of this crate build objects in that form, so that a stored object is
//! the one that upstream would return.

use serde_json::{Map, Number, Value};

use crate::schema::{Field, Omit, Schema, Shape, StructId, TypeId};

/// The maximum depth of structs in the zero value of a struct; the API needs four.
const DEPTH: usize = 16;

/// The zero value of a type.
pub(crate) fn value(schema: &Schema, ty: TypeId, budget: &mut Budget) -> Result<Value, OverBudget> {
    value_at(schema, ty, budget, DEPTH)
}

fn value_at(schema: &Schema, ty: TypeId, budget: &mut Budget, depth: usize) -> Result<Value, OverBudget> {
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
            let zero = value_at(schema, field.ty, budget, depth)?;
            object.insert(field.json.to_owned(), zero);
        }
    }
    Ok(())
}

/// Whether Go's encoder omits a field with this value.
pub(crate) fn omits(schema: &Schema, field: &Field, value: &Value) -> bool {
    if value.is_null() {
        // Null is a missing value; `fill` adds the zero value if Go writes one.
        return true;
    }
    let shape = schema[field.ty].shape;
    match (field.omit, shape) {
        // Upstream's storage returns nil for an empty list, which Go encodes as null or omits.
        (_, Shape::List(_) | Shape::WrappedList(_)) => value.as_array().is_some_and(Vec::is_empty),
        (_, Shape::Map(_)) => value.as_object().is_some_and(Map::is_empty),
        (Omit::Empty, Shape::Text | Shape::Bytes) => value.as_str().is_some_and(str::is_empty),
        (Omit::Empty, Shape::Bool) => value.as_bool() == Some(false),
        (Omit::Empty, Shape::Int32 | Shape::Int64) => value.as_i64() == Some(0),
        (Omit::Empty, Shape::Double) => value.as_f64() == Some(0.0),
        _ => false,
    }
}

/// The remaining number of values of an object.
///
/// Two bytes of protobuf can be a list element for which a dozen zero values are added: without a bound, a request at the size
/// limit would become hundreds of megabytes.
#[derive(Debug)]
pub(crate) struct Budget(usize);

/// The object has too many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object has more than {} values", Budget::VALUES)]
pub(crate) struct OverBudget;

impl Budget {
    /// The maximum number of values: several times that of the largest useful objects.
    pub(crate) const VALUES: usize = 500_000;

    pub(crate) fn new() -> Self {
        Self(Self::VALUES)
    }

    pub(crate) fn spend(&mut self) -> Result<(), OverBudget> {
        self.0 = self.0.checked_sub(1).ok_or(OverBudget)?;
        Ok(())
    }
}
