//! Walks over typed values.

mod atomics;
mod collect;
mod compare;
mod merge;
mod named;
mod reconcile;
mod remove;
mod validate;

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

pub(super) use atomics::atomics;
pub(super) use collect::collect;
pub use compare::Comparison;
pub(super) use compare::compare;
pub(super) use merge::merge;
pub(super) use named::with_named_fields;
pub(super) use reconcile::reconcile;
pub(super) use remove::{extract, remove};
pub(super) use validate::validate;

use super::element::Element;
use super::types::{Identity, List, Node, Object, Scalar, Type};

/// A value that does not match its type, with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TypeError {
    path: String,
    message: String,
}

/// The values that do not match their types.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TypeErrors(Vec<TypeError>);

impl TypeErrors {
    fn one(message: impl Into<String>) -> Self {
        Self(vec![TypeError { path: String::new(), message: message.into() }])
    }

    /// Prefixes the paths of the errors with an element.
    fn prefixed(mut self, element: &Element<'_>) -> Self {
        if !self.0.is_empty() {
            let step = element.to_string();
            for error in &mut self.0 {
                error.path.insert_str(0, &step);
            }
        }
        self
    }

    fn extend(&mut self, other: Result<(), Self>) {
        if let Err(errors) = other {
            self.0.extend(errors.0);
        }
    }

    fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write_one = |f: &mut fmt::Formatter<'_>, error: &TypeError| match error.path.as_str() {
            "" => f.write_str(&error.message),
            path => write!(f, "{path}: {}", error.message),
        };
        if let [error] = &self.0[..] {
            return write_one(f, error);
        }
        f.write_str("errors:")?;
        self.0.iter().try_for_each(|error| {
            f.write_str("\n  ")?;
            write_one(f, error)
        })
    }
}

impl std::error::Error for TypeErrors {}

/// One alternative of a type.
#[derive(Clone, Copy, Debug)]
enum Form<'t> {
    Object(&'t Object),
    Scalar(Scalar),
    List(&'t List),
}

impl<'t> Form<'t> {
    /// Selects the alternative of a type that matches a value; the first alternative if none matches or there is no value.
    fn for_value(node: &'t Node, value: Option<&Value>) -> Option<Self> {
        let object = || node.object.as_ref().map(Self::Object);
        let scalar = || node.scalar.map(Self::Scalar);
        let list = || node.list.as_ref().map(Self::List);
        let own = match value {
            Some(Value::Object(_)) => object(),
            Some(Value::Array(_)) => list(),
            Some(Value::String(_) | Value::Number(_) | Value::Bool(_)) => scalar(),
            Some(Value::Null) | None => None,
        };
        own.or_else(object).or_else(scalar).or_else(list)
    }

    fn is_same(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Object(_), Self::Object(_))
                | (Self::Scalar(_), Self::Scalar(_))
                | (Self::List(_), Self::List(_))
        )
    }
}

fn invalid() -> TypeErrors {
    TypeErrors::one("schema error: invalid atom: inlined")
}

fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn elements(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice)
}

fn field_step(name: &str) -> Element<'_> {
    Element::Field(Cow::Borrowed(name))
}

/// The path element of a list element.
fn step<'a>(ty: Type<'a>, list: &'a List, item: &'a Value) -> Result<Element<'a>, String> {
    match &list.identity {
        Identity::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        Identity::Keys(keys) => keyed(ty, list, keys, item),
        Identity::Set => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            value => Ok(Element::Value(Cow::Borrowed(value))),
        },
    }
}

fn keyed<'a>(
    ty: Type<'a>,
    list: &'a List,
    keys: &'a [Cow<'static, str>],
    item: &'a Value,
) -> Result<Element<'a>, String> {
    let map = match item {
        Value::Object(map) => map,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let name: &'a str = key.as_ref();
        if let Some(value) = map.get(name) {
            found.push((Cow::Borrowed(name), Cow::Borrowed(value)));
            continue;
        }
        let Some(object) = ty.at(list.element).node().object.as_ref() else {
            let why = "associative list may not have non-map types";
            return Err(format!("couldn't find default value for {name}: {why}"));
        };
        // A missing key without a default is not part of the path element.
        if let Some(default) = object.field(name).and_then(|field| field.default.as_ref()) {
            found.push((Cow::Borrowed(name), Cow::Borrowed(default)));
        }
    }
    if found.is_empty() && !keys.is_empty() {
        let names: Vec<String> = keys.iter().map(|key| format!("{:?}", key.as_ref())).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(Element::Key(found))
}

fn at_element(index: usize, why: &str) -> TypeErrors {
    TypeErrors::one(format!("element {index}: {why}"))
}
