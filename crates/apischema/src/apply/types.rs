//! Types for server-side apply: which values are atomic, which are granular, and by which keys list elements are
//! merged.
//!
//! A [`Type`] is built from the schema table or from the schema of a CRD. Values without a declared type are deduced:
//! maps are granular, lists are atomic.

mod builtin;
mod custom;

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::Value;

use crate::schema::{Kind, Schema, StructId};
use builtin::Builder;

static BUILTIN: LazyLock<(Types, Vec<Option<NodeId>>)> = LazyLock::new(|| builtin::all(Schema::builtin()));

/// A node of a [`Types`], by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(u32);

/// Types that refer to one another.
#[derive(Debug)]
pub struct Types {
    nodes: Vec<Node>,
    root: NodeId,
}

/// A type of values.
#[derive(Clone, Copy, Debug)]
pub struct Type<'t> {
    types: &'t Types,
    node: NodeId,
}

/// The alternatives of a type (scalar, list, map); most types have one.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<List>,
    pub(super) object: Option<Object>,
}

/// A scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Text,
    Number,
    Bool,
    /// Any scalar.
    Any,
}

/// A list.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) element: NodeId,
    pub(super) identity: Identity,
}

/// The list type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// An atomic list.
    Atomic,
    /// A set: the elements are their own keys.
    Set,
    /// An associative list with these key fields.
    Keys(Vec<Cow<'static, str>>),
}

/// An object: a struct, a map, or both.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// The declared fields, sorted by name.
    pub(super) fields: Vec<Field>,
    /// The type of undeclared fields, if they are allowed.
    pub(super) others: Option<NodeId>,
    /// Whether the map is atomic.
    pub(super) atomic: bool,
}

/// A declared field.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: Cow<'static, str>,
    pub(super) node: NodeId,
    /// The default of a key field.
    pub(super) default: Option<Value>,
}

impl Types {
    /// The type of a built-in kind's objects.
    pub fn for_kind(kind: &Kind) -> Type<'static> {
        let (types, structs) = &*BUILTIN;
        let node = structs.get(kind.body.index()).copied().flatten();
        Type { types, node: node.unwrap_or(Builder::DEDUCED) }
    }

    /// The type of the objects of one version of a CRD, by its `openAPIV3Schema`.
    ///
    /// `preserve_unknown_fields` is the old flag of the whole definition; the schema's own
    /// `x-kubernetes-preserve-unknown-fields` are read from it.
    pub fn from_schema(open_api_v3_schema: &Value, preserve_unknown_fields: bool) -> Self {
        custom::read(Schema::builtin(), open_api_v3_schema, preserve_unknown_fields)
    }

    /// The deduced type of objects without a schema.
    pub fn deduced() -> Self {
        let mut types = Builder::new(Schema::builtin()).types;
        types.root = Builder::DEDUCED;
        types
    }

    /// The type of the whole object.
    pub fn root(&self) -> Type<'_> {
        Type { types: self, node: self.root }
    }
}

impl<'t> Type<'t> {
    pub(super) fn node(self) -> &'t Node {
        // Only the builder creates node IDs, after it pushed the node.
        &self.types.nodes[self.node.0 as usize]
    }

    /// The type of a node of the same types.
    pub(super) fn at(self, node: NodeId) -> Self {
        Self { node, ..self }
    }

    /// The type of a field of an object of this type.
    pub(super) fn field_type(self, object: &Object, name: &str) -> Option<Self> {
        object.field(name).map(|field| field.node).or(object.others).map(|node| self.at(node))
    }
}

impl Object {
    /// A declared field.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        let index = self.fields.binary_search_by(|field| field.name.as_ref().cmp(name)).ok()?;
        Some(&self.fields[index])
    }

    /// Whether the type is deduced from the value.
    pub(super) fn is_deduced(&self) -> bool {
        self.fields.is_empty() && self.others == Some(Builder::DEDUCED)
    }
}

impl StructId {
    fn index(self) -> usize {
        usize::from(self.number())
    }
}
