//! Decoding of structs, whose fields are looked up in the table.

use std::fmt;

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::context::Context;
use super::value::Seed as ValueSeed;
use crate::schema::{Field, Struct, StructId};
use crate::zero;

/// Decodes an object of a struct.
pub(super) fn seed<'c, 's>(context: &'c mut Context<'s>, id: StructId) -> Seed<'c, 's> {
    Seed { context, id, go: None, previous: None, nullable: true }
}

/// Reads an object of a struct.
pub(super) struct Seed<'c, 's> {
    pub(super) context: &'c mut Context<'s>,
    pub(super) id: StructId,
    /// The Go name of the type, if it differs from that of the struct.
    pub(super) go: Option<&'static str>,
    /// The value of an earlier duplicate field, into which Go's decoder continues to decode.
    pub(super) previous: Option<Value>,
    /// Whether null clears the value of an earlier duplicate field, as it does for a pointer.
    pub(super) nullable: bool,
}

impl<'s> Seed<'_, 's> {
    fn wrong(self, found: &str) -> Value {
        let owner: &'s Struct = &self.context.schema[self.id];
        let version = owner.package.rsplit('/').next().unwrap_or_default();
        let go = self.go.map_or_else(|| format!("{version}.{}", owner.name), str::to_owned);
        self.context.mismatch(found, &go);
        Value::Null
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.context.spend()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self { context, id, previous, .. } = self;
        let mut object = match previous {
            Some(Value::Object(object)) => object,
            _ => Map::new(),
        };
        let continues = !object.is_empty();
        let schema = context.schema;
        let owner = &schema[id];
        context.enter()?;
        let outside = context.owner;
        let mut seen = Seen::default();
        while let Some(key) = access.next_key_seed(Key { owner })? {
            let field = match key {
                Found::Field(index) => &owner.fields()[index],
                Found::Unknown(name) => {
                    context.unknown(&name);
                    access.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let Found::Field(index) = key else { continue };
            let again = seen.again(index);
            if again {
                context.duplicate(field.json);
            }
            let previous = if again || continues { object.remove(field.json) } else { None };
            let before = context.push_key(field.json);
            let depth = context.fields.len();
            context.fields.extend(field.through);
            context.fields.push(field.json);
            context.owner = Some(owner.name);
            let value =
                access.next_value_seed(ValueSeed { context, ty: field.ty, previous, nullable: false })?;
            context.owner = outside;
            context.fields.truncate(depth);
            context.back_to(before);
            insert_value(&mut object, schema, field, value);
        }
        context.leave();
        zero::fill(schema, id, &mut object, &mut context.budget).map_err(|over| context.too_large(over))?;
        Ok(Value::Object(object))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(self.previous.filter(|_| !self.nullable).unwrap_or(Value::Null))
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

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(self.wrong("string"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.wrong("array"))
    }
}

fn insert_value(object: &mut Map<String, Value>, schema: &crate::Schema, field: &Field, mut value: Value) {
    // Empty lists are dropped, but an empty `managedFields` resets the managers. A list with one empty entry has the same
    // meaning and survives.
    if field.json == "managedFields" && value.as_array().is_some_and(Vec::is_empty) {
        value = Value::Array(vec![Value::Object(Map::new())]);
    }
    let is_distinguished = field.distinguishes_empty && !value.is_null();
    if zero::omits(schema, field, &value) && !is_distinguished {
        object.remove(field.json);
    } else {
        object.insert(field.json.to_owned(), value);
    }
}

/// The fields that were already decoded, to find duplicates. No struct but `JSONSchemaProps` and the like has many fields, so
/// a bit mask avoids an allocation.
#[derive(Default)]
struct Seen {
    first: u128,
    rest: Vec<usize>,
}

impl Seen {
    /// Adds a field. Returns whether it is a duplicate.
    fn again(&mut self, index: usize) -> bool {
        if index < 128 {
            let bit = 1 << index;
            let again = self.first & bit != 0;
            self.first |= bit;
            again
        } else {
            let again = self.rest.contains(&index);
            self.rest.push(index);
            again
        }
    }
}

/// Looks up a field name without allocating a string for it.
struct Key<'s> {
    owner: &'s Struct,
}

enum Found {
    Field(usize),
    Unknown(String),
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Found;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Found, E> {
        Ok(match self.owner.fields().binary_search_by(|field| field.json.cmp(name)) {
            Ok(index) => Found::Field(index),
            Err(_) => Found::Unknown(name.to_owned()),
        })
    }
}
