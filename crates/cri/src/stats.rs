//! The usage of pods and containers, from their cgroups.

use std::fs;

use jiff::Timestamp;
use plumb_runtime::types::{
    Container, ContainerState, ContainerStats, InterfaceUsage, NamespaceMode, Sandbox, SandboxConfig,
    SandboxStats,
};
use plumb_runtime::{Error, Result};

use crate::State;
use crate::api;
use crate::convert;

/// A running container, and the annotations from which its cgroup is known.
pub(crate) struct Running {
    pub(crate) container: Container,
    pub(crate) annotations: api::Map,
}

impl Running {
    /// Converts a container of a list; `None` if it is not running.
    pub(crate) fn from_listed(listed: api::Container) -> Option<Self> {
        let annotations = listed.annotations.clone();
        let container = convert::container(listed);
        (container.state == ContainerState::Running).then_some(Self { container, annotations })
    }
}

impl State {
    /// The usage of a container.
    pub(crate) fn stats_of(&self, running: &Running) -> Result<ContainerStats> {
        let Running { container, annotations } = running;
        let group = self.cgroups.container(container.id.as_str(), annotations).ok_or_else(|| {
            Error::FailedPrecondition(format!("container {} has no cgroup that is known", container.id))
        })?;
        let usage = group.usage()?;
        let at = Timestamp::now();
        Ok(ContainerStats {
            id: container.id.clone(),
            sandbox: container.sandbox.clone(),
            meta: container.meta.clone(),
            labels: container.labels.clone(),
            created_at: container.created_at,
            cpu: usage.of_cpu(at),
            memory: usage.of_memory(at),
            tasks: usage.tasks,
            writable_layer: None,
        })
    }

    /// The usage of a pod and of its running containers.
    pub(crate) fn pod_stats_of(
        &self,
        sandbox: Sandbox,
        config: &SandboxConfig,
        containers: &[Running],
    ) -> Result<SandboxStats> {
        let group = self.cgroups.pod(config.class, &config.meta.uid);
        let usage = group.usage()?;
        let at = Timestamp::now();
        let mut network = Vec::new();
        if config.namespaces.network != NamespaceMode::Node {
            // The process of the sandbox is in the pod's network namespace.
            let own = self.cgroups.in_pod(&group, sandbox.id.as_str());
            let first = own.map(|own| own.processes()).transpose()?.and_then(|all| all.first().copied());
            let counters = first.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/net/dev")).ok());
            network.extend(counters.as_deref().and_then(interface));
        }
        Ok(SandboxStats {
            // A container that has exited meanwhile has no cgroup.
            containers: containers.iter().filter_map(|running| self.stats_of(running).ok()).collect(),
            id: sandbox.id,
            meta: sandbox.meta,
            labels: sandbox.labels,
            cpu: usage.of_cpu(at),
            memory: usage.of_memory(at),
            tasks: usage.tasks,
            network,
        })
    }
}

/// Parses the traffic of `eth0` in `/proc/PID/net/dev`: eight numbers about received packets, and eight about sent ones.
fn interface(text: &str) -> Option<InterfaceUsage> {
    const NAME: &str = "eth0";
    let line = text.lines().find_map(|line| line.trim().strip_prefix(NAME)?.strip_prefix(':'))?;
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    Some(InterfaceUsage {
        name: NAME.to_owned(),
        rx_bytes: *numbers.first()?,
        rx_errors: *numbers.get(2)?,
        tx_bytes: *numbers.get(8)?,
        tx_errors: *numbers.get(10)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_that_of_eth0() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:       9       1    0    0    0     0          0         0        9       1    0    0    0     0       0          0\n  \
            eth0:    1200      10    1    0    0     0          0         0     3400      20    2    0    0     0       0          0\n";
        let found = interface(text).unwrap();
        assert_eq!((found.rx_bytes, found.rx_errors, found.tx_bytes, found.tx_errors), (1200, 1, 3400, 2));
        assert_eq!(interface("lo: 1 2 3"), None);
    }
}
