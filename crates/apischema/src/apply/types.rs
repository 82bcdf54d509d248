//! What server-side apply has to know of a type: which values are one, which are made of parts, and what tells
//! the parts of a list apart.
//!
//! The built-in kinds and the kinds that a CRD defines come to the same form here, a [`Type`], which everything
//! in [`apply`](crate::apply) walks by. A value whose form nobody declared is taken as it comes: objects are
//! made of their fields, lists are one value.

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

/// A type: what may stand at a place of an object.
#[derive(Clone, Copy, Debug)]
pub struct Type<'t> {
    types: &'t Types,
    node: NodeId,
}

/// The forms that a value of a type may have; most types have one.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<List>,
    pub(super) object: Option<Object>,
}

/// A value without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Text,
    Number,
    Bool,
    /// Any of them.
    Any,
}

/// A list.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) element: NodeId,
    pub(super) identity: Identity,
}

/// What tells the elements of a list apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// Nothing: the list is one value.
    Atomic,
    /// They do themselves.
    Set,
    /// The values of some of their fields.
    Keys(Vec<Cow<'static, str>>),
}

/// An object: a struct, a map, or both.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// By name.
    pub(super) fields: Vec<Field>,
    /// The type of fields that are not declared, if there may be any.
    pub(super) others: Option<NodeId>,
    /// Whether it is one value.
    pub(super) atomic: bool,
}

/// A declared field.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: Cow<'static, str>,
    pub(super) node: NodeId,
    /// What an element of a list is known by when it leaves the field out.
    pub(super) default: Option<Value>,
}

impl Types {
    /// The type of a built-in kind's objects.
    pub fn of_kind(kind: &Kind) -> Type<'static> {
        let (types, structs) = &*BUILTIN;
        let node = structs.get(kind.body.place()).copied().flatten();
        Type { types, node: node.unwrap_or(Builder::DEDUCED) }
    }

    /// The type of the objects of one version of a CRD, by its `openAPIV3Schema`.
    ///
    /// `preserve_unknown_fields` is the old flag of the whole definition; the schema's own
    /// `x-kubernetes-preserve-unknown-fields` are read from it.
    pub fn of_schema(open_api_v3_schema: &Value, preserve_unknown_fields: bool) -> Self {
        custom::read(Schema::builtin(), open_api_v3_schema, preserve_unknown_fields)
    }

    /// The type of objects of which nothing is known: every form as it comes.
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
        // Numbers are only made by the builder that has pushed the node.
        &self.types.nodes[self.node.0 as usize]
    }

    /// Another type of the same graph.
    pub(super) fn at(self, node: NodeId) -> Self {
        Self { node, ..self }
    }

    /// The type of a field of an object of this type.
    pub(super) fn inside(self, object: &Object, name: &str) -> Option<Self> {
        object.field(name).map(|field| field.node).or(object.others).map(|node| self.at(node))
    }
}

impl Object {
    /// A declared field.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        let place = self.fields.binary_search_by(|field| field.name.as_ref().cmp(name)).ok()?;
        Some(&self.fields[place])
    }

    /// Whether nothing is declared of it, so that it has whatever parts it comes with.
    pub(super) fn is_deduced(&self) -> bool {
        self.fields.is_empty() && self.others == Some(Builder::DEDUCED)
    }
}

impl StructId {
    fn place(self) -> usize {
        usize::from(self.number())
    }
}
