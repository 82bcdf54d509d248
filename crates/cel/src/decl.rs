//! What is known of the values of a variable before they are there: their types, and how large they can be.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::parse::RESERVED;
use crate::types::Type;

/// A type of data, with bounds.
#[derive(Debug)]
pub struct Decl {
    /// What values look like.
    pub kind: DeclKind,
    /// How many elements, entries or bytes a value has at most.
    pub max_elements: u64,
    /// How many bytes the smallest value takes as JSON.
    pub min_size: u64,
    /// What makes two lists the same.
    pub order: ListOrder,
}

/// What makes two lists the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// The same elements in the same order.
    #[default]
    Listed,
    /// The same elements.
    Set,
    /// The same elements, identified by these fields.
    Keyed(Vec<String>),
}

/// What values look like.
#[derive(Debug)]
pub enum DeclKind {
    /// Anything.
    Dyn,
    /// True or false.
    Bool,
    /// A whole number.
    Int,
    /// A number, whole or not.
    Double,
    /// A text.
    Text,
    /// Bytes, in base64.
    Bytes,
    /// A span of time, such as `1m30s`.
    Duration,
    /// A moment, or a day.
    Timestamp,
    /// A list.
    List(Arc<Decl>),
    /// A map from text.
    Map(Arc<Decl>),
    /// An object with known fields.
    Object {
        /// A name that no other object of the same program has.
        name: String,
        /// By the names that expressions use.
        fields: BTreeMap<String, Field>,
    },
}

/// A field of an object.
#[derive(Debug)]
pub struct Field {
    /// The name in the data, which expressions may have to write otherwise.
    pub json: String,
    /// What it holds.
    pub decl: Arc<Decl>,
}

impl Decl {
    /// Data of which nothing is known.
    pub fn dynamic() -> Arc<Self> {
        Self::simple(DeclKind::Dyn, u64::MAX, 1)
    }

    /// Data of one kind, within bounds.
    pub fn simple(kind: DeclKind, max_elements: u64, min_size: u64) -> Arc<Self> {
        Arc::new(Self { kind, max_elements, min_size, order: ListOrder::Listed })
    }

    /// The name of an object's type; empty for all others.
    pub(crate) fn name(&self) -> &str {
        match &self.kind {
            DeclKind::Object { name, .. } => name,
            _ => "",
        }
    }

    /// The field that expressions know by a name.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        match &self.kind {
            DeclKind::Object { fields, .. } => fields.get(name),
            _ => None,
        }
    }

    /// What lists and maps hold.
    pub(crate) fn element(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::List(of) | DeclKind::Map(of) => Some(of),
            _ => None,
        }
    }

    /// The type that the checker sees.
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

/// Whether a name can be that of a variable.
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

/// The name by which expressions know a field: a word of the language stands between underscores, and signs
/// that no name has are written out. Nothing if the name cannot be written.
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
