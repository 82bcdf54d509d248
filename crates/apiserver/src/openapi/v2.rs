//! The OpenAPI 2.0 (Swagger) document, converted from the 3.0 documents, for clients that do not read these.

mod aggregate;

pub(crate) use aggregate::AggregatedSpec;

use std::sync::Arc;

use http::HeaderMap;
use http::header::ACCEPT;
use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// The content type of the document in protobuf.
pub(super) const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The same as client-go requests it. A media type cannot have an `@`, so the response has the other one.
const DEPRECATED_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The encoding of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Protobuf,
}

impl Format {
    /// The first encoding that a client accepts.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
        if values.peek().is_none_or(|first| first.is_empty()) {
            return Ok(Self::Json);
        }
        let mut ranges = values.flat_map(|value| value.split(','));
        let found = ranges.find_map(|range| match range.split(';').next().unwrap_or_default().trim() {
            "application/json" | "application/*" | "*/*" => Some(Self::Json),
            PROTOBUF | DEPRECATED_PROTOBUF => Some(Self::Protobuf),
            _ => None,
        });
        found.ok_or_else(|| ApiError::not_acceptable(&["application/json".to_owned(), PROTOBUF.to_owned()]))
    }
}

/// The keywords that OpenAPI 2.0 does not have, or that Kubernetes leaves out of it.
const DROPPED: [&str; 4] = ["anyOf", "not", "nullable", "oneOf"];

/// Merges documents into one, those of other API servers last.
pub(super) fn document<'a>(
    documents: impl Iterator<Item = &'a [u8]>,
    aggregated: &[Arc<AggregatedSpec>],
) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for bytes in documents {
        // The server encoded the documents itself, so they decode.
        let Ok(mut document) = serde_json::from_slice::<Value>(bytes) else { continue };
        for (name, schema) in object(document["components"]["schemas"].take()) {
            definitions.entry(name).or_insert_with(|| definition(schema));
        }
        for (path, item) in object(document["paths"].take()) {
            paths.insert(path, path_item(item));
        }
    }
    for spec in aggregated {
        spec.merge_into(&mut paths, &mut definitions);
    }
    json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": crate::version::VERSION },
        "paths": paths,
        "definitions": definitions,
    })
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Converts the schema of a kind or type to 2.0. A kind whose root preserves unknown fields is an object without
/// properties, not even those of its metadata: kubectl takes every field beside known properties for unknown.
fn definition(value: Value) -> Value {
    const KIND: &str = "x-kubernetes-group-version-kind";
    if value["x-kubernetes-preserve-unknown-fields"] == true && value.get(KIND).is_some() {
        return json!({ "type": "object", KIND: value[KIND] });
    }
    schema(value)
}

/// Converts a schema to 2.0.
fn schema(value: Value) -> Value {
    let mut schema = object(value);
    // A reference with a description or a default beside it is wrapped in 3.0.
    if let Some([Value::Object(only)]) = schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
        && only.contains_key("$ref")
    {
        let only = only.clone();
        schema.remove("allOf");
        schema.extend(only);
    }
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.rsplit('/').next().unwrap_or_default();
        let mut referring = json!({ "$ref": format!("#/definitions/{name}") });
        if let Some(description) = schema.get("description") {
            referring["description"] = description.clone();
        }
        return referring;
    }
    if schema.get("nullable") == Some(&json!(true))
        || schema.get("x-kubernetes-int-or-string") == Some(&json!(true))
    {
        // This value may have two types, which 2.0 cannot express.
        schema.remove("type");
    }
    schema.retain(|name, _| !DROPPED.contains(&name.as_str()));
    let each = |value: &mut Value| *value = self::schema(value.take());
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(each);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner @ Value::Object(_)) = schema.get_mut(name) {
            each(inner);
        }
    }
    if let Some(Value::Array(all)) = schema.get_mut("allOf") {
        all.iter_mut().for_each(each);
    }
    Value::Object(schema)
}

/// Converts a path with its operations to 2.0.
fn path_item(item: Value) -> Value {
    let mut item = object(item);
    for (name, value) in &mut item {
        *value = match name.as_str() {
            "parameters" => parameters(value.take()).into(),
            "get" | "put" | "post" | "delete" | "options" | "head" | "patch" => operation(value.take()),
            _ => value.take(),
        };
    }
    Value::Object(item)
}

fn parameters(list: Value) -> Vec<Value> {
    let list = match list {
        Value::Array(list) => list,
        _ => Vec::new(),
    };
    let parameter = |parameter: Value| {
        let mut parameter = object(parameter);
        if let Some(schema) = parameter.remove("schema") {
            parameter.extend(object(self::schema(schema)));
        }
        parameter.entry("uniqueItems").or_insert(json!(true));
        Value::Object(parameter)
    };
    list.into_iter().map(parameter).collect()
}

fn operation(operation: Value) -> Value {
    let mut operation = object(operation);
    let mut all = parameters(operation.remove("parameters").unwrap_or_default());
    let mut consumes = vec![json!("*/*")];
    if let Some(body) = operation.remove("requestBody") {
        let content = object(body["content"].clone());
        let mut types: Vec<&String> = content.keys().collect();
        types.sort();
        if let Some(first) = types.first().and_then(|first| content.get(*first)) {
            let schema = self::schema(first["schema"].clone());
            let mut parameter = json!({ "in": "body", "name": "body", "schema": schema });
            if body["required"] == true {
                parameter["required"] = json!(true);
            }
            all.push(parameter);
        }
        consumes = types.into_iter().map(|name| json!(name)).collect();
    }
    if !all.is_empty() {
        operation.insert("parameters".to_owned(), all.into());
    }
    let mut produces = Vec::new();
    if let Some(Value::Object(responses)) = operation.get_mut("responses") {
        for response in responses.values_mut().filter_map(Value::as_object_mut) {
            let content = object(response.remove("content").unwrap_or_default());
            if let Some((_, first)) = content.iter().next() {
                response.insert("schema".to_owned(), self::schema(first["schema"].clone()));
            }
            produces.extend(content.into_iter().map(|(name, _)| Value::String(name)));
        }
    }
    produces.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    produces.dedup();
    operation.insert("consumes".to_owned(), consumes.into());
    operation.insert("produces".to_owned(), produces.into());
    operation.insert("schemes".to_owned(), json!(["https"]));
    Value::Object(operation)
}
