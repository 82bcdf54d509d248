//! The status of a pod, computed from its observed state: pure.

mod conditions;
mod container;

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plumb_resize::aggregate::Role;
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::rules::Rules;
use plumb_resize::status::{Allocation, project};

use crate::lifecycle::{Health, ObservedContainer, ObservedPod, Phase, Startup};
use crate::shutdown::Cause;
pub(crate) use conditions::begins_to_restart_all;
pub(crate) use container::{Waiting, has_run};

/// Everything that the status of a pod depends on.
#[derive(Clone, Copy)]
pub(crate) struct StatusInput<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) shape: &'a PodShape,
    pub(crate) observed: &'a ObservedPod,
    /// The results of the probes, by position.
    pub(crate) health: &'a [Health],
    /// Why containers do not run yet, by position.
    pub(crate) waiting: &'a [Option<Waiting>],
    /// The same of ephemeral containers, by name.
    pub(crate) ephemeral_waiting: &'a BTreeMap<String, Waiting>,
    pub(crate) phase: Phase,
    /// Reason and message of the pod's failure, if it is not that of its containers.
    pub(crate) failure: Option<(&'a str, &'a str)>,
    /// Why the node terminates the pod, if it does.
    pub(crate) disrupted: Option<&'a Cause>,
    /// Whether the node has admitted the pod. A rejected pod has no containers and no allocation.
    pub(crate) admitted: bool,
    pub(crate) desired: &'a PodResources,
    pub(crate) allocation: &'a Allocation,
    /// The actual resources.
    pub(crate) actual: &'a PodResources,
    /// Whether the runtime has yet to confirm them.
    pub(crate) unconfirmed: bool,
    pub(crate) rules: &'a Rules,
    pub(crate) host: &'a [IpAddr],
    /// The runtime's name, the prefix of container ids.
    pub(crate) runtime: &'a str,
    pub(crate) now: Timestamp,
}

impl StatusInput<'_> {
    fn health(&self, position: usize) -> Health {
        self.health.get(position).copied().unwrap_or_default()
    }

    /// Whether a container is ready.
    fn is_ready(&self, position: usize) -> bool {
        let observed = self.observed.containers.get(position).and_then(Option::as_ref);
        let health = self.health(position);
        observed.is_some_and(ObservedContainer::has_started)
            && health.ready
            && health.startup == Startup::Over
    }

    /// The observed generation.
    fn generation(&self) -> i64 {
        self.pod.metadata.generation.unwrap_or(0)
    }
}

/// The status of a pod. Fields that other clients wrote stay.
pub(crate) fn compose(input: StatusInput<'_>) -> PodStatus {
    let none = PodStatus::default();
    let old = input.pod.status.as_ref().unwrap_or(&none);
    let mut status = old.clone();
    let now = Time(input.now);
    status.phase = Some(input.phase.name().to_owned());
    (status.reason, status.message) = match input.failure {
        Some((reason, message)) => (Some(reason.to_owned()), Some(message.to_owned())),
        None => (old.reason.clone(), old.message.clone()),
    };
    status.start_time = old.start_time.clone().or_else(|| Some(now.clone()));
    status.qos_class = Some(input.shape.qos.name().to_owned());
    addresses(&input, &mut status);
    if input.admitted {
        container::publish(&input, old, &mut status);
    } else {
        (status.container_statuses, status.init_container_statuses) = (None, None);
        status.ephemeral_container_statuses = None;
    }
    let spec = input.pod.spec.as_ref();
    let mut projection =
        project(input.allocation, input.desired, input.generation(), input.actual, input.rules);
    if input.unconfirmed {
        projection.keep_in_progress(input.allocation, input.rules);
    }
    if let Some(spec) = spec {
        projection.publish(spec, &mut status, &now);
    }
    // The last probe time of a condition would only make every status differ from the one before.
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_probe_time = None;
    }
    conditions::publish(&input, old, &mut status);
    status
}

fn addresses(input: &StatusInput<'_>, status: &mut PodStatus) {
    let host = |ip: &IpAddr| ip.to_string();
    status.host_ip = input.host.first().map(host);
    status.host_ips =
        (!input.host.is_empty()).then(|| input.host.iter().map(|ip| HostIP { ip: host(ip) }).collect());
    let on_host = input.pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let Some(sandbox) = &input.observed.sandbox else { return };
    let ips = if on_host { input.host } else { &sandbox.ips };
    if !ips.is_empty() && (sandbox.ready || on_host) {
        status.pod_ip = ips.first().map(host);
        status.pod_ips = Some(ips.iter().map(|ip| PodIP { ip: host(ip) }).collect());
    }
}

/// Whether every init container has succeeded and every sidecar has started.
fn is_initialized(input: &StatusInput<'_>) -> bool {
    if input.observed.has_run(input.shape) {
        return true;
    }
    input.shape.containers.iter().enumerate().all(|(position, part)| {
        let observed = input.observed.containers.get(position).and_then(Option::as_ref);
        match part.role {
            Role::Main => true,
            Role::Init => observed.is_some_and(ObservedContainer::has_initialized),
            Role::Sidecar => {
                observed.is_some_and(ObservedContainer::has_started)
                    && input.health(position).startup == Startup::Over
            }
        }
    })
}
