//! The pods of a case and their resizes, as objects of the API.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container as PodContainer, ContainerResizePolicy, ExecAction, Pod, PodSpec, Probe, ResourceRequirements,
    Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::case::{Amounts, Container, Policy};
use crate::check::Sizes;
use crate::runner::Options;
use crate::scale::{Readiness, Workload};

/// The label with the name of the case.
pub(crate) const LABEL: &str = "plumb.dev/conformance-case";
/// The label with the name of the workload.
pub(crate) const WORKLOAD: &str = "plumb.dev/conformance-workload";
/// The termination grace period. It is not zero: the API server removes a pod without a grace period before its node
/// has released the resources, and no watch shows when the node has.
const GRACE_SECONDS: i64 = 1;
/// A command in the image `plumb/load` that succeeds.
const SUCCEEDS: [&str; 4] = ["/plumb", "load", "--duration", "1ms"];

/// Placement of a pod.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Placement<'a> {
    /// The node, if the case needs a certain one.
    pub(crate) node: Option<&'a str>,
    /// Whether the pod sets `spec.nodeName`, so that no scheduler decides.
    pub(crate) bound: bool,
    /// The `RuntimeClass`.
    pub(crate) class: Option<&'a str>,
}

/// A pod of a case.
pub(crate) fn new(
    (case, name): (&str, &str),
    containers: &[Container],
    place: Placement<'_>,
    options: &Options,
) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.labels = Some(BTreeMap::from([(LABEL.to_owned(), label(case))]));
    let here = |node: &str| BTreeMap::from([("kubernetes.io/hostname".to_owned(), node.to_owned())]);
    pod.spec = Some(PodSpec {
        containers: containers.iter().map(|container| of_container(container, options)).collect(),
        node_name: place.node.filter(|_| place.bound).map(str::to_owned),
        node_selector: place.node.filter(|_| !place.bound).map(here),
        runtime_class_name: place.class.map(str::to_owned),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        tolerations: Some(vec![anything()]),
        ..PodSpec::default()
    });
    pod
}

/// The spec of the pods of a workload.
pub(crate) fn of_workload(
    names: (&str, &str),
    workload: &Workload,
    place: Placement<'_>,
    options: &Options,
) -> Option<PodSpec> {
    let mut spec = new(names, workload.containers, place, options).spec;
    for container in spec.iter_mut().flat_map(|spec| &mut spec.containers) {
        if !workload.args.is_empty() {
            container.args = Some(workload.args.iter().map(|&arg| arg.to_owned()).collect());
        }
        match workload.readiness {
            Readiness::Running => {}
            Readiness::Readiness(delay) => container.readiness_probe = Some(probe(delay)),
            Readiness::Startup(delay) => container.startup_probe = Some(probe(delay)),
        }
    }
    if let Some(spec) = spec.as_mut().filter(|_| workload.initializing) {
        spec.init_containers = Some(vec![of_container(&Container::new("init", Amounts::NONE), options)]);
    }
    for sidecar in workload.sidecars {
        let restart_policy = Some("Always".to_owned());
        let sidecar = PodContainer { restart_policy, ..of_container(sidecar, options) };
        if let Some(spec) = &mut spec {
            spec.init_containers.get_or_insert_default().push(sidecar);
        }
    }
    spec
}

/// A probe that succeeds.
fn probe(initial_delay_seconds: i32) -> Probe {
    let command = SUCCEEDS.map(str::to_owned).into();
    Probe {
        exec: Some(ExecAction { command: Some(command) }),
        initial_delay_seconds: Some(initial_delay_seconds),
        period_seconds: Some(1),
        timeout_seconds: Some(10),
        ..Probe::default()
    }
}

/// Tolerates every taint: disk pressure of the machine must not decide a case.
fn anything() -> Toleration {
    Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    }
}

/// The value of the label for a case, cut to the length that labels may have.
pub(crate) fn label(case: &str) -> String {
    case.chars().take(63).collect::<String>().trim_end_matches('-').to_owned()
}

fn of_container(container: &Container, options: &Options) -> PodContainer {
    let policies = |restarts: &[&str]| {
        ["cpu", "memory"].map(|resource| ContainerResizePolicy {
            resource_name: resource.to_owned(),
            restart_policy: if restarts.contains(&resource) { "RestartContainer" } else { "NotRequired" }
                .to_owned(),
        })
    };
    PodContainer {
        name: container.name.to_owned(),
        image: Some(options.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: (!options.command.is_empty()).then(|| options.command.clone()),
        resources: Some(requirements(container.amounts)),
        resize_policy: match container.policy {
            Policy::Unsaid => None,
            Policy::RestartsOn(resources) => Some(policies(resources).into()),
        },
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

fn quantities<'a>(amounts: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, Quantity> {
    amounts.map(|(resource, amount)| (resource.to_owned(), Quantity(amount.to_owned()))).collect()
}

/// The command of containers.
pub(crate) fn sizes(containers: &[Container]) -> Sizes {
    containers.iter().map(|container| (container.name, container.amounts)).collect()
}

/// A resize as a strategic merge patch.
pub(crate) fn patch(to: &[(&str, Amounts)]) -> Value {
    let containers: Vec<Value> = to
        .iter()
        .map(|(name, amounts)| json!({ "name": name, "resources": requirements(*amounts) }))
        .collect();
    json!({ "spec": { "containers": containers } })
}

/// A pod as it was read, with containers resized, without its resource version.
pub(crate) fn resized(mut pod: Value, to: &[(&str, Amounts)]) -> Value {
    if let Some(meta) = pod["metadata"].as_object_mut() {
        meta.remove("resourceVersion");
    }
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        if let Some((_, amounts)) = to.iter().find(|(name, _)| container["name"] == *name) {
            container["resources"] = json!(requirements(*amounts));
        }
    }
    pod
}

/// The pod with its actual resources as the desired ones, for comparisons of the two.
pub(crate) fn with_actual_as_desired(pod: &Pod, sizes: &Sizes) -> Pod {
    let mut pod = pod.clone();
    let Some(spec) = &mut pod.spec else { return pod };
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        if let Some(amounts) = sizes.get(container.name.as_str()) {
            container.resources = Some(requirements(*amounts));
        }
    }
    pod
}
