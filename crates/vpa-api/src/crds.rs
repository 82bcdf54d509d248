//! The `CustomResourceDefinition`s, from the Rust types.
//!
//! What they admit and prune is what upstream's definitions do (`deploy/vpa-v1-crd-gen.yaml` there): the same fields,
//! types, enums, patterns, rules, columns and names, and no default. The text of descriptions is our own.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::CustomResourceExt as _;
use plumb_controller_runtime::crds::normalise;

use super::{VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint, v1beta2};

/// The annotation that definitions in a group of Kubernetes must carry, and the review that approved this one.
const API_APPROVED: (&str, &str) =
    ("api-approved.kubernetes.io", "https://github.com/kubernetes/kubernetes/pull/63797");

/// Both definitions.
pub fn all() -> [CustomResourceDefinition; 2] {
    [vertical_pod_autoscaler_checkpoint(), vertical_pod_autoscaler()]
}

/// The definition of `VerticalPodAutoscaler`.
pub fn vertical_pod_autoscaler() -> CustomResourceDefinition {
    complete(VerticalPodAutoscaler::crd(), v1beta2::VerticalPodAutoscaler::crd().spec.versions)
}

/// The definition of `VerticalPodAutoscalerCheckpoint`.
pub fn vertical_pod_autoscaler_checkpoint() -> CustomResourceDefinition {
    let mut crd = VerticalPodAutoscalerCheckpoint::crd();
    for version in &mut crd.spec.versions {
        // The recommender writes spec and status at once.
        version.subresources = None;
        // And the schema requires neither.
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            schema.required = None;
        }
    }
    let older = crd.spec.versions.clone().into_iter().map(|version| CustomResourceDefinitionVersion {
        name: "v1beta2".to_owned(),
        served: false,
        storage: false,
        ..version
    });
    let older = older.collect();
    complete(crd, older)
}

fn complete(
    mut crd: CustomResourceDefinition,
    older: Vec<CustomResourceDefinitionVersion>,
) -> CustomResourceDefinition {
    let (key, approval) = API_APPROVED;
    crd.metadata.annotations.get_or_insert_default().insert(key.to_owned(), approval.to_owned());
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    crd.spec.versions.extend(older);
    normalise(&mut crd);
    crd
}
