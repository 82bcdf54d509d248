//! Values: what data is read as, and what operations make.

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

/// A value. Data is borrowed and read where an operation looks.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// One without a sign.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A span of time, in nanoseconds.
    Duration(i64),
    /// A moment.
    Timestamp(Moment),
    /// A list.
    List(List<'a>),
    /// A map or an object.
    Map(Map<'a>),
    /// Something, or nothing.
    Optional(Option<Box<Self>>),
    /// A type, by its name.
    Type(&'static str),
    /// An amount.
    Quantity(Amount),
    /// An address of the network.
    Ip(IpAddr),
    /// A range of addresses: one of them, and how many bits they share.
    Cidr(IpAddr, u8),
    /// An address of the web.
    Url(Arc<crate::functions::Url>),
    /// A form that texts can have, by its name.
    Format(&'static str),
    /// A version.
    Semver(Arc<crate::functions::Semver>),
    /// An object that an expression made.
    Message(Arc<Message<'a>>),
    /// An authorizer, or a check that is built up.
    Access(Arc<crate::access::Access<'a>>),
    /// What an authorizer decided.
    Decision(Arc<crate::access::Decision>),
}

/// An amount, and whether it was added up.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// How much.
    pub amount: Quantity,
    /// A number and a power of ten, if upstream has these for it and not a number of any length.
    pub small: Option<(i64, i32)>,
    /// Whether it is a sum or a difference, which upstream has another type for.
    pub is_sum: bool,
}

/// An object that an expression made.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// The name of its type, such as `Object.spec`.
    pub name: &'a str,
    /// Its fields.
    pub fields: BTreeMap<&'a str, Value<'a>>,
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Made by an operation; what is known of it, if it continues a declared one.
    Made(Arc<Vec<Value<'a>>>, Option<&'a Decl>),
    /// Data, and what is known of it.
    Data(&'a [Json], &'a Decl),
}

/// A map or an object.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// Made by an operation.
    Made(Arc<BTreeMap<Key, Value<'a>>>),
    /// Data, and what is known of it.
    Data(&'a JsonMap<String, Json>, &'a Decl),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// True or false.
    Bool(bool),
    /// A whole number, whatever its type.
    Int(i128),
    /// A text.
    Text(String),
}

impl Key {
    /// A value as a key; nothing if it cannot be one.
    pub(crate) fn of(value: &Value<'_>) -> Option<Self> {
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
    /// Data as a value.
    pub fn of_json(data: &'a Json, decl: &'a Decl) -> Self {
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

    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Cow::Owned(text.into()))
    }

    pub(crate) fn list(elements: Vec<Self>) -> Self {
        Self::List(List::Made(Arc::new(elements), None))
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The name of its type.
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

    /// How large it is, as prices see it.
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
    /// Takes from `left` what the value weighs: one for each of its parts, and the lengths of its texts. None if it weighs
    /// more. A part that it has several times counts each time, as whatever goes over the value meets it each time.
    pub(crate) fn weigh(&self, left: &mut usize) -> Option<()> {
        let own = match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        *left = left.checked_sub(own.saturating_add(1))?;
        match self {
            Self::List(List::Data(list, _)) => list.iter().try_for_each(|data| weigh_json(data, left)),
            Self::Map(Map::Data(map, _)) => map.values().try_for_each(|data| weigh_json(data, left)),
            _ => self.weigh_parts(left),
        }
    }

    /// The same for the parts of a value that an expression made. Data and texts by themselves weigh nothing: operations
    /// on them have a price by their size.
    pub(crate) fn weigh_parts(&self, left: &mut usize) -> Option<()> {
        match self {
            Self::List(List::Made(list, _)) => list.iter().try_for_each(|part| part.weigh(left)),
            Self::Map(Map::Made(map)) => map.iter().try_for_each(|(key, part)| {
                if let Key::Text(text) = key {
                    *left = left.checked_sub(text.len())?;
                }
                part.weigh(left)
            }),
            Self::Message(message) => message.fields.values().try_for_each(|part| part.weigh(left)),
            Self::Optional(Some(inner)) => inner.weigh(left),
            _ => Some(()),
        }
    }
}

fn weigh_json(data: &Json, left: &mut usize) -> Option<()> {
    let own = data.as_str().map_or(0, str::len);
    *left = left.checked_sub(own.saturating_add(1))?;
    match data {
        Json::Array(list) => list.iter().try_for_each(|data| weigh_json(data, left)),
        Json::Object(map) => map.values().try_for_each(|data| weigh_json(data, left)),
        _ => Some(()),
    }
}

impl<'a> List<'a> {
    /// How many elements it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Made(list, _) => list.len(),
            Self::Data(list, _) => list.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An element.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Made(list, _) => list.get(index).cloned(),
            Self::Data(list, decl) => {
                Some(Value::of_json(list.get(index)?, decl.element().map_or(*decl, |of| of)))
            }
        }
    }

    /// Its elements.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| self.get(index).unwrap_or(Value::Null))
    }
}

impl<'a> Map<'a> {
    /// How many entries it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Made(map) => map.len(),
            Self::Data(map, _) => map.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key, or of a field by the name that expressions know it by.
    pub fn get(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match self {
            Self::Made(map) => map.get(&Key::of(key)?).cloned(),
            Self::Data(map, decl) => {
                let name = key.as_text()?;
                match &decl.kind {
                    DeclKind::Object { fields, .. } => {
                        let field = fields.get(name)?;
                        Some(Value::of_json(map.get(&field.json)?, &field.decl))
                    }
                    DeclKind::Map(of) => Some(Value::of_json(map.get(name)?, of)),
                    _ => Some(Value::of_json(map.get(name)?, decl)),
                }
            }
        }
    }

    /// Its keys.
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

    /// Its entries.
    pub fn entries(&self) -> impl Iterator<Item = (Value<'a>, Value<'a>)> + '_ {
        self.keys().into_iter().filter_map(|key| {
            let value = self.get(&key)?;
            Some((key, value))
        })
    }
}

/// The type that a name stands for in an expression.
pub(crate) fn type_named(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 10] =
        ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
    NAMES.into_iter().find(|own| *own == name)
}
