//! What a case is made of.

use crate::scale::{Scale, Scaled};
use crate::step::{Act, Expectation, Step};

/// A case: a pod, what is around it, and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name: lower case and dashes, also the name of its pod.
    pub name: &'static str,
    /// What rules its pods are under; with any it has a namespace of its own.
    pub rules: &'static [Rule],
    /// How much cpu of the node is left to its pods, in thousandths of a core: the rest is filled up. Such a case has
    /// the node to itself.
    pub free_cpu: Option<i64>,
    /// The pod's containers; none is no pod.
    pub containers: &'static [Container],
    /// What happens to it, in order.
    pub steps: &'static [Step],
    /// The feature gates that must be off in the cluster; others are as they are by default.
    pub gates_off: &'static [&'static str],
    /// Whether it is about in-place rollouts, and then whether their feature gate is on.
    pub rollout: Option<Gate>,
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
        Self { name, rules: &[], free_cpu: None, containers, steps, gates_off: &[], rollout: None }
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

    /// The most cpu that one of its pods is created with, in thousandths of a core: none runs on a node with less.
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

    /// Whether a resize that is in progress is seen in it where the container runtime is slow.
    pub fn shows_progress(&self) -> bool {
        let shows = |expectation: Expectation| {
            matches!(expectation, Expectation::Underway | Expectation::Scaled(Scaled::InProgress { .. }))
        };
        self.steps.iter().any(|step| shows(step.expect.kep) || shows(step.expect.v1_36))
    }

    /// The name of a pod of the case: its own (`""`), or another that joined it.
    pub(crate) fn pod(&self, of: &str) -> String {
        if of.is_empty() { self.name.to_owned() } else { format!("{}-{of}", self.name) }
    }
}

/// What the pods of a case are under.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// A `ResourceQuota` of this much cpu and memory.
    Quota {
        /// `hard.cpu`.
        cpu: &'static str,
        /// `hard.memory`.
        memory: &'static str,
    },
    /// A `LimitRange` for containers, with the least and the most of cpu and of memory.
    Range {
        /// `min.cpu` and `max.cpu`.
        cpu: (&'static str, &'static str),
        /// `min.memory` and `max.memory`.
        memory: (&'static str, &'static str),
    },
    /// A `RuntimeClass` whose pods cost this much cpu more.
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
    /// What it starts with.
    pub amounts: Amounts,
    /// What it says of restarts.
    pub policy: Policy,
}

impl Container {
    /// A container that says of both resources that their change need not restart it.
    pub const fn new(name: &'static str, amounts: Amounts) -> Self {
        Self { name, amounts, policy: Policy::RestartsOn(&[]) }
    }

    /// The same, with the resources whose change restarts it.
    #[must_use]
    pub const fn restarts_on(self, resources: &'static [&'static str]) -> Self {
        Self { policy: Policy::RestartsOn(resources), ..self }
    }
}

/// What a container says of restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Nothing.
    Unsaid,
    /// A change of these restarts it, of others not.
    RestartsOn(&'static [&'static str]),
}

/// Requests and limits. Quantities are written canonically, as every API prints them, so that they compare as text.
/// An empty one is absent.
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
    /// Nothing.
    pub const NONE: Self = Self::new(("", ""), ("", ""));

    /// CPU as (request, limit), memory as (request, limit).
    pub const fn new(cpu: (&'static str, &'static str), memory: (&'static str, &'static str)) -> Self {
        Self { cpu_request: cpu.0, cpu_limit: cpu.1, memory_request: memory.0, memory_limit: memory.1 }
    }

    /// A request of cpu and nothing else.
    pub const fn cpu(request: &'static str) -> Self {
        Self::new((request, ""), ("", ""))
    }

    /// Limits that are the requests.
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

/// Whose rules bind where the sources differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// Kubernetes 1.36.
    #[default]
    #[value(name = "v1.36")]
    V1_36,
    /// The enhancement proposal.
    Kep,
}

impl Dialect {
    /// How flags and files spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1_36 => "v1.36",
            Self::Kep => "kep",
        }
    }
}
