//! Schemas of the types that several objects share.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{Schema, SchemaGenerator, json_schema};

/// A number of at least `least`, or a percentage from `least` to 100.
fn share(least: u32, default: Option<&str>) -> Schema {
    let percent = if least == 0 { "^(0|[1-9][0-9]?|100)%$" } else { "^([1-9][0-9]?|100)%$" };
    // Each applies to one of the types alone.
    let mut schema =
        json_schema!({ "x-kubernetes-int-or-string": true, "minimum": least, "pattern": percent });
    if let Some(default) = default {
        let value = default.parse::<i64>().map_or_else(|_| default.into(), serde_json::Value::from);
        schema.insert("default".to_owned(), value);
    }
    schema
}

/// `maxConcurrent`.
pub(super) fn max_concurrent(_: &mut SchemaGenerator) -> Schema {
    share(1, Some("10%"))
}

/// `maxUnavailable`.
pub(super) fn max_unavailable(_: &mut SchemaGenerator) -> Schema {
    share(0, None)
}

/// `partition`.
pub(super) fn partition(_: &mut SchemaGenerator) -> Schema {
    share(0, Some("0"))
}

/// The size of a canary step.
pub(super) fn step_pods(_: &mut SchemaGenerator) -> Schema {
    let mut schema = share(1, None);
    // That of 100%: it bounds the cost of the rules about steps.
    schema.insert("maxLength".to_owned(), 4.into());
    schema
}

/// A selector of labels.
pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": { "type": "object", "additionalProperties": { "type": "string" } },
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string" },
                        "operator": { "type": "string" },
                        "values": {
                            "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "atomic",
                        },
                    },
                },
            },
        },
    })
}

/// Conditions as Kubernetes has them, one entry for each type.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": { "type": "string", "maxLength": 316 },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "reason": { "type": "string", "minLength": 1, "maxLength": 1024 },
                "message": { "type": "string", "maxLength": 32768 },
            },
        },
    })
}

/// Makes of what schemars generates what Kubernetes expects: an `Option` means that a field may be absent, not that it may
/// be null, and the types of an int-or-string belong into `anyOf`, from where the rewriter of `kube` takes them.
pub(super) fn complete(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    let versions = crd.spec.versions.iter_mut();
    versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut()).for_each(normalise);
    crd
}

fn normalise(schema: &mut JSONSchemaProps) {
    schema.title = None;
    schema.nullable = None;
    if schema.default.as_ref().is_some_and(|default| default.0.is_null()) {
        schema.default = None;
    }
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        let of_type =
            |type_: &str| JSONSchemaProps { type_: Some(type_.to_owned()), ..JSONSchemaProps::default() };
        schema.any_of = Some(vec![of_type("integer"), of_type("string")]);
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(normalise);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => normalise(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(normalise),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        normalise(values);
    }
}
