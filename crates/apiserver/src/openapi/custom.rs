//! The OpenAPI documents of custom kinds: what `kubectl explain`, `apply` and `create` read.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use plumb_apischema::{Schema, openapi};
use serde_json::{Map, Value, json};

use crate::kinds::{Custom, Kinds, Row};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The schemas of a document with one built-in kind.
static BUILTIN: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let document = openapi::document(Schema::builtin(), "coordination.k8s.io", "v1").unwrap_or_default();
    document.pointer("/components/schemas").and_then(Value::as_object).cloned().unwrap_or_default()
});

/// The schemas of the machinery that every document of objects has.
static MACHINERY: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let of_machinery = |(name, _): &(&String, &Value)| name.starts_with("io.k8s.apimachinery.");
    let schemas = BUILTIN.iter().filter(of_machinery);
    schemas.map(|(name, schema)| (name.clone(), schema.clone())).collect()
});

/// The schema of a field that every kind has (`apiVersion`, `kind`, `metadata`), with the description of built-in kinds.
fn common_field(name: &str) -> Value {
    let lease = BUILTIN.get("io.k8s.api.coordination.v1.Lease");
    lease.map_or(Value::Null, |lease| lease["properties"][name].clone())
}

/// The documents of the groups and versions that have custom kinds: by name, with what they were made of.
pub(crate) fn documents(kinds: &Kinds) -> BTreeMap<String, Vec<(Row, &Custom)>> {
    let mut found: BTreeMap<String, Vec<(Row, &Custom)>> = BTreeMap::new();
    for row in kinds.iter() {
        if let Some(custom) = row.custom() {
            let name = openapi::name(row.group(), row.version());
            found.entry(name).or_default().push((row.clone(), custom));
        }
    }
    found
}

/// The document of a group and version.
pub(crate) fn document(rows: &[(Row, &Custom)]) -> Value {
    let mut paths = Map::new();
    let mut schemas = MACHINERY.clone();
    for (row, custom) in rows {
        describe(row, custom, &mut schemas);
        operations(row, &mut paths);
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes CRD Swagger", "version": "v0.1.0" },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

/// `com.example.v1.CronTab`.
fn component(row: &Row, kind: &str) -> String {
    let group: Vec<&str> = row.group().split('.').rev().collect();
    format!("{}.{}.{kind}", group.join("."), row.version())
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn kind_of(row: &Row, kind: &str) -> Value {
    json!({ "group": row.group(), "version": row.version(), "kind": kind })
}

fn describe(row: &Row, custom: &Custom, schemas: &mut Map<String, Value>) {
    let mut schema = match &custom.version.json {
        schema @ Value::Object(_) => schema.clone(),
        _ => json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
    };
    for name in ["apiVersion", "kind", "metadata"] {
        schema["properties"][name] = common_field(name);
    }
    schema["x-kubernetes-group-version-kind"] = json!([kind_of(row, row.kind())]);
    let name = component(row, row.kind());
    let list = json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": common_field("apiVersion"),
            "kind": common_field("kind"),
            "items": { "type": "array", "items": reference(&name) },
            "metadata": { "allOf": [reference(&format!("{META}.ListMeta"))] },
        },
        "x-kubernetes-group-version-kind": [kind_of(row, &row.resource.list_kind)],
    });
    schemas.insert(component(row, &row.resource.list_kind), list);
    schemas.insert(name, schema);
}

fn query(name: &str, ty: &str) -> Value {
    json!({ "in": "query", "name": name, "schema": { "type": ty } })
}

fn operations(row: &Row, paths: &mut Map<String, Value>) {
    let base = format!("/apis/{}/{}", row.group(), row.version());
    let collection = if row.is_namespaced() {
        let everywhere =
            operation(row, "list", &row.resource.list_kind, row.kind(), &[("labelSelector", "string")]);
        paths.insert(format!("{base}/{}", row.plural()), json!({ "get": everywhere }));
        format!("{base}/namespaces/{{namespace}}/{}", row.plural())
    } else {
        format!("{base}/{}", row.plural())
    };
    let written = [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
    let patched = [
        ("dryRun", "string"),
        ("fieldManager", "string"),
        ("fieldValidation", "string"),
        ("force", "boolean"),
    ];
    let mut namespace = Vec::new();
    if row.is_namespaced() {
        namespace.push(in_path("namespace"));
    }
    let selected = [
        ("fieldSelector", "string"),
        ("labelSelector", "string"),
        ("limit", "integer"),
        ("watch", "boolean"),
    ];
    let main = (row.kind().to_owned(), kind_of(row, row.kind()), component(row, row.kind()));
    paths.insert(
        collection.clone(),
        json!({
            "parameters": namespace,
            "get": operation(row, "list", &row.resource.list_kind, row.kind(), &selected),
            "post": with_body(operation(row, "post", row.kind(), row.kind(), &written), &main.2),
            "delete": operation(row, "deletecollection", "Status", row.kind(), &selected),
        }),
    );
    let mut named = vec![in_path("name")];
    named.extend(namespace);
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({
            "parameters": named,
            "get": operation(row, "get", row.kind(), row.kind(), &[]),
            "put": with_body(operation(row, "put", row.kind(), row.kind(), &written), &main.2),
            "patch": with_patch(operation(row, "patch", row.kind(), row.kind(), &patched)),
            "delete": operation(row, "delete", "Status", row.kind(), &[("propagationPolicy", "string")]),
        }),
    );
    for part in &row.resource.subresources {
        if part.name != "status" {
            continue;
        }
        paths.insert(
            format!("{collection}/{{name}}/{}", part.name),
            json!({
                "parameters": named,
                "get": operation(row, "get", row.kind(), row.kind(), &[]),
                "put": with_body(operation(row, "put", row.kind(), row.kind(), &written), &main.2),
                "patch": with_patch(operation(row, "patch", row.kind(), row.kind(), &patched)),
            }),
        );
    }
}

fn in_path(name: &str) -> Value {
    json!({ "in": "path", "name": name, "required": true, "schema": { "type": "string" } })
}

fn operation(row: &Row, action: &str, answered: &str, kind: &str, queries: &[(&str, &str)]) -> Value {
    let answered = if answered == "Status" { format!("{META}.Status") } else { component(row, answered) };
    let parameters: Vec<Value> = queries.iter().map(|(name, ty)| query(name, ty)).collect();
    json!({
        "tags": [format!("{}_{}", row.group(), row.version())],
        "parameters": parameters,
        "responses": {
            "200": { "description": "OK", "content": { "application/json": { "schema": reference(&answered) } } },
            "401": { "description": "Unauthorized" },
        },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind_of(row, kind),
    })
}

fn with_body(mut operation: Value, component: &str) -> Value {
    operation["requestBody"] =
        json!({ "content": { "*/*": { "schema": reference(component) } }, "required": true });
    operation
}

fn with_patch(mut operation: Value) -> Value {
    let schema = json!({ "schema": reference(&format!("{META}.Patch")) });
    operation["requestBody"] = json!({
        "content": {
            "application/apply-patch+yaml": schema, "application/json-patch+json": schema,
            "application/merge-patch+json": schema,
        },
        "required": true,
    });
    operation
}
