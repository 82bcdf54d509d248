//! Builders for the pods that tests speak of.

use k8s_openapi::api::core::v1::{
    Container, ContainerResizePolicy, ContainerState, ContainerStateRunning, ContainerStatus, Pod, PodSpec,
    PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_resize::list::WireList;

/// A resource list from `"cpu=100m memory=64Mi"`.
pub(crate) fn list(text: &str) -> Option<WireList> {
    let entries = text.split_whitespace().map(|entry| {
        let (name, quantity) = entry.split_once('=').expect("name=quantity");
        (name.to_owned(), Quantity(quantity.to_owned()))
    });
    Some(entries.collect::<WireList>()).filter(|list| !list.is_empty())
}

/// Requests and limits, each as [`list`] takes them.
pub(crate) fn resources(requests: &str, limits: &str) -> ResourceRequirements {
    ResourceRequirements { claims: None, limits: list(limits), requests: list(requests) }
}

/// A container with requests and limits.
pub(crate) fn container(name: &str, requests: &str, limits: &str) -> Container {
    Container {
        name: name.to_owned(),
        image: Some("plumb/load".to_owned()),
        resources: Some(resources(requests, limits)),
        ..Container::default()
    }
}

/// What tests say about a container beyond its resources.
pub(crate) trait ContainerExt: Sized {
    /// With a resize policy from `"cpu=NotRequired memory=RestartContainer"`.
    fn policy(self, text: &str) -> Self;
    /// As an init container that keeps running.
    fn sidecar(self) -> Self;
}

impl ContainerExt for Container {
    fn policy(mut self, text: &str) -> Self {
        let policies = text.split_whitespace().map(|entry| {
            let (resource, restart) = entry.split_once('=').expect("resource=policy");
            ContainerResizePolicy { resource_name: resource.to_owned(), restart_policy: restart.to_owned() }
        });
        self.resize_policy = Some(policies.collect());
        self
    }

    fn sidecar(mut self) -> Self {
        self.restart_policy = Some("Always".to_owned());
        self
    }
}

/// A pod with these main containers, at generation 1, bound to a node.
pub(crate) fn pod(containers: impl IntoIterator<Item = Container>) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some("web-0".to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some("uid-web-0".to_owned()),
            generation: Some(1),
            resource_version: Some("1".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: containers.into_iter().collect(),
            node_name: Some("node-1".to_owned()),
            restart_policy: Some("Always".to_owned()),
            ..PodSpec::default()
        }),
        status: Some(PodStatus::default()),
    }
}

/// What tests say about a pod beyond its containers.
pub(crate) trait PodExt: Sized {
    /// The spec, to be looked at.
    fn spec_of(&self) -> &PodSpec;
    /// The status, to be looked at.
    fn status_of(&self) -> &PodStatus;
    /// The same pod with its spec changed, one generation later.
    fn respec(&self, change: impl FnOnce(&mut PodSpec)) -> Self;
    /// The same pod with init containers.
    fn init(self, containers: impl IntoIterator<Item = Container>) -> Self;
    /// The same pod with every container running just as the spec asks.
    fn running(self) -> Self;
}

impl PodExt for Pod {
    fn spec_of(&self) -> &PodSpec {
        self.spec.as_ref().expect("test pods have a spec")
    }

    fn status_of(&self) -> &PodStatus {
        self.status.as_ref().expect("test pods have a status")
    }

    fn respec(&self, change: impl FnOnce(&mut PodSpec)) -> Self {
        let mut pod = self.clone();
        change(pod.spec.as_mut().expect("test pods have a spec"));
        pod.metadata.generation = pod.metadata.generation.map(|generation| generation + 1);
        pod
    }

    fn init(mut self, containers: impl IntoIterator<Item = Container>) -> Self {
        let spec = self.spec.as_mut().expect("test pods have a spec");
        spec.init_containers = Some(containers.into_iter().collect());
        self
    }

    fn running(mut self) -> Self {
        let spec = self.spec.as_ref().expect("test pods have a spec");
        let main = spec.containers.iter().map(running_status).collect();
        let init: Vec<_> = spec.init_containers.iter().flatten().map(running_status).collect();
        let qos = plumb_resize::qos::QosClass::of_spec(spec).expect("test pods have readable quantities");
        let status = self.status.get_or_insert_default();
        status.phase = Some("Running".to_owned());
        status.qos_class = Some(qos.name().to_owned());
        status.observed_generation = self.metadata.generation;
        status.container_statuses = Some(main);
        status.init_container_statuses = Some(init).filter(|init| !init.is_empty());
        self
    }
}

fn running_status(container: &Container) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        ready: true,
        state: Some(ContainerState {
            running: Some(ContainerStateRunning::default()),
            ..ContainerState::default()
        }),
        allocated_resources: container.resources.as_ref().and_then(|resources| resources.requests.clone()),
        resources: Some(container.resources.clone().unwrap_or_default()),
        ..ContainerStatus::default()
    }
}
