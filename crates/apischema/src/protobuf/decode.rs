use plumb_go::duration;
use plumb_resize::Quantity;
use serde_json::{Map, Value};

use super::envelope::{Envelope, MAGIC};
use super::wire::{BYTES, FIXED64, Reader, VARINT};
use super::{Cause, ProtobufError};
use crate::scalar::time::{Moment, NONE, Precision};
use crate::scalar::{self, base64};
use crate::schema::{Field, Kind, Schema, Shape, StructId, TypeId, Wire};
use crate::zero::{self, Budget, OverBudget};

pub(super) fn enveloped(
    schema: &Schema,
    envelope: &Envelope<'_>,
    expected: Option<&Kind>,
    depth: usize,
) -> Result<Value, ProtobufError> {
    let unnamed = envelope.api_version.is_empty() && envelope.kind.is_empty();
    let found = if unnamed { expected } else { schema.kind_of(envelope.api_version, envelope.kind) };
    let kind = found.ok_or_else(|| ProtobufError::UnknownKind {
        api_version: envelope.api_version.to_owned(),
        kind: envelope.kind.to_owned(),
    })?;
    let mut value = object(schema, kind, envelope.raw, depth)?;
    // Kinds such as `DeleteOptions` belong to every group version, so the envelope decides.
    if !unnamed && let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), envelope.api_version.into());
    }
    Ok(value)
}

pub(super) fn object(
    schema: &Schema,
    kind: &Kind,
    message: &[u8],
    depth: usize,
) -> Result<Value, ProtobufError> {
    let mut decoder = Decoder { schema, budget: Budget::new() };
    let mut fields = Map::new();
    decoder.message(kind.body, message, &mut fields, depth)?;
    if schema[kind.body].field("kind").is_some_and(|field| field.through == Some("TypeMeta")) {
        let group_version = match kind.group {
            "" => kind.version.to_owned(),
            group => format!("{group}/{}", kind.version),
        };
        fields.insert("apiVersion".to_owned(), Value::String(group_version));
        fields.insert("kind".to_owned(), Value::String(kind.name.to_owned()));
    }
    Ok(Value::Object(fields))
}

struct Decoder<'s> {
    schema: &'s Schema,
    budget: Budget,
}

type Object = Map<String, Value>;

impl Decoder<'_> {
    /// Decodes the message of a struct into an object, and adds the zero values that Go writes.
    fn message(
        &mut self,
        id: StructId,
        bytes: &[u8],
        into: &mut Object,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        self.fields(id, bytes, into, depth)?;
        zero::fill(self.schema, id, into, &mut self.budget).map_err(too_large)
    }

    fn fields(
        &mut self,
        id: StructId,
        bytes: &[u8],
        into: &mut Object,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let depth = depth.checked_sub(1).ok_or(ProtobufError::TooDeep)?;
        let owner = &self.schema[id];
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag().map_err(|cause| at(owner.name, "", cause))? {
            match owner.by_number(number) {
                None => reader.skip(wire).map_err(|cause| at(owner.name, &number.to_string(), cause))?,
                Some(Wire::Embedded(inner)) => {
                    let name = self.schema[inner].name;
                    let inside =
                        message_bytes(&mut reader, wire).map_err(|cause| at(owner.name, name, cause))?;
                    self.fields(inner, inside, into, depth)?;
                }
                Some(Wire::Field(index)) => {
                    let field = &owner.fields()[usize::from(index)];
                    self.field(field, wire, &mut reader, into, depth)
                        .map_err(|problem| problem.placed(owner.name, field.json))?;
                }
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &Field,
        wire: u8,
        reader: &mut Reader<'_>,
        into: &mut Object,
        depth: usize,
    ) -> Result<(), Problem> {
        match self.schema[field.ty].shape {
            Shape::List(element) => {
                let list = into.entry(field.json).or_insert(Value::Null);
                if !list.is_array() {
                    *list = Value::Array(Vec::new());
                }
                let Value::Array(list) = list else { return Ok(()) };
                if wire == BYTES && packable(self.schema[element].shape) {
                    let mut packed = Reader::new(reader.bytes()?);
                    let scalar = if self.schema[element].shape == Shape::Double { FIXED64 } else { VARINT };
                    while !packed.is_empty() {
                        list.push(self.value(element, scalar, &mut packed, depth)?);
                    }
                } else {
                    list.push(self.value(element, wire, reader, depth)?);
                }
            }
            Shape::Map(inner) => {
                let (key, value) = self.entry(inner, message_bytes(reader, wire)?, depth)?;
                let map = into.entry(field.json).or_insert(Value::Null);
                if !map.is_object() {
                    *map = Value::Object(Map::new());
                }
                if let Value::Object(map) = map {
                    map.insert(key, value);
                }
            }
            Shape::Struct(id) => self.merge(id, field, message_bytes(reader, wire)?, into, depth)?,
            Shape::Pointer(inner) if matches!(self.schema[inner].shape, Shape::Struct(_)) => {
                if let Shape::Struct(id) = self.schema[inner].shape {
                    self.merge(id, field, message_bytes(reader, wire)?, into, depth)?;
                }
            }
            _ => {
                let value = self.value(field.ty, wire, reader, depth)?;
                if zero::omits(self.schema, field, &value) {
                    into.remove(field.json);
                } else {
                    into.insert(field.json.to_owned(), value);
                }
            }
        }
        Ok(())
    }

    /// Decodes a message field. As protobuf requires, repeated occurrences of a message are merged.
    fn merge(
        &mut self,
        id: StructId,
        field: &Field,
        bytes: &[u8],
        into: &mut Object,
        depth: usize,
    ) -> Result<(), Problem> {
        self.budget.spend()?;
        let mut object = match into.remove(field.json) {
            Some(Value::Object(object)) => object,
            _ => Map::new(),
        };
        self.message(id, bytes, &mut object, depth)?;
        into.insert(field.json.to_owned(), Value::Object(object));
        Ok(())
    }

    fn entry(&mut self, inner: TypeId, bytes: &[u8], depth: usize) -> Result<(String, Value), Problem> {
        let mut key = String::new();
        let mut value = None;
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag()? {
            match number {
                1 => text(message_bytes(&mut reader, wire)?)?.clone_into(&mut key),
                2 => value = Some(self.value(inner, wire, &mut reader, depth)?),
                _ => reader.skip(wire)?,
            }
        }
        let value = match value {
            Some(value) => value,
            // A map entry without a value has the zero value; zero bytes and wrapped lists are empty, not missing.
            None => match self.schema[inner].shape {
                Shape::Bytes => Value::String(String::new()),
                Shape::WrappedList(_) => Value::Array(Vec::new()),
                _ => zero::value(self.schema, inner, &mut self.budget)?,
            },
        };
        Ok((key, value))
    }

    fn value(
        &mut self,
        ty: TypeId,
        wire: u8,
        reader: &mut Reader<'_>,
        depth: usize,
    ) -> Result<Value, Problem> {
        self.budget.spend()?;
        let shape = self.schema[ty].shape;
        Ok(match shape {
            Shape::Pointer(inner) => self.value(inner, wire, reader, depth)?,
            Shape::Bool => Value::Bool(varint(reader, wire)? != 0),
            // A negative `int32` is encoded as a sign-extended varint of 64 bits.
            #[expect(clippy::cast_possible_truncation, reason = "as every reader of protobuf does")]
            Shape::Int32 => Value::from(varint(reader, wire)? as i32),
            Shape::Int64 => Value::from(varint(reader, wire)?.cast_signed()),
            Shape::Double if wire == FIXED64 => {
                scalar::number(f64::from_bits(reader.fixed64()?)).ok_or(Cause::NotFinite)?
            }
            Shape::Double => return Err(Cause::WireType(wire).into()),
            Shape::Text => Value::String(text(message_bytes(reader, wire)?)?.to_owned()),
            Shape::Bytes => Value::String(base64(message_bytes(reader, wire)?)),
            _ => self.composite(shape, message_bytes(reader, wire)?, depth)?,
        })
    }

    fn composite(&mut self, shape: Shape, bytes: &[u8], depth: usize) -> Result<Value, Problem> {
        Ok(match shape {
            Shape::Struct(id) => {
                let mut object = Map::new();
                self.message(id, bytes, &mut object, depth)?;
                Value::Object(object)
            }
            Shape::Quantity => match last_bytes(bytes, 1)? {
                None => Value::String("0".to_owned()),
                Some(bytes) => {
                    let given = text(bytes)?;
                    let kept =
                        Quantity::wire_form(given).map_err(|error| Cause::Quantity(error.to_string()))?;
                    Value::String(kept.into_owned())
                }
            },
            Shape::IntOrString => {
                if last_varint(bytes, 1)?.unwrap_or(0) == 0 {
                    #[expect(clippy::cast_possible_truncation, reason = "a number of 32 bits travels in 64")]
                    Value::from(last_varint(bytes, 2)?.unwrap_or(0) as i32)
                } else {
                    Value::String(text(last_bytes(bytes, 3)?.unwrap_or_default())?.to_owned())
                }
            }
            Shape::Time => moment(bytes, Precision::Seconds)?,
            Shape::MicroTime => moment(bytes, Precision::Micros)?,
            Shape::Duration => {
                Value::String(duration::format(last_varint(bytes, 1)?.unwrap_or(0).cast_signed()))
            }
            Shape::RawExtension | Shape::FieldsV1 | Shape::Json => {
                self.embedded(last_bytes(bytes, 1)?.unwrap_or_default(), depth)?
            }
            Shape::WrappedList(element) => {
                let mut list = Vec::new();
                let mut reader = Reader::new(bytes);
                while let Some((number, wire)) = reader.tag()? {
                    match number {
                        1 => list.push(self.value(element, wire, &mut reader, depth)?),
                        _ => reader.skip(wire)?,
                    }
                }
                Value::Array(list)
            }
            Shape::SchemaOrArray(id) => self.union(id, bytes, 1, Some(2), None, depth)?,
            Shape::SchemaOrStrings(id) => self.union(id, bytes, 1, None, Some(2), depth)?,
            Shape::SchemaOrBool(id) => match self.union(id, bytes, 2, None, None, depth)? {
                Value::Null => Value::Bool(last_varint(bytes, 1)?.unwrap_or(0) != 0),
                schema => schema,
            },
            // `value` decodes the scalars, and `Any` has no protobuf form.
            _ => Value::Null,
        })
    }

    /// Decodes a union of a JSON schema, a list of schemas and a list of names, given the field numbers of the alternatives.
    fn union(
        &mut self,
        id: StructId,
        bytes: &[u8],
        one: u32,
        many: Option<u32>,
        names: Option<u32>,
        depth: usize,
    ) -> Result<Value, Problem> {
        let mut schema = Value::Null;
        let mut list = Vec::new();
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag()? {
            if number == one || Some(number) == many {
                let inside = message_bytes(&mut reader, wire)?;
                self.budget.spend()?;
                let found = self.composite(Shape::Struct(id), inside, depth)?;
                if number == one { schema = found } else { list.push(found) }
            } else if Some(number) == names {
                self.budget.spend()?;
                list.push(Value::String(text(message_bytes(&mut reader, wire)?)?.to_owned()));
            } else {
                reader.skip(wire)?;
            }
        }
        Ok(if list.is_empty() { schema } else { Value::Array(list) })
    }

    /// Decodes an embedded object, which is JSON or another envelope.
    fn embedded(&mut self, raw: &[u8], depth: usize) -> Result<Value, Problem> {
        if raw.is_empty() {
            return Ok(Value::Null);
        }
        if raw.starts_with(&MAGIC) {
            let depth = depth.checked_sub(1).ok_or(ProtobufError::TooDeep)?;
            return Ok(enveloped(self.schema, &Envelope::open(raw)?, None, depth)?);
        }
        Ok(serde_json::from_slice(raw).map_err(|error| Cause::Embedded(error.to_string()))?)
    }
}

/// A cause without the field that it belongs to, or a complete error.
enum Problem {
    Here(Cause),
    Placed(ProtobufError),
}

impl Problem {
    fn placed(self, owner: &str, field: &str) -> ProtobufError {
        match self {
            Self::Here(cause) => at(owner, field, cause),
            Self::Placed(error) => error,
        }
    }
}

impl From<Cause> for Problem {
    fn from(cause: Cause) -> Self {
        Self::Here(cause)
    }
}

impl From<ProtobufError> for Problem {
    fn from(error: ProtobufError) -> Self {
        Self::Placed(error)
    }
}

impl From<OverBudget> for Problem {
    fn from(error: OverBudget) -> Self {
        Self::Placed(too_large(error))
    }
}

fn too_large(error: OverBudget) -> ProtobufError {
    ProtobufError::TooLarge(error.to_string())
}

fn at(owner: &str, field: &str, cause: Cause) -> ProtobufError {
    let at = if field.is_empty() { owner.to_owned() } else { format!("{owner}.{field}") };
    ProtobufError::Malformed { at, cause }
}

fn packable(shape: Shape) -> bool {
    matches!(shape, Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Double)
}

fn message_bytes<'a>(reader: &mut Reader<'a>, wire: u8) -> Result<&'a [u8], Cause> {
    if wire == BYTES { reader.bytes() } else { Err(Cause::WireType(wire)) }
}

fn varint(reader: &mut Reader<'_>, wire: u8) -> Result<u64, Cause> {
    if wire == VARINT { reader.varint() } else { Err(Cause::WireType(wire)) }
}

fn text(bytes: &[u8]) -> Result<&str, Cause> {
    std::str::from_utf8(bytes).map_err(|_| Cause::Utf8)
}

/// The last occurrence of a field with bytes. Of repeated scalar fields, protobuf uses the last.
fn last_bytes(message: &[u8], wanted: u32) -> Result<Option<&[u8]>, Cause> {
    let mut reader = Reader::new(message);
    let mut found = None;
    while let Some((number, wire)) = reader.tag()? {
        if number == wanted {
            found = Some(message_bytes(&mut reader, wire)?);
        } else {
            reader.skip(wire)?;
        }
    }
    Ok(found)
}

/// The last occurrence of a field with a varint.
fn last_varint(message: &[u8], wanted: u32) -> Result<Option<u64>, Cause> {
    let mut reader = Reader::new(message);
    let mut found = None;
    while let Some((number, wire)) = reader.tag()? {
        if number == wanted {
            found = Some(varint(&mut reader, wire)?);
        } else {
            reader.skip(wire)?;
        }
    }
    Ok(found)
}

fn moment(message: &[u8], precision: Precision) -> Result<Value, Cause> {
    if message.is_empty() {
        return Ok(Value::Null);
    }
    let seconds = last_varint(message, 1)?.unwrap_or(0).cast_signed();
    let nanos = match precision {
        Precision::Seconds => 0,
        Precision::Micros => {
            let nanos = last_varint(message, 2)?.unwrap_or(0);
            u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000).ok_or(Cause::Time)?
        }
    };
    if seconds == NONE && nanos < 1000 {
        return Ok(Value::Null);
    }
    Moment { seconds, nanos }.text(precision).map(Value::String).ok_or(Cause::Time)
}
