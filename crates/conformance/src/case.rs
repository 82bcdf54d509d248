//! What a case is made of.

/// A case: a pod, and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name: lower case and dashes, also the name of its pod.
    pub name: &'static str,
    /// The pod's containers.
    pub containers: &'static [Container],
    /// What happens to it, in order.
    pub steps: &'static [Step],
}

/// A container of a case's pod.
#[derive(Clone, Copy, Debug)]
pub struct Container {
    /// Its name.
    pub name: &'static str,
    /// What it starts with.
    pub amounts: Amounts,
    /// The resources whose change restarts it.
    pub restarts_on: &'static [&'static str],
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
    /// CPU as (request, limit), memory as (request, limit).
    pub const fn new(cpu: (&'static str, &'static str), memory: (&'static str, &'static str)) -> Self {
        Self { cpu_request: cpu.0, cpu_limit: cpu.1, memory_request: memory.0, memory_limit: memory.1 }
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

/// One resize, and what must come of it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Where it is asked.
    pub door: Door,
    /// The containers it changes, and to what.
    pub resize: &'static [(&'static str, Amounts)],
    /// What must come of it.
    pub expect: Expect,
}

/// Where a resize is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The pod's `resize` subresource.
    Resize,
    /// The pod itself.
    Pod,
}

/// What must come of a step, by dialect.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// As Kubernetes 1.36 does.
    pub v1_36: Expectation,
    /// As the enhancement proposal says.
    pub kep: Expectation,
}

impl Expect {
    /// The same in both.
    pub const fn both(expectation: Expectation) -> Self {
        Self { v1_36: expectation, kep: expectation }
    }

    /// The one that binds.
    pub(crate) fn under(&self, dialect: Dialect) -> &Expectation {
        match dialect {
            Dialect::V1_36 => &self.v1_36,
            Dialect::Kep => &self.kep,
        }
    }
}

/// What must come of a step.
#[derive(Clone, Copy, Debug)]
pub enum Expectation {
    /// Every container runs with what its spec says, and each has been restarted this often since it was created.
    Applied {
        /// By container; those not named: never.
        restarts: &'static [(&'static str, i32)],
    },
    /// The request is accepted, and nobody waits for what comes of it.
    Overtaken,
    /// The request is refused, and the pod stays as it is.
    Refused(Refusal),
    /// The request is accepted, and the node says in `PodResizePending` that it won't take it.
    Pending {
        /// The condition's reason.
        reason: &'static str,
    },
}

/// How a request is refused.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// What the message says, among other things.
    pub message: &'static str,
    /// A cause that must be among the details.
    pub cause: Option<&'static str>,
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
