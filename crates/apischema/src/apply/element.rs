//! The elements of field paths.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::value;

/// An element of a field path: the name of a field, or the key, value or index of a list element.
///
/// Elements borrow from the objects that they were found in.
#[derive(Clone, Debug)]
pub enum Element<'a> {
    /// A field of an object.
    Field(Cow<'a, str>),
    /// The element of an associative list whose key fields have these values.
    Key(Vec<(Cow<'a, str>, Cow<'a, Value>)>),
    /// The element of a set.
    Value(Cow<'a, Value>),
    /// The element at an index.
    Index(i64),
}

impl Element<'_> {
    /// Converts the element to one that owns its data.
    pub fn into_owned(self) -> Element<'static> {
        match self {
            Self::Field(name) => Element::Field(Cow::Owned(name.into_owned())),
            Self::Key(fields) => Element::Key(
                (fields.into_iter())
                    .map(|(name, value)| (Cow::Owned(name.into_owned()), Cow::Owned(value.into_owned())))
                    .collect(),
            ),
            Self::Value(value) => Element::Value(Cow::Owned(value.into_owned())),
            Self::Index(index) => Element::Index(index),
        }
    }

    /// The order of the variants, as in structured-merge-diff (`PathElement.Less`).
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for Element<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(one), Self::Field(other)) => one.cmp(other),
            (Self::Key(one), Self::Key(other)) => {
                let fields = one.iter().zip(other).map(|((name, value), (other_name, other_value))| {
                    name.cmp(other_name).then_with(|| value::compare(value, other_value))
                });
                let first = fields.into_iter().find(|order| order.is_ne());
                first.unwrap_or_else(|| one.len().cmp(&other.len()))
            }
            (Self::Value(one), Self::Value(other)) => value::compare(one, other),
            (Self::Index(one), Self::Index(other)) => one.cmp(other),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element<'_> {}

/// Displays the element as error messages do: `.name`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{name}={}", value::Printed(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", value::Printed(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// The path of a field.
pub(super) type Path<'a> = Vec<Element<'a>>;

/// Displays a path as error messages do: `.spec.containers[name="a"].image`.
pub(super) fn display_path(path: &[Element<'_>]) -> String {
    path.iter().map(ToString::to_string).collect()
}
