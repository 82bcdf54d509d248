use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Field, Identity, List, Node, NodeId, Object, Scalar, Types};
use crate::schema::{self, ListType, Omit, Schema, Shape, StructId, TypeId};

/// Key fields whose default the API declares with `+default`: struct, field, default.
const DEFAULTS: [(&str, &str, &str); 3] = [
    ("ContainerPort", "protocol", "TCP"),
    ("ServicePort", "protocol", "TCP"),
    ("LocalObjectReference", "name", ""),
];

/// Builds types from the schema table.
pub(super) struct Builder<'s> {
    pub(super) schema: &'s Schema,
    pub(super) types: Types,
    structs: HashMap<u16, NodeId>,
}

/// The types of every kind of a schema, and the node of each struct.
pub(super) fn all(schema: &'static Schema) -> (Types, Vec<Option<NodeId>>) {
    let mut builder = Builder::new(schema);
    for kind in schema.kinds() {
        builder.structure(kind.body);
    }
    let mut structs = vec![None; schema.structs().count()];
    for (&number, &node) in &builder.structs {
        structs[usize::from(number)] = Some(node);
    }
    (builder.types, structs)
}

impl<'s> Builder<'s> {
    /// An atomic value of any type.
    pub(super) const UNTYPED: NodeId = NodeId(0);
    /// A deduced value: maps are granular, everything else is atomic.
    pub(super) const DEDUCED: NodeId = NodeId(1);
    pub(super) const TEXT: NodeId = NodeId(2);
    pub(super) const NUMBER: NodeId = NodeId(3);
    pub(super) const BOOL: NodeId = NodeId(4);
    pub(super) const ANY_SCALAR: NodeId = NodeId(5);
    /// A map without declared fields.
    pub(super) const FREE_OBJECT: NodeId = NodeId(6);

    pub(super) fn new(schema: &'s Schema) -> Self {
        let scalar = |scalar| Node { scalar: Some(scalar), ..Node::default() };
        let open = |others, atomic| Object { fields: Vec::new(), others: Some(others), atomic };
        let untyped_list = List { element: Self::UNTYPED, identity: Identity::Atomic };
        let any = |object| Node {
            scalar: Some(Scalar::Any),
            list: Some(untyped_list.clone()),
            object: Some(object),
        };
        let nodes = vec![
            any(open(Self::UNTYPED, true)),
            any(open(Self::DEDUCED, false)),
            scalar(Scalar::Text),
            scalar(Scalar::Number),
            scalar(Scalar::Bool),
            scalar(Scalar::Any),
            Node { object: Some(open(Self::DEDUCED, false)), ..Node::default() },
        ];
        Self { schema, types: Types { nodes, root: Self::DEDUCED }, structs: HashMap::new() }
    }

    pub(super) fn push(&mut self, node: Node) -> NodeId {
        // A schema has thousands of nodes, and the size of a request body bounds those of a CRD.
        let number = u32::try_from(self.types.nodes.len()).unwrap_or(Self::UNTYPED.0);
        self.types.nodes.push(node);
        NodeId(number)
    }

    /// The type of a struct, built once.
    pub(super) fn structure(&mut self, id: StructId) -> NodeId {
        if let Some(&node) = self.structs.get(&id.number()) {
            return node;
        }
        let schema = self.schema;
        // The node is pushed first, as a struct may contain itself.
        let node = self.push(Node::default());
        self.structs.insert(id.number(), node);
        let of = &schema[id];
        let fields: Vec<Field> = (of.fields().iter())
            .map(|field| Field {
                name: Cow::Borrowed(field.json),
                node: self.field(field),
                default: default_of(schema, of.name, field),
            })
            .collect();
        let others = fields.is_empty().then_some(Self::DEDUCED);
        self.types.nodes[node.0 as usize].object = Some(Object { fields, others, atomic: of.atomic });
        node
    }

    /// The type of a field, whose list type and map type override those of its type.
    fn field(&mut self, field: &schema::Field) -> NodeId {
        let schema = self.schema;
        let ty = schema.pointee(field.ty);
        match schema[ty].shape {
            Shape::List(inner) | Shape::WrappedList(inner) => {
                let element = self.type_node(inner);
                let identity = identity(field);
                self.push(Node { list: Some(List { element, identity }), ..Node::default() })
            }
            Shape::Map(inner) => {
                let others = Some(self.type_node(inner));
                let atomic = field.list_type == Some(ListType::Atomic);
                let object = Object { fields: Vec::new(), others, atomic };
                self.push(Node { object: Some(object), ..Node::default() })
            }
            Shape::Struct(id) => {
                let node = self.structure(id);
                let Some(list_type) = field.list_type else { return node };
                let atomic = list_type == ListType::Atomic;
                if atomic == schema[id].atomic {
                    return node;
                }
                let mut own = self.types.nodes[node.0 as usize].clone();
                if let Some(object) = &mut own.object {
                    object.atomic = atomic;
                }
                self.push(own)
            }
            _ => self.type_node(ty),
        }
    }

    /// A type without overrides of a field.
    fn type_node(&mut self, ty: TypeId) -> NodeId {
        match self.schema[ty].shape {
            Shape::Text | Shape::Bytes | Shape::Duration => Self::TEXT,
            Shape::Bool => Self::BOOL,
            Shape::Int32 | Shape::Int64 | Shape::Double => Self::NUMBER,
            Shape::Quantity | Shape::IntOrString | Shape::Time | Shape::MicroTime => Self::ANY_SCALAR,
            Shape::RawExtension => Self::UNTYPED,
            Shape::FieldsV1 => Self::FREE_OBJECT,
            Shape::Json
            | Shape::Any
            | Shape::SchemaOrArray(_)
            | Shape::SchemaOrBool(_)
            | Shape::SchemaOrStrings(_) => Self::DEDUCED,
            Shape::Pointer(inner) => self.type_node(inner),
            Shape::List(inner) | Shape::WrappedList(inner) => {
                let element = self.type_node(inner);
                let list = List { element, identity: Identity::Atomic };
                self.push(Node { list: Some(list), ..Node::default() })
            }
            Shape::Map(inner) => {
                let others = Some(self.type_node(inner));
                let object = Object { fields: Vec::new(), others, atomic: false };
                self.push(Node { object: Some(object), ..Node::default() })
            }
            Shape::Struct(id) => self.structure(id),
        }
    }
}

/// The list type of a field: its `listType`, else its patch strategy and merge key.
fn identity(field: &schema::Field) -> Identity {
    match field.list_type {
        Some(ListType::Set) => Identity::Set,
        Some(ListType::Map) => {
            Identity::Keys(field.list_keys.iter().map(|key| Cow::Borrowed(*key)).collect())
        }
        None if field.patch.merge => match field.patch.merge_key {
            Some(key) => Identity::Keys(vec![Cow::Borrowed(key)]),
            None => Identity::Set,
        },
        _ => Identity::Atomic,
    }
}

fn default_of(schema: &Schema, owner: &str, field: &schema::Field) -> Option<Value> {
    let own = DEFAULTS.iter().find(|(name, json, _)| *name == owner && *json == field.json);
    if let Some((_, _, default)) = own {
        return Some(json!(default));
    }
    match schema[field.ty].shape {
        _ if field.omit != Omit::Never => None,
        Shape::Text => Some(json!("")),
        Shape::Int32 | Shape::Int64 | Shape::Double => Some(json!(0)),
        Shape::Bool => Some(json!(false)),
        _ => None,
    }
}
