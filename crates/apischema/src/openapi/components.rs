//! The schemas of a document: those that its operations refer to, and all that these refer to.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::descriptions;
use crate::schema::{Field, ListType, Schema, Shape, Struct, StructId, TypeId};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

pub(super) struct Components<'s> {
    schema: &'s Schema,
    group: &'s str,
    version: &'s str,
    done: BTreeMap<String, Value>,
    waiting: Vec<StructId>,
}

impl<'s> Components<'s> {
    pub(super) fn new(schema: &'s Schema, group: &'s str, version: &'s str) -> Self {
        Self { schema, group, version, done: BTreeMap::new(), waiting: Vec::new() }
    }

    /// A reference to the schema of a kind; `None` if the table does not have the kind.
    pub(super) fn kind(&mut self, group: &str, version: &str, kind: &str) -> Option<Value> {
        let found = self.schema.kind(group, version, kind)?;
        Some(self.structure(found.body))
    }

    /// The scalar fields of a kind, with their types.
    pub(super) fn scalars(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Vec<(&'static str, &'static str)> {
        let Some(found) = self.schema.kind(group, version, kind) else { return Vec::new() };
        let own = self.schema[found.body].fields().iter().filter(|field| field.through.is_none());
        own.filter_map(|field| match self.schema[self.schema.pointee(field.ty)].shape {
            // A list is sent as a repeated query parameter.
            Shape::Text | Shape::List(_) => Some((field.json, "string")),
            Shape::Bool => Some((field.json, "boolean")),
            Shape::Int32 | Shape::Int64 => Some((field.json, "integer")),
            _ => None,
        })
        .collect()
    }

    /// A reference to the schema of a patch, which can be anything.
    pub(super) fn patch(&mut self) -> Value {
        self.special("apimachinery/pkg/apis/meta/v1", "Patch", json!({ "type": "object" }))
    }

    /// All schemas that were referred to, directly or indirectly.
    pub(super) fn finish(mut self) -> BTreeMap<String, Value> {
        while let Some(id) = self.waiting.pop() {
            let described = self.describe(id);
            self.done.insert(name(&self.schema[id]), described);
        }
        self.done
    }

    fn structure(&mut self, id: StructId) -> Value {
        let name = name(&self.schema[id]);
        if !self.done.contains_key(&name) {
            // The placeholder ends the recursion of schemas that refer to themselves.
            self.done.insert(name.clone(), Value::Null);
            self.waiting.push(id);
        }
        reference(&name)
    }

    fn special(&mut self, package: &str, name: &str, schema: Value) -> Value {
        let name = format!("{}.{name}", dotted(package));
        let found = reference(&name);
        self.done.entry(name).or_insert(schema);
        found
    }

    fn describe(&mut self, id: StructId) -> Value {
        let owner = &self.schema[id];
        let mut described = Map::new();
        if let Some(description) = descriptions::of_type(owner) {
            described.insert("description".to_owned(), description.into());
        }
        described.insert("type".to_owned(), "object".into());
        if !owner.fields().is_empty() {
            let property = |field: &Field| (field.json.to_owned(), self.property(owner, field));
            let properties: Map<String, Value> = owner.fields().iter().map(property).collect();
            described.insert("properties".to_owned(), properties.into());
        }
        let required: Vec<&str> =
            owner.fields().iter().filter(|field| field.required).map(|field| field.json).collect();
        if !required.is_empty() {
            described.insert("required".to_owned(), required.into());
        }
        if owner.atomic {
            described.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        let kinds = self.kinds_of(id);
        if !kinds.is_empty() {
            described.insert("x-kubernetes-group-version-kind".to_owned(), kinds.into());
        }
        Value::Object(described)
    }

    /// The groups, versions and kinds that have the struct. Kinds of `meta.k8s.io` belong to every group version.
    fn kinds_of(&self, id: StructId) -> Vec<Value> {
        let own = self.schema.kinds().iter().filter(|kind| kind.body == id);
        own.map(|kind| {
            let lent = kind.group == "meta.k8s.io";
            let (group, version) = if lent { (self.group, self.version) } else { (kind.group, kind.version) };
            json!({ "group": group, "version": version, "kind": kind.name })
        })
        .collect()
    }

    fn property(&mut self, owner: &Struct, field: &Field) -> Value {
        let mut property = match self.typed(field.ty) {
            Value::Object(property) if property.contains_key("$ref") => {
                // OpenAPI ignores keywords beside `$ref`, so the reference is wrapped in `allOf`.
                Map::from_iter([("allOf".to_owned(), json!([property]))])
            }
            Value::Object(property) => property,
            _ => Map::new(),
        };
        let is_list = matches!(
            self.schema[self.schema.pointee(field.ty)].shape,
            Shape::List(_) | Shape::WrappedList(_) | Shape::Bytes
        );
        let mut add = |name: &str, value: Value| property.insert(name.to_owned(), value);
        if let Some(description) = descriptions::of_field(owner, field) {
            add("description", description.into());
        }
        match field.list_type {
            Some(ListType::Map) => drop(add("x-kubernetes-list-type", "map".into())),
            Some(ListType::Set) => drop(add("x-kubernetes-list-type", "set".into())),
            Some(ListType::Atomic) if is_list => drop(add("x-kubernetes-list-type", "atomic".into())),
            Some(ListType::Atomic) => drop(add("x-kubernetes-map-type", "atomic".into())),
            Some(ListType::Granular) => drop(add("x-kubernetes-map-type", "granular".into())),
            None => {}
        }
        if !field.list_keys.is_empty() {
            add("x-kubernetes-list-map-keys", field.list_keys.clone().into());
        }
        if let Some(key) = field.patch.merge_key {
            add("x-kubernetes-patch-merge-key", key.into());
        }
        let strategies = [
            (field.patch.merge, "merge"),
            (field.patch.retain_keys, "retainKeys"),
            (field.patch.replace, "replace"),
        ];
        let strategies: Vec<&str> =
            strategies.iter().filter(|(is, _)| *is).map(|(_, strategy)| *strategy).collect();
        if !strategies.is_empty() {
            add("x-kubernetes-patch-strategy", strategies.join(",").into());
        }
        Value::Object(property)
    }

    fn typed(&mut self, ty: TypeId) -> Value {
        const EXTENSIONS: &str = "apiextensions-apiserver/pkg/apis/apiextensions/v1";
        const MACHINERY: &str = "apimachinery/pkg/apis/meta/v1";
        match self.schema[ty].shape {
            Shape::Text => json!({ "type": "string" }),
            Shape::Bool => json!({ "type": "boolean" }),
            Shape::Int32 => json!({ "type": "integer", "format": "int32" }),
            Shape::Int64 => json!({ "type": "integer", "format": "int64" }),
            Shape::Double => json!({ "type": "number", "format": "double" }),
            Shape::Bytes => json!({ "type": "string", "format": "byte" }),
            Shape::Quantity => {
                let schema = json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] });
                self.special("apimachinery/pkg/api/resource", "Quantity", schema)
            }
            Shape::IntOrString => {
                let either = json!([{ "type": "integer" }, { "type": "string" }]);
                let schema = json!({ "format": "int-or-string", "oneOf": either });
                self.special("apimachinery/pkg/util/intstr", "IntOrString", schema)
            }
            Shape::Time => {
                let schema = json!({ "type": "string", "format": "date-time" });
                self.special(MACHINERY, "Time", schema)
            }
            Shape::MicroTime => {
                let schema = json!({ "type": "string", "format": "date-time" });
                self.special(MACHINERY, "MicroTime", schema)
            }
            Shape::Duration => self.special(MACHINERY, "Duration", json!({ "type": "string" })),
            Shape::FieldsV1 => self.special(MACHINERY, "FieldsV1", json!({ "type": "object" })),
            Shape::RawExtension => {
                self.special("apimachinery/pkg/runtime", "RawExtension", json!({ "type": "object" }))
            }
            Shape::Json => self.special(EXTENSIONS, "JSON", json!({})),
            Shape::SchemaOrArray(_) => self.special(EXTENSIONS, "JSONSchemaPropsOrArray", json!({})),
            Shape::SchemaOrBool(_) => self.special(EXTENSIONS, "JSONSchemaPropsOrBool", json!({})),
            Shape::SchemaOrStrings(_) => self.special(EXTENSIONS, "JSONSchemaPropsOrStringArray", json!({})),
            Shape::Any => json!({}),
            Shape::Pointer(inner) => self.typed(inner),
            Shape::List(inner) | Shape::WrappedList(inner) => {
                json!({ "type": "array", "items": self.wrapped(inner) })
            }
            Shape::Map(inner) => json!({ "type": "object", "additionalProperties": self.wrapped(inner) }),
            Shape::Struct(id) => self.structure(id),
        }
    }

    /// A type inside a list or map. Like upstream, a reference is wrapped in `allOf` there too.
    fn wrapped(&mut self, ty: TypeId) -> Value {
        let typed = self.typed(ty);
        if typed.get("$ref").is_some() { json!({ "allOf": [typed] }) } else { typed }
    }
}

/// The reference to `Status`, for responses.
pub(super) fn status_reference() -> Value {
    reference(&format!("{META}.Status"))
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn name(found: &Struct) -> String {
    format!("{}.{}", dotted(found.package), found.name)
}

fn dotted(package: &str) -> String {
    format!("io.k8s.{}", package.replace('/', "."))
}
