//! How the pod's containers are, by their probes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerStatus};
use plumb_resize::aggregate::Role;
use plumb_runtime::types::ContainerId;

use super::Worker;
use crate::events::Kind;
use crate::lifecycle::{ContainerSeen, Health, Startup, State, containers};
use crate::probe::{Prober, Report, Target, Told, at_first};

/// A container that is watched over while it runs.
#[derive(Default)]
pub(super) struct Watched {
    id: Option<ContainerId>,
    health: Health,
    _probes: Option<Prober>,
}

impl Worker {
    /// What the probes say, by position.
    pub(super) fn health(&self) -> Vec<Health> {
        self.watched.iter().map(|watched| watched.health).collect()
    }

    /// Begins to probe what has begun to run, and ends with what has ended.
    pub(super) fn watch_over(&mut self) {
        let pod = self.pod.clone();
        let Some(spec) = &pod.spec else { return };
        for (position, container) in containers(spec).enumerate() {
            let seen = self.looked.seen.containers.get(position).and_then(Option::as_ref);
            let seen = seen.filter(|seen| seen.runs());
            let before = self.watched.get(position).and_then(|watched| watched.id.as_ref());
            if seen.map(|seen| &seen.id) == before {
                continue;
            }
            let watched = seen.map(|seen| self.begin(position, container, seen)).unwrap_or_default();
            if let Some(slot) = self.watched.get_mut(position) {
                *slot = watched;
            }
        }
    }

    fn begin(&self, position: usize, container: &Container, seen: &ContainerSeen) -> Watched {
        let health = self.told_health(position, &seen.id).unwrap_or_else(|| at_first(container));
        let target = self.target(container, seen.id.clone(), self.age(seen));
        let probes = Prober::begin(target, health, self.tell.clone(), &self.node.supervisor);
        Watched { id: Some(seen.id.clone()), health, _probes: probes }
    }

    /// A container as it is reached by probes and hooks.
    pub(super) fn target(&self, container: &Container, id: ContainerId, running_for: Duration) -> Target {
        Target {
            runtime: self.node.runtime.clone(),
            id,
            container: container.clone(),
            pod_ip: self.addresses().first().copied(),
            reachable: self.node.reachable,
            running_for,
        }
    }

    /// For how long a container has run.
    fn age(&self, seen: &ContainerSeen) -> Duration {
        match seen.state {
            State::Running { since } => {
                Duration::try_from((self.node.clock)().duration_since(since)).unwrap_or(Duration::ZERO)
            }
            _ => Duration::ZERO,
        }
    }

    /// What the API was told of a container that ran already when this agent was started.
    fn told_health(&self, position: usize, id: &ContainerId) -> Option<Health> {
        let status = self.pod.status.as_ref()?;
        let part = self.info.shape.containers.get(position)?;
        let statuses = match part.role {
            Role::Main => &status.container_statuses,
            Role::Init | Role::Sidecar => &status.init_container_statuses,
        };
        let is_it = |told: &&ContainerStatus| {
            told.name == part.name
                && told.container_id.as_deref().and_then(|id| id.split_once("://")).map(|(_, id)| id)
                    == Some(id.as_str())
        };
        let told = statuses.iter().flatten().find(is_it)?;
        told.state.as_ref().and_then(|state| state.running.as_ref())?;
        let startup = if told.started == Some(true) { Startup::Over } else { Startup::UnderWay };
        Some(Health { startup, live: true, ready: told.ready })
    }

    /// Takes what the probes of a container say.
    pub(super) fn take_probed(&mut self, report: Report) {
        let of = |watched: &Watched| watched.id.as_ref() == Some(&report.id);
        let Some(position) = self.watched.iter().position(of) else { return };
        match report.told {
            Told::Health(health) => {
                if let Some(watched) = self.watched.get_mut(position) {
                    watched.health = health;
                }
            }
            Told::Event { reason, message } => {
                let name = self.name_of(position).to_owned();
                self.node.events.container(&self.pod, &name, Kind::Warning, reason, message);
            }
            Told::Checked { kind, result } => self.node.metrics.probed(kind, result),
        }
    }

    /// Says that something in a container was killed for want of memory.
    pub(super) fn tell_out_of_memory(&self, id: &ContainerId) {
        let position = self
            .looked
            .seen
            .containers
            .iter()
            .position(|seen| seen.as_ref().is_some_and(|seen| seen.id == *id));
        let Some(position) = position else { return };
        let name = self.name_of(position).to_owned();
        let message = format!("A process of container {name} was killed because it ran out of memory");
        self.node.events.container(&self.pod, &name, Kind::Warning, "OOMKilling", message);
    }
}
