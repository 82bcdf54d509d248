//! The plan: steps from the actual to the allocated resources.
//!
//! The order of the steps preserves one invariant at every instant: the limits of a pod's containers never add up to
//! more than the pod's own. So the pod's cgroup is raised first and lowered last, container decreases come before
//! increases, and each step is independent: actuation stops at the first failure and plans again from the actual state.
//!
//! ```text
//!   raise pod ▸ container decreases ▸ stop, start (restarts) ▸ container increases ▸ lower pod
//! ```
//!
//! Every step has absolute values, so it is idempotent. Both resources of a container change in one step if they change
//! in the same direction.

mod check;

pub use check::{Violation, check, check_prefixes, start_is_safe, start_waits, start_with};

use crate::aggregate::Role;
use crate::pod::{PodCgroup, PodResources, PodShape, positive};
use crate::resource::{Declared, Requirements, Resource};

/// The state of a pod's cgroups: the last applied resources of each running container and of the pod's own cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CgroupState {
    /// Per container in the order of the shape; `None` for one that is not running.
    pub containers: Vec<Option<Requirements>>,
    /// The pod's own cgroup.
    pub pod: PodCgroup,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Set the pod's cgroup.
    Pod(PodCgroup),
    /// Set the resources of a running container.
    Update {
        /// Its position in the shape.
        container: usize,
        /// The resources to apply, CPU and memory.
        to: Requirements,
    },
    /// Stop a container whose resize policy requires a restart.
    Stop {
        /// Its position in the shape.
        container: usize,
    },
    /// Start a container that was stopped, with its new resources.
    Start {
        /// Its position in the shape.
        container: usize,
        /// The resources at its start.
        to: Requirements,
    },
}

impl CgroupState {
    /// A pod whose containers run with these resources; its plain init containers have exited.
    pub fn running(shape: &PodShape, resources: &PodResources) -> Self {
        let gone = shape.containers.iter().map(|container| container.role == Role::Init);
        let containers = inherited(resources).zip(gone).map(|(size, gone)| (!gone).then_some(size)).collect();
        Self { containers, pod: shape.cgroup(resources) }
    }

    /// The actual requests and limits, given the allocated ones.
    ///
    /// A container that does not run has its allocated resources. A limit that it inherits from its pod is shown at pod
    /// level only, and so are the pod-level resources of the pod's cgroup; memory requests are in no cgroup.
    pub fn resources(&self, shape: &PodShape, allocated: &PodResources) -> PodResources {
        let level = allocated.pod.map_or(Declared::NONE, |pod| pod.limits);
        let containers = allocated.containers.iter().enumerate().map(|(i, allocated)| {
            let Some(running) = self.containers.get(i).copied().flatten() else { return *allocated };
            let inherits =
                |r: Resource| positive(allocated.limits[r]).is_none() && positive(level[r]).is_some();
            let limits = Declared::of(|r| if inherits(r) { allocated.limits[r] } else { running.limits[r] });
            Requirements { requests: running.requests, limits }
        });
        let containers = containers.collect();
        PodResources { containers, pod: allocated.pod.map(|pod| self.pod_level(shape, pod)) }
    }

    fn pod_level(&self, shape: &PodShape, allocated: Requirements) -> Requirements {
        let own = |r: Resource, held: i64| held.saturating_sub(shape.overhead[r].unwrap_or(0));
        let mut requests = allocated.requests;
        requests.cpu = requests.cpu.map(|_| own(Resource::Cpu, self.pod.cpu_request));
        let limit = |r: Resource| match positive(allocated.limits[r]) {
            Some(_) => self.pod.limits[r].map(|limit| own(r, limit)),
            None => allocated.limits[r],
        };
        Requirements { requests, limits: Declared::of(limit) }
    }

    /// Applies a step.
    pub fn apply(&mut self, step: &Step) {
        match *step {
            Step::Pod(cgroup) => self.pod = cgroup,
            Step::Stop { container } => self.set(container, None),
            Step::Update { container, to } | Step::Start { container, to } => self.set(container, Some(to)),
        }
    }

    fn set(&mut self, container: usize, resources: Option<Requirements>) {
        if let Some(slot) = self.containers.get_mut(container) {
            *slot = resources;
        }
    }
}

/// The steps from the state of the cgroups to `target`. Empty if they are equal.
///
/// A container that is not running has no steps: it starts with its allocated resources. A partial plan is undone by
/// planning back to the resources before.
///
/// ```
/// use plumb_resize::plan::{CgroupState, Step, plan};
/// use plumb_resize::pod::{ContainerShape, PodResources, PodShape};
/// use plumb_resize::aggregate::Role;
/// use plumb_resize::qos::QosClass;
/// use plumb_resize::resource::{Declared, PerResource, Requirements};
///
/// let container = |name: &str| ContainerShape {
///     name: name.to_owned(), role: Role::Main, policy: PerResource::default(),
/// };
/// let shape = PodShape {
///     containers: vec![container("a"), container("b")], overhead: Declared::NONE, qos: QosClass::Guaranteed,
/// };
/// let pod = |a, b| PodResources {
///     containers: vec![Requirements::equal(a, 64), Requirements::equal(b, 64)], pod: None,
/// };
/// // `a` grows by what `b` gives up: the pod's cgroup is left alone, and `b` goes first.
/// let steps = plan(&shape, &CgroupState::running(&shape, &pod(100, 200)), &pod(200, 100));
/// assert_eq!(steps, [
///     Step::Update { container: 1, to: Requirements::equal(100, 64) },
///     Step::Update { container: 0, to: Requirements::equal(200, 64) },
/// ]);
/// ```
pub fn plan(shape: &PodShape, now: &CgroupState, target: &PodResources) -> Vec<Step> {
    let goal = shape.cgroup(target);
    let raised = larger(now.pod, goal);
    let mut decreases = Vec::new();
    let mut restarts = Vec::new();
    let mut increases = Vec::new();
    for (container, (current, to)) in now.containers.iter().zip(inherited(target)).enumerate() {
        let Some(from) = *current else { continue };
        if from == to {
            continue;
        }
        if shape.containers.get(container).is_some_and(|shape| shape.restarts_for(from, to).is_some()) {
            restarts.push((container, to));
            continue;
        }
        let lowered = lowered(from, to);
        if lowered != from {
            decreases.push(Step::Update { container, to: lowered });
        }
        if lowered != to {
            increases.push(Step::Update { container, to });
        }
    }
    let mut steps = Vec::new();
    if raised != now.pod {
        steps.push(Step::Pod(raised));
    }
    steps.extend(decreases);
    // All are stopped before the first is started, for one may grow by what another frees. No step that can fail
    // comes in between, so a container that was stopped is started again at once.
    steps.extend(restarts.iter().map(|(container, _)| Step::Stop { container: *container }));
    steps.extend(restarts.iter().map(|(container, to)| Step::Start { container: *container, to: *to }));
    steps.extend(increases);
    if goal != raised {
        steps.push(Step::Pod(goal));
    }
    steps
}

/// The resources of each container as its cgroup gets them, so also those it starts with: a limit that the
/// container does not declare is inherited from the pod. Zero declares none.
pub fn inherited(resources: &PodResources) -> impl Iterator<Item = Requirements> {
    let pod = resources.pod.map_or(Declared::NONE, |pod| pod.limits);
    resources.containers.iter().map(move |container| Requirements {
        requests: container.requests,
        limits: Declared::of(|r| {
            let own = container.limits[r];
            positive(own).or(positive(pod[r])).or(own)
        }),
    })
}

/// `from` with the resources that go down already at where they go.
fn lowered(from: Requirements, to: Requirements) -> Requirements {
    let down = Resource::ALL.into_iter().filter(|resource| goes_down(from.of(*resource), to.of(*resource)));
    down.fold(from, |lowered, resource| lowered.with(resource, to))
}

/// The limit decides in which direction a resource changes; the request decides if the limit does not change.
fn goes_down((old_request, old_limit): (Option<i64>, Option<i64>), new: (Option<i64>, Option<i64>)) -> bool {
    let (new_request, new_limit) = new;
    if old_limit == new_limit { new_request < old_request } else { bound(new_limit) < bound(old_limit) }
}

/// A limit as a number that can be compared: none is infinite.
pub(crate) fn bound(limit: Option<i64>) -> i64 {
    positive(limit).unwrap_or(i64::MAX)
}

/// The cgroup that holds whatever either holds.
fn larger(a: PodCgroup, b: PodCgroup) -> PodCgroup {
    let limit =
        |r: Resource| if bound(a.limits[r]) >= bound(b.limits[r]) { a.limits[r] } else { b.limits[r] };
    PodCgroup { cpu_request: a.cpu_request.max(b.cpu_request), limits: Declared::of(limit) }
}
