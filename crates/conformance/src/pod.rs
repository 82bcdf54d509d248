//! A case's pod and its resizes, as the API takes them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container as PodContainer, ContainerResizePolicy, Pod, PodSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::case::{Amounts, Case, Container, Step};
use crate::runner::Options;

/// The pod of a case.
pub(crate) fn of(case: &Case, options: &Options) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(case.name.to_owned());
    pod.spec = Some(PodSpec {
        containers: case.containers.iter().map(|container| of_container(container, options)).collect(),
        node_name: options.node.clone(),
        // The cases end their pods; nothing in them has anything to tidy up.
        termination_grace_period_seconds: Some(0),
        ..PodSpec::default()
    });
    pod
}

fn of_container(container: &Container, options: &Options) -> PodContainer {
    let policies = ["cpu", "memory"].map(|resource| ContainerResizePolicy {
        resource_name: resource.to_owned(),
        restart_policy: if container.restarts_on.contains(&resource) {
            "RestartContainer"
        } else {
            "NotRequired"
        }
        .to_owned(),
    });
    PodContainer {
        name: container.name.to_owned(),
        image: Some(options.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: (!options.command.is_empty()).then(|| options.command.clone()),
        resources: Some(requirements(container.amounts)),
        resize_policy: Some(policies.into()),
        ..PodContainer::default()
    }
}

/// The amounts as the spec writes them.
pub(crate) fn requirements(amounts: Amounts) -> ResourceRequirements {
    let declared = |list: BTreeMap<String, Quantity>| (!list.is_empty()).then_some(list);
    ResourceRequirements {
        requests: declared(quantities(amounts.requests())),
        limits: declared(quantities(amounts.limits())),
        claims: None,
    }
}

pub(crate) fn quantities<'a>(
    amounts: impl Iterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<String, Quantity> {
    amounts.map(|(resource, amount)| (resource.to_owned(), Quantity(amount.to_owned()))).collect()
}

/// A step's resize as a strategic merge patch.
pub(crate) fn patch(step: &Step) -> Value {
    let containers: Vec<Value> = step
        .resize
        .iter()
        .map(|(name, amounts)| json!({ "name": name, "resources": requirements(*amounts) }))
        .collect();
    json!({ "spec": { "containers": containers } })
}

/// What every container is to have after the first `done` steps of a case that were accepted.
pub(crate) fn desired<'a>(
    case: &'a Case,
    accepted: impl Iterator<Item = &'a Step>,
) -> BTreeMap<&'a str, Amounts> {
    let mut desired: BTreeMap<&str, Amounts> =
        case.containers.iter().map(|container| (container.name, container.amounts)).collect();
    for step in accepted {
        desired.extend(step.resize.iter().copied());
    }
    desired
}
