//! What checks read of a pod.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EphemeralContainer, Lifecycle, PodSecurityContext, PodSpec, Probe,
    SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The metadata and spec of a pod or a pod template.
#[derive(Clone, Copy)]
pub(crate) struct Pod<'a> {
    pub(crate) metadata: &'a ObjectMeta,
    pub(crate) spec: &'a PodSpec,
}

impl<'a> Pod<'a> {
    /// All containers: init containers, containers, ephemeral containers.
    pub(crate) fn containers(self) -> impl Iterator<Item = AnyContainer<'a>> {
        let init = self.spec.init_containers.iter().flatten().map(AnyContainer::from);
        let ephemeral = self.spec.ephemeral_containers.iter().flatten().map(AnyContainer::from);
        init.chain(self.spec.containers.iter().map(AnyContainer::from)).chain(ephemeral)
    }

    /// The names of the containers that a predicate holds for.
    pub(crate) fn names_of(self, holds: impl FnMut(&AnyContainer<'a>) -> bool) -> Vec<&'a str> {
        self.containers().filter(holds).map(|container| container.name).collect()
    }

    /// The security context of the pod.
    pub(crate) fn security_context(self) -> Option<&'a PodSecurityContext> {
        self.spec.security_context.as_ref()
    }

    /// The value of an annotation.
    pub(crate) fn annotation(self, name: &str) -> Option<&'a str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether the pod is one for Windows, where validation forbids the fields of Linux.
    pub(crate) fn is_for_windows(self) -> bool {
        self.spec.os.as_ref().is_some_and(|os| os.name == "windows")
    }

    /// Whether the pod has a user namespace of its own, so that its root is not that of the node (KEP-127).
    pub(crate) fn has_user_namespace(self) -> bool {
        self.spec.host_users == Some(false)
    }
}

/// A container of any of the three lists.
#[derive(Clone, Copy)]
pub(crate) struct AnyContainer<'a> {
    pub(crate) name: &'a str,
    security_context: Option<&'a SecurityContext>,
    ports: Option<&'a Vec<ContainerPort>>,
    probes: [Option<&'a Probe>; 3],
    lifecycle: Option<&'a Lifecycle>,
}

impl<'a> AnyContainer<'a> {
    /// A field of its security context.
    pub(crate) fn security<T: ?Sized>(
        &self,
        field: impl FnOnce(&'a SecurityContext) -> Option<&'a T>,
    ) -> Option<&'a T> {
        self.security_context.and_then(field)
    }

    /// Its ports.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &'a ContainerPort> {
        self.ports.into_iter().flatten()
    }

    /// Its liveness, readiness and startup probes.
    pub(crate) fn probes(&self) -> impl Iterator<Item = &'a Probe> {
        self.probes.into_iter().flatten()
    }

    /// Its lifecycle handlers.
    pub(crate) fn lifecycle(&self) -> Option<&'a Lifecycle> {
        self.lifecycle
    }
}

impl<'a> From<&'a Container> for AnyContainer<'a> {
    fn from(container: &'a Container) -> Self {
        Self {
            name: &container.name,
            security_context: container.security_context.as_ref(),
            ports: container.ports.as_ref(),
            probes: [&container.liveness_probe, &container.readiness_probe, &container.startup_probe]
                .map(Option::as_ref),
            lifecycle: container.lifecycle.as_ref(),
        }
    }
}

impl<'a> From<&'a EphemeralContainer> for AnyContainer<'a> {
    fn from(container: &'a EphemeralContainer) -> Self {
        Self {
            name: &container.name,
            security_context: container.security_context.as_ref(),
            ports: container.ports.as_ref(),
            probes: [&container.liveness_probe, &container.readiness_probe, &container.startup_probe]
                .map(Option::as_ref),
            lifecycle: container.lifecycle.as_ref(),
        }
    }
}
