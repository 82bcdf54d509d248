//! Declarations of variables: their types, and bounds on the sizes of their values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::parse::RESERVED;
use crate::types::Type;

/// A type of data, with bounds.
#[derive(Debug)]
pub struct Decl {
    /// The kind of the values.
    pub kind: DeclKind,
    /// The maximum number of elements, entries or bytes of a value.
    pub max_elements: u64,
    /// The size of the smallest value as JSON, in bytes.
    pub min_size: u64,
    /// How two lists are compared.
    pub order: ListOrder,
}

/// How two lists are compared (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// Equal elements in the same order (`atomic`).
    #[default]
    Listed,
    /// Equal elements in any order (`set`).
    Set,
    /// Equal elements in any order, identified by these fields (`map`).
    Keyed(Vec<String>),
}

/// The kind of a declared value.
#[derive(Debug)]
pub enum DeclKind {
    /// A value of any type.
    Dyn,
    /// A boolean.
    Bool,
    /// An integer.
    Int,
    /// A floating-point number.
    Double,
    /// A string.
    Text,
    /// Bytes, encoded as base64.
    Bytes,
    /// A duration, such as `1m30s`.
    Duration,
    /// A timestamp or a date.
    Timestamp,
    /// A list.
    List(Arc<Decl>),
    /// A map with string keys.
    Map(Arc<Decl>),
    /// An object with known fields.
    Object {
        /// The type name, unique within a program.
        name: String,
        /// The fields by their escaped names.
        fields: BTreeMap<String, Field>,
    },
}

/// A field of an object.
#[derive(Debug)]
pub struct Field {
    /// The name in JSON, which expressions write escaped.
    pub json: String,
    /// The declaration of the field.
    pub decl: Arc<Decl>,
}

impl Decl {
    /// Data of any type and size.
    pub fn dynamic() -> Arc<Self> {
        Self::simple(DeclKind::Dyn, u64::MAX, 1)
    }

    /// A declaration with bounds, and with ordered lists.
    pub fn simple(kind: DeclKind, max_elements: u64, min_size: u64) -> Arc<Self> {
        Arc::new(Self { kind, max_elements, min_size, order: ListOrder::Listed })
    }

    /// The type name of an object; empty for other kinds.
    pub(crate) fn name(&self) -> &str {
        match &self.kind {
            DeclKind::Object { name, .. } => name,
            _ => "",
        }
    }

    /// The field with an escaped name.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        match &self.kind {
            DeclKind::Object { fields, .. } => fields.get(name),
            _ => None,
        }
    }

    /// The declaration of the elements of a list or the values of a map.
    pub(crate) fn element(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::List(of) | DeclKind::Map(of) => Some(of),
            _ => None,
        }
    }

    /// The type for the type checker.
    pub(crate) fn ty(self: &Arc<Self>) -> Type {
        match &self.kind {
            DeclKind::Dyn => Type::Dyn,
            DeclKind::Bool => Type::Bool,
            DeclKind::Int => Type::Int,
            DeclKind::Double => Type::Double,
            DeclKind::Text => Type::Text,
            DeclKind::Bytes => Type::Bytes,
            DeclKind::Duration => Type::Duration,
            DeclKind::Timestamp => Type::Timestamp,
            DeclKind::List(of) => Type::list(of.ty()),
            DeclKind::Map(of) => Type::Map(Arc::new(Type::Text), Arc::new(of.ty())),
            DeclKind::Object { .. } => Type::Object(self.clone()),
        }
    }
}

/// Whether a name can be the name of a variable.
///
/// ```
/// assert!(plumb_cel::is_identifier("_a1"));
/// assert!(!plumb_cel::is_identifier("1a") && !plumb_cel::is_identifier("in") && !plumb_cel::is_identifier("a-b"));
/// ```
pub fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    let starts = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    starts
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !RESERVED.contains(&name)
        && !matches!(name, "true" | "false" | "null" | "in")
}

/// Escapes the name of a field for use in expressions: a keyword is put between underscores, and characters that are not
/// allowed in identifiers are spelled out. `None` if the name cannot be escaped.
///
/// ```
/// assert_eq!(plumb_cel::escape("a.b-c/d").as_deref(), Some("a__dot__b__dash__c__slash__d"));
/// assert_eq!(plumb_cel::escape("namespace").as_deref(), Some("__namespace__"));
/// assert_eq!(plumb_cel::escape("__x").as_deref(), Some("__underscores__x"));
/// assert_eq!(plumb_cel::escape("a b"), None);
/// ```
pub fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) || matches!(name, "true" | "false" | "null" | "in") {
        return Some(format!("__{name}__"));
    }
    let mut out = String::new();
    let mut letters = name.chars().peekable();
    if letters.peek().is_none_or(char::is_ascii_digit) {
        return None;
    }
    while let Some(letter) = letters.next() {
        match letter {
            '_' if letters.peek() == Some(&'_') => {
                letters.next();
                out.push_str("__underscores__");
            }
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            letter if letter.is_ascii_alphanumeric() || letter == '_' => out.push(letter),
            _ => return None,
        }
    }
    Some(out)
}
