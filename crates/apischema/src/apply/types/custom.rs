use std::borrow::Cow;

use serde_json::Value;

use super::builtin::Builder;
use super::{Field, Identity, List, Node, NodeId, Object, Scalar, Types};
use crate::schema::Schema;

/// The maximum depth of a schema, which is that of a request body.
const DEPTH: usize = crate::json::MAX_DEPTH;

/// Builds types from a structural schema.
pub(super) fn read(schema: &Schema, root: &Value, preserve: bool) -> Types {
    let mut reader = Reader { builder: Builder::new(schema) };
    let node = reader.embedded(root, preserve, DEPTH);
    let mut types = reader.builder.types;
    types.root = node;
    types
}

struct Reader<'s> {
    builder: Builder<'s>,
}

impl Reader<'_> {
    /// The schema of an embedded resource, which always has a kind and metadata.
    fn embedded(&mut self, schema: &Value, preserve: bool, depth: usize) -> NodeId {
        let preserve = preserve || is_on(schema, "x-kubernetes-preserve-unknown-fields");
        let mut object = self.object(schema, preserve, depth);
        let known = self.builder.schema;
        let metadata = known.kind("", "v1", "Pod").and_then(|pod| known[pod.body].field("metadata"));
        let metadata = metadata.and_then(|field| known.struct_behind(field.ty));
        let metadata = metadata.map_or(Builder::FREE_OBJECT, |id| self.builder.structure(id));
        for (name, node) in [("apiVersion", Builder::TEXT), ("kind", Builder::TEXT), ("metadata", metadata)] {
            let field = Field { name: Cow::Borrowed(name), node, default: None };
            match object.fields.binary_search_by(|field| field.name.as_ref().cmp(name)) {
                Ok(index) => object.fields[index] = field,
                Err(index) => object.fields.insert(index, field),
            }
        }
        if !preserve && schema.get("additionalProperties").is_none() {
            // A map with declared fields has no others.
            object.others = None;
        }
        self.builder.push(Node { object: Some(object), ..Node::default() })
    }

    fn schema(&mut self, schema: &Value, preserve: bool, depth: usize) -> NodeId {
        let Some(depth) = depth.checked_sub(1) else { return Builder::UNTYPED };
        let preserve = preserve || is_on(schema, "x-kubernetes-preserve-unknown-fields");
        if is_on(schema, "x-kubernetes-embedded-resource") {
            return self.embedded(schema, preserve, depth);
        }
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        match schema.get("type").and_then(Value::as_str).unwrap_or_default() {
            "object" => {
                let object = self.object(schema, preserve, depth);
                self.builder.push(Node { object: Some(object), ..Node::default() })
            }
            "array" => {
                let list = self.list(schema, preserve, depth);
                self.builder.push(Node { list: Some(list), ..Node::default() })
            }
            "integer" | "number" => Builder::NUMBER,
            "boolean" => Builder::BOOL,
            "string" if matches!(format, "" | "byte") => Builder::TEXT,
            "string" => Builder::ANY_SCALAR,
            _ => {
                let list = self.list(schema, preserve, depth);
                let object = self.object(schema, preserve, depth);
                let node = Node { scalar: Some(Scalar::Any), list: Some(list), object: Some(object) };
                self.builder.push(node)
            }
        }
    }

    fn object(&mut self, schema: &Value, preserve: bool, depth: usize) -> Object {
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut fields: Vec<Field> = (properties.into_iter().flatten())
            .map(|(name, property)| Field {
                name: Cow::Owned(name.clone()),
                node: self.schema(property, preserve, depth),
                default: property.get("default").filter(|default| !default.is_null()).cloned(),
            })
            .collect();
        fields.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let others = match schema.get("additionalProperties") {
            None | Some(Value::Null) => (preserve || fields.is_empty()).then_some(Builder::DEDUCED),
            Some(Value::Bool(allowed)) => allowed.then_some(Builder::DEDUCED),
            Some(others) => Some(self.schema(others, preserve, depth)),
        };
        let atomic = schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        Object { fields, others, atomic }
    }

    fn list(&mut self, schema: &Value, preserve: bool, depth: usize) -> List {
        let element = match schema.get("items") {
            Some(items @ Value::Object(_)) => self.schema(items, preserve, depth),
            _ => Builder::UNTYPED,
        };
        let identity = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => Identity::Set,
            Some("map") => {
                let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let keys = keys.into_iter().flatten().filter_map(Value::as_str);
                Identity::Keys(keys.map(|key| Cow::Owned(key.to_owned())).collect())
            }
            _ => Identity::Atomic,
        };
        List { element, identity }
    }
}

fn is_on(schema: &Value, flag: &str) -> bool {
    schema.get(flag) == Some(&Value::Bool(true))
}
