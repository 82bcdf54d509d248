//! Values of expressions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plumb_resize::Quantity;
use serde_json::{Map as JsonMap, Value as Json};

use crate::decl::{Decl, DeclKind};
use crate::functions::{Moment, equal, parse_timestamp};

/// A value. JSON is borrowed, and converted lazily as an operation reads it.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A string.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A timestamp.
    Timestamp(Moment),
    /// A list.
    List(List<'a>),
    /// A map or an object.
    Map(Map<'a>),
    /// An optional value.
    Optional(Option<Box<Self>>),
    /// A type, by its name.
    Type(&'static str),
    /// A quantity.
    Quantity(Amount),
    /// An IP address.
    Ip(IpAddr),
    /// A CIDR: an address and the length of the prefix.
    Cidr(IpAddr, u8),
    /// A URL.
    Url(Arc<crate::functions::Url>),
    /// A named format of strings.
    Format(&'static str),
    /// A semantic version.
    Semver(Arc<crate::functions::Semver>),
    /// A message that an expression created.
    Message(Arc<Message<'a>>),
    /// An authorizer, or a check that is being built.
    Access(Arc<crate::access::Access<'a>>),
    /// The decision of an authorizer.
    Decision(Arc<crate::access::Decision>),
}

/// A quantity in the representation of upstream, on which the results of some functions depend.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// The quantity.
    pub amount: Quantity,
    /// A number and a power of ten, if upstream represents the quantity as `int64Amount` and not as `inf.Dec`.
    pub small: Option<(i64, i32)>,
    /// Whether it is a sum or a difference, which has another type in upstream.
    pub is_sum: bool,
}

/// A message that an expression created.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// The name of the type, such as `Object.spec`.
    pub name: &'a str,
    /// The fields that are set.
    pub fields: BTreeMap<&'a str, Value<'a>>,
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Created by an operation; with the declaration of the list that it was made from, if any.
    Made(Arc<Vec<Value<'a>>>, Option<&'a Decl>),
    /// JSON with its declaration.
    Data(&'a [Json], &'a Decl),
}

/// A map or an object.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// Created by an operation.
    Made(Arc<BTreeMap<Key, Value<'a>>>),
    /// JSON with its declaration.
    Data(&'a JsonMap<String, Json>, &'a Decl),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A boolean.
    Bool(bool),
    /// An integer; keys of all numeric types are equal if their numbers are.
    Int(i128),
    /// A string.
    Text(String),
}

impl Key {
    /// Converts a value to a key; `None` if its type cannot be a key.
    pub(crate) fn from_value(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Bool(truth) => Some(Self::Bool(*truth)),
            Value::Int(number) => Some(Self::Int((*number).into())),
            Value::Uint(number) => Some(Self::Int((*number).into())),
            Value::Text(text) => Some(Self::Text(text.clone().into_owned())),
            Value::Double(number) if number.fract() == 0.0 => {
                format!("{number:.0}").parse().ok().map(Self::Int)
            }
            _ => None,
        }
    }

    /// The key as a value.
    pub(crate) fn value<'a>(&self) -> Value<'a> {
        match self {
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Int(number) => i64::try_from(*number)
                .map(Value::Int)
                .or_else(|_| u64::try_from(*number).map(Value::Uint))
                .unwrap_or(Value::Null),
            Self::Text(text) => Value::Text(Cow::Owned(text.clone())),
        }
    }
}

impl<'a> Value<'a> {
    /// Converts JSON to a value of a declared type.
    pub fn from_json(data: &'a Json, decl: &'a Decl) -> Self {
        match (data, &decl.kind) {
            (Json::Null, _) => Self::Null,
            (Json::Bool(truth), _) => Self::Bool(*truth),
            (Json::Number(number), DeclKind::Double) => Self::Double(number.as_f64().unwrap_or_default()),
            (Json::Number(number), kind) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => Self::Int(whole),
                (None, Some(double)) if matches!(kind, DeclKind::Int) && double.fract() == 0.0 => {
                    format!("{double:.0}").parse().map_or(Self::Double(double), Self::Int)
                }
                (None, double) => Self::Double(double.unwrap_or_default()),
            },
            (Json::String(text), DeclKind::Bytes) => {
                STANDARD.decode(text).map_or(Self::Null, |bytes| Self::Bytes(bytes.into()))
            }
            (Json::String(text), DeclKind::Duration) => {
                plumb_go::duration::parse_openapi(text).map_or(Self::Null, Self::Duration)
            }
            (Json::String(text), DeclKind::Timestamp) => {
                let moment = parse_timestamp(text).or_else(|| parse_timestamp(&format!("{text}T00:00:00Z")));
                moment.map_or(Self::Null, Self::Timestamp)
            }
            (Json::String(text), _) => Self::Text(Cow::Borrowed(text)),
            (Json::Array(list), _) => Self::List(List::Data(list, decl)),
            (Json::Object(map), _) => Self::Map(Map::Data(map, decl)),
        }
    }

    /// A string.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Cow::Owned(text.into()))
    }

    pub(crate) fn list(elements: Vec<Self>) -> Self {
        Self::List(List::Made(Arc::new(elements), None))
    }

    /// The string, if the value is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Quantity(_) => crate::types::QUANTITY,
            Self::Ip(_) => crate::types::IP,
            Self::Cidr(..) => crate::types::CIDR,
            Self::Url(_) => crate::types::URL,
            Self::Format(_) => crate::types::FORMAT,
            Self::Semver(_) => crate::types::SEMVER,
            Self::Access(access) => access.type_name(),
            Self::Decision(_) => crate::types::DECISION,
            Self::Message(message) if message.name == "JSONPatch" => "JSONPatch",
            Self::Message(_) => "Object",
        }
    }

    /// The size of the value, from which costs are computed.
    pub(crate) fn size(&self) -> u64 {
        let length = match self {
            Self::Text(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Ip(IpAddr::V4(_)) | Self::Cidr(IpAddr::V4(_), _) => 4,
            Self::Ip(IpAddr::V6(_)) | Self::Cidr(IpAddr::V6(_), _) => 16,
            Self::Optional(Some(inner)) => return inner.size(),
            _ => 1,
        };
        length as u64
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        equal(self, other)
    }
}

impl Value<'_> {
    /// Subtracts the weight of the value from `remaining`: one for each of its parts, and the lengths of its strings. `None`
    /// if the weight is larger. A part that occurs several times counts each time, since every traversal visits it each
    /// time.
    pub(crate) fn weigh(&self, remaining: &mut usize) -> Option<()> {
        let length = match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        *remaining = remaining.checked_sub(length.saturating_add(1))?;
        match self {
            Self::List(List::Data(list, _)) => list.iter().try_for_each(|data| weigh_json(data, remaining)),
            Self::Map(Map::Data(map, _)) => map.values().try_for_each(|data| weigh_json(data, remaining)),
            _ => self.weigh_parts(remaining),
        }
    }

    /// Subtracts the weight of the parts of a value that an expression created. JSON and strings themselves weigh nothing:
    /// the cost of operations on them depends on their size.
    pub(crate) fn weigh_parts(&self, remaining: &mut usize) -> Option<()> {
        match self {
            Self::List(List::Made(list, _)) => list.iter().try_for_each(|part| part.weigh(remaining)),
            Self::Map(Map::Made(map)) => map.iter().try_for_each(|(key, part)| {
                if let Key::Text(text) = key {
                    *remaining = remaining.checked_sub(text.len())?;
                }
                part.weigh(remaining)
            }),
            Self::Message(message) => message.fields.values().try_for_each(|part| part.weigh(remaining)),
            Self::Optional(Some(inner)) => inner.weigh(remaining),
            _ => Some(()),
        }
    }
}

fn weigh_json(data: &Json, remaining: &mut usize) -> Option<()> {
    let length = data.as_str().map_or(0, str::len);
    *remaining = remaining.checked_sub(length.saturating_add(1))?;
    match data {
        Json::Array(list) => list.iter().try_for_each(|data| weigh_json(data, remaining)),
        Json::Object(map) => map.values().try_for_each(|data| weigh_json(data, remaining)),
        _ => Some(()),
    }
}

impl<'a> List<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Made(list, _) => list.len(),
            Self::Data(list, _) => list.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Made(list, _) => list.get(index).cloned(),
            Self::Data(list, decl) => {
                Some(Value::from_json(list.get(index)?, decl.element().map_or(*decl, |of| of)))
            }
        }
    }

    /// The elements.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| self.get(index).unwrap_or(Value::Null))
    }
}

impl<'a> Map<'a> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        match self {
            Self::Made(map) => map.len(),
            Self::Data(map, _) => map.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key, or of a field by its escaped name.
    pub fn get(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match self {
            Self::Made(map) => map.get(&Key::from_value(key)?).cloned(),
            Self::Data(map, decl) => {
                let name = key.as_text()?;
                match &decl.kind {
                    DeclKind::Object { fields, .. } => {
                        let field = fields.get(name)?;
                        Some(Value::from_json(map.get(&field.json)?, &field.decl))
                    }
                    DeclKind::Map(of) => Some(Value::from_json(map.get(name)?, of)),
                    _ => Some(Value::from_json(map.get(name)?, decl)),
                }
            }
        }
    }

    /// The keys; of an object, the escaped names of its fields.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Made(map) => map.keys().map(Key::value).collect(),
            Self::Data(map, decl) => match &decl.kind {
                DeclKind::Object { fields, .. } => fields
                    .iter()
                    .filter(|(_, field)| map.contains_key(&field.json))
                    .map(|(name, _)| Value::text(name.clone()))
                    .collect(),
                _ => map.keys().map(|key| Value::Text(Cow::Borrowed(key.as_str()))).collect(),
            },
        }
    }

    /// The keys with their values.
    pub fn entries(&self) -> impl Iterator<Item = (Value<'a>, Value<'a>)> + '_ {
        self.keys().into_iter().filter_map(|key| {
            let value = self.get(&key)?;
            Some((key, value))
        })
    }
}

/// The type with a name that expressions can use as a value.
pub(crate) fn type_named(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 10] =
        ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
    NAMES.into_iter().find(|known| *known == name)
}
