//! Decoding of values by their type in the table.

use std::fmt;

use plumb_go::duration;
use plumb_resize::Quantity;
use serde::Deserialize as _;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::context::Context;
use super::{any, structure};
use crate::scalar;
use crate::scalar::time::{self, Precision};
use crate::schema::{Shape, StructId, TypeId};
use crate::zero;

/// Decodes a value of a type.
pub(super) struct Seed<'c, 's> {
    pub(super) context: &'c mut Context<'s>,
    pub(super) ty: TypeId,
    /// The value of an earlier duplicate field, into which Go's decoder continues to decode.
    pub(super) previous: Option<Value>,
    /// Whether null clears the value of an earlier duplicate field, as it does for a pointer.
    pub(super) nullable: bool,
}

impl Seed<'_, '_> {
    fn shape(&self) -> Shape {
        self.context.schema[self.ty].shape
    }

    fn wrong(self, found: &str) -> Value {
        let go = self.context.schema[self.ty].go;
        self.context.mismatch(found, go);
        Value::Null
    }

    /// The result of null: Go's decoder keeps the value of an earlier duplicate field for scalars and structs.
    fn after_null(self) -> Value {
        let kept = matches!(
            self.shape(),
            Shape::Text | Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Double | Shape::Struct(_)
        );
        if kept && !self.nullable { self.previous.unwrap_or(Value::Null) } else { Value::Null }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.shape() {
            Shape::Pointer(inner) => Seed { ty: inner, nullable: true, ..self }.deserialize(deserializer),
            Shape::Struct(id) => {
                let go = Some(self.context.schema[self.ty].go);
                let Self { context, previous, nullable, .. } = self;
                let seed = structure::Seed { context, id, go, previous, nullable };
                seed.deserialize(deserializer)
            }
            Shape::RawExtension | Shape::FieldsV1 | Shape::Json | Shape::Any => {
                any::Seed::silent(self.context).deserialize(deserializer)
            }
            Shape::Quantity => {
                self.context.spend()?;
                quantity(self.context, &Box::<RawValue>::deserialize(deserializer)?)
            }
            _ => {
                self.context.spend()?;
                deserializer.deserialize_any(self)
            }
        }
    }
}

/// Decodes a quantity from its raw text: numbers are accepted too, and converting them to floats would lose digits.
fn quantity<E: de::Error>(context: &mut Context<'_>, raw: &RawValue) -> Result<Value, E> {
    let text = raw.get();
    if text == "null" {
        return Ok(Value::Null);
    }
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match Quantity::wire_form(quoted.unwrap_or(text)) {
        Ok(kept) => Ok(Value::String(kept.into_owned())),
        Err(error) => Err(context.fail(error.to_string())),
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.context.schema[self.ty].go)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(self.after_null())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        match self.shape() {
            Shape::Bool | Shape::SchemaOrBool(_) => Ok(Value::Bool(value)),
            _ => self.fail_or_skip("bool", "bool"),
        }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        let small = i32::try_from(value).is_ok();
        match self.shape() {
            Shape::Int32 | Shape::IntOrString if small => Ok(Value::from(value)),
            Shape::Int64 | Shape::Double => Ok(Value::from(value)),
            Shape::Int32 => Ok(self.wrong(&format!("number {value}"))),
            _ => self.fail_or_skip(&format!("number {value}"), "number"),
        }
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.beyond(&value.to_string(), Value::from(value)),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        let number = scalar::number(value).unwrap_or(Value::Null);
        // Go rejects an integral number that is written with a point; `Debug` prints the point.
        self.beyond(&format!("{value:?}"), number)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        match self.shape() {
            Shape::Text | Shape::IntOrString => Ok(Value::String(value.to_owned())),
            Shape::Bytes => match scalar::from_base64(value) {
                Ok(bytes) => Ok(Value::String(scalar::base64(&bytes))),
                Err(position) => {
                    self.context.set_mismatch(format!("illegal base64 data at input byte {position}"));
                    Ok(Value::Null)
                }
            },
            Shape::Time => moment(self.context, value, Precision::Seconds),
            Shape::MicroTime => moment(self.context, value, Precision::Micros),
            Shape::Duration => match duration::parse(value) {
                Ok(nanos) => Ok(Value::String(duration::format(nanos))),
                Err(error) => Err(self.context.fail(error.to_string())),
            },
            Shape::SchemaOrBool(_) => Err(self.context.fail("boolean or JSON schema expected".to_owned())),
            Shape::SchemaOrArray(_) | Shape::SchemaOrStrings(_) => Ok(Value::Null),
            _ => Ok(self.wrong("string")),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let element = match self.shape() {
            Shape::List(element) | Shape::WrappedList(element) => Element::Type(element),
            Shape::SchemaOrArray(id) => Element::Schema(id),
            Shape::SchemaOrStrings(_) => Element::Name,
            Shape::Bytes => return listed_bytes(self.context, access),
            _ => {
                while access.next_element::<IgnoredAny>()?.is_some() {}
                return self.fail_or_skip("array", "array");
            }
        };
        let mut previous = match self.previous {
            Some(Value::Array(list)) => list.into_iter(),
            _ => Vec::new().into_iter(),
        };
        let context = self.context;
        context.enter()?;
        let mut list = Vec::new();
        loop {
            let before = context.push_index(list.len());
            let next =
                access.next_element_seed(ElementSeed { context, element, previous: previous.next() })?;
            context.back_to(before);
            match next {
                Some(value) => list.push(value),
                None => break,
            }
        }
        context.leave();
        match element {
            // Upstream leaves both alternatives of the union unset then.
            Element::Schema(_) | Element::Name if list.is_empty() => Ok(Value::Null),
            _ => Ok(Value::Array(list)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        match self.shape() {
            Shape::Map(inner) => {
                let previous = match self.previous {
                    Some(Value::Object(map)) => map,
                    _ => Map::new(),
                };
                let mut map = Map::new();
                let context = self.context;
                context.enter()?;
                while let Some(key) = access.next_key::<String>()? {
                    if map.contains_key(&key) {
                        context.duplicate(&key);
                    }
                    let before = context.push_key(&key);
                    let element = Element::Type(inner);
                    let value = access.next_value_seed(ElementSeed { context, element, previous: None })?;
                    context.back_to(before);
                    map.insert(key, value);
                }
                context.leave();
                for (key, value) in previous {
                    map.entry(key).or_insert(value);
                }
                Ok(Value::Object(map))
            }
            Shape::SchemaOrArray(id) | Shape::SchemaOrBool(id) | Shape::SchemaOrStrings(id) => {
                schema_inside(self.context, id, de::value::MapAccessDeserializer::new(access))
            }
            _ => {
                while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                self.fail_or_skip("object", "object")
            }
        }
    }
}

impl Seed<'_, '_> {
    /// Handles a value of the wrong type: types with their own decoder abort decoding, the others are skipped and
    /// reported at the end.
    fn fail_or_skip<E: de::Error>(self, number: &str, found: &str) -> Result<Value, E> {
        match self.shape() {
            Shape::Time | Shape::MicroTime | Shape::Duration => Err(self.context.fail_type(found, "string")),
            Shape::IntOrString => Err(self.context.fail_type(number, "int32")),
            Shape::SchemaOrBool(_) => Err(self.context.fail("boolean or JSON schema expected".to_owned())),
            Shape::SchemaOrArray(_) | Shape::SchemaOrStrings(_) => Ok(Value::Null),
            _ => Ok(self.wrong(found)),
        }
    }

    /// Handles a number that is not an `i64`.
    fn beyond<E: de::Error>(self, text: &str, number: Value) -> Result<Value, E> {
        match self.shape() {
            Shape::Double => Ok(number),
            Shape::Int32 | Shape::Int64 => Ok(self.wrong(&format!("number {text}"))),
            _ => self.fail_or_skip(&format!("number {text}"), "number"),
        }
    }
}

fn moment<E: de::Error>(context: &mut Context<'_>, text: &str, precision: Precision) -> Result<Value, E> {
    match time::parse(text, precision) {
        Ok(moment) if moment.is_none() => Ok(Value::Null),
        Ok(moment) => match moment.text(precision) {
            Some(text) => Ok(Value::String(text)),
            None => Err(context.fail(format!("parsing time {text:?}: year out of range"))),
        },
        Err(error) => Err(context.fail(error.to_string())),
    }
}

/// Decodes bytes from a list of numbers, which Go accepts besides base64.
fn listed_bytes<'de, A: SeqAccess<'de>>(context: &mut Context<'_>, mut access: A) -> Result<Value, A::Error> {
    let mut bytes = Vec::new();
    while let Some(element) = access.next_element_seed(any::Seed::silent(context))? {
        let wrong = match &element {
            Value::Null => None,
            Value::Number(number) => match number.as_u64().and_then(|number| u8::try_from(number).ok()) {
                Some(byte) => {
                    bytes.push(byte);
                    continue;
                }
                None => Some(format!("number {number}")),
            },
            Value::Bool(_) => Some("bool".to_owned()),
            Value::String(_) => Some("string".to_owned()),
            Value::Array(_) => Some("array".to_owned()),
            Value::Object(_) => Some("object".to_owned()),
        };
        bytes.push(0);
        if let Some(found) = wrong {
            context.mismatch(&found, "uint8");
        }
    }
    Ok(Value::String(scalar::base64(&bytes)))
}

/// Decodes the schema of a union such as `JSONSchemaPropsOrBool`.
fn schema_inside<'de, D: de::Deserializer<'de>>(
    context: &mut Context<'_>,
    id: StructId,
    deserializer: D,
) -> Result<Value, D::Error> {
    context.decode_separately(|context| structure::seed(context, id).deserialize(deserializer))
}

#[derive(Clone, Copy)]
enum Element {
    Type(TypeId),
    Schema(StructId),
    Name,
}

/// Decodes an element of a list or map. Null becomes the zero value of the type.
struct ElementSeed<'c, 's> {
    context: &'c mut Context<'s>,
    element: Element,
    previous: Option<Value>,
}

impl<'de> DeserializeSeed<'de> for ElementSeed<'_, '_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let Self { context, element, previous } = self;
        let value = match element {
            Element::Type(ty) => Seed { context, ty, previous, nullable: false }.deserialize(deserializer)?,
            Element::Schema(id) => schema_inside(context, id, deserializer)?,
            Element::Name => {
                context.decode_separately(|context| deserializer.deserialize_any(Name { context }))?
            }
        };
        match (value, element) {
            (Value::Null, Element::Type(ty)) => match context.schema[ty].shape {
                // Upstream's storage returns empty bytes and wrapped lists for missing ones.
                Shape::Bytes => Ok(Value::String(String::new())),
                Shape::WrappedList(_) => Ok(Value::Array(Vec::new())),
                _ => zero::value(context.schema, ty, &mut context.budget)
                    .map_err(|over| context.too_large(over)),
            },
            (Value::Null, Element::Schema(_)) => Ok(Value::Object(Map::new())),
            (value, _) => Ok(value),
        }
    }
}

/// Decodes a name in the list of `JSONSchemaPropsOrStringArray`.
struct Name<'c, 's> {
    context: &'c mut Context<'s>,
}

impl Name<'_, '_> {
    fn wrong(self, found: &str) -> Value {
        self.context.mismatch(found, "string");
        Value::Null
    }
}

impl<'de> Visitor<'de> for Name<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::String(String::new()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(self.wrong("bool"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(self.wrong("number"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(self.wrong("number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(self.wrong("number"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.wrong("array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.wrong("object"))
    }
}
