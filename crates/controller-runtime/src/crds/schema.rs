//! Schemas as Kubernetes expects them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// Makes of what schemars generates, in all versions of a definition, what Kubernetes expects.
///
/// - An `Option` means that a field may be absent, not that it may be null, and `#[serde(default)]` that the reader
///   fills the value in, not that the API server does.
/// - The rewriter of `kube` takes the types out of `anyOf`, where those of an int-or-string belong.
pub fn normalise(crd: &mut CustomResourceDefinition) {
    let versions = crd.spec.versions.iter_mut();
    let schemas = versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    schemas.for_each(normalise_schema);
}

fn normalise_schema(schema: &mut JSONSchemaProps) {
    schema.default = None;
    schema.title = None;
    if schema.format.as_deref() != Some("date-time") {
        schema.nullable = None;
    }
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        let of_type =
            |type_: &str| JSONSchemaProps { type_: Some(type_.to_owned()), ..JSONSchemaProps::default() };
        schema.any_of = Some(vec![of_type("integer"), of_type("string")]);
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(normalise_schema);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => normalise_schema(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(normalise_schema),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        normalise_schema(values);
    }
}
