//! Decoding of values without a type.

use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::context::Context;

/// Decodes any value, within the bounds on depth and number of values.
pub(super) struct Seed<'c, 's> {
    context: &'c mut Context<'s>,
    reporting: bool,
}

impl<'c, 's> Seed<'c, 's> {
    /// Creates a decoder that reports duplicate fields.
    pub(super) fn reporting(context: &'c mut Context<'s>) -> Self {
        Self { context, reporting: true }
    }

    /// Creates a decoder that uses the last of duplicate fields and does not report them.
    pub(super) fn silent(context: &'c mut Context<'s>) -> Self {
        Self { context, reporting: false }
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
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.context.enter()?;
        let mut list = Vec::new();
        loop {
            let before = self.context.push_index(list.len());
            let next = access.next_element_seed(Seed { context: self.context, reporting: self.reporting })?;
            self.context.back_to(before);
            match next {
                Some(value) => list.push(value),
                None => break,
            }
        }
        self.context.leave();
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.context.enter()?;
        let mut object = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if self.reporting && object.contains_key(&key) {
                self.context.duplicate(&key);
            }
            let before = self.context.push_key(&key);
            let value = access.next_value_seed(Seed { context: self.context, reporting: self.reporting })?;
            self.context.back_to(before);
            object.insert(key, value);
        }
        self.context.leave();
        Ok(Value::Object(object))
    }
}
