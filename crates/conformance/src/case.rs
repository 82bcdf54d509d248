//! Cases, and their parts.

use crate::capability::Capability;
use crate::scale::{Scale, Scaled};
use crate::step::{Act, Expectation, Step};

/// A case: a pod, its environment, and the steps with their expected results.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name: lower case and dashes, also the name of its pod.
    pub name: &'static str,
    /// The rules of its namespace; a case with rules has a namespace of its own.
    pub rules: &'static [Rule],
    /// How much CPU of the node is free for its pods, in millicores; a filler pod requests the rest. Such a case runs
    /// alone on the node.
    pub free_cpu: Option<i64>,
    /// The pod's containers; no pod is created if empty.
    pub containers: &'static [Container],
    /// The steps, in order.
    pub steps: &'static [Step],
    /// The feature gates that must be off in the cluster; others are as they are by default.
    pub gates_off: &'static [&'static str],
    /// Whether the case is about in-place rollouts, and whether their feature gate is on.
    pub rollout: Option<Gate>,
    /// What Kubernetes has to be capable of; `plumb up` is capable of everything.
    pub needs: &'static [Capability],
}

/// A feature gate that is off by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It is on.
    On,
    /// It is off.
    Off,
}

impl Case {
    /// A case of a pod in any namespace, on a node with enough capacity.
    pub const fn new(name: &'static str, containers: &'static [Container], steps: &'static [Step]) -> Self {
        Self {
            name,
            rules: &[],
            free_cpu: None,
            containers,
            steps,
            gates_off: &[],
            rollout: None,
            needs: &[],
        }
    }

    /// A case of workloads that VPAs scale, in a namespace of its own.
    pub const fn scaled(name: &'static str, steps: &'static [Step]) -> Self {
        Self::new(name, &[], steps)
    }

    /// A case of workloads whose template changes, in a namespace of its own and on one node. The controllers of in-place
    /// rollouts run, with their feature gate on.
    pub const fn rollout(name: &'static str, steps: &'static [Step]) -> Self {
        Self { rollout: Some(Gate::On), ..Self::new(name, &[], steps) }
    }

    /// The same case, for clusters that are capable of this.
    #[must_use]
    pub const fn needing(self, needs: &'static [Capability]) -> Self {
        Self { needs, ..self }
    }

    /// Whether an autoscaler has to run in the cluster.
    pub fn needs_autoscaler(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.act, Act::Scale(act) if act.needs_autoscaler()))
    }

    /// Whether it is about workloads, and has a namespace of its own.
    pub(crate) fn has_workloads(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.act, Act::Scale(_) | Act::Roll(_)))
    }

    /// Whether it waits until the autoscaler has observed something.
    pub(crate) fn observes(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.act, Act::Scale(Scale::Observe)))
    }

    /// The largest CPU request of a pod that the case creates, in millicores: it needs a node with as much.
    pub(crate) fn largest_boost(&self) -> i64 {
        let cpu = |amounts: &Amounts| {
            let parsed = amounts.cpu_request.parse::<plumb_resize::Quantity>();
            parsed.map(plumb_resize::Quantity::saturating_milli).unwrap_or_default()
        };
        let created = |expectation: &Expectation| match expectation {
            Expectation::Scaled(Scaled::Created(to)) => to.iter().map(|(_, amounts)| cpu(amounts)).sum(),
            _ => 0,
        };
        let of_steps = self.steps.iter().flat_map(|step| [step.expect.kep, step.expect.v1_36]);
        of_steps.map(|expectation| created(&expectation)).max().unwrap_or_default()
    }

    /// Whether it observes a resize in progress, if the container runtime is slowed.
    pub fn shows_progress(&self) -> bool {
        let shows = |expectation: Expectation| {
            matches!(expectation, Expectation::InProgress | Expectation::Scaled(Scaled::InProgress { .. }))
        };
        self.steps.iter().any(|step| shows(step.expect.kep) || shows(step.expect.v1_36))
    }

    /// The name of a pod of the case: its own (`""`), or of another one that it creates.
    pub(crate) fn pod(&self, of: &str) -> String {
        if of.is_empty() { self.name.to_owned() } else { format!("{}-{of}", self.name) }
    }
}

/// A rule for the pods of a case.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// A `ResourceQuota` with this much CPU and memory.
    Quota {
        /// `hard.cpu`.
        cpu: &'static str,
        /// `hard.memory`.
        memory: &'static str,
    },
    /// A `LimitRange` for containers, with the minimum and maximum of CPU and memory.
    Range {
        /// `min.cpu` and `max.cpu`.
        cpu: (&'static str, &'static str),
        /// `min.memory` and `max.memory`.
        memory: (&'static str, &'static str),
    },
    /// A `RuntimeClass` whose overhead is this much CPU.
    Overhead {
        /// `overhead.podFixed.cpu`.
        cpu: &'static str,
    },
}

/// A container of a case's pod.
#[derive(Clone, Copy, Debug)]
pub struct Container {
    /// Its name.
    pub name: &'static str,
    /// The resources at its creation.
    pub amounts: Amounts,
    /// Its resize policy.
    pub policy: Policy,
}

impl Container {
    /// A container whose resize policy is `NotRequired` for both resources.
    pub const fn new(name: &'static str, amounts: Amounts) -> Self {
        Self { name, amounts, policy: Policy::RestartsOn(&[]) }
    }

    /// The same, with `RestartContainer` for these resources.
    #[must_use]
    pub const fn restarts_on(self, resources: &'static [&'static str]) -> Self {
        Self { policy: Policy::RestartsOn(resources), ..self }
    }
}

/// The resize policy of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// None.
    Unsaid,
    /// `RestartContainer` for these resources, `NotRequired` for the others.
    RestartsOn(&'static [&'static str]),
}

/// Requests and limits. Quantities have their canonical form, as every API server returns them, so that they compare
/// as text. An empty quantity is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// `requests.cpu`.
    pub cpu_request: &'static str,
    /// `limits.cpu`.
    pub cpu_limit: &'static str,
    /// `requests.memory`.
    pub memory_request: &'static str,
    /// `limits.memory`.
    pub memory_limit: &'static str,
}

impl Amounts {
    /// No requests and no limits.
    pub const NONE: Self = Self::new(("", ""), ("", ""));

    /// CPU as (request, limit), memory as (request, limit).
    pub const fn new(cpu: (&'static str, &'static str), memory: (&'static str, &'static str)) -> Self {
        Self { cpu_request: cpu.0, cpu_limit: cpu.1, memory_request: memory.0, memory_limit: memory.1 }
    }

    /// A CPU request only.
    pub const fn cpu(request: &'static str) -> Self {
        Self::new((request, ""), ("", ""))
    }

    /// Limits that equal the requests.
    pub const fn guaranteed(cpu: &'static str, memory: &'static str) -> Self {
        Self::new((cpu, cpu), (memory, memory))
    }

    /// Requests by resource name.
    pub(crate) fn requests(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        present([("cpu", self.cpu_request), ("memory", self.memory_request)])
    }

    /// Limits by resource name.
    pub(crate) fn limits(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        present([("cpu", self.cpu_limit), ("memory", self.memory_limit)])
    }
}

fn present<const N: usize>(
    amounts: [(&'static str, &'static str); N],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    amounts.into_iter().filter(|(_, amount)| !amount.is_empty())
}

/// The set of rules that decides where KEP and Kubernetes 1.36 differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// Kubernetes 1.36.
    #[default]
    #[value(name = "v1.36")]
    V1_36,
    /// KEP-1287.
    Kep,
}

impl Dialect {
    /// The name in flags and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1_36 => "v1.36",
            Self::Kep => "kep",
        }
    }
}
