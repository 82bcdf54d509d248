//! The `CustomResourceDefinition`, from the Rust types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionVersion, JSON,
    JSONSchemaProps,
};
use kube::CustomResourceExt as _;
use plumb_controller_runtime::crds::normalise;
use serde_json::json;

use super::CloneSet;

/// The definition of `CloneSet`: `v1beta1`, which is stored, and `v1alpha1` with the same schema.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = CloneSet::crd();
    crd.spec.names.list_kind = Some("CloneSetList".to_owned());
    crd.spec.conversion =
        Some(CustomResourceConversion { strategy: "None".to_owned(), ..CustomResourceConversion::default() });
    normalise(&mut crd);
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        if let Some(spec) = schema.and_then(|schema| property(schema, "spec")) {
            // Reading is more lenient than writing.
            let required = spec.required.get_or_insert_default();
            if !required.iter().any(|field| field == "template") {
                required.push("template".to_owned());
            }
            // The scale subresource and kubectl show them.
            for (field, default) in [("replicas", 1), ("revisionHistoryLimit", 10)] {
                if let Some(field) = property(spec, field) {
                    field.default = Some(JSON(json!(default)));
                }
            }
        }
    }
    let older = crd.spec.versions.clone().into_iter().map(|version| CustomResourceDefinitionVersion {
        name: "v1alpha1".to_owned(),
        storage: false,
        ..version
    });
    let older: Vec<CustomResourceDefinitionVersion> = older.collect();
    crd.spec.versions.extend(older);
    crd
}

fn property<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    schema.properties.as_mut()?.get_mut(name)
}
