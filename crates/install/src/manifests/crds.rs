//! The definitions of custom resources.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use plumb_controller_runtime::crds::{DEFINITION_ANNOTATION, Definition};

use crate::component::Component;

/// The definitions that components need, each with the manager of its fields.
pub(crate) fn definitions(components: &[Component]) -> Vec<(&'static str, Definition)> {
    let mut definitions = Vec::new();
    if components.iter().any(|&component| component != Component::Rollout) {
        let of_vpas = plumb_vpa::install::definitions().into_iter();
        definitions.extend(of_vpas.map(|definition| (plumb_vpa::install::FIELD_MANAGER, definition)));
    }
    if components.contains(&Component::Rollout) {
        let of_rollouts = [
            plumb_rollout::install::rollout_policy_definition(),
            plumb_rollout::install::cloneset_definition(),
        ];
        definitions.extend(of_rollouts.map(|definition| (plumb_rollout::install::FIELD_MANAGER, definition)));
    }
    definitions
}

/// The definitions of the components as objects, annotated as those that a component installs itself.
pub fn crds(components: &[Component]) -> Vec<CustomResourceDefinition> {
    definitions(components).into_iter().map(|(_, definition)| annotated(&definition)).collect()
}

/// A definition with the annotation that identifies its version.
pub(crate) fn annotated(definition: &Definition) -> CustomResourceDefinition {
    let mut crd = definition.crd.clone();
    let own = definition.released.last().cloned().unwrap_or_default();
    crd.annotations_mut().insert(DEFINITION_ANNOTATION.to_owned(), own);
    crd
}
