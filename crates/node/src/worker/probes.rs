//! The probes of the pod's containers.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerStatus};
use plumb_resize::aggregate::Role;
use plumb_runtime::types::ContainerId;

use super::Worker;
use crate::cri_config::{identity, on_host_network};
use crate::events::Kind;
use crate::lifecycle::{Health, ObservedContainer, Startup, State, containers};
use crate::metrics;
use crate::probe::{ProbeReport, ProbeUpdate, Prober, Target, initial_health};

/// A container that is probed while it runs.
#[derive(Default)]
pub(super) struct ProbedContainer {
    id: Option<ContainerId>,
    health: Health,
    _probes: Option<Prober>,
}

impl Worker {
    /// The results of the probes, by position.
    pub(super) fn health(&self) -> Vec<Health> {
        self.probed.iter().map(|probed| probed.health).collect()
    }

    /// Starts the probes of containers that have started, and stops those of containers that have exited.
    pub(super) fn update_probes(&mut self) {
        let pod = self.pod.clone();
        let Some(spec) = &pod.spec else { return };
        for (position, container) in containers(spec).enumerate() {
            let observed = self.observation.observed.containers.get(position).and_then(Option::as_ref);
            let observed = observed.filter(|observed| observed.has_started());
            let before = self.probed.get(position).and_then(|probed| probed.id.as_ref());
            if observed.map(|observed| &observed.id) == before {
                continue;
            }
            let probed =
                observed.map(|observed| self.begin(position, container, observed)).unwrap_or_default();
            if let Some(slot) = self.probed.get_mut(position) {
                *slot = probed;
            }
        }
    }

    fn begin(&self, position: usize, container: &Container, observed: &ObservedContainer) -> ProbedContainer {
        let health =
            self.reported_health(position, &observed.id).unwrap_or_else(|| initial_health(container));
        let target = self.target(container, observed.id.clone(), self.age(observed));
        let probes = Prober::start(target, health, self.sender.clone(), &self.node.supervisor);
        ProbedContainer { id: Some(observed.id.clone()), health, _probes: probes }
    }

    /// A container as the target of probes and hooks.
    pub(super) fn target(&self, container: &Container, id: ContainerId, running_for: Duration) -> Target {
        Target {
            runtime: self.node.runtime.clone(),
            id,
            container: container.clone(),
            pod_ip: self.addresses().first().copied(),
            on_host_network: self.pod.spec.as_ref().is_some_and(on_host_network),
            reachable: self.node.reachable,
            running_for,
        }
    }

    /// For how long a container has run.
    fn age(&self, observed: &ObservedContainer) -> Duration {
        match observed.state {
            State::Running { since } => {
                Duration::try_from((self.node.clock)().duration_since(since)).unwrap_or(Duration::ZERO)
            }
            _ => Duration::ZERO,
        }
    }

    /// The health in the status of a container that was running before this agent was started.
    fn reported_health(&self, position: usize, id: &ContainerId) -> Option<Health> {
        let status = self.pod.status.as_ref()?;
        let part = self.info.shape.containers.get(position)?;
        let statuses = match part.role {
            Role::Main => &status.container_statuses,
            Role::Init | Role::Sidecar => &status.init_container_statuses,
        };
        let is_it = |status: &&ContainerStatus| {
            status.name == part.name
                && status.container_id.as_deref().and_then(|id| id.split_once("://")).map(|(_, id)| id)
                    == Some(id.as_str())
        };
        let status = statuses.iter().flatten().find(is_it)?;
        status.state.as_ref().and_then(|state| state.running.as_ref())?;
        let startup = if status.started == Some(true) { Startup::Over } else { Startup::UnderWay };
        Some(Health { startup, live: true, ready: status.ready })
    }

    /// Handles a report of a container's probes.
    pub(super) fn handle_probed(&mut self, report: ProbeReport) {
        let of = |probed: &ProbedContainer| probed.id.as_ref() == Some(&report.id);
        let Some(position) = self.probed.iter().position(of) else { return };
        match report.update {
            ProbeUpdate::Health(health) => {
                if let Some(probed) = self.probed.get_mut(position) {
                    probed.health = health;
                }
            }
            ProbeUpdate::Event { reason, message } => {
                let name = self.name_of(position).to_owned();
                self.node.events.container(&self.pod, &name, Kind::Warning, reason, message);
            }
            ProbeUpdate::Checked { kind, result } => {
                let (namespace, pod, uid) = identity(&self.pod);
                let container = metrics::ProbedContainer {
                    uid: uid.to_owned(),
                    namespace: namespace.to_owned(),
                    pod: pod.to_owned(),
                    container: self.name_of(position).to_owned(),
                };
                self.node.metrics.probed(container, kind, result);
            }
        }
    }

    /// Emits an event for an OOM kill in a container.
    pub(super) fn emit_oom(&mut self, id: &ContainerId) {
        let position = self
            .observation
            .observed
            .containers
            .iter()
            .position(|observed| observed.as_ref().is_some_and(|observed| observed.id == *id));
        let Some(position) = position else { return };
        let name = self.name_of(position).to_owned();
        let exhausted = self.exhausted(id).unwrap_or_default();
        let message =
            format!("A process of container {name} was killed because it ran out of memory{exhausted}");
        self.node.events.container(&self.pod, &name, Kind::Warning, "OOMKilling", message);
    }
}
