//! Bringing the body of a `/resize` request into shape.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::init_containers;
use crate::rules::Rules;

/// Takes the fields that a resize may change from the body of a `/resize` request, and everything else from the
/// stored pod: a resize cannot label, relocate or reconfigure a pod.
///
/// Resources and resize policies are taken (a changed policy is then refused by validation, not ignored).
/// If the containers do not correspond by number and name, the list is left as it came, so that validation
/// can report it. The resource version comes from the request, for optimistic concurrency, and so do the managed
/// fields.
pub fn prepare_resize(stored: &Pod, mut requested: Pod, rules: &Rules) -> Pod {
    let mut metadata = stored.metadata.clone();
    metadata.resource_version = requested.metadata.resource_version.take();
    metadata.managed_fields = requested.metadata.managed_fields.take();
    let spec = match (&stored.spec, requested.spec) {
        (Some(stored), Some(requested)) => Some(prepare_spec(stored, requested, rules)),
        (stored, _) => stored.clone(),
    };
    Pod { metadata, spec, status: stored.status.clone() }
}

fn prepare_spec(stored: &PodSpec, mut requested: PodSpec, rules: &Rules) -> PodSpec {
    let mut spec = stored.clone();
    take_resources(&mut spec.containers, requested.containers);
    let mut init = stored.init_containers.clone().unwrap_or_default();
    take_resources(&mut init, requested.init_containers.take().unwrap_or_default());
    if !init.is_empty() || !init_containers(stored).is_empty() {
        spec.init_containers = Some(init);
    }
    if rules.resize_pod_level {
        spec.resources = requested.resources;
    }
    spec
}

fn take_resources(containers: &mut Vec<Container>, requested: Vec<Container>) {
    let names = |list: &[Container]| list.iter().map(|container| container.name.clone()).collect::<Vec<_>>();
    if names(containers) != names(&requested) {
        *containers = requested;
        return;
    }
    for (container, requested) in containers.iter_mut().zip(requested) {
        container.resources = requested.resources;
        container.resize_policy = requested.resize_policy;
    }
}
